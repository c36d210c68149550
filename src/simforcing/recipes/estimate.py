"""What a long command will cost on this machine, measured on a small part of the work before it starts."""

import time
from dataclasses import replace

from simforcing.data.clips import Clips
from simforcing.data.latents import conditions_of, encode_clips, first_frame_observed
from simforcing.generation.rollout import Predictor
from simforcing.nn.batch import Batch, map_tensors
from simforcing.nn.device import find_device
from simforcing.recipes.run import Run
from simforcing.training.draws import draw
from simforcing.types import Clip, EpisodeSet

VIDEO_BYTES_PER_PIXEL = 0.2  # H.264 at our quality, measured on robot clips; an upper bound


def training_cost(run: Run, data: EpisodeSet) -> str:
    """Time and disk of a run in words: one window is encoded and two steps are timed on this machine."""
    training = [episode for episode in data.episodes if episode.name not in run.held_out]
    clips = Clips(training, run.spec, stride=run.window_stride)
    autoencoder = run.autoencoder.config.build()
    begun = time.monotonic()
    clip = clips[0]
    clean = encode_clips([clip], autoencoder)
    encode_s = time.monotonic() - begun
    batch_size = run.trainer.batch_size
    conditions = conditions_of([clip] * batch_size, run.spec, autoencoder.temporal_factor)
    batch = Batch(
        clean=clean.expand(batch_size, *clean.shape[1:]).nan_to_num(),
        observed=first_frame_observed(clean).expand(batch_size, -1),
        conditions=conditions,
    )
    device = find_device(run.trainer.device)
    model = run.model.build().to(device)
    draws = draw(batch, run.seed, 0, range(batch_size))
    batch, draws = map_tensors(batch, lambda x: x.to(device)), map_tensors(draws, lambda x: x.to(device))
    times = []
    for _ in range(2):
        begun = time.monotonic()
        run.objective(model, batch, draws).total.backward()
        times.append(time.monotonic() - begun)
    seconds = encode_s * len(clips) + min(times) * run.trainer.num_steps * 1.1
    parameters = sum(p.numel() for p in model.parameters())
    num_bytes = 4 * clean.numel() * len(clips) + 4 * parameters * (4 * run.trainer.keep_checkpoints + 1)
    return (
        f"about {in_words(seconds)} on this machine ({len(clips)} windows, {run.trainer.num_steps} steps"
        f" of {batch_size} clips), {num_bytes / 1e6:.0f} MB of disk"
    )


def prediction_cost(predictor: Predictor, clip: Clip, count: int, *, batch_size: int, with_videos: bool) -> str:
    """Time and disk of predicting `count` clips like this one: one sampling step of one batch is timed.

    Args:
        with_videos: each clip is written twice, alone and beside the real one (three panels).
    """
    size = min(batch_size, count)
    probe = Predictor(
        predictor.bundle, replace(predictor.sampler, num_steps=1), view=predictor.view, device=str(predictor.device)
    )
    begun = time.monotonic()
    probe.predict([clip] * size, [0] * size)
    seconds = (time.monotonic() - begun) * predictor.sampler.num_steps * count / size
    pixels = clip.frames[0].size / 3 * 4
    disk = f", {count * pixels * VIDEO_BYTES_PER_PIXEL / 1e6:.1f} MB of disk" if with_videos else ""
    return f"about {in_words(seconds)} on this machine for {count} clips{disk}"


def in_words(seconds: float) -> str:
    """Seconds below two minutes, else minutes."""
    return f"{max(1, round(seconds))} s" if seconds < 120 else f"{round(seconds / 60)} min"
