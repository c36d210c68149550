"""Sampling: latents of a whole clip from its given frames and conditions (docs/paper-to-code.md)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from simforcing.flow.guidance import guide
from simforcing.flow.path import frame_sigma, per_frame
from simforcing.flow.schedule import SHIFT, sampling_sigmas
from simforcing.flow.solver import SOLVERS
from simforcing.models.bundle import Bundle
from simforcing.models.prepared import Branch, Prepared
from simforcing.models.world_model import WorldModelNetwork
from simforcing.nn.batch import Conditions, SimCondition, Streams, map_tensors, without_actions
from simforcing.types import check_choices, from_json


@dataclass(frozen=True, kw_only=True)
class SamplerConfig:
    """How latents are drawn.

    Args:
        num_steps: steps of the schedule.
        shift: of the schedule; 1 = uniform.
        solver: euler (one velocity a step) or heun (two, second order).
        action_guidance: v0 + scale (v - v0), v0 under dropped actions; 1 = off.
        sim_guidance: w of models with the simulation condition: v_off + w (v_on - v_off); 0 = without simulation, meant
            for 0..1, extrapolating outside.
        sim_source: the simulation that conditions: the model's own rollout, or the true one (a bound).
    """

    num_steps: int = 20
    shift: float = SHIFT
    solver: Literal["euler", "heun"] = "euler"
    action_guidance: float = 1.0
    sim_guidance: float = 0.6
    sim_source: Literal["self", "true"] = "self"

    def __post_init__(self) -> None:
        if isinstance(self.num_steps, bool) or not isinstance(self.num_steps, int):
            raise ValueError(f"num_steps is {self.num_steps!r}; it must be a whole number")
        if self.num_steps < 1:
            raise ValueError(f"num_steps is {self.num_steps}; a sampler needs at least 1 step")
        if self.solver not in SOLVERS:
            raise ValueError(f"unknown solver {self.solver!r}; choices: {', '.join(SOLVERS)}")
        for name in ("shift", "action_guidance", "sim_guidance"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError(f"{name} is {value!r}; it must be a finite number")
        if self.shift <= 0:
            raise ValueError(f"shift is {self.shift}; it must be positive (1 = uniform, 5 = the published schedule)")
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


class _Passes:
    """Velocities of several branches by whole passes, one for each set of conditions: for any network."""

    def __init__(self, model: nn.Module, branches: Sequence[Branch], observed: Tensor, sim: Tensor | None) -> None:
        self.model, self.branches, self.observed, self.sim = model, branches, observed, sim

    def velocities(self, z: Tensor, sigma: float) -> Tensor:
        """Branch after branch."""
        level = frame_sigma(z.new_full((z.shape[0],), sigma), self.observed)
        return torch.cat([self._pass(z, level, list(same)) for _, same in groupby(self.branches, _conditions_id)])

    def _pass(self, z: Tensor, level: Tensor, branches: Sequence[Branch]) -> Tensor:
        def repeated(tensor: Tensor) -> Tensor:
            return tensor.repeat(len(branches), *(1 for _ in tensor.shape[1:]))

        known: dict[str, SimCondition] = {}
        if self.sim is not None and any(branch.gate for branch in branches):
            gate = z.new_tensor([branch.gate for branch in branches]).repeat_interleave(z.shape[0])
            known["sim"] = SimCondition(latents=repeated(self.sim), gate=gate)
        conditions = map_tensors(branches[0].conditions, repeated)
        video = self.model(Streams(video=repeated(z)), Streams(video=repeated(level)), conditions, **known).video
        if video is None:
            raise ValueError("this model does not denoise video; a sampler of video needs one that does")
        return video


def _conditions_id(branch: Branch) -> int:
    return id(branch.conditions)


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
    dropped actions. All velocities of a step are one pass, and what no noise enters is computed once
    (`models.prepared`).

    Args:
        given: latents; only the observed frames are read.
        observed: which latent frames are given.
        noise: the starting point, see `draw_noise`.
        sim: latents of the simulation, all frames; None: the condition path is absent.
    """
    sigmas = sampling_sigmas(config.num_steps, config.shift)
    w, a = config.sim_guidance, config.action_guidance
    dropped = torch.ones(noise.shape[0], dtype=torch.bool, device=noise.device)
    undirected = conditions if a == 1 else without_actions(conditions, dropped)
    if sim is None or w == 0:
        branches = [Branch(conditions=conditions)]
    else:
        branches = [Branch(conditions=conditions, gate=gate) for gate in ((0.0, 1.0) if w != 1 else (1.0,))]
    if a != 1:
        branches.append(Branch(conditions=undirected, gate=branches[-1].gate))

    def steered(found: Sequence[Tensor]) -> Tensor:
        if sim is None or w == 0:
            return found[0] if a == 1 else guide(found[1], found[0], a)
        on = found[0] if w == 1 else found[1]
        velocity = on if w == 1 else guide(found[0], on, w)
        return velocity if a == 1 else velocity + (a - 1) * (on - found[-1])

    def solved(passes: Prepared | _Passes, z: Tensor, keep_given: Callable[[Tensor], Tensor]) -> Tensor:
        def velocity(z: Tensor, sigma: Tensor) -> Tensor:
            return steered(passes.velocities(z, float(sigma)).chunk(len(branches)))

        return SOLVERS[config.solver](velocity, z, sigmas, keep_given)

    if isinstance(model, WorldModelNetwork) and model.first_frame_stands_alone and is_first_alone(observed):
        prepared = Prepared(model, branches, given, sim, sigmas[:-1].tolist())
        return torch.cat([given[:, :, :1], solved(prepared, noise[:, :, 1:], lambda z: z)], dim=2)
    keep = per_frame(observed)
    return solved(_Passes(model, branches, observed, sim), noise, lambda z: torch.where(keep, given, z))


def is_first_alone(observed: Bool[Tensor, "b g"]) -> bool:
    """Whether latent frame 0 of every clip is given, and no other."""
    return bool(observed[:, 0].all() and not observed[:, 1:].any())
