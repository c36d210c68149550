"""Guidance: combinations of two velocities (docs/paper-to-code.md)."""

from jaxtyping import Float
from torch import Tensor


def guide(
    without: Float[Tensor, "*s"], conditioned: Float[Tensor, "*s"], weight: float | Float[Tensor, "..."]
) -> Float[Tensor, "*s"]:
    """v = v_off + w (v_on - v_off): w = 0 is `without`, w = 1 is `conditioned`, above 1 extrapolates."""
    return without + weight * (conditioned - without)
