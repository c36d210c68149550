"""Makes and writes generated videos: batch by batch, what is missing alone, each file whole or not there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from simforcing.data.video import write_video
from simforcing.evaluation.pictures import side_by_side
from simforcing.generation.rollout import Predictor
from simforcing.generation.session import follows_given, needs_sim, roll_out
from simforcing.recipes.estimate import clip_bytes, prediction_cost
from simforcing.recipes.generated_folder import Video, claim_videos, view_ending
from simforcing.recipes.generated_set import require_fitting_set, write_set
from simforcing.recipes.requests import Request
from simforcing.types import Clip
from simforcing.types.progress import Report


@dataclass(frozen=True, kw_only=True)
class Job:
    """One video to make: what it is called, and how to read what it is made of."""

    video: Video
    num_actions: int
    views: tuple[str, ...]
    read: Callable[[], Clip | Request]


@dataclass(frozen=True, kw_only=True)
class Made:
    """One generated video, the given frame first.

    Args:
        sim: the model's own simulation, where it made one.
        truth: what was filmed.
    """

    frames: UInt8[np.ndarray, "v f h w 3"]
    sim: UInt8[np.ndarray, "v f h w 3"] | None
    truth: UInt8[np.ndarray, "v f h w 3"] | None


def write_jobs(
    predictor: Predictor,
    jobs: Sequence[Job],
    out: Path,
    *,
    settings: dict[str, Any],
    overwrite: bool,
    lerobot: Path | None,
    report: Report,
) -> list[Path]:
    """Make and write the videos that are missing, batch by batch. ValueError as `claim_videos`."""
    if lerobot is not None:
        require_fitting_set(lerobot, jobs, predictor.spec, settings, overwrite=overwrite)
    removed = claim_videos(out, settings, [job.video for job in jobs], overwrite=overwrite)
    if removed:
        report(f"removed {removed} files of other settings or inputs from {out}")
    todo = {job.video.name for job in jobs if overwrite or not job.video.is_there(out)}
    report(f"{len(jobs)} videos, {len(jobs) - len(todo)} already there, to {out}")
    batches = batches_of(jobs, settings["batch_size"])
    if todo:
        report(cost_of([job for job in jobs if job.video.name in todo], predictor, settings["batch_size"]))
    written = 0
    for batch in batches:
        # the whole batch, whatever is missing of it: the last bits of a product depend on how many rows it has
        missing = [job for job in batch if job.video.name in todo]
        if not missing:
            continue
        made = make(predictor, [job.read() for job in batch], [job.video.seed for job in batch])
        for job, video in zip(batch, made, strict=True):
            if job.video.name in todo:
                write_made(job, video, predictor, out)
        written += len(missing)
        report(f"generated {written}/{len(todo)}")
    if lerobot is not None:
        write_set(lerobot, jobs, out, spec=predictor.spec, settings=settings, report=report)
    return [job.video.paths(out)[0] for job in jobs]


def batches_of(jobs: Sequence[Job], size: int) -> list[list[Job]]:
    """Jobs of one length together, in order."""
    lengths = list(dict.fromkeys(job.num_actions for job in jobs))
    of_length = [[job for job in jobs if job.num_actions == length] for length in lengths]
    return [group[at : at + size] for group in of_length for at in range(0, len(group), size)]


def make(predictor: Predictor, sources: Sequence[Clip | Request], seeds: Sequence[int]) -> list[Made]:
    """Videos of one batch, which holds windows alone or requests of one length alone."""
    clips = [source for source in sources if isinstance(source, Clip)]
    if clips:
        assert len(clips) == len(sources), "windows and requests are made by different calls"
        return predict_windows(predictor, clips, seeds)
    return follow(predictor, [source for source in sources if isinstance(source, Request)], seeds)


def predict_windows(predictor: Predictor, clips: Sequence[Clip], seeds: Sequence[int]) -> list[Made]:
    """One window each; the given frame goes through the autoencoder too."""
    made = predictor.generate(clips, seeds)
    frames = predictor.decode(made.latents)
    sims = None if made.sim is None else predictor.decode(made.sim)
    return [
        Made(frames=frames[i], sim=None if sims is None else sims[i], truth=clip.frames[: len(predictor.spec.views)])
        for i, clip in enumerate(clips)
    ]


def follow(predictor: Predictor, requests: Sequence[Request], seeds: Sequence[int]) -> list[Made]:
    """Chunk after chunk, as long as the commands last."""
    spec, given = predictor.spec, None
    if follows_given(predictor):
        given = [request.simulation(spec) for request in requests]
    actions = np.stack([request.action for request in requests])
    videos = roll_out(predictor, [request.start for request in requests], actions, seeds, given)
    return [
        Made(frames=video.frames, sim=video.sim_frames, truth=request.frames(spec, spec.views))
        for request, video in zip(requests, videos, strict=True)
    ]


def write_made(job: Job, made: Made, predictor: Predictor, out: Path) -> None:
    """Its files, `<name>.mp4` last."""
    spec = predictor.spec
    main = spec.views.index(job.views[0])
    videos = {view_ending(view): made.frames[spec.views.index(view)] for view in job.views[1:]}
    if made.sim is not None:
        videos[".sim.mp4"] = made.sim[main]
    if made.truth is not None:
        videos[".compare.mp4"] = side_by_side(made.truth[main], made.frames[main], spec.fps)
    videos[".mp4"] = made.frames[main]
    for ending in reversed(job.video.endings):
        write_video(out / f"{job.video.name}{ending}", videos[ending], spec.fps)


def endings_of(predictor: Predictor, views: Sequence[str], *, has_truth: bool) -> tuple[str, ...]:
    """Endings of the files that are written of one video of these views, the first alone as `.mp4`."""
    own_sim = needs_sim(predictor) and not follows_given(predictor)
    others = [view_ending(view) for view in views[1:]]
    return (".mp4", *others, *((".sim.mp4",) if own_sim else ()), *((".compare.mp4",) if has_truth else ()))


def cost_of(jobs: Sequence[Job], predictor: Predictor, batch_size: int) -> str:
    """Time and disk in words, from one sampling step of one window."""
    source, spec = jobs[0].read(), predictor.spec
    if isinstance(source, Request):
        source = source.first_window(spec)
    windows = sum(-(-job.num_actions // spec.num_actions) for job in jobs)
    num_bytes = clip_bytes(spec) * windows
    return prediction_cost(predictor, source, windows, batch_size=batch_size, num_bytes=num_bytes, what="windows")
