"""The loss on held-out windows during training: the same windows and noise every time, so that its curve compares."""

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from simforcing.data.latents import LatentWindows
from simforcing.nn.batch import map_tensors
from simforcing.nn.device import find_device
from simforcing.nn.protocols import Objective
from simforcing.recipes.run import Run
from simforcing.training.draws import draw

MAX_WINDOWS = 64


def held_out_loss(
    run: Run, objective: Objective, windows: LatentWindows
) -> Callable[[nn.Module, int], dict[str, float]]:
    """A validation for the trainer: the objective's mean over up to 64 held-out windows, spread evenly."""
    count = min(MAX_WINDOWS, windows.num_windows)
    chosen = np.unique(np.linspace(0, windows.num_windows - 1, count).round().astype(int)).tolist()
    size = run.trainer.batch_size
    device = find_device(run.trainer.device)

    def validate(model: nn.Module, step: int) -> dict[str, float]:
        total = 0.0
        for start in range(0, len(chosen), size):
            part = chosen[start : start + size]
            batch = windows.batch(part)
            # step 0 of the run's own seed, whatever the step: the draws must not change from one call to the next
            draws = draw(batch, run.seed, 0, range(start, start + len(part)))
            on_device = (map_tensors(batch, lambda x: x.to(device)), map_tensors(draws, lambda x: x.to(device)))
            with torch.no_grad():
                total += float(objective(model, *on_device).total) * len(part)
        return {"held_out_loss": total / len(chosen)}

    return validate
