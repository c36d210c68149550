"""Videos from a finished run: of a data set's windows, or of pictures and commands that somebody brings."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from simforcing.data.clips import Clips
from simforcing.generation.rollout import Predictor
from simforcing.generation.sampler import stored_sampler
from simforcing.generation.session import needs_sim
from simforcing.models.bundle import bundle_sha256, load_bundle, require_finished
from simforcing.models.pretrained import model_folder
from simforcing.recipes.generate_jobs import jobs_of_clips, jobs_of_requests
from simforcing.recipes.generated_videos import Job, write_jobs
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
    asked: Asked = HELD_OUT,
    *,
    out: Path | None = None,
    options: PredictionOptions = DEFAULT,
    sampling: SamplingOptions = AS_STORED,
    lerobot: Path | None = None,
    report: Report = print,
) -> list[Path]:
    """Videos of windows of episodes, of whole episodes, or of pictures and commands that are brought.

    What is already there is kept, so an interrupted call goes on where it stopped, with the same seeds.

    Args:
        model: folder of a finished run, or name or hub id of a model.
        asked: by default all windows of the held-out episodes (of another set, of all): `<episode>-<start>.mp4`, the
            prediction, and `<episode>-<start>.compare.mp4`, real | predicted | difference.
        out: default `generated` in the run, for episodes alone.
        options: window i of the data set is predicted with options.seed + i, and request i without a seed of its own;
            `data` is the set of the episodes.
        lerobot: folder of a LeRobot set to make of the videos.

    Raises:
        ValueError: a model or data set that cannot be used, an unknown episode (the choices are listed), a request that
            cannot be used (with several, each was reported), or videos in `out` that were made with other settings, or
            something else that is in the way there; before the first video is made.
    """
    run_dir = model_folder(model)
    if out is None and (asked.is_own or not Path(model).is_dir()):
        raise ValueError("give --out: a folder for the videos")
    call = _Call(
        run_dir=run_dir,
        asked=asked,
        out=out or run_dir / "generated",
        options=options,
        sampling=sampling,
        lerobot=lerobot,
        report=report,
    )
    made_by = _requests if asked.is_own else _rollouts if asked.rollout else _windows
    require_finished(run_dir)
    require_writable(call.out)
    with warnings_as_lines(report):
        return made_by(call)


@dataclass(frozen=True, kw_only=True)
class _Call:
    """One call of `generate`."""

    run_dir: Path
    asked: Asked
    out: Path
    options: PredictionOptions
    sampling: SamplingOptions
    lerobot: Path | None
    report: Report

    def chosen(self) -> tuple[Ready, Sequence[Episode]]:
        """A run beside its data, under this sampler, and the episodes that are asked for."""
        ready = ready_to_predict(self.run_dir, self.options, self.report)
        ready = replace(ready, predictor=self.sampling.applied(ready.predictor, self.report))
        require_apart(self.out, ready.data.root)
        names = self.asked.episodes
        return ready, named_episodes(ready.data.episodes, names) if names else ready.held_out

    def written(
        self, predictor: Predictor, jobs: Sequence[Job], roots: Sequence[str], fingerprint: str | None = None
    ) -> list[Path]:
        """The videos of these jobs.

        Args:
            roots: of the data sets that were read.
            fingerprint: of the data set whose windows are predicted.
        """
        _require_set_apart(self.lerobot, self.out, [*roots, predictor.bundle.about.get("data")])
        return write_jobs(
            predictor,
            jobs,
            self.out,
            settings=settings_of(self.run_dir, predictor, self.options, self.sampling, fingerprint),
            overwrite=self.options.overwrite,
            lerobot=self.lerobot,
            report=self.report,
        )


def _windows(call: _Call) -> list[Path]:
    """Windows of episodes, at most `max_clips` of them."""
    ready, chosen = call.chosen()
    spec, max_clips = ready.spec, call.asked.max_clips
    filmed = episodes_with(list(chosen), ready.view)
    require_simulated(filmed, ready.predictor)
    clips = Clips(filmed, spec, stride=spec.num_frames - 1)
    if len(clips) == 0:
        raise ValueError(
            f"{ready.data.root}: no chosen episode has view {ready.view} and the {spec.num_frames} frames of a window"
        )
    count = len(clips) if max_clips is None else min(len(clips), max_clips)
    jobs = jobs_of_clips(ready, clips, count, call.options.seed, call.sampling)
    return call.written(ready.predictor, jobs, [ready.data.root], ready.data.fingerprint)


def _rollouts(call: _Call) -> list[Path]:
    """Whole episodes, at most `max_clips` of them, chunk after chunk from their first frames."""
    ready, chosen = call.chosen()
    items = [(episode.name, RequestFields(episode=episode.name)) for episode in chosen[: call.asked.max_clips]]
    if not items:
        raise ValueError(f"{ready.data.root}: no episode to predict")
    reader = RequestReader(ready.predictor, opened=ready.data)
    requests = _checked(items, reader, Path(ready.data.root), call.report)
    jobs = jobs_of_requests(ready.predictor, requests, call.options.seed, call.sampling)
    return call.written(ready.predictor, jobs, [ready.data.root])


def _requests(call: _Call) -> list[Path]:
    """Pictures and commands, as long as the commands are; all requests are checked before the first is made."""
    asked, options, report = call.asked, call.options, call.report
    bundle = load_bundle(call.run_dir)
    sampler = stored_sampler(bundle, options.num_steps)
    view = view_index(bundle.spec, options.view)
    plain = Predictor(bundle, sampler, view=view, device=options.device, dtype=options.dtype)
    items = stored_requests(asked)
    predictor = call.sampling.following(item for _, item in items).applied(plain, report)
    reader = RequestReader(predictor, resize=asked.resize, data=options.data)
    requests = _checked(items, reader, asked.requests, report)
    for root in reader.roots:
        require_apart(call.out, root)
    without = sum(request.start.state is None for request in requests) if bundle.spec.state is not None else 0
    if without:
        report(f"warning: {without} of {len(requests)} requests give no state, which this model was trained to read")
    return call.written(predictor, jobs_of_requests(predictor, requests, options.seed, call.sampling), reader.roots)


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


def named_episodes(available: Sequence[Episode], names: Sequence[str]) -> list[Episode]:
    """Episodes by name, in the order asked for."""
    by_name = {episode.name: episode for episode in available}
    for name in names:
        if name not in by_name:
            raise ValueError(f"no episode {name!r}; episodes: {', '.join(list(by_name)[:20])}")
    return [by_name[name] for name in names]
