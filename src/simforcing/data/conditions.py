"""What a model may see of clips, normalised: actions, state, words, and which views exist (docs/paper-to-code.md)."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from simforcing.data.prompts import prompt
from simforcing.data.spec import present_views
from simforcing.models.text import encode_bytes
from simforcing.nn.batch import Conditions
from simforcing.types import Clip, DataSpec
from simforcing.types.conversions import StartState

GRID_TOLERANCE = 0.02  # of a frame: what uneven time stamps may shift an action by


def conditions_of(clips: Sequence[Clip], spec: DataSpec, temporal_factor: int) -> Conditions:
    """What the model may see of these clips, normalised.

    Raises:
        ValueError: a clip without the spec's number of actions, or whose commands cannot be written in the form that
            the network reads; episode and start are named.
    """
    for clip in clips:
        if len(clip.action) != spec.num_actions:
            raise ValueError(
                f"episode {clip.episode}, frame {clip.start}: {len(clip.action)} actions in the window;"
                f" this model reads {spec.num_actions}"
            )
    actions = [_read_action(clip, spec) for clip in clips]
    stays = [stay for _, _, stay in actions if stay is not None]
    states = [] if spec.state is None else [spec.state.read(clip.state[None], clip.state_valid[None]) for clip in clips]
    return Conditions(
        action=_stacked([values for values, _, _ in actions]),
        action_valid=_stacked([valid for _, valid, _ in actions]),
        action_frame=action_grid(clips, spec, temporal_factor),
        view_present=_stacked([present_views(clip, spec) for clip in clips]),
        state=_stacked([values[0] for values, _ in states]) if states else None,
        state_valid=_stacked([valid[0] for _, valid in states]) if states else None,
        null_action=_stacked(stays) if stays else None,
        text=encode_bytes([prompt(clip.task, spec.wording) for clip in clips]),
    )


def _read_action(clip: Clip, spec: DataSpec) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """(normalised actions, which of them mean something, what they become where they are dropped)."""
    start = None
    if spec.state is not None:
        start = StartState(values=clip.state, layout=spec.state.layout, valid=clip.state_valid)
    try:
        values, valid = spec.action.read(clip.action, clip.action_valid, start)
        return values, valid, spec.action.stay(clip.action, clip.action_valid, start)
    except ValueError as error:
        raise ValueError(f"episode {clip.episode}, frame {clip.start}: {error}") from None


def action_grid(clips: Sequence[Clip], spec: DataSpec, temporal_factor: int) -> tuple[float, ...]:
    """Latent frame that each action leads to: the end of its interval over the spacing of latent frames.

    Raises:
        ValueError: a clip whose actions stand at other times of its window than the first clip's.
    """
    latent_s = temporal_factor / spec.fps
    step_s = float(np.median(np.diff(clips[0].action_time_s))) if spec.num_actions > 1 else 1 / spec.fps
    for clip in clips:
        shift_s = np.abs(clip.action_time_s - clips[0].action_time_s).max()
        if shift_s > GRID_TOLERANCE / spec.fps:
            raise ValueError(
                f"episode {clip.episode}, frame {clip.start}: actions stand {shift_s:.3f} s from where those of episode"
                f" {clips[0].episode}, frame {clips[0].start} do; choose a window stride that keeps their phase"
            )
    # rounding keeps the grid equal from window to window
    return tuple(np.round((clips[0].action_time_s + step_s) / latent_s, 3).tolist())


def _stacked(arrays: Sequence[np.ndarray]) -> Tensor:
    return torch.from_numpy(np.stack(arrays))
