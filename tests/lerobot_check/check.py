"""LeRobot 0.4.4 opens what we write and reads what we read; we open what LeRobot writes. Run by run.sh.

Arguments are folders of further sets that it must open as we do, such as the two that `simforcing simulate` writes.
"""

import json
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from lerobot.datasets.compute_stats import aggregate_stats, compute_episode_stats
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.datasets.v30.convert_dataset_v21_to_v30 import convert_dataset
from PIL import Image

from simforcing.data.lerobot import read_columns, read_lerobot
from simforcing.data.lerobot_writer import LeRobotWriter
from simforcing.types import Layout, Part

FPS = 5
VIEWS = {"front": (64, 64), "wrist": (48, 80)}
LAYOUT = Layout(
    name="check",
    parts=(
        Part(kind="translation", size=3),
        Part(kind="rotation", size=3, unit="rad", rotation="euler_xyz"),
        Part(kind="gripper", size=1, unit="fraction", gripper="open_0_closed_1"),
    ),
)
GREY_LEVELS = 2  # both sides decode the same file; only the conversion to RGB could differ


def source_episode(index: int) -> dict:
    """A moving picture, with actions, states and extra columns."""
    rng = np.random.default_rng(index)
    num_frames = 33 - 4 * index
    frames = {}
    for view, (height, width) in VIEWS.items():
        grey = np.kron(rng.integers(0, 255, (height // 8, width // 8)), np.ones((8, 8)))
        frames[view] = (
            np.stack([np.roll(grey, i, 1) for i in range(num_frames)])[..., None].repeat(3, 3).astype(np.uint8)
        )
    return {
        "frames": frames,
        "action": rng.normal(size=(num_frames, 7)).astype(np.float32),
        "state": rng.normal(size=(num_frames, 7)).astype(np.float32),
        "task": f"push block {index % 2}",
        "extra": {"parent": index, "score": rng.random(num_frames), "note": f"note {index}"},
    }


EPISODES = [source_episode(index) for index in range(5)]


def write(root: Path, **options: object) -> Path:
    """The episodes, written by us."""
    with LeRobotWriter(
        root, fps=FPS, views=VIEWS, action_layout=LAYOUT, state_layout=LAYOUT, robot="arm", **options
    ) as writer:
        for episode in EPISODES:
            writer.add(**episode)
    return root


def write_by_lerobot(root: Path) -> Path:
    """The first two episodes, written by LeRobot itself."""
    names = ["x", "y", "z", "roll", "pitch", "yaw", "gripper"]
    features: dict = {
        f"observation.images.{view}": {
            "dtype": "video",
            "shape": (*size, 3),
            "names": ["height", "width", "channels"],
        }
        for view, size in VIEWS.items()
    }
    features["observation.state"] = {"dtype": "float32", "shape": (7,), "names": names}
    features["action"] = {"dtype": "float32", "shape": (7,), "names": names}
    features["parent"] = {"dtype": "int64", "shape": (1,), "names": None}
    features["score"] = {"dtype": "float32", "shape": (1,), "names": None}
    features["note"] = {"dtype": "string", "shape": (1,), "names": None}
    dataset = LeRobotDataset.create("check/theirs", FPS, features, root=root, robot_type="arm", vcodec="h264")
    for episode in EPISODES[:2]:
        for i in range(len(episode["action"])):
            dataset.add_frame(
                {f"observation.images.{view}": frames[i] for view, frames in episode["frames"].items()}
                | {"observation.state": episode["state"][i], "action": episode["action"][i], "task": episode["task"]}
                | {"parent": np.array([episode["extra"]["parent"]]), "note": episode["extra"]["note"]}
                | {"score": episode["extra"]["score"][i : i + 1].astype(np.float32)}
            )
        dataset.save_episode(parallel_encoding=False)
    dataset.finalize()
    return root


def agree(root: Path, num_episodes: int) -> str:
    """LeRobot's items equal what our reader gives and what was written, frame by frame."""
    theirs = LeRobotDataset("check/set", root=root, video_backend="pyav")
    ours = read_lerobot(root)
    extra = read_columns(root, ["parent", "score", "note"])
    assert not ours.rejected, ours.rejected
    assert theirs.num_episodes == len(ours.episodes) == num_episodes
    row, worst = 0, 0
    for index, (episode, source) in enumerate(zip(ours.episodes, EPISODES[:num_episodes], strict=True)):
        frames = {view.name: view.frames.read(0, episode.num_frames) for view in episode.views}
        assert set(frames) == set(VIEWS)
        for i in range(episode.num_frames):
            item = theirs[row]
            row += 1
            assert (item["episode_index"], item["frame_index"], item["index"]) == (index, i, row - 1)
            assert item["task"] == episode.task == source["task"]
            assert (item["action"].numpy() == episode.action[i]).all()
            assert (source["action"][i] == episode.action[i]).all()
            assert (item["observation.state"].numpy() == episode.state[i]).all()
            assert int(item["parent"]) == extra[index]["parent"][i] == source["extra"]["parent"]
            assert item["note"] == extra[index]["note"][i] == source["extra"]["note"]
            assert float(item["score"]) == extra[index]["score"][i]
            assert abs(float(item["timestamp"]) - episode.action_time_s[i]) < 1e-6
            for view, ours_read in frames.items():
                image = (item[f"observation.images.{view}"].permute(1, 2, 0).numpy() * 255).round()
                worst = max(worst, int(np.abs(image - ours_read[i]).max()))
    assert row == len(theirs), (row, len(theirs))
    assert worst <= GREY_LEVELS, worst
    return f"{num_episodes} episodes, {row} rows equal, frames within {worst} grey levels"


def opens(root: Path) -> str:
    """LeRobot reads any set of ours as our reader does: first, middle and last frame of every episode."""
    theirs, ours = LeRobotDataset("check/set", root=root, video_backend="pyav"), read_lerobot(root)
    views = [key.removeprefix("observation.images.") for key in theirs.meta.video_keys]
    first, worst, count = 0, 0, 0
    for episode in ours.episodes:
        masks = {view.name: view.masks for view in episode.views}
        sources = {view.name: view.frames for view in episode.views}
        sources |= {f"{name}_mask": source for name, source in masks.items() if source is not None}
        assert set(sources) == set(views), (set(sources), views)
        for i in sorted({0, episode.num_frames // 2, episode.num_frames - 1}):
            item = theirs[first + i]
            assert (item["frame_index"], item["task"]) == (i, episode.task)
            assert (item["action"].numpy() == episode.action[i]).all()
            if episode.joint is not None:
                assert (item["observation.joint_position"].numpy() == episode.joint[i]).all()
            for view, source in sources.items():
                image = (item[f"observation.images.{view}"].permute(1, 2, 0).numpy() * 255).round()
                worst, count = max(worst, int(np.abs(image - source.read(i, i + 1)[0]).max())), count + 1
        first += episode.num_frames
    assert first == len(theirs), (first, len(theirs))
    assert worst <= GREY_LEVELS, worst
    return f"{len(ours.episodes)} episodes, {count} frames of {', '.join(views)} within {worst} grey levels"


def write_paired(root: Path) -> Path:
    """A set as `simforcing simulate` writes it: masks, joints, and depth that LeRobot does not look for."""
    options = {"action_layout": LAYOUT, "state_layout": LAYOUT, "joint_layout": LAYOUT, "robot": "arm"}
    views = dict.fromkeys(("real", "sim", "sim_mask"), VIEWS["front"])
    with LeRobotWriter(root, fps=FPS, views=views, masks={"sim": "sim_mask"}, depth=("sim",), **options) as writer:
        for episode in EPISODES[:3]:
            frames = episode["frames"]["front"]
            writer.add(
                frames=dict.fromkeys(views, frames),
                action=episode["action"],
                state=episode["state"],
                joint=episode["state"],
                depth={"sim": frames[..., 0] / 255.0},
                task=episode["task"],
                extra={"sim_track": episode["action"][:, :2], "sim_track_valid": np.ones(len(frames), bool)},
            )
    return root


def windows_by_time(root: Path) -> str:
    """LeRobot's delta_timestamps find our frames across the keyframes of a shared file."""
    steps = [0.0, 1 / FPS, 3 / FPS]
    key = "observation.images.wrist"
    dataset = LeRobotDataset(
        "check/set", root=root, delta_timestamps={key: steps, "action": steps}, video_backend="pyav"
    )
    first = len(EPISODES[0]["action"])
    item = dataset[first + 7]  # in the second episode of the file
    frames = read_lerobot(root).episodes[1].view("wrist").frames.read(7, 11)[[0, 1, 3]]
    worst = np.abs((item[key].permute(0, 2, 3, 1).numpy() * 255).round() - frames).max()
    assert worst <= GREY_LEVELS, worst
    assert (item["action"].numpy() == EPISODES[1]["action"][[7, 8, 10]]).all()
    return "delta_timestamps of the second episode give our frames and actions"


def converted(root: Path, scratch: Path) -> str:
    """LeRobot's own converter takes our v2.1 set to v3.0, and the result reads the same."""
    assert read_lerobot(root).kind == "lerobot v2.1"
    convert_dataset(f"{root.parent.name}/{root.name}", root=scratch, push_to_hub=False)
    return agree(root, len(EPISODES))


def statistics(root: Path, scratch: Path) -> str:
    """Our stats.json against LeRobot's own functions on the same episodes."""
    features = json.loads((root / "meta/info.json").read_text())["features"]
    per_episode = []
    for index, episode in enumerate(EPISODES):
        data: dict = {"action": episode["action"], "observation.state": episode["state"]}
        data["parent"] = np.full(len(episode["action"]), index)
        data["score"] = episode["extra"]["score"].astype(np.float32)
        for view, frames in episode["frames"].items():
            paths = [scratch / f"{view}-{index}-{i}.png" for i in range(len(frames))]
            for path, frame in zip(paths, frames, strict=True):
                Image.fromarray(frame).save(path)
            data[f"observation.images.{view}"] = [str(path) for path in paths]
        per_episode.append(compute_episode_stats(data, features))
    expected = aggregate_stats(per_episode)
    found = json.loads((root / "meta/stats.json").read_text())
    worst = 0.0
    for key, stats in expected.items():
        spread = np.max(stats["max"] - stats["min"]) + 1e-6
        for name, value in stats.items():
            is_image = "images" in key
            if is_image and name == "std":
                continue  # LeRobot 0.4.4 squares uint8 pixels, which wraps around
            mine = np.array(found[key][name])
            assert mine.shape == value.shape, (key, name, mine.shape, value.shape)
            worst = max(worst, float(np.abs(mine - value).max() / (1 if name == "count" else spread)))
    assert worst < 1e-3, worst  # their quantiles come from 5000 bins
    return f"min max mean std count and quantiles within {worst:.1e} of the range (image std left out: it wraps there)"


def same_description(ours: Path, theirs: Path) -> str:
    """info.json, table schemas and metadata columns equal those of a set that LeRobot wrote."""
    info = {name: json.loads((root / "meta/info.json").read_text()) for name, root in (("o", ours), ("t", theirs))}
    assert info["o"].keys() == info["t"].keys(), info["o"].keys() ^ info["t"].keys()
    for key in ("codebase_version", "robot_type", "chunks_size", "fps", "data_path", "video_path"):
        assert info["o"][key] == info["t"][key], key
    assert list(info["o"]["features"]) == list(info["t"]["features"])
    for key, feature in info["t"]["features"].items():
        assert info["o"]["features"][key] == feature, (key, info["o"]["features"][key], feature)
    for pattern in ("data/*/*.parquet", "meta/episodes/*/*.parquet", "meta/tasks.parquet"):
        schemas = [pq.read_schema(next(root.glob(pattern))) for root in (ours, theirs)]
        names, other = (dict(zip(schema.names, schema.types, strict=True)) for schema in schemas)
        assert names.keys() == other.keys(), names.keys() ^ other.keys()
        different = {name: (names[name], other[name]) for name in names if plain(names[name]) != plain(other[name])}
        assert not different, different
    return "info.json, features, columns and types equal those of a set that LeRobot wrote"


def plain(kind: object) -> str:
    """Arrow type without names of list fields and without the difference of string and large_string."""
    return str(kind).replace("large_string", "string").replace("element: ", "item: ")


def main() -> int:
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    failures = 0

    def show(name: str, proof: Callable[[], str]) -> None:
        nonlocal failures
        try:
            print(f"ok    {name}: {proof()}", flush=True)
        except Exception as error:
            failures += 1
            print(f"FAIL  {name}: {type(error).__name__}: {error}", flush=True)

    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        v30 = write(scratch / "h264")
        show("v3.0 H.264", lambda: agree(v30, len(EPISODES)))
        show("v3.0 windows", lambda: windows_by_time(v30))
        show("v3.0 AV1", lambda: agree(write(scratch / "av1", codec="av1"), len(EPISODES)))
        several = write(scratch / "several", data_file_mb=0.01, video_file_mb=0.01)
        show(f"v3.0 in {len(list(several.rglob('*.mp4')))} videos", lambda: agree(several, len(EPISODES)))
        show("v3.0 statistics", lambda: statistics(v30, scratch))
        show("v2.1 converted", lambda: converted(write(scratch / "check" / "v21", version="v2.1"), scratch))
        theirs = write_by_lerobot(scratch / "theirs")
        show("LeRobot's own set", lambda: agree(theirs, 2))
        show("description", lambda: same_description(v30, theirs))
        paired = write_paired(scratch / "paired")
        show("joints, masks, depth", lambda: opens(paired))
        for argument in sys.argv[1:]:
            show(argument, lambda argument=argument: opens(Path(argument)))
    print("lerobot-check:", "all passed" if not failures else f"{failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
