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
    draws = Draws(
        uniform=torch.empty(size),
        noise=torch.empty(size, *batch.clean.shape[1:]),
        action_noise=torch.empty(size, *batch.conditions.action.shape[1:]),
        drop=torch.empty(size, NUM_DROPS),
        sim_noise=None if batch.sim is None else torch.empty(size, *batch.sim.shape[1:]),
    )
    generator = torch.Generator()
    for row, position in enumerate(positions):
        generator.manual_seed(_hash(NOISE_STREAM, seed, step, position))
        draws.uniform[row].uniform_(generator=generator)
        draws.drop[row].uniform_(generator=generator)
        draws.noise[row].normal_(generator=generator)
        draws.action_noise[row].normal_(generator=generator)
        if draws.sim_noise is not None:
            draws.sim_noise[row].normal_(generator=generator)
    return draws


def seed_model(seed: int, step: int, rank: int, device: torch.device) -> None:
    """Seed torch's own generators for one step, for models that draw inside (nn.Dropout)."""
    number = _hash(MODEL_STREAM, seed, step, rank)
    if device.type == "cpu":
        torch.default_generator.manual_seed(number)  # torch.manual_seed walks the stack for absent GPUs: 0.3 ms
    else:
        torch.manual_seed(number)


def _hash(*key: int) -> int:
    # 32 bits, as torch's CPU generator takes no more: of a million clips, about a hundred pairs share their noise.
    return int(np.random.SeedSequence(key).generate_state(1)[0])


@lru_cache(maxsize=4)
def _permutation(num_windows: int, seed: int, epoch: int) -> Int[np.ndarray, " n"]:
    return np.random.default_rng((ORDER_STREAM, seed, epoch)).permutation(num_windows)
