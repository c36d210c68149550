"""The shifted noise law, the schedule of the sampler and the loss weight W(sigma) (docs/paper-to-code.md)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

SHIFT = 5.0


def shift_sigma(u: Float[Tensor, "*s"], shift: float = SHIFT) -> Float[Tensor, "*s"]:
    """phi(u) = shift * u / (1 + (shift - 1) * u): uniform u to sigma; with shift 5 its median is 0.833."""
    return shift * u / (1 + (shift - 1) * u)


def sampling_sigmas(num_steps: int, shift: float = SHIFT) -> Float[Tensor, " n"]:
    """sigma_i = phi(1 - i / N), i = 0..N, in float64: from exactly 1 to exactly 0.

    Raises:
        ValueError: fewer than one step, or a shift that is not positive.
    """
    if num_steps < 1:
        raise ValueError(f"num_steps is {num_steps}; a sampler needs at least 1 step")
    if shift <= 0:
        raise ValueError(f"shift is {shift}; it must be positive (1 = uniform, 5 = the published schedule)")
    u = 1 - torch.arange(num_steps + 1, dtype=torch.float64) / num_steps
    return shift_sigma(u, shift)


_W_FLOOR = math.exp(-0.5)
_W_MEAN = 0.189496  # the mean of the numerator when sigma follows the shift-5 law


def loss_weight(sigma: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """W(sigma) = (exp(-2 (sigma - 1/2)^2) - exp(-1/2)) / 0.189496: 0 at both ends, mean 1 under the shift-5 law."""
    return (torch.exp(-2 * (sigma - 0.5) ** 2) - _W_FLOOR) / _W_MEAN
