"""Objectives: one training step's loss, written as in the paper (docs/paper-to-code.md)."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from simforcing.flow.path import frame_sigma, interpolate, per_frame, velocity_target
from simforcing.flow.schedule import SHIFT, loss_weight, shift_sigma
from simforcing.nn.batch import Batch, Draws, Streams, without_actions
from simforcing.nn.protocols import Loss
from simforcing.types import check_choices

# columns of Draws.drop
DROP_ACTION, DROP_FIRST_FRAME, UNIFORM_ACTION = 0, 1, 2

FlowWeight = Literal["published", "clean"]


@dataclass(frozen=True, kw_only=True)
class SigmaPolicy:
    """Which streams are noised, and whether they share one noise level.

    Video alone is a world model; actions alone are a policy; both are a joint model. `dtype` bfloat16 rounds every
    level before it is used anywhere, as the release does.
    """

    video: bool = True
    action: bool = False
    shared: bool = True
    shift: float = SHIFT
    dtype: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        check_choices(self)
        if not (self.video or self.action):
            raise ValueError("a sigma policy must noise video, action or both")
        if not 0 < self.shift < float("inf"):
            raise ValueError(f"shift is {self.shift}; it must be above 0 and finite (1 = uniform)")

    def draw(self, draws: Draws) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"]]:
        """(sigma of video, sigma of actions), one per clip; 0 for a stream that stays clean."""
        video = self._level(draws.uniform)
        action = video if self.shared else self._level(draws.drop[:, UNIFORM_ACTION])
        return video * self.video, action * self.action

    def _level(self, uniform: Float[Tensor, " b"]) -> Float[Tensor, " b"]:
        sigma = shift_sigma(uniform, self.shift)
        return sigma.bfloat16().to(sigma.dtype) if self.dtype == "bfloat16" else sigma


@dataclass(frozen=True, kw_only=True)
class FlowMatching:
    """FM = mean_batch(W(sigma) * mean over predicted latent frames of (velocity_hat - velocity)^2), in float32.

    Args:
        sigma: which streams are noised.
        weight: `published`: W(sigma) above; `clean`: sigma^2, which is the plain error of the predicted clean latents.
        action_dropout: probability that a clip's whole normalised action set is zero.
        first_frame_dropout: probability that the given frames stay noisy and join the loss.
    """

    sigma: SigmaPolicy = SigmaPolicy()
    weight: FlowWeight = "published"
    action_dropout: float = 0.1
    first_frame_dropout: float = 0.0

    def __post_init__(self) -> None:
        check_choices(self)
        require_rates(self, "action_dropout", "first_frame_dropout")

    def __call__(self, model: nn.Module, batch: Batch, draws: Draws) -> Loss:
        conditions = without_actions(batch.conditions, draws.drop[:, DROP_ACTION] < self.action_dropout)
        given = batch.observed & (draws.drop[:, DROP_FIRST_FRAME] >= self.first_frame_dropout)[:, None]
        sigma_video, sigma_action = self.sigma.draw(draws)
        frame_level = frame_sigma(sigma_video, given)
        levels = Streams(video=frame_level, action=sigma_action[:, None])
        noisy = Streams(video=interpolate(batch.clean, draws.noise, per_frame(frame_level)))
        if self.sigma.action:
            # dropout is for actions as a condition: a denoised action that was dropped could not be told from noise
            action = interpolate(batch.conditions.action, draws.action_noise, sigma_action[:, None, None])
            noisy = replace(noisy, action=action)
        predicted = model(noisy, levels, conditions)
        self._require_velocities(predicted)
        terms = {}
        if self.sigma.video:
            error = (predicted.video.float() - velocity_target(batch.clean, draws.noise)) ** 2
            terms["video"] = (
                flow_weight(sigma_video, self.weight) * predicted_mean(error, ~given, conditions.view_present)
            ).mean()
        if self.sigma.action:
            error = (predicted.action.float() - velocity_target(batch.conditions.action, draws.action_noise)) ** 2
            terms["action"] = (
                flow_weight(sigma_action, self.weight) * valid_mean(error, conditions.action_valid)
            ).mean()
        total = torch.stack(list(terms.values())).sum()
        return Loss(total=total, terms={name: term.detach() for name, term in terms.items()})

    def _require_velocities(self, predicted: Streams) -> None:
        missing = [
            name for name in ("video", "action") if getattr(self.sigma, name) and getattr(predicted, name) is None
        ]
        if missing:
            raise ValueError(
                f"the sigma policy noises {' and '.join(missing)}, which the model does not denoise;"
                " change the policy or the model's denoises"
            )


def flow_weight(sigma: Float[Tensor, " b"], kind: FlowWeight) -> Float[Tensor, " b"]:
    """W(sigma), or sigma^2, which turns a velocity's error into that of the predicted clean latents."""
    return loss_weight(sigma) if kind == "published" else sigma**2


def require_rates(config: object, *names: str) -> None:
    """ValueError where a probability of a config does not lie in [0, 1]."""
    for name in names:
        if not 0 <= getattr(config, name) <= 1:
            raise ValueError(f"{name} is {getattr(config, name)}; it must lie in [0, 1]")


def require_not_negative(config: object, *names: str) -> None:
    """ValueError where a weight of a config is negative."""
    for name in names:
        if getattr(config, name) < 0:
            raise ValueError(f"{name} is {getattr(config, name)}; a weight must not be negative")


def predicted_mean(
    error: Float[Tensor, "b v g c h w"], predicted: Bool[Tensor, "b g"], present: Bool[Tensor, "b v"]
) -> Float[Tensor, " b"]:
    """Mean of each clip's error over its predicted latent frames in the views that exist."""
    weight = (present[:, :, None] & predicted[:, None, :]).to(error.dtype)
    return (error.mean(dim=(3, 4, 5)) * weight).sum(dim=(1, 2)) / weight.sum(dim=(1, 2)).clamp_min(1)


def valid_mean(error: Float[Tensor, "b k a"], valid: Bool[Tensor, "b k a"]) -> Float[Tensor, " b"]:
    """Mean of each clip's error over the entries that mean something."""
    weight = valid.to(error.dtype)
    return (error * weight).sum(dim=(1, 2)) / weight.sum(dim=(1, 2)).clamp_min(1)
