"""Which windows a step trains on, and its random numbers: pure functions of (seed, step, global position).

So nothing random lies in a checkpoint, a resumed run continues exactly, and ranks draw what one process would draw.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Int

from simforcing.nn.batch import Batch, Draws

# The first word of each stream's key: NumPy pads short keys with zeros, so a key's length tells nothing apart.
ORDER_STREAM, NOISE_STREAM, MODEL_STREAM = 1, 2, 3
NUM_DROPS = 8


def window_indices(num_windows: int, batch_size: int, seed: int, step: int) -> list[int]:
    """Windows of the global batch: every epoch is a permutation, and batches run on across its end.

    Raises ValueError where there is no window.
    """
    if num_windows < 1:
        raise ValueError("the data has no window to train on")
    positions = range(step * batch_size, (step + 1) * batch_size)
    return [int(_permutation(num_windows, seed, p // num_windows)[p % num_windows]) for p in positions]


def draw(batch: Batch, seed: int, step: int, positions: Sequence[int]) -> Draws:
    """Random numbers for the clips of `batch`, which stand at `positions` of the global batch. On the CPU, float32."""
    size = len(positions)
    uniform = np.empty(size, np.float32)
    drop = np.empty((size, NUM_DROPS), np.float32)
    noise = np.empty((size, *batch.clean.shape[1:]), np.float32)
    action_noise = np.empty((size, *batch.conditions.action.shape[1:]), np.float32)
    for row, position in enumerate(positions):
        generator = np.random.default_rng((NOISE_STREAM, seed, step, position))
        uniform[row] = generator.random(dtype=np.float32)
        generator.random(out=drop[row], dtype=np.float32)
        generator.standard_normal(out=noise[row], dtype=np.float32)
        generator.standard_normal(out=action_noise[row], dtype=np.float32)
    return Draws(
        uniform=torch.from_numpy(uniform),
        noise=torch.from_numpy(noise),
        action_noise=torch.from_numpy(action_noise),
        drop=torch.from_numpy(drop),
    )


def seed_model(seed: int, step: int, rank: int) -> None:
    """Seed torch's own generators for one step, for models that draw inside (nn.Dropout)."""
    torch.manual_seed(
        int(np.random.SeedSequence((MODEL_STREAM, seed, step, rank)).generate_state(1, np.uint64)[0] >> 1)
    )


@lru_cache(maxsize=4)
def _permutation(num_windows: int, seed: int, epoch: int) -> Int[np.ndarray, " n"]:
    return np.random.default_rng((ORDER_STREAM, seed, epoch)).permutation(num_windows)
