"""What a model may see of clips, normalised: actions, state, words, and which views exist (docs/paper-to-code.md)."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from simforcing.data.prompts import prompt
from simforcing.data.spec import present_views
from simforcing.data.trajectory_maps import draw_maps
from simforcing.models.text import encode_bytes
from simforcing.nn.batch import Conditions
from simforcing.types import Clip, DataSpec
from simforcing.types.conversions import StartState

GRID_TOLERANCE = 0.02  # of a frame: what uneven time stamps may shift an action by


def conditions_of(
    clips: Sequence[Clip], spec: DataSpec, temporal_factor: int, spatial_factor: int | None = None
) -> Conditions:
    """What the model may see of these clips, normalised.

    Args:
        temporal_factor, spatial_factor: frames and pixels per latent; the latter where maps are drawn.

    Raises:
        ValueError: a clip without the spec's number of actions, whose commands cannot be written in the form that the
            network reads, or whose cameras are needed and not known; episode and start are named.
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
    grid = action_grid(clips, spec, temporal_factor)
    maps = [_read_maps(clip, spec, grid, (temporal_factor, spatial_factor)) for clip in clips] if spec.with_maps else []
    return Conditions(
        action=_stacked([values for values, _, _ in actions]),
        action_valid=_stacked([valid for _, valid, _ in actions]),
        action_frame=grid,
        view_present=_stacked([present_views(clip, spec) for clip in clips]),
        state=_stacked([values[0] for values, _ in states]) if states else None,
        state_valid=_stacked([valid[0] for _, valid in states]) if states else None,
        null_action=_stacked(stays) if stays else None,
        pose_history=_stacked([_read_history(clip, spec) for clip in clips]) if spec.num_history else None,
        maps=_stacked(maps) if maps else None,
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


def _read_history(clip: Clip, spec: DataSpec) -> Float[np.ndarray, "m s"]:
    assert spec.state is not None
    if clip.history is None or clip.history_valid is None or len(clip.history) != spec.num_history:
        found = 0 if clip.history is None else len(clip.history)
        raise ValueError(
            f"episode {clip.episode}, frame {clip.start}: {found} states before the window; this model reads"
            f" {spec.num_history}"
        )
    return spec.state.read(clip.history, clip.history_valid)[0]


def _read_maps(
    clip: Clip, spec: DataSpec, action_frame: tuple[float, ...], factors: tuple[int, int | None]
) -> Float[np.ndarray, "v g r h w"]:
    temporal, spatial = factors
    assert spatial is not None, "maps are drawn on the latents' grid"
    size = (1 + (spec.num_frames - 1) // temporal, spec.resize.height // spatial, spec.resize.width // spatial)
    try:
        return draw_maps(clip, spec, action_frame, size)
    except ValueError as error:
        raise ValueError(f"episode {clip.episode}, frame {clip.start}: {error}") from None


def action_grid(clips: Sequence[Clip], spec: DataSpec, temporal_factor: int) -> tuple[float, ...]:
    """Latent frame that each action leads to: the end of its interval over the spacing of latent frames.

    Raises:
        ValueError: a clip whose actions stand at other times of its window than the first clip's.
    """
    latent_s = temporal_factor / spec.fps
    window_s = (spec.num_frames - 1) / spec.fps
    step_s = float(np.median(np.diff(clips[0].action_time_s))) if spec.num_actions > 1 else window_s
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
