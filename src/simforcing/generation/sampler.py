"""Sampling: latents of a whole clip from its given frames and conditions (docs/paper-to-code.md)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from simforcing.flow.guidance import guide
from simforcing.flow.path import frame_sigma, per_frame
from simforcing.flow.schedule import SHIFT, sampling_sigmas
from simforcing.flow.solver import SOLVERS
from simforcing.models.bundle import Bundle
from simforcing.models.world_model import WorldModelNetwork
from simforcing.nn.batch import Conditions, SimCondition, Streams, without_actions
from simforcing.types import check_choices, from_json


@dataclass(frozen=True, kw_only=True)
class SamplerConfig:
    """How latents are drawn.

    Args:
        num_steps: steps of the schedule.
        shift: of the schedule; 1 = uniform.
        solver: euler (one velocity a step) or heun (two, second order).
        action_guidance: v0 + scale (v - v0), v0 under dropped actions; 1 = off.
        sim_guidance: w of models with the simulation condition: v_off + w (v_on - v_off); 0 = without simulation.
        sim_source: the simulation that conditions: the model's own rollout, or the true one (a bound).
    """

    num_steps: int = 20
    shift: float = SHIFT
    solver: Literal["euler", "heun"] = "euler"
    action_guidance: float = 1.0
    sim_guidance: float = 0.6
    sim_source: Literal["self", "true"] = "self"

    def __post_init__(self) -> None:
        if self.num_steps < 1:
            raise ValueError(f"num_steps is {self.num_steps}; a sampler needs at least 1 step")
        if self.solver not in SOLVERS:
            raise ValueError(f"unknown solver {self.solver!r}; choices: {', '.join(SOLVERS)}")
        if self.sim_guidance < 0:
            raise ValueError(f"sim_guidance is {self.sim_guidance}; it must be at least 0 (0 = without simulation)")
        check_choices(self)


def stored_sampler(bundle: Bundle, num_steps: int | None = None) -> SamplerConfig:
    """The sampler of the recipe that made the run, at another number of steps if one is given."""
    where = f"{bundle.source}: about.run.sampler"
    stored = bundle.about.get("run", {}).get("sampler")
    if stored is None:
        raise ValueError(f"{where} is missing")
    try:
        sampler = from_json(SamplerConfig, stored, where)
    except ValueError as error:
        raise ValueError(str(error) if str(error).startswith(where) else f"{where}: {error}") from error
    return sampler if num_steps is None else replace(sampler, num_steps=num_steps)


def draw_noise(shape: Sequence[int], seeds: Sequence[int]) -> Float[Tensor, "..."]:
    """Gaussian noise in float32 on the CPU, one generator per clip: a clip's video does not depend on its batch."""
    clips = [torch.randn(tuple(shape), generator=torch.Generator().manual_seed(seed)) for seed in seeds]
    return torch.stack(clips)


class _Seen:
    """Conditions, and what of them a model needs to compute once for all steps and branches."""

    def __init__(self, model: nn.Module, conditions: Conditions, z: Tensor) -> None:
        self.conditions = conditions
        self.known: dict[str, Any] = {}
        if isinstance(model, WorldModelNetwork) and model.has_context:
            self.known = {"context": model.context(conditions, z)}


@torch.no_grad()
def sample(
    model: nn.Module,
    given: Float[Tensor, "b v g c h w"],
    observed: Bool[Tensor, "b g"],
    conditions: Conditions,
    noise: Float[Tensor, "b v g c h w"],
    config: SamplerConfig,
    sim: Float[Tensor, "b v g c h w"] | None = None,
) -> Float[Tensor, "b v g c h w"]:
    """Clean latents of every frame: the given ones as they are, the others generated.

    With simulation latents the velocity is v_off + w (v_on - v_off), and action guidance adds (a - 1) (v_on - v_on0);
    without them, or with w = 0 (ours: nothing of the condition path is left then), it is v0 + a (v - v0), where 0 =
    dropped actions. Keys and values of actions and text are computed once for all steps and branches.

    Args:
        given: latents; only the observed frames are read.
        observed: which latent frames are given.
        noise: the starting point, see `draw_noise`.
        sim: latents of the simulation, all frames; None: the condition path is absent.
    """
    keep = per_frame(observed)
    sigmas = sampling_sigmas(config.num_steps, config.shift)
    dropped = torch.ones(noise.shape[0], dtype=torch.bool, device=noise.device)
    w, a = config.sim_guidance, config.action_guidance
    directed = _Seen(model, conditions, noise)
    undirected = directed if a == 1 else _Seen(model, without_actions(conditions, dropped), noise)

    def predict(z: Tensor, level: Tensor, seen: _Seen, gates: Sequence[float]) -> list[Tensor]:
        """Velocities of one branch per gate, from one pass."""
        condition = None
        if sim is not None:
            gate = torch.tensor(gates, device=z.device, dtype=z.dtype).repeat_interleave(z.shape[0])
            condition = SimCondition(latents=sim, gate=gate)
        branches = len(gates)
        noisy, levels = z.repeat(branches, 1, 1, 1, 1, 1), level.repeat(branches, 1)
        known = seen.known if condition is None else {**seen.known, "sim": condition}
        video = model(Streams(video=noisy), Streams(video=levels), seen.conditions, **known).video
        if video is None:
            raise ValueError("this model does not denoise video; a sampler of video needs one that does")
        return list(video.chunk(branches))

    def velocity(z: Tensor, sigma: Tensor) -> Tensor:
        level = frame_sigma(sigma.to(z).expand(z.shape[0]), observed)
        if sim is None or w == 0:
            (plain,) = predict(z, level, directed, [0.0])
            return plain if a == 1 else guide(predict(z, level, undirected, [0.0])[0], plain, a)
        off, on = predict(z, level, directed, [0.0, 1.0]) if w != 1 else 2 * predict(z, level, directed, [1.0])
        steered = guide(off, on, w)
        return steered if a == 1 else steered + (a - 1) * (on - predict(z, level, undirected, [1.0])[0])

    return SOLVERS[config.solver](velocity, noise, sigmas, lambda z: torch.where(keep, given, z))
