"""Solvers of dz/dsigma = velocity(z, sigma) along a falling schedule (docs/paper-to-code.md).

A solver is a function (velocity, z, sigmas, keep_given) -> z. `keep_given` puts the given latent frames back after
every step; it is the identity where nothing is given.
"""

from collections.abc import Callable
from itertools import pairwise

from jaxtyping import Float
from torch import Tensor

Velocity = Callable[[Tensor, Tensor], Tensor]
KeepGiven = Callable[[Tensor], Tensor]


def euler(
    velocity: Velocity, z: Float[Tensor, "*s"], sigmas: Float[Tensor, " n"], keep_given: KeepGiven
) -> Float[Tensor, "*s"]:
    """First order: z <- z + (sigma_{i+1} - sigma_i) * v(z, sigma_i). One velocity per step."""
    z = keep_given(z)
    for sigma, following in pairwise(sigmas):
        z = keep_given(z + (following - sigma).to(z.dtype) * velocity(z, sigma))
    return z


def heun(
    velocity: Velocity, z: Float[Tensor, "*s"], sigmas: Float[Tensor, " n"], keep_given: KeepGiven
) -> Float[Tensor, "*s"]:
    """Second order: the mean of the slopes at both ends of a step; an Euler step where the far end is sigma 0.

    Two velocities per step but the last (a velocity at sigma 0 is undefined for networks that predict clean latents).
    """
    z = keep_given(z)
    for sigma, following in pairwise(sigmas):
        step = (following - sigma).to(z.dtype)
        first = velocity(z, sigma)
        ahead = keep_given(z + step * first)
        z = ahead if following == 0 else keep_given(z + step * (first + velocity(ahead, following)) / 2)
    return z


SOLVERS: dict[str, Callable[[Velocity, Tensor, Tensor, KeepGiven], Tensor]] = {"euler": euler, "heun": heun}
