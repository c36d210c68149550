"""Stages 2 and 3 together: flow matching in both domains, latent-motion distillation, gated simulation condition.

    loss = 1/2 (a FM_real + b FM_sim) + c 1/2 (d M(motion_S_real, motion_T) + e M(motion_S_sim, motion_T))

One batch of pairs shares noise, sigma, actions and text; the student sees both domains in one pass, the teacher the
noisy simulation (docs/paper-to-code.md).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from simforcing.flow.motion import motion
from simforcing.flow.path import clean_from_velocity, frame_sigma, interpolate, per_frame, velocity_target
from simforcing.nn.batch import Batch, Conditions, Draws, SimCondition, Streams, join, without_actions
from simforcing.nn.norm import at_least_float32
from simforcing.nn.protocols import Loss
from simforcing.training.objectives import (
    DROP_ACTION,
    FlowWeight,
    SigmaPolicy,
    flow_weight,
    predicted_mean,
    require_not_negative,
    require_rates,
)
from simforcing.types import check_choices

# columns of Draws.drop
GATE, CORRUPT, KEPT, STRENGTH = 3, 4, 5, 6

Latents = Float[Tensor, "b v g c h w"]
Teacher = Callable[[Streams, Streams, Conditions], Streams]


@dataclass(frozen=True, kw_only=True)
class ConditionConfig:
    """How the simulation conditions the real branch in training.

    Args:
        rate: probability that a clip's condition path acts (one draw for all layers).
        corruption_rate: probability that its simulation latents become alpha z + (1 - alpha) s noise.
        kept: range of alpha.
        strength: range of s.
    """

    rate: float = 0.7
    corruption_rate: float = 0.4
    kept: tuple[float, float] = (0.5, 0.9)
    strength: tuple[float, float] = (0.1, 0.3)

    def __post_init__(self) -> None:
        require_rates(self, "rate", "corruption_rate")
        for name in ("kept", "strength"):
            low, high = getattr(self, name)
            if not 0 <= low <= high <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected a range within [0, 1]")

    def draw(self, sim: Latents, draws: Draws) -> SimCondition:
        """The condition of one step: corrupted latents and gates."""
        assert draws.sim_noise is not None
        drop = draws.drop
        alpha, strength = (
            _between(drop[:, column], span) for column, span in ((KEPT, self.kept), (STRENGTH, self.strength))
        )
        corrupted = alpha * sim + (1 - alpha) * strength * draws.sim_noise
        is_corrupted = (drop[:, CORRUPT] < self.corruption_rate)[:, None, None, None, None, None]
        return SimCondition(
            latents=torch.where(is_corrupted, corrupted, sim), gate=(drop[:, GATE] < self.rate).to(sim.dtype)
        )


@dataclass(frozen=True, kw_only=True)
class DistillConfig:
    """What of the teacher is matched, and how (the second half of the loss).

    Args:
        target: `motion`: differences of adjacent predicted clean latents; `magnitude`: their length over channels;
            `normalised`: motion over its own root mean square; `value`: the predicted clean latents themselves.
        teacher: `sim`: the frozen stage-1 network; controls: `self`: the student's own simulation branch, `shuffled`:
            the teacher's motion of another clip of the batch; bound: `true`: the true simulation latents.
        sees: which noisy latents the teacher is given.
        first_frame: z_hat of the given frame: `observed` is the frame itself; `predicted` uses the clip's sigma and
            the network's output there, which no flow matching trains (the release).
        first_difference: whether the motion from the given frame to the next counts.
        weight: of the whole half; `real` and `sim` of its two terms.
        weighting: over noise levels: `flow`: as flow matching; `uniform`: 1; `falling`: 1 - sigma.
        teacher_state: `own`: the teacher reads proprioception through its own layer; `student`: through the student's,
            which moves (the release).
    """

    target: Literal["motion", "magnitude", "normalised", "value"] = "motion"
    teacher: Literal["sim", "self", "true", "shuffled"] = "sim"
    sees: Literal["sim", "real"] = "sim"
    first_frame: Literal["observed", "predicted"] = "observed"
    first_difference: bool = True
    weight: float = 0.5
    real: float = 1.0
    sim: float = 0.1
    weighting: Literal["flow", "uniform", "falling"] = "flow"
    teacher_state: Literal["own", "student"] = "own"

    def __post_init__(self) -> None:
        check_choices(self)
        require_not_negative(self, "weight", "real", "sim")


@dataclass(frozen=True, kw_only=True)
class Distillation:
    """The student's objective; without `distill` it is joint flow matching, without `condition` the path is absent.

    Args:
        flow_real, flow_sim: weights of flow matching in the two domains.
        distill: the teacher's half; None: no distillation.
        condition: the condition path; None: absent.
        weight: of flow matching over noise levels, see FlowMatching.
        action_dropout: probability that a clip's actions are dropped.
        sigma: of the noise levels; the video alone is noisy.
        watched: with a teacher, motion and value distances on both branches are logged, whatever is trained.
    """

    flow_real: float = 1.0
    flow_sim: float = 0.1
    distill: DistillConfig | None = DistillConfig()
    condition: ConditionConfig | None = ConditionConfig()
    weight: FlowWeight = "published"
    sigma: SigmaPolicy = field(default_factory=SigmaPolicy)
    action_dropout: float = 0.0
    watched: bool = True

    def __post_init__(self) -> None:
        check_choices(self)
        require_rates(self, "action_dropout")
        require_not_negative(self, "flow_real", "flow_sim")
        taught = 0.0 if self.distill is None else self.distill.weight * (self.distill.real + self.distill.sim)
        if self.flow_real + self.flow_sim + taught == 0:
            raise ValueError("every weight of the objective is 0: there is nothing to learn")
        if self.sigma.action or not self.sigma.video:
            raise ValueError(f"sigma is {self.sigma}; here the video is noisy and actions are a condition")

    @property
    def needs_teacher(self) -> bool:
        """Whether a frozen network is called."""
        return self.distill is not None and self.distill.teacher in ("sim", "shuffled")

    @property
    def has_sim_branch(self) -> bool:
        """Whether the student sees noisy simulation."""
        return self.flow_sim > 0 or self.distill is not None

    def __call__(self, model: nn.Module, batch: Batch, draws: Draws, teacher: Teacher | None = None) -> Loss:
        """One step's loss; `teacher` where one is needed. ValueError for a batch without simulation."""
        if batch.sim is None:
            raise ValueError("this objective learns from pairs; the batch holds no simulation (simforcing simulate)")
        conditions = without_actions(batch.conditions, draws.drop[:, DROP_ACTION] < self.action_dropout)
        sigma, _ = self.sigma.draw(draws)
        level = frame_sigma(sigma, batch.observed)
        real = Branch(clean=batch.clean, noisy=interpolate(batch.clean, draws.noise, per_frame(level)))
        sim = Branch(clean=batch.sim, noisy=interpolate(batch.sim, draws.noise, per_frame(level)))
        branches = {"sim": sim, "real": real} if self.has_sim_branch else {"real": real}
        condition = None if self.condition is None else self.condition.draw(batch.sim, draws)
        velocities = student_pass(model, branches, level, conditions, condition, batch.sim_text)

        step = Step(
            sigma=sigma,
            level=level,
            observed=batch.observed,
            conditions=conditions,
            has_real=batch.has_real,
            sim_text=batch.sim_text,
        )
        terms: dict[str, Tensor] = {}
        for name, velocity in velocities.items():
            error = (velocity - velocity_target(branches[name].clean, draws.noise)) ** 2
            terms[f"flow_{name}"] = step.mean(error, flow_weight(sigma, self.weight), ~batch.observed, name)
        total = 0.5 * self.flow_real * terms["flow_real"]
        if self.has_sim_branch:
            total = total + 0.5 * self.flow_sim * terms["flow_sim"]
        if self.distill is not None:
            taught = self._taught(step, branches, velocities, model, teacher)
            terms |= taught
            name = self.distill.target
            half = 0.5 * (self.distill.real * taught[f"{name}_real"] + self.distill.sim * taught[f"{name}_sim"])
            total = total + self.distill.weight * half
        return Loss(total=total, terms={name: term.detach() for name, term in terms.items()})

    def _taught(
        self,
        step: "Step",
        branches: dict[str, "Branch"],
        velocities: dict[str, Latents],
        model: nn.Module,
        teacher: Teacher | None,
    ) -> dict[str, Tensor]:
        """Distances to the teacher on both branches, of what is trained and of what is only watched."""
        how = self.distill
        assert how is not None
        students = {
            name: step.clean_hat(branches[name].noisy, velocity, how.first_frame)
            for name, velocity in velocities.items()
        }
        target = self._target(step, branches, students, model, teacher)
        weight = {"flow": flow_weight(step.sigma, self.weight), "uniform": torch.ones_like(step.sigma)}
        weight["falling"] = 1 - step.sigma
        kinds = dict.fromkeys((how.target, *(("motion", "value") if self.watched else ())))
        out = {}
        for kind in kinds:
            trained = kind == how.target
            with torch.set_grad_enabled(trained and torch.is_grad_enabled()):
                for name, student in students.items():
                    error = (feature(student, kind) - feature(target, kind)) ** 2
                    counted = step.counted(kind, first_difference=how.first_difference)
                    out[f"{kind}_{name}"] = step.mean(error, weight[how.weighting], counted, name)
        return out

    def _target(
        self,
        step: "Step",
        branches: dict[str, "Branch"],
        students: dict[str, Latents],
        model: nn.Module,
        teacher: Teacher | None,
    ) -> Latents:
        """The teacher's predicted clean latents, without gradient."""
        how = self.distill
        assert how is not None
        if how.teacher == "true":
            return branches["sim"].clean
        if how.teacher == "self":
            return students["sim"].detach()
        if how.teacher == "shuffled" and len(step.sigma) < 2:
            raise ValueError("a shuffled teacher shows the motion of another clip; a batch of one clip has none")
        if teacher is None:
            raise ValueError(f"distillation from teacher {how.teacher!r} needs a teacher; give the run of stage 1")
        noisy = branches[how.sees].noisy
        with torch.no_grad():
            asked = (Streams(video=noisy), Streams(video=step.level), step.teacher_conditions(how.sees))
            if how.teacher_state == "student":
                assert isinstance(teacher, nn.Module)
                own = {name: p.detach() for name, p in model.named_parameters() if name.startswith("state_in.")}
                velocity = functional_call(teacher, own, asked).video
            else:
                velocity = teacher(*asked).video
            assert velocity is not None
            clean_hat = step.clean_hat(noisy, at_least_float32(velocity), how.first_frame)
        return clean_hat.roll(1, 0) if how.teacher == "shuffled" else clean_hat


@dataclass(frozen=True, kw_only=True)
class Branch:
    """One domain of a batch: clean and noisy latents."""

    clean: Latents
    noisy: Latents


@dataclass(frozen=True, kw_only=True)
class Step:
    """What the terms of one step share."""

    sigma: Float[Tensor, " b"]
    level: Float[Tensor, "b g"]
    observed: Bool[Tensor, "b g"]
    conditions: Conditions
    has_real: Bool[Tensor, " b"] | None
    sim_text: Int[Tensor, "b l"] | None

    def teacher_conditions(self, sees: Literal["sim", "real"]) -> Conditions:
        """The clips' conditions, in the words of the domain that the teacher sees."""
        if self.sim_text is None or sees == "real":
            return self.conditions
        return replace(self.conditions, text=self.sim_text)

    def clean_hat(self, noisy: Latents, velocity: Latents, first_frame: Literal["observed", "predicted"]) -> Latents:
        """z_hat = z_sigma - sigma velocity_hat; of a given frame, the frame itself or what the network says."""
        level = self.level if first_frame == "observed" else self.sigma[:, None].expand_as(self.level)
        return clean_from_velocity(noisy, velocity, per_frame(level))

    def counted(self, kind: str, *, first_difference: bool) -> Bool[Tensor, "b _g"]:
        """Which frames of a feature count: predicted ones for values; differences, from the given frame's if asked."""
        if kind == "value":
            return ~self.observed
        ends = ~self.observed[:, 1:]  # a difference between two given frames is nothing to learn
        return ends if first_difference else ends & ~self.observed[:, :-1]

    def mean(
        self,
        error: Float[Tensor, "b v _g _c h w"],
        weight: Float[Tensor, " b"],
        counted: Bool[Tensor, "b _g"],
        branch: str,
    ) -> Float[Tensor, ""]:
        """mean_batch(weight * mean over c, h, w and the frames that count), over the clips that have this branch."""
        per_clip = weight * predicted_mean(error, counted, self.conditions.view_present)
        if branch == "sim" or self.has_real is None:
            return per_clip.mean()
        return (per_clip * self.has_real).sum() / self.has_real.sum().clamp_min(1)


def student_pass(
    model: nn.Module,
    branches: dict[str, Branch],
    level: Float[Tensor, "b g"],
    conditions: Conditions,
    condition: SimCondition | None,
    sim_text: Tensor | None,
) -> dict[str, Latents]:
    """Velocities of all branches from one pass, in float32; the gate is closed on every branch but real, the last."""
    if condition is not None:
        closed = condition.gate.new_zeros(len(level) * (len(branches) - 1))
        condition = replace(condition, gate=torch.cat([closed, condition.gate]))
    if sim_text is not None and len(branches) == 2:
        conditions = join([replace(conditions, text=sim_text), conditions])
    noisy = torch.cat([branch.noisy for branch in branches.values()])
    levels = level.repeat(len(branches), 1)
    video = model(Streams(video=noisy), Streams(video=levels), conditions, condition).video
    return dict(zip(branches, at_least_float32(video).chunk(len(branches)), strict=True))


def feature(clean_hat: Latents, kind: str) -> Float[Tensor, "b v _g _c h w"]:
    """What is compared with the teacher's: motion, its magnitude, its normalised form, or the latents themselves."""
    if kind == "value":
        return clean_hat
    change = motion(clean_hat)
    if kind == "magnitude":
        return (change.square().mean(dim=3, keepdim=True) + 1e-8).sqrt()
    if kind == "normalised":
        return change / (change.square().mean(dim=(3, 4, 5), keepdim=True) + 1e-8).sqrt()
    return change


def _between(uniform: Float[Tensor, " b"], span: tuple[float, float]) -> Float[Tensor, "b 1 1 1 1 1"]:
    """Uniform numbers in a range, shaped to broadcast over latents."""
    return (span[0] + (span[1] - span[0]) * uniform)[:, None, None, None, None, None]
