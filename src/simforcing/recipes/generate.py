"""Predicts clips of a data set with a finished run and writes them as mp4."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from simforcing.data.clips import Clips
from simforcing.data.video import write_video
from simforcing.evaluation.pictures import side_by_side
from simforcing.generation.rollout import Predictor
from simforcing.models.bundle import load_bundle
from simforcing.recipes.estimate import prediction_cost
from simforcing.recipes.evaluate import held_out_episodes, open_for, stored_sampler
from simforcing.types import Episode

Report = Callable[[str], None]
BATCH = 8


def generate_clips(
    run_dir: Path,
    *,
    out: Path,
    data: str | None = None,
    episodes: Sequence[str] = (),
    max_clips: int | None = None,
    num_steps: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    dtype: Literal["float32", "bfloat16"] = "float32",
    overwrite: bool = False,
    report: Report = print,
) -> list[Path]:
    """Write `<episode>-<start>.mp4` (prediction) and `<episode>-<start>.compare.mp4` (real | predicted | difference).

    Clips that are already there are kept, so an interrupted call goes on where it stopped, with the same seeds.

    Args:
        data: data set; default: the run's own.
        episodes: names; default: the held-out ones (of another set, all).
        max_clips: at most so many clips.
        num_steps: of the sampler; default: the recipe's.
        seed: clip i uses seed + i.

    Raises:
        ValueError: a run or data set that cannot be used, or an unknown episode (the choices are listed).
    """
    bundle = load_bundle(run_dir)
    opened = open_for(bundle, data)
    chosen = named_episodes(opened.episodes, episodes) if episodes else held_out_episodes(bundle, opened)
    clips = Clips(chosen, bundle.spec, stride=bundle.spec.num_frames - 1)
    if len(clips) == 0:
        raise ValueError(f"{opened.root}: no chosen episode has the {bundle.spec.num_frames} frames of a window")
    count = min(len(clips), max_clips or len(clips))
    predictor = Predictor(bundle, stored_sampler(bundle, num_steps), device=device, dtype=dtype)
    paths = [out / f"{episode.name.replace('/', '_')}-{start:05d}.mp4" for episode, start in clips.keys[:count]]
    todo = [i for i in range(count) if overwrite or not (paths[i].exists() and compared_path(paths[i]).exists())]
    report(f"{count} clips, {count - len(todo)} already there, to {out}")
    if todo:
        report(prediction_cost(predictor, clips[todo[0]], len(todo), batch_size=BATCH, with_videos=True))
    for at in range(0, len(todo), BATCH):
        indices = todo[at : at + BATCH]
        batch = [clips[i] for i in indices]
        predicted = predictor.predict(batch, [seed + i for i in indices])
        for i, clip, frames in zip(indices, batch, predicted, strict=True):
            compared = side_by_side(clip.frames[predictor.view], frames, bundle.spec.fps)
            write_video(compared_path(paths[i]), compared, bundle.spec.fps)
            write_video(paths[i], frames, bundle.spec.fps)
        report(f"generated {at + len(indices)}/{len(todo)}")
    return paths


def compared_path(path: Path) -> Path:
    """Where the video beside the real one goes."""
    return path.with_suffix(".compare.mp4")


def named_episodes(available: Sequence[Episode], names: Sequence[str]) -> list[Episode]:
    """Episodes by name, in the order asked for."""
    by_name = {episode.name: episode for episode in available}
    for name in names:
        if name not in by_name:
            raise ValueError(f"no episode {name!r}; episodes: {', '.join(list(by_name)[:20])}")
    return [by_name[name] for name in names]
