"""Predicts clips of a data set with a finished run and writes them as mp4."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simforcing.data.clips import Clips
from simforcing.data.video import write_video
from simforcing.evaluation.pictures import side_by_side
from simforcing.models.bundle import AUTOENCODER, MODEL, require_finished
from simforcing.recipes.estimate import clip_bytes, prediction_cost
from simforcing.recipes.output import require_absent, require_apart, require_writable
from simforcing.recipes.prediction import DEFAULT, PredictionOptions, Ready, episodes_with, ready_to_predict
from simforcing.training.checkpoint import named_differences
from simforcing.types import Episode, to_json
from simforcing.types.files import read_json, write_json
from simforcing.types.progress import Report

BATCH = 8
SETTINGS = "settings.json"


def generate_clips(
    run_dir: Path,
    *,
    out: Path,
    episodes: Sequence[str] = (),
    max_clips: int | None = None,
    options: PredictionOptions = DEFAULT,
    report: Report = print,
) -> list[Path]:
    """Write `<episode>-<start>.mp4` (prediction) and `<episode>-<start>.compare.mp4` (real | predicted | difference).

    Clips that are already there are kept, so an interrupted call goes on where it stopped, with the same seeds.

    Args:
        episodes: names; default: the held-out ones (of another set, all).
        max_clips: at most so many clips.
        options: window i of the data set is predicted with options.seed + i.

    Raises:
        ValueError: a run or data set that cannot be used, an unknown episode (the choices are listed), or videos in
            `out` that were made with other settings, or something else that is in the way there.
    """
    require_finished(run_dir)
    require_writable(out)
    ready = ready_to_predict(run_dir, options, report)
    require_apart(out, ready.data.root)
    spec, predictor = ready.spec, ready.predictor
    chosen = named_episodes(ready.data.episodes, episodes) if episodes else ready.held_out
    clips = Clips(episodes_with(list(chosen), ready.view), spec, stride=spec.num_frames - 1)
    if len(clips) == 0:
        raise ValueError(
            f"{ready.data.root}: no chosen episode has view {ready.view} and the {spec.num_frames} frames of a window"
        )
    if max_clips is not None and max_clips < 1:
        raise ValueError(f"max_clips is {max_clips}; it must be at least 1")
    count = len(clips) if max_clips is None else min(len(clips), max_clips)
    paths = [out / f"{episode.name.replace('/', '_')}-{start:05d}.mp4" for episode, start in clips.keys[:count]]
    names = [*paths, *map(compared_path, paths)]
    claim_videos(out, settings_of(run_dir, ready, options), names, overwrite=options.overwrite)
    todo = [
        i for i in range(count) if options.overwrite or not (is_there(paths[i]) and is_there(compared_path(paths[i])))
    ]
    report(f"{count} clips, {count - len(todo)} already there, to {out}")
    if todo:
        num_bytes = clip_bytes(spec) * len(todo)
        report(prediction_cost(predictor, clips[todo[0]], len(todo), batch_size=BATCH, num_bytes=num_bytes))
    numbers = window_numbers(ready)
    written = 0
    for at in range(0, count, BATCH):
        # the whole batch, whatever is missing of it: the last bits of a product depend on how many rows it has
        indices = range(at, min(at + BATCH, count))
        missing = [i for i in indices if i in todo]
        if not missing:
            continue
        batch = [clips[i] for i in indices]
        predicted = predictor.predict(batch, [options.seed + numbers[clip.episode, clip.start] for clip in batch])
        for i in missing:
            compared = side_by_side(batch[i - at].frames[predictor.view], predicted[i - at], spec.fps)
            write_video(compared_path(paths[i]), compared, spec.fps)
            write_video(paths[i], predicted[i - at], spec.fps)
        written += len(missing)
        report(f"generated {written}/{len(todo)}")
    return paths


def window_numbers(ready: Ready) -> dict[tuple[str, int], int]:
    """(episode, start) -> number of the window in the whole set: a clip's seed does not depend on what was asked."""
    keys = Clips(ready.data.episodes, ready.spec, stride=ready.spec.num_frames - 1).keys
    return {(episode.name, start): number for number, (episode, start) in enumerate(keys)}


def settings_of(run_dir: Path, ready: Ready, options: PredictionOptions) -> dict[str, Any]:
    """All that decides a video, as JSON values."""
    digest = hashlib.sha256()
    for name in (MODEL, AUTOENCODER):
        digest.update((Path(run_dir) / name).read_bytes())
    return {
        "model_sha256": digest.hexdigest(),
        "data_fingerprint": ready.data.fingerprint,
        "view": ready.view,
        "sampler": to_json(ready.predictor.sampler),
        "seed": options.seed,
        "dtype": options.dtype,
    }


def claim_videos(out: Path, settings: dict[str, Any], names: Sequence[Path], *, overwrite: bool) -> None:
    """Store the settings in a new folder; in one with videos, refuse others, or remove its videos to overwrite.

    Args:
        names: the videos to come.

    Raises:
        ValueError: videos of other settings, or files that are none of ours, and no `overwrite`.
    """
    path = out / SETTINGS
    compared = sorted(out.glob("*.compare.mp4"))
    then = stored_settings(path, lenient=overwrite)
    if not then and not overwrite:
        require_absent([*names, *compared])
    differences = named_differences(then, settings) if compared else []
    if differences and not overwrite:
        raise ValueError(
            f"{out} holds videos of other settings: {differences[0]}; choose another --out, or --overwrite"
        )
    for video in compared if then and differences else ():  # of a folder that is ours
        video.unlink()
        video.with_name(video.name.replace(".compare.mp4", ".mp4")).unlink(missing_ok=True)
    write_json(path, settings)


def stored_settings(path: Path, *, lenient: bool) -> dict[str, Any]:
    """The settings that lie in a folder, empty where there are none.

    Args:
        lenient: take a file that is not of `generate` for none, as it will be replaced.

    Raises:
        ValueError: a file that is not of `generate`.
    """
    if not path.exists():
        return {}
    try:
        then = read_json(path)
        if not isinstance(then, dict) or "model_sha256" not in then:
            found = "" if isinstance(then, dict) else f", found {type(then).__name__}"
            raise ValueError(
                f"{path}: expected an object with field 'model_sha256'{found}; choose another --out, or --overwrite"
            )
    except ValueError:
        if lenient:
            return {}
        raise
    return then


def is_there(path: Path) -> bool:
    """Whether a video was written: a file without content is none."""
    return path.is_file() and path.stat().st_size > 0


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
