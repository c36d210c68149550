"""Videos from a finished run: of a data set's windows, or of pictures and commands that somebody brings."""

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from simforcing.data.clips import Clips
from simforcing.generation.rollout import Predictor
from simforcing.generation.sampler import stored_sampler
from simforcing.models.bundle import AUTOENCODER, MODEL, load_bundle, require_finished
from simforcing.models.pretrained import model_folder
from simforcing.recipes.generated_folder import Video
from simforcing.recipes.generated_videos import Job, endings_of, write_jobs
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
from simforcing.recipes.requests import Asked, Request, RequestFields, named, require_all, stored_requests, swapped
from simforcing.types import Clip, Episode, to_json
from simforcing.types.progress import Report

BATCH = 8
DRAW_STRIDE = 1_000_003  # between seeds of one request: beyond any number of requests


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How videos are drawn where it is not as the recipe says; see SamplerConfig.

    Args:
        num_seeds: videos of each request.
        batch_size: videos at a time; the last bits of a video depend on it.
        swap: also show each picture under the next request's actions.
    """

    shift: float | None = None
    solver: Literal["euler", "heun"] | None = None
    sim_guidance: float | None = None
    action_guidance: float | None = None
    sim_source: Literal["self", "true"] | None = None
    num_seeds: int = 1
    batch_size: int = BATCH
    swap: bool = False

    def __post_init__(self) -> None:
        for name in ("num_seeds", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")

    def applied(self, predictor: Predictor, report: Report) -> Predictor:
        """The predictor with this sampler, and a warning where it means little."""
        names = ("shift", "solver", "sim_guidance", "action_guidance", "sim_source")
        changed = predictor.using(**{name: getattr(self, name) for name in names if getattr(self, name) is not None})
        w, knows_sim = changed.sampler.sim_guidance, predictor.bundle.model.config.sim_condition
        if knows_sim and w > 1:
            report(f"warning: sim guidance {w:g} is above 1, beyond what the model was trained for")
        if not knows_sim and (self.sim_guidance is not None or self.sim_source is not None):
            report("warning: this model does not read simulation, so options of sim guidance change nothing")
        return changed


AS_STORED = SamplingOptions()


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
    shared = {"out": out or run_dir / "generated", "options": options, "sampling": sampling, "report": report}
    with warnings_as_lines(report):
        if asked.is_own:
            return generate_requests(run_dir, asked, lerobot=lerobot, **shared)
        chosen = generate_rollouts if asked.rollout else generate_clips
        return chosen(run_dir, episodes=asked.episodes, max_clips=asked.max_clips, lerobot=lerobot, **shared)


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
    *,
    out: Path,
    episodes: Sequence[str] = (),
    max_clips: int | None = None,
    options: PredictionOptions = DEFAULT,
    sampling: SamplingOptions = AS_STORED,
    lerobot: Path | None = None,
    report: Report = print,
) -> list[Path]:
    """Write `<episode>-<start>.mp4` (prediction) and `<episode>-<start>.compare.mp4` (real | predicted | difference).

    Clips that are already there are kept, so an interrupted call goes on where it stopped, with the same seeds.

    Args:
        episodes: names; default: the held-out ones (of another set, all).
        max_clips: at most so many clips.
        options: window i of the data set is predicted with options.seed + i.
        lerobot: folder of a LeRobot set to make of the videos.

    Raises:
        ValueError: a run or data set that cannot be used, an unknown episode (the choices are listed), or videos in
            `out` that were made with other settings, or something else that is in the way there.
    """
    require_count(max_clips)
    require_finished(run_dir)
    require_writable(out)
    ready = ready_to_predict(run_dir, options, report)
    ready = replace(ready, predictor=sampling.applied(ready.predictor, report))
    require_apart(out, ready.data.root)
    spec = ready.spec
    chosen = named_episodes(ready.data.episodes, episodes) if episodes else ready.held_out
    clips = Clips(episodes_with(list(chosen), ready.view), spec, stride=spec.num_frames - 1)
    if len(clips) == 0:
        raise ValueError(
            f"{ready.data.root}: no chosen episode has view {ready.view} and the {spec.num_frames} frames of a window"
        )
    count = len(clips) if max_clips is None else min(len(clips), max_clips)
    jobs = jobs_of_clips(ready, clips, count, options.seed, sampling)
    settings = settings_of(run_dir, ready.predictor, options, sampling, ready.data.fingerprint)
    return write_jobs(
        ready.predictor, jobs, out, settings=settings, overwrite=options.overwrite, lerobot=lerobot, report=report
    )


def generate_rollouts(
    run_dir: Path,
    *,
    out: Path,
    episodes: Sequence[str] = (),
    max_clips: int | None = None,
    options: PredictionOptions = DEFAULT,
    sampling: SamplingOptions = AS_STORED,
    lerobot: Path | None = None,
    report: Report = print,
) -> list[Path]:
    """Whole episodes of a data set, chunk after chunk from their first frames, beside what was filmed.

    Arguments and errors as `generate_clips`; `max_clips` counts episodes.
    """
    require_count(max_clips)
    require_finished(run_dir)
    require_writable(out)
    ready = ready_to_predict(run_dir, options, report)
    require_apart(out, ready.data.root)
    chosen = named_episodes(ready.data.episodes, episodes) if episodes else ready.held_out
    items = [(episode.name, RequestFields(episode=episode.name)) for episode in chosen[:max_clips]]
    if not items:
        raise ValueError(f"{ready.data.root}: no episode to predict")
    predictor = sampling.applied(ready.predictor, report)
    requests = _checked(items, RequestReader(predictor, opened=ready.data), Path(ready.data.root), report)
    jobs = jobs_of_requests(predictor, requests, options.seed, sampling)
    settings = settings_of(run_dir, predictor, options, sampling, None)
    return write_jobs(
        predictor, jobs, out, settings=settings, overwrite=options.overwrite, lerobot=lerobot, report=report
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
    predictor = sampling.applied(plain, report)
    reader = RequestReader(predictor, resize=asked.resize, data=options.data)
    requests = _checked(stored_requests(asked), reader, asked.requests, report)
    for root in reader.roots:
        require_apart(out, root)
    without = sum(request.start.state is None for request in requests) if bundle.spec.state is not None else 0
    if without:
        report(f"warning: {without} of {len(requests)} requests give no state, which this model was trained to read")
    jobs = jobs_of_requests(predictor, requests, options.seed, sampling)
    settings = settings_of(run_dir, predictor, options, sampling, None)
    return write_jobs(
        predictor, jobs, out, settings=settings, overwrite=options.overwrite, lerobot=lerobot, report=report
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


def jobs_of_requests(
    predictor: Predictor, requests: Sequence[Request], seed: int, sampling: SamplingOptions
) -> list[Job]:
    """A job for each request, each draw, and each swap."""
    spec = predictor.spec
    main = spec.views[predictor.view]
    views = (main, *(view for view in spec.views if view != main))
    others = swapped(requests) if sampling.swap else []
    if others and predictor.sampler.sim_source == "true":
        raise ValueError("swapped actions have no true simulation; leave out --sim-source true")
    jobs = []
    for number, request in enumerate(requests):
        first_seed = seed + number if request.seed is None else request.seed
        for draw in range(sampling.num_seeds):
            for chosen in (request, *others[number : number + 1]):
                video = Video(
                    name=f"{chosen.name}{draw_suffix(draw)}",
                    seed=first_seed + draw * DRAW_STRIDE,
                    inputs=chosen.digest,
                    endings=endings_of(predictor, views, has_truth=chosen.has_truth(views)),
                )
                jobs.append(Job(video=video, num_actions=len(chosen.action), views=views, read=lambda r=chosen: r))
    return jobs


def jobs_of_clips(ready: Ready, clips: Clips, count: int, seed: int, sampling: SamplingOptions) -> list[Job]:
    """A job for each of the first `count` windows, each draw, and each swap."""
    spec, predictor = ready.spec, ready.predictor
    numbers = window_numbers(ready)
    if sampling.swap and (count < 2 or predictor.sampler.sim_source == "true"):
        raise ValueError(f"swapped actions need two clips, found {count}, and --sim-source self")
    jobs = []
    for number, (episode, start) in enumerate(clips.keys[:count]):
        name = f"{episode.name.replace('/', '_')}-{start:05d}"
        filmed = [view.name for view in episode.views]
        views = (ready.view, *(view for view in spec.views if view != ready.view and view in filmed))
        first_seed = seed + numbers[episode.name, start]
        for draw in range(sampling.num_seeds):
            for is_swapped in (False, True) if sampling.swap else (False,):
                other = (number + 1) % count if is_swapped else number
                video = Video(
                    name=f"{name}{'.swapped' if is_swapped else ''}{draw_suffix(draw)}",
                    seed=first_seed + draw * DRAW_STRIDE,
                    inputs=f"{episode.name} at frame {start}" + (f", actions of clip {other}" if is_swapped else ""),
                    endings=endings_of(predictor, views, has_truth=not is_swapped),
                )
                read = ClipReader(clips, number, other)
                jobs.append(Job(video=video, num_actions=spec.num_actions, views=views, read=read))
    return jobs


@dataclass(frozen=True)
class ClipReader:
    """A window, under its own commands or another one's."""

    clips: Clips
    number: int
    commands: int

    def __call__(self) -> Clip:
        clip = self.clips[self.number]
        if self.commands == self.number:
            return clip
        other = self.clips.reading(with_frames=False)[self.commands]
        return replace(clip, action=other.action, action_valid=other.action_valid, action_time_s=other.action_time_s)


def draw_suffix(draw: int) -> str:
    """Of the further videos of one request."""
    return f".draw{draw}" if draw else ""


def window_numbers(ready: Ready) -> dict[tuple[str, int], int]:
    """(episode, start) -> number of the window in the whole set: a clip's seed does not depend on what was asked."""
    keys = Clips(ready.data.episodes, ready.spec, stride=ready.spec.num_frames - 1).keys
    return {(episode.name, start): number for number, (episode, start) in enumerate(keys)}


def settings_of(
    run_dir: Path, predictor: Predictor, options: PredictionOptions, sampling: SamplingOptions, fingerprint: str | None
) -> dict[str, Any]:
    """All that decides a video beside its own inputs, as JSON values.

    Args:
        fingerprint: of the data set whose windows are predicted.
    """
    digest = hashlib.sha256()
    for name in (MODEL, AUTOENCODER):
        digest.update((Path(run_dir) / name).read_bytes())
    return {
        "generated": True,
        "model_sha256": digest.hexdigest(),
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
