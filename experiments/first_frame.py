"""Ways to the simulation's first picture: agreement with the simulator's mask, and what each does to the prediction.

    python experiments/first_frame.py agreement PAIRS...
    python experiments/first_frame.py prediction RUN [--data PAIRS] [--robot-path PATH] [--sheet sheet.png]
    python experiments/first_frame.py obedience RUN COUNTERFACTUAL_PAIRS

Agreement: colours are learnt as `simforcing calibrate` does, per camera, under the stored masks of two of three frames;
they are tried on the frames between, and on episodes of the same camera that were not learnt from. Prediction: the
first window of every held-out episode, from the stored simulation, a clean rendering, and the photo's robot cut out.
Obedience: the cost of swapped actions between true branches of one start, in the moving region.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from simforcing.data.clips import Clips
from simforcing.data.counterfactuals import counterfactual_groups
from simforcing.data.open import open_dataset
from simforcing.data.pair_streams import REAL, SIM
from simforcing.data.resize import resize_nearest
from simforcing.data.windows import MASK_LEVEL
from simforcing.evaluation.following import CounterfactualGroup, cost_of_swapped_actions
from simforcing.evaluation.intervals import bootstrap_mean
from simforcing.evaluation.protocols import protocol_named, score_clip
from simforcing.evaluation.silhouette import overlap, silhouette
from simforcing.generation.segment import AppearanceSegmenter, Segmenter
from simforcing.generation.sim_start import Filmed, Measured, SimulatorMask, with_simulation
from simforcing.generation.start import Start, clip_from
from simforcing.models.bundle import Bundle
from simforcing.recipes.prediction import PredictionOptions, Ready, ready_to_predict
from simforcing.sim.appearance import learn_appearance, recognise
from simforcing.types import Clip, Episode, EpisodeSet
from simforcing.types.calibration import Appearance

MAX_FRAMES = 160  # of a camera, to learn from
BATCH = 8
BACKGROUND = "grey"  # of all sets that were measured, for runs that do not record it
SHOWN = 4
LEVEL = 16  # grey levels that tell a simulated robot from its background


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("agreement").add_argument("pairs", nargs="+")
    prediction = commands.add_parser("prediction")
    prediction.add_argument("run", type=Path)
    prediction.add_argument("--data")
    prediction.add_argument("--robot-path", type=Path)
    prediction.add_argument("--sheet", type=Path)
    prediction.add_argument("--guidance", type=float, help="w; default: the run's own")
    obedience = commands.add_parser("obedience")
    obedience.add_argument("run", type=Path)
    obedience.add_argument("counterfactuals")
    options = parser.parse_args()
    if options.command == "agreement":
        for source in options.pairs:
            print(f"{source}: {agreement(open_dataset(source))}")
        return
    if options.command == "obedience":
        swap(ready_to_predict(options.run, PredictionOptions(), print), open_dataset(options.counterfactuals))
        return
    ready = ready_to_predict(options.run, PredictionOptions(data=options.data), print)
    if options.guidance is not None:
        ready = replace(ready, predictor=ready.predictor.using(sim_guidance=options.guidance))
    predict(ready, options)


def agreement(data: EpisodeSet) -> str:
    """Mean IoU over frames that were not learnt from, and over episodes that were not."""
    cameras: dict[object, list[Episode]] = {}
    for episode in data.episodes:
        cameras.setdefault(episode.view(SIM).camera, []).append(episode)
    between: list[float] = []
    others: list[float] = []
    clusters: list[str] = []
    for episodes in cameras.values():
        known = learnt(episodes)
        for episode in episodes[:48]:
            frames, masks = frames_of(episode, np.arange(2, episode.num_frames, 3))
            found = [iou(recognise(known, frame), mask) for frame, mask in zip(frames, masks, strict=True)]
            between.append(float(np.mean(found)))
            clusters.append(episode.name)
        if len(episodes) > 1:
            half = learnt(episodes[::2])
            for episode in episodes[1::2][:48]:
                (frame,), (mask,) = frames_of(episode, np.array([0]))
                others.append(iou(recognise(half, frame), mask))
    lines = f"{len(cameras)} cameras; other frames: IoU {bootstrap_mean(np.array(between), clusters)}"
    if others:
        of_others = bootstrap_mean(np.array(others), [str(i) for i in range(len(others))])
        lines += f"; first frames of other episodes ({len(others)}): IoU {of_others}"
    return lines


def learnt(episodes: list[Episode]) -> Appearance:
    """Colours and places under the masks of two of three frames of these episodes."""
    keys = [(e, i) for e in episodes for i in range(e.num_frames) if i % 3 != 2]
    chosen = [keys[i] for i in np.unique(np.linspace(0, len(keys) - 1, min(len(keys), MAX_FRAMES)).round().astype(int))]
    read = [frames_of(episode, np.array([i])) for episode, i in chosen]
    return learn_appearance(np.concatenate([f for f, _ in read]), np.concatenate([m for _, m in read]))


def frames_of(episode: Episode, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Real frames and the simulator's masks."""
    masks = episode.view(SIM).masks
    assert masks is not None
    real = episode.view(REAL).frames
    frames = np.concatenate([real.read(i, i + 1) for i in rows.tolist()])
    return frames, np.concatenate([masks.read(i, i + 1) for i in rows.tolist()])[..., 0] > MASK_LEVEL


def iou(found: np.ndarray, true: np.ndarray) -> float:
    """Of two masks."""
    return float((found & true).sum() / max(1, (found | true).sum()))


def predict(ready: Ready, options: argparse.Namespace) -> None:
    """Print moving-region PSNR by way; draw what the model was given and what came of it."""
    spec, bundle, data = ready.spec, ready.bundle, ready.data
    clips = [clip for clip in Clips(list(ready.held_out), spec, stride=spec.num_frames - 1) if clip.start == 0]
    by_name = {episode.name: episode for episode in data.episodes}
    training = [episode for episode in data.episodes if episode.name not in {one.name for one in ready.held_out}]
    scene = Scene(bundle=bundle, data=data, robot_path=options.robot_path, appearance=learnt(training))
    protocol, names = protocol_named("predicted-frames"), [clip.episode for clip in clips]
    given: dict[str, list[Clip]] = {"stored simulation": clips}
    for way, make in scene.ways().items():
        given[way] = [replaced(clip, make(by_name[clip.episode]), scene) for clip in clips]
    reference, videos = np.zeros(0), {}
    for way, asked in given.items():
        videos[way] = [v for at in range(0, len(asked), BATCH) for v in predicted(ready, asked, at)]
        scores = [
            score_clip(clip.frames[0], video, protocol).mean("moving_psnr")
            for clip, video in zip(clips, videos[way], strict=True)
        ]
        values = np.array(scores)
        reference = values if way == "stored simulation" else reference
        line = f"{way}: {bootstrap_mean(values, names)} dB, against the first row"
        line += f" {bootstrap_mean(values - reference, names)} dB"
        print(f"{line}; simulated robot: IoU {bootstrap_mean(rollout_iou(ready, asked, by_name), names)}")
    if options.sheet is not None:
        draw(options.sheet, clips, given, videos)


def swap(ready: Ready, branches: EpisodeSet) -> None:
    """Print the cost of swapped actions by way, in dB of the moving region."""
    spec, groups, by_name = ready.spec, {}, {episode.name: episode for episode in branches.episodes}
    for start, episodes in counterfactual_groups(branches).items():
        groups[start] = tuple(Clips([episode], spec, stride=1)[0] for episode in episodes)
    training = [episode for episode in ready.data.episodes if episode.name in ready.bundle.about["training"]]
    scene = Scene(bundle=ready.bundle, data=branches, robot_path=None, appearance=learnt(training))
    ways: dict[str, Callable[[Clip], Clip]] = {"stored simulation": lambda clip: clip}
    for way, make in scene.ways().items():
        ways[way] = lambda clip, make=make: replaced(clip, make(by_name[clip.episode]), scene)
    for way, change in ways.items():
        asked = [
            CounterfactualGroup(start=start, clips=tuple(change(clip) for clip in clips))
            for start, clips in groups.items()
        ]
        how = {"num_views": len(spec.views)}
        found = cost_of_swapped_actions(asked, ready.predictor.predict, protocol_named("predicted-frames"), **how)
        print(f"{way}: swapped actions cost {found.cost(moving=True)} dB")


def rollout_iou(ready: Ready, clips: list[Clip], by_name: dict[str, Episode]) -> np.ndarray:
    """Of each clip's self-made simulation after the given frame, with the simulator's masks."""
    videos = [
        video
        for at in range(0, len(clips), BATCH)
        for video in ready.predictor.predict_sim(clips[at : at + BATCH], list(range(at, min(at + BATCH, len(clips)))))
    ]
    means = []
    for clip, video in zip(clips, videos, strict=True):
        _, masks = frames_of(by_name[clip.episode], np.arange(1, len(video)))
        true = resize_nearest(masks, ready.spec.resize)
        found = silhouette(video[1:], np.full(video.shape[1:], 128, np.uint8), LEVEL)
        means.append(float(np.nanmean(overlap(found, true))))
    return np.array(means)


def predicted(ready: Ready, clips: list[Clip], at: int) -> list[np.ndarray]:
    """One batch, always of the same seeds."""
    batch = clips[at : at + BATCH]
    return ready.predictor.predict(batch, list(range(at, at + len(batch))))


def replaced(clip: Clip, start: Start, scene: "Scene") -> Clip:
    """The same window, its given frames made of the start; true frames stay for the score."""
    made = clip_from(start, clip.action.astype(np.float64), scene.bundle.spec)
    frames = clip.frames.copy()
    frames[:, 0] = made.frames[:, 0]
    return replace(clip, frames=frames)


class Scene:
    """A paired set seen as photos with cameras and states."""

    def __init__(self, *, bundle: Bundle, data: EpisodeSet, robot_path: Path | None, appearance: Appearance) -> None:
        self.bundle, self.data, self.robot_path, self.appearance = bundle, data, robot_path, appearance

    def ways(self) -> dict[str, Callable[[Episode], Start]]:
        """Name -> the start that it makes of an episode's first moment."""
        return {
            "clean rendering": lambda episode: self.start(episode, None),
            "photo's robot, simulator's mask": lambda episode: self.start(episode, SimulatorMask(self.filmed(episode))),
            "photo's robot, learnt colours": lambda episode: self.start(episode, AppearanceSegmenter(self.appearance)),
            "the whole photo": lambda episode: self.start(episode, lambda image: np.ones(image.shape[:2], bool)),
            "background alone": lambda episode: self.start(episode, lambda image: np.zeros(image.shape[:2], bool)),
        }

    def start(self, episode: Episode, segmenter: Segmenter | None) -> Start:
        """The first moment, with simulation."""
        photo, measured = episode.view(REAL), self.measured(episode)
        bare = Start(
            images=(photo.frames.read(0, 1)[0],),
            state=measured.state,
            cameras=(photo.camera,),
            task=episode.task,
            name=episode.name,
        )
        return with_simulation(
            bare,
            self.bundle,
            segmenter=segmenter,
            background=BACKGROUND,
            robot_path=self.robot_path,
            joint=measured.joint,
            joint_layout=measured.joint_layout,
        )

    def measured(self, episode: Episode) -> Measured:
        """State and joints of the first row."""
        return Measured(
            state=None if episode.state is None else np.asarray(episode.state[0]),
            state_layout=self.data.state_layout,
            joint=None if episode.joint is None else np.asarray(episode.joint[0]),
            joint_layout=self.data.joint_layout,
        )

    def filmed(self, episode: Episode) -> Filmed:
        """The robot in front of the stored camera."""
        camera, robot = episode.view(REAL).camera, self.bundle.spec.robot
        assert camera is not None
        assert robot is not None
        return Filmed(robot=robot, camera=camera, measured=self.measured(episode), robot_path=self.robot_path)


def draw(path: Path, clips: list[Clip], given: dict[str, list[Clip]], videos: dict[str, list[np.ndarray]]) -> None:
    """A row for each clip: photo, truth's last frame; then by way, the picture given and the last frame predicted."""
    rows = []
    for i in range(min(SHOWN, len(clips))):
        tiles = [clips[i].frames[0, 0], clips[i].frames[0, -1]]
        for way, asked in given.items():
            tiles += [asked[i].frames[1, 0], videos[way][i][-1]]
        rows.append(np.concatenate(tiles, axis=1))
    sheet = Image.fromarray(np.concatenate(rows, axis=0))
    sheet.resize((2 * sheet.width, 2 * sheet.height), Image.Resampling.NEAREST).save(path)


if __name__ == "__main__":
    main()
