"""What a long command will cost on this machine, measured on a small part of the work before it starts."""

import time
from collections.abc import Sequence
from copy import copy
from dataclasses import replace

from simforcing.data.conditions import conditions_of
from simforcing.data.convert import BYTES_PER_PIXEL
from simforcing.data.latents import encode_clips, first_frame_observed
from simforcing.data.verify import CHUNK, verify_videos
from simforcing.generation.rollout import Predictor
from simforcing.nn.batch import Batch, map_tensors
from simforcing.nn.device import find_device
from simforcing.recipes.lots import training_clips
from simforcing.recipes.run import Run
from simforcing.recipes.start import bound_objective, starting_model
from simforcing.training.draws import draw
from simforcing.types import Clip, DataSpec, EpisodeSet
from simforcing.types.progress import Report, in_words, throttled

REPORT_BYTES, REPORT_BYTES_PER_CLIP = 400e3, 3e3  # page, figures and record without videos, measured
REPORT_VIDEO_SIDE_PX = 256  # small frames are enlarged for the eye


def verified(data: EpisodeSet, views: Sequence[str], report: Report) -> EpisodeSet:
    """`verify_videos`, with its cost first, a line of progress every few seconds, and a line per episode left out."""
    report(verification_cost(data, views))
    known = verify_videos(data, views, progress=throttled(report, "checked videos of", "episodes"))
    for item in known.rejected[len(data.rejected) :]:
        report(f"{known.root}: episode {item.name} is left out: {item.reason}")
    return known


def verification_cost(data: EpisodeSet, views: Sequence[str]) -> str:
    """Time of decoding every frame in these views: the first part of the first video is timed."""
    chosen = [(e.num_frames, view) for e in data.episodes for view in e.views if view.name in views]
    num_frames = sum(count for count, _ in chosen)
    if not chosen:
        return "no video to check"
    count = min(CHUNK, chosen[0][0])
    begun = time.monotonic()
    try:
        chosen[0][1].frames.read(0, count)
    except ValueError:
        return f"checking that {num_frames} frames decode"  # the check itself names what is wrong
    seconds = (time.monotonic() - begun) / count * num_frames
    return f"checking that {num_frames} frames decode: about {in_words(seconds)} on this machine"


def training_cost(run: Run, data: EpisodeSet) -> str:
    """Time and disk of a run in words: one window is encoded and two steps are timed on this machine."""
    lots = training_clips(run, data)
    clips, num_windows = lots[0], sum(len(lot) for lot in lots)
    autoencoder = run.autoencoder.config.build()
    begun = time.monotonic()
    clip = clips[0]
    latents = encode_clips([clip], autoencoder)
    encode_s = time.monotonic() - begun
    batch_size = run.trainer.batch_size
    conditions = conditions_of([clip] * batch_size, run.spec, autoencoder.temporal_factor, autoencoder.spatial_factor)
    clean = latents[:, : len(run.spec.views)].expand(batch_size, -1, -1, -1, -1, -1).nan_to_num()
    batch = Batch(
        clean=clean,
        observed=first_frame_observed(clean),
        conditions=conditions,
        sim=clean if run.spec.sim_views else None,
    )
    step_s, num_parameters = step_cost(run, batch)
    seconds = encode_s * num_windows + step_s * run.trainer.num_steps * 1.1
    num_bytes = 4 * latents.numel() * num_windows + 4 * num_parameters * (4 * run.trainer.keep_checkpoints + 1)
    return (
        f"about {in_words(seconds)} on this machine ({num_windows} windows, {run.trainer.num_steps} steps"
        f" of {batch_size} clips), {num_bytes / 1e6:.0f} MB of disk"
    )


def step_cost(run: Run, batch: Batch) -> tuple[float, int]:
    """(seconds of the quicker of two steps, parameters of the model)."""
    device = find_device(run.trainer.device)
    model = starting_model(run).to(device)
    objective = bound_objective(run, model, device)
    draws = draw(batch, run.seed, 0, range(run.trainer.batch_size))
    batch, draws = map_tensors(batch, lambda x: x.to(device)), map_tensors(draws, lambda x: x.to(device))
    times = []
    for _ in range(2):
        begun = time.monotonic()
        objective(model, batch, draws).total.backward()
        times.append(time.monotonic() - begun)
    return min(times), sum(p.numel() for p in model.parameters())


def prediction_cost(
    predictor: Predictor, clip: Clip, count: int, *, batch_size: int, num_bytes: float, what: str = "clips"
) -> str:
    """Time and disk of predicting `count` clips like this one: one sampling step of one batch is timed.

    Args:
        num_bytes: what will be written.
        what: name of what is counted.
    """
    size = min(batch_size, count)
    probe = copy(predictor)
    probe.sampler = replace(predictor.sampler, num_steps=1)
    begun = time.monotonic()
    probe.predict([clip] * size, [0] * size)
    seconds = (time.monotonic() - begun) * predictor.sampler.num_steps * count / size
    return f"about {in_words(seconds)} on this machine for {count} {what}, {num_bytes / 1e6:.1f} MB of disk"


def clip_bytes(spec: DataSpec) -> float:
    """Of one clip as two videos: alone, and beside the real one (three panels)."""
    return 4 * spec.num_frames * spec.resize.height * spec.resize.width * BYTES_PER_PIXEL


def report_bytes(spec: DataSpec, num_clips: int, num_videos: int) -> float:
    """Of an evaluation's folder: page with videos in text form, record and contact sheet."""
    scale = max(1.0, REPORT_VIDEO_SIDE_PX / max(spec.resize.height, spec.resize.width))
    pixels = 3 * spec.num_frames * spec.resize.height * spec.resize.width * scale**2
    videos = min(num_videos, num_clips) * pixels * BYTES_PER_PIXEL * 4 / 3 / scale  # enlarged frames are smooth
    return REPORT_BYTES + REPORT_BYTES_PER_CLIP * num_clips + videos
