"""Sampling: latents of a whole clip from its given frames and conditions (docs/paper-to-code.md)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from simforcing.flow.guidance import guide
from simforcing.flow.path import frame_sigma, per_frame
from simforcing.flow.schedule import SHIFT, sampling_sigmas
from simforcing.flow.solver import SOLVERS
from simforcing.nn.batch import Conditions, Streams


@dataclass(frozen=True, kw_only=True)
class SamplerConfig:
    """How latents are drawn.

    Args:
        num_steps: steps of the schedule.
        shift: of the schedule; 1 = uniform.
        solver: euler (one velocity a step) or heun (two, second order).
        action_guidance: v0 + scale (v - v0), v0 under zero actions; 1 = off.
    """

    num_steps: int = 20
    shift: float = SHIFT
    solver: Literal["euler", "heun"] = "euler"
    action_guidance: float = 1.0

    def __post_init__(self) -> None:
        if self.num_steps < 1:
            raise ValueError(f"num_steps is {self.num_steps}; a sampler needs at least 1 step")
        if self.solver not in SOLVERS:
            raise ValueError(f"unknown solver {self.solver!r}; choices: {', '.join(SOLVERS)}")


def draw_noise(shape: Sequence[int], seeds: Sequence[int]) -> Float[Tensor, "..."]:
    """Gaussian noise in float32 on the CPU, one generator per clip: a clip's video does not depend on its batch."""
    clips = [torch.randn(tuple(shape), generator=torch.Generator().manual_seed(seed)) for seed in seeds]
    return torch.stack(clips)


@torch.no_grad()
def sample(
    model: nn.Module,
    given: Float[Tensor, "b v g c h w"],
    observed: Bool[Tensor, "b g"],
    conditions: Conditions,
    noise: Float[Tensor, "b v g c h w"],
    config: SamplerConfig,
) -> Float[Tensor, "b v g c h w"]:
    """Clean latents of every frame: the given ones as they are, the others generated.

    Args:
        given: latents; only the observed frames are read.
        observed: which latent frames are given.
        noise: the starting point, see `draw_noise`.
    """
    keep = per_frame(observed)
    sigmas = sampling_sigmas(config.num_steps, config.shift)
    undirected = replace(conditions, action=torch.zeros_like(conditions.action))

    def predict(z: Tensor, level: Tensor, seen: Conditions) -> Tensor:
        video = model(Streams(video=z), Streams(video=level), seen).video
        if video is None:
            raise ValueError("this model does not denoise video; a sampler of video needs one that does")
        return video

    def velocity(z: Tensor, sigma: Tensor) -> Tensor:
        level = frame_sigma(sigma.to(z).expand(z.shape[0]), observed)
        directed = predict(z, level, conditions)
        if config.action_guidance == 1.0:
            return directed
        return guide(predict(z, level, undirected), directed, config.action_guidance)

    return SOLVERS[config.solver](velocity, noise, sigmas, lambda z: torch.where(keep, given, z))
