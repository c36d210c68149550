"""Videos from a finished run: of a data set's windows, or of pictures and commands that somebody brings."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from simforcing.data.clips import Clips
from simforcing.generation.rollout import Predictor
from simforcing.generation.sampler import stored_sampler
from simforcing.generation.session import needs_sim
from simforcing.models.bundle import bundle_sha256, load_bundle, require_finished
from simforcing.models.pretrained import model_folder
from simforcing.recipes.generate_jobs import jobs_of_clips, jobs_of_requests
from simforcing.recipes.generated_videos import write_jobs
from simforcing.recipes.output import require_apart, require_writable
from simforcing.recipes.prediction import (
    DEFAULT,
    PredictionOptions,
    Ready,
    episodes_with,
    ready_to_predict,
    view_index,
)
from simforcing.recipes.request_reader import RequestReader
from simforcing.recipes.requests import Asked, Request, RequestFields, named, require_all, stored_requests
from simforcing.recipes.sampling import AS_STORED, SamplingOptions
from simforcing.types import Episode, to_json
from simforcing.types.progress import Report

HELD_OUT = Asked()


def generate(
    model: str | Path,
    asked: Asked,
    *,
    out: Path | None = None,
    options: PredictionOptions = DEFAULT,
    sampling: SamplingOptions = AS_STORED,
    lerobot: Path | None = None,
    report: Report = print,
) -> list[Path]:
    """What `simforcing generate` does: windows of episodes, whole episodes, or pictures and commands that are brought.

    Args:
        model: folder of a finished run, or name or hub id of a model.
        out: default `generated` in the run, for episodes alone.

    Raises:
        ValueError: as the functions that it chooses from.
    """
    run_dir = model_folder(model)
    if out is None and (asked.is_own or not Path(model).is_dir()):
        raise ValueError("give --out: a folder for the videos")
    made_by = generate_requests if asked.is_own else generate_rollouts if asked.rollout else generate_clips
    with warnings_as_lines(report):
        return made_by(
            run_dir,
            asked,
            out=out or run_dir / "generated",
            options=options,
            sampling=sampling,
            lerobot=lerobot,
            report=report,
        )


@contextmanager
def warnings_as_lines(report: Report) -> Iterator[None]:
    """Warnings of this package as lines of progress."""

    def say(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, UserWarning):
            report(f"warning: {message}")
        else:
            shown(message, category, *place, **more)

    with warnings.catch_warnings():
        shown = warnings.showwarning
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = say
        yield


def generate_clips(
    run_dir: Path,
    asked: Asked = HELD_OUT,
    *,
    out: Path,
    options: PredictionOptions = DEFAULT,
    sampling: SamplingOptions = AS_STORED,
    lerobot: Path | None = None,
    report: Report = print,
) -> list[Path]:
    """Write `<episode>-<start>.mp4` (prediction) and `<episode>-<start>.compare.mp4` (real | predicted | difference).

    Clips that are already there are kept, so an interrupted call goes on where it stopped, with the same seeds.

    Args:
        asked: its episodes, by default the held-out ones (of another set, all), and at most `max_clips` clips of them.
        options: window i of the data set is predicted with options.seed + i.
        lerobot: folder of a LeRobot set to make of the videos.

    Raises:
        ValueError: a run or data set that cannot be used, an unknown episode (the choices are listed), or videos in
            `out` that were made with other settings, or something else that is in the way there.
    """
    ready, chosen = _chosen(run_dir, asked, out, options, sampling, report)
    spec = ready.spec
    filmed = episodes_with(list(chosen), ready.view)
    require_simulated(filmed, ready.predictor)
    clips = Clips(filmed, spec, stride=spec.num_frames - 1)
    if len(clips) == 0:
        raise ValueError(
            f"{ready.data.root}: no chosen episode has view {ready.view} and the {spec.num_frames} frames of a window"
        )
    count = len(clips) if asked.max_clips is None else min(len(clips), asked.max_clips)
    jobs = jobs_of_clips(ready, clips, count, options.seed, sampling)
    _require_set_apart(lerobot, out, [ready.data.root, ready.predictor.bundle.about.get("data")])
    settings = settings_of(run_dir, ready.predictor, options, sampling, ready.data.fingerprint)
    return write_jobs(
        ready.predictor, jobs, out, settings=settings, overwrite=options.overwrite, lerobot=lerobot, report=report
    )


def generate_rollouts(
    run_dir: Path,
    asked: Asked = HELD_OUT,
    *,
    out: Path,
    options: PredictionOptions = DEFAULT,
    sampling: SamplingOptions = AS_STORED,
    lerobot: Path | None = None,
    report: Report = print,
) -> list[Path]:
    """Whole episodes of a data set, chunk after chunk from their first frames, beside what was filmed.

    Arguments and errors as `generate_clips`; `max_clips` counts episodes.
    """
    ready, chosen = _chosen(run_dir, asked, out, options, sampling, report)
    items = [(episode.name, RequestFields(episode=episode.name)) for episode in chosen[: asked.max_clips]]
    if not items:
        raise ValueError(f"{ready.data.root}: no episode to predict")
    reader = RequestReader(ready.predictor, opened=ready.data)
    requests = _checked(items, reader, Path(ready.data.root), report)
    jobs = jobs_of_requests(ready.predictor, requests, options.seed, sampling)
    _require_set_apart(lerobot, out, [ready.data.root, ready.predictor.bundle.about.get("data")])
    settings = settings_of(run_dir, ready.predictor, options, sampling, None)
    return write_jobs(
        ready.predictor, jobs, out, settings=settings, overwrite=options.overwrite, lerobot=lerobot, report=report
    )


def generate_requests(
    run_dir: Path,
    asked: Asked,
    *,
    out: Path,
    options: PredictionOptions = DEFAULT,
    sampling: SamplingOptions = AS_STORED,
    lerobot: Path | None = None,
    report: Report = print,
) -> list[Path]:
    """Videos of pictures and commands, as long as the commands are; all requests are checked before the first is made.

    Args:
        options: request i without a seed of its own is made with options.seed + i; `data` is the set of its episodes.

    Raises:
        ValueError: a request that cannot be used (with several, each was reported), or as `generate_clips`.
    """
    require_finished(run_dir)
    require_writable(out)
    bundle = load_bundle(run_dir)
    sampler = stored_sampler(bundle, options.num_steps)
    view = view_index(bundle.spec, options.view)
    plain = Predictor(bundle, sampler, view=view, device=options.device, dtype=options.dtype)
    items = stored_requests(asked)
    predictor = sampling.following(item for _, item in items).applied(plain, report)
    reader = RequestReader(predictor, resize=asked.resize, data=options.data)
    requests = _checked(items, reader, asked.requests, report)
    for root in reader.roots:
        require_apart(out, root)
    without = sum(request.start.state is None for request in requests) if bundle.spec.state is not None else 0
    if without:
        report(f"warning: {without} of {len(requests)} requests give no state, which this model was trained to read")
    jobs = jobs_of_requests(predictor, requests, options.seed, sampling)
    _require_set_apart(lerobot, out, [*reader.roots, bundle.about.get("data")])
    settings = settings_of(run_dir, predictor, options, sampling, None)
    return write_jobs(
        predictor, jobs, out, settings=settings, overwrite=options.overwrite, lerobot=lerobot, report=report
    )


def _chosen(
    run_dir: Path, asked: Asked, out: Path, options: PredictionOptions, sampling: SamplingOptions, report: Report
) -> tuple[Ready, Sequence[Episode]]:
    """A run beside its data, under this sampler, and the episodes that are asked for."""
    require_count(asked.max_clips)
    require_finished(run_dir)
    require_writable(out)
    ready = ready_to_predict(run_dir, options, report)
    ready = replace(ready, predictor=sampling.applied(ready.predictor, report))
    require_apart(out, ready.data.root)
    chosen = named_episodes(ready.data.episodes, asked.episodes) if asked.episodes else ready.held_out
    return ready, chosen


def _require_set_apart(lerobot: Path | None, out: Path, roots: Sequence[str | None]) -> None:
    """ValueError where the set to make is the folder of the videos, or a set that was read, which it would replace."""
    if lerobot is None:
        return
    folder, videos = lerobot.resolve(), out.resolve()
    if videos.is_relative_to(folder):
        raise ValueError(f"the folder {out} of the videos lies in {lerobot}; choose another --lerobot")
    for root in roots:
        if root is not None:
            require_apart(lerobot, root, "--lerobot")


def require_simulated(episodes: Sequence[Episode], predictor: Predictor) -> None:
    """ValueError where a simulation conditions the video, and an episode has none."""
    if not needs_sim(predictor):
        return
    for episode in episodes:
        present = {view.name for view in episode.views}
        if missing := [name for name in predictor.spec.sim_views if name not in present]:
            raise ValueError(
                f"episode {episode.name}: no view {missing[0]} of the simulation, which this model's video follows;"
                " choose others with --episode, or --sim-guidance 0 to do without"
            )


def _checked(
    items: Sequence[tuple[str, RequestFields | ValueError]], reader: RequestReader, where: Path | None, report: Report
) -> list[Request]:
    """All requests, or the error of all that cannot be used."""
    requests: list[Request] = []
    errors: list[tuple[str, ValueError]] = []
    for place, item in items:
        if isinstance(item, ValueError):
            errors.append((place, item))
            continue
        try:
            requests.append(reader.read(item))
        except ValueError as error:
            errors.append((place, error))
    require_all(where, errors, len(items), report)
    named(requests)
    return requests


def settings_of(
    run_dir: Path, predictor: Predictor, options: PredictionOptions, sampling: SamplingOptions, fingerprint: str | None
) -> dict[str, Any]:
    """All that decides a video beside its own inputs, as JSON values.

    Args:
        fingerprint: of the data set whose windows are predicted.
    """
    return {
        "generated": True,
        "model_sha256": bundle_sha256(run_dir),
        "data_fingerprint": fingerprint,
        "view": predictor.spec.views[predictor.view],
        "sampler": to_json(predictor.sampler),
        "seed": options.seed,
        "dtype": options.dtype,
        "batch_size": sampling.batch_size,
    }


def require_count(max_clips: int | None) -> None:
    """ValueError where a limit leaves nothing."""
    if max_clips is not None and max_clips < 1:
        raise ValueError(f"max_clips is {max_clips}; it must be at least 1")


def named_episodes(available: Sequence[Episode], names: Sequence[str]) -> list[Episode]:
    """Episodes by name, in the order asked for."""
    by_name = {episode.name: episode for episode in available}
    for name in names:
        if name not in by_name:
            raise ValueError(f"no episode {name!r}; episodes: {', '.join(list(by_name)[:20])}")
    return [by_name[name] for name in names]
