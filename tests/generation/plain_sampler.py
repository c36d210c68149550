"""The published sampler, word for word: one whole pass per velocity, nothing computed once (Euler steps)."""

from itertools import pairwise

import torch
from torch import Tensor

from simforcing.models.world_model import WorldModelNetwork
from simforcing.nn.batch import Conditions, SimCondition, Streams


@torch.no_grad()
def plain_sample(
    model: WorldModelNetwork,
    given: Tensor,
    conditions: Conditions,
    noise: Tensor,
    num_steps: int,
    *,
    sim: Tensor | None = None,
    undirected: Conditions | None = None,
    w: float = 0.6,
    a: float = 1.0,
) -> Tensor:
    """Latents; frame 0 of `given` is the only one that is read.

    Args:
        sim: simulation latents; None: without the condition path.
        undirected: the conditions with dropped actions, where a is not 1.
        w, a: strength of the simulation's and of the actions' guidance.
    """

    def passed(z: Tensor, sigma: float, seen: Conditions, gate: float) -> Tensor:
        level = z.new_full(z.shape[:3:2], sigma)
        level[:, 0] = 0
        known = {}
        if sim is not None and gate:
            known["sim"] = SimCondition(latents=sim, gate=z.new_full((len(z),), gate))
        return model(Streams(video=z), Streams(video=level), seen, **known).video

    def velocity(z: Tensor, sigma: float) -> Tensor:
        if sim is None or w == 0:
            v = passed(z, sigma, conditions, 0)
            return v if a == 1 else (v0 := passed(z, sigma, undirected, 0)) + a * (v - v0)
        on = passed(z, sigma, conditions, 1)
        v = on if w == 1 else (off := passed(z, sigma, conditions, 0)) + w * (on - off)
        return v if a == 1 else v + (a - 1) * (on - passed(z, sigma, undirected, 1))

    u = 1 - torch.arange(num_steps + 1, dtype=torch.float64) / num_steps
    sigmas = (5 * u / (1 + 4 * u)).tolist()
    z = noise.clone()
    for sigma, following in pairwise(sigmas):
        z[:, :, 0] = given[:, :, 0]
        z = z + (following - sigma) * velocity(z, sigma)
    z[:, :, 0] = given[:, :, 0]
    return z
