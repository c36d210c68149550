"""`simforcing train`: a data set and a recipe to a finished run, with an estimate first."""

import time
from collections.abc import Callable
from pathlib import Path

import torch

from simforcing.data.clips import Clips
from simforcing.data.latents import conditions_of, encode_clips, first_frame_observed
from simforcing.data.open import open_dataset, require_layout
from simforcing.data.validate import describe
from simforcing.data.verify import verify_videos
from simforcing.models.bundle import Bundle
from simforcing.nn.batch import Batch, map_tensors
from simforcing.recipes import recipe_named
from simforcing.recipes.execute import execute
from simforcing.recipes.run import Run, RunOptions
from simforcing.training.draws import draw
from simforcing.types import EpisodeSet

Report = Callable[[str], None]


def train_on(
    data: str,
    out: Path,
    *,
    recipe: str,
    options: RunOptions,
    overwrite: bool = False,
    command: str = "",
    report: Report = print,
) -> Bundle:
    """Open, verify, plan, estimate, train.

    Raises:
        ValueError: unusable data, no declared layout, a choice that does not fit, or another run in `out`.
    """
    plan = recipe_named(recipe)
    opened = open_dataset(data)
    for line in describe(opened):
        report(line)
    require_layout(opened)
    known = verify_videos(opened, options.views or (opened.episodes[0].views[0].name,))
    for item in known.rejected[len(opened.rejected) :]:
        report(f"{known.root}: episode {item.name} is left out: {item.reason}")
    run = plan(known, options)
    report(estimate(run, known))
    return execute(run, known, out, report=report, command=command, overwrite=overwrite)


def estimate(run: Run, data: EpisodeSet) -> str:
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
    device = torch.device(run.trainer.device)
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
        f"about {max(1, round(seconds / 60))} min on this machine ({len(clips)} windows, {run.trainer.num_steps} steps"
        f" of {batch_size} clips), {num_bytes / 1e6:.0f} MB of disk"
    )
