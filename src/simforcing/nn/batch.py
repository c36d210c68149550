"""What crosses the boundary into a network: Batch (training), Conditions (what the model may see), Streams, Draws."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What a world model is conditioned on. Nothing in it is noisy.

    Args:
        action: normalised actions; an invalid entry is zero.
        action_valid: which entries mean something (absent parts of an action space, padded steps).
        action_frame: latent frame that each action leads to, a real number (time / latent spacing); one grid a batch.
        state: normalised proprioception at the window's first frame, or None.
        text: token ids of the tiny byte encoder, 0 = padding, or None.
        text_features: cached features of a frozen text encoder, or None.
        view_present: which views exist; an absent view's latents are zero and no query attends to them.
        null_action: what the actions of a clip become where they are dropped (no motion), or None for zeros.
        pose_history: normalised proprioception before the window, oldest first, or None.
        maps: trajectory and rays drawn on the latents' grid, or None.
    """

    action: Float[Tensor, "b k a"]
    action_valid: Bool[Tensor, "b k a"]
    action_frame: tuple[float, ...]
    view_present: Bool[Tensor, "b v"]
    state: Float[Tensor, "b s"] | None = None
    state_valid: Bool[Tensor, "b s"] | None = None
    text: Int[Tensor, "b l"] | None = None
    text_features: Float[Tensor, "b l e"] | None = None
    null_action: Float[Tensor, "b k a"] | None = None
    pose_history: Float[Tensor, "b m s"] | None = None
    maps: Float[Tensor, "b v g r h w"] | None = None


@dataclass(frozen=True, kw_only=True)
class SimCondition:
    """Simulation latents that condition the generation of real video.

    Args:
        latents: clean, of all frames, the first one too; once where several branches of the same clips share them.
        gate: 1 = the condition path acts, 0 = it is absent, per video of the pass.
    """

    latents: Float[Tensor, "b v g c h w"]
    gate: Float[Tensor, " r"]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One training batch of windows in latent space.

    Args:
        clean: normalised latents of the video to learn; of the simulation where a clip has no other.
        observed: latent frames given at inference (frame 0 of a plain clip); they stay clean, with sigma 0.
        conditions: see Conditions.
        sim: latents of the aligned simulation, where the data are pairs.
        has_real: which clips are pairs; the others are simulation alone. None: all are.
        sim_text: text of the simulation where its wording is another one (token ids), or None.
    """

    clean: Float[Tensor, "b v g c h w"]
    observed: Bool[Tensor, "b g"]
    conditions: Conditions
    sim: Float[Tensor, "b v g c h w"] | None = None
    has_real: Bool[Tensor, " b"] | None = None
    sim_text: Int[Tensor, "b l"] | None = None

    @property
    def size(self) -> int:
        return self.clean.shape[0]


@dataclass(frozen=True, kw_only=True)
class Draws:
    """The random numbers of one training step, a function of (seed, step, position in the global batch) alone.

    Args:
        uniform: one per clip for the noise level.
        noise: Gaussian, the shape of the clean latents.
        action_noise: Gaussian, the shape of the actions (used where actions are denoised).
        drop: uniform numbers per clip for dropouts and gates, one column each.
        sim_noise: Gaussian, the shape of the clean latents, that corrupts the simulation condition of pairs.
    """

    uniform: Float[Tensor, " b"]
    noise: Float[Tensor, "b v g c h w"]
    action_noise: Float[Tensor, "b k a"]
    drop: Float[Tensor, "b 8"]
    sim_noise: Float[Tensor, "b v g c h w"] | None = None


@dataclass(frozen=True, kw_only=True)
class Streams:
    """What may be denoised: video latents and actions. As noise levels: one per latent frame, one per action set."""

    video: Float[Tensor, "..."] | None = None
    action: Float[Tensor, "..."] | None = None


Record = TypeVar("Record", Batch, Conditions, Draws, Streams)


def map_tensors(value: Record, function: Callable[[Tensor], Tensor]) -> Record:
    """Apply `function` to every tensor of a (nested) record: moves, slices, casts."""
    changes = {}
    for field in fields(value):
        item = getattr(value, field.name)
        if isinstance(item, Tensor):
            changes[field.name] = function(item)
        elif isinstance(item, Conditions):
            changes[field.name] = map_tensors(item, function)
    return replace(value, **changes)


def join(parts: Sequence[Conditions]) -> Conditions:
    """Conditions of several lots of clips as one. ValueError where their actions stand at different times."""
    grids = {part.action_frame for part in parts}
    if len(grids) != 1:
        raise ValueError("actions stand at other times in other windows; choose a stride that keeps their phase")
    joined: dict[str, Any] = {"action_frame": parts[0].action_frame}
    for field in fields(Conditions):
        values = [getattr(part, field.name) for part in parts]
        if field.name != "action_frame":
            joined[field.name] = None if values[0] is None else torch.cat(values)
    return Conditions(**joined)


def without_actions(conditions: Conditions, dropped: Bool[Tensor, " b"]) -> Conditions:
    """Conditions whose actions are dropped for some clips: no motion where it is known what that is, else zeros.

    Maps of every frame then are those of frame 0: the trajectory stays at its start.
    """
    null = torch.zeros_like(conditions.action) if conditions.null_action is None else conditions.null_action
    maps = conditions.maps
    if maps is not None:
        maps = torch.where(dropped.view(-1, 1, 1, 1, 1, 1), maps[:, :, :1], maps)
    return replace(conditions, action=torch.where(dropped[:, None, None], null, conditions.action), maps=maps)
