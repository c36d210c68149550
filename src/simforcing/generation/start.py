"""What a rollout starts from, and the clip that a model reads of it: pictures, state and words, with commands."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, UInt8

from simforcing.data.action_files import checked_table
from simforcing.data.resize import resize_camera, resize_frames
from simforcing.types import Camera, Clip, DataSpec

Picture = UInt8[np.ndarray, "_ _ 3"]  # each of its own size


@dataclass(frozen=True, kw_only=True)
class Start:
    """The moment before the first command.

    Args:
        images: a picture of each of the model's views, in their order, any size.
        task: what the robot is told to do.
        state: measured proprioception in the data set's layout; None: unknown.
        sim: the simulation of each view at that moment (the robot alone before the sim background), for models that
            know simulation; None: not known yet.
        history: states measured before that moment, evenly spaced as the model reads them, oldest first; None: the
            robot was in `state`.
        cameras: of the pictures, for models that read maps.
        name: for messages and file names.
    """

    images: tuple[Picture, ...]
    task: str = ""
    state: Float[np.ndarray, " s"] | None = None
    sim: tuple[Picture, ...] | None = None
    history: Float[np.ndarray, "m s"] | None = None
    cameras: tuple[Camera | None, ...] = ()
    name: str = "start"


def start_of_clip(clip: Clip, spec: DataSpec) -> Start:
    """The moment at which a window begins: what was seen and measured before its first command.

    Args:
        clip: its frame 0, state, states before it and cameras are read; what is not all valid is left out.
        spec: the views that the clip was read with.

    Raises:
        ValueError: a view that the clip lacks.
    """
    count = len(spec.views)
    if not clip.view_present[:count].all():
        missing = spec.views[int(np.argmin(clip.view_present[:count]))]
        raise ValueError(f"episode {clip.episode}: no view {missing}, which the model reads")
    has_sim = bool(spec.sim_views) and bool(clip.view_present[count:].all())
    has_state = bool(clip.state.size) and bool(clip.state_valid.all())
    has_history = has_state and clip.history_valid is not None and bool(clip.history_valid.all())
    return Start(
        images=tuple(clip.frames[:count, 0]),
        task=clip.task,
        state=clip.state if has_state else None,
        sim=tuple(clip.frames[count:, 0]) if has_sim else None,
        history=clip.history if has_history else None,
        cameras=clip.cameras[:count],
        name=clip.episode,
    )


def read_start(start: Start, spec: DataSpec) -> Start:
    """The start as the model reads it: pictures in the model's size, states in float32.

    Raises:
        ValueError: pictures or states that are not what the model reads; both sides are named.
    """
    if len(start.images) != len(spec.views) or len(start.sim or spec.sim_views) != len(spec.sim_views):
        raise ValueError(
            f"{start.name}: {len(start.images)} pictures and {len(start.sim or ())} of simulation;"
            f" this model reads {', '.join(spec.streams)}"
        )
    resized = [resize_frames(picture[None], spec.resize)[0] for picture in (*start.images, *(start.sim or ()))]
    known = [None if camera is None else resize_camera(camera, spec.resize) for camera in start.cameras]
    return replace(
        start,
        images=tuple(resized[: len(spec.views)]),
        sim=None if start.sim is None else tuple(resized[len(spec.views) :]),
        state=read_state(start, spec),
        history=read_history(start, spec),
        cameras=tuple(known),
    )


def clip_from(start: Start, action: Float[np.ndarray, "k a"], spec: DataSpec) -> Clip:
    """The window that begins at this start, under these commands; frames after the first are black.

    Args:
        action: in the layout of `spec.action.layout`, evenly spaced over the window.
        spec: of the model, with `num_frames` and `num_actions` of this window.

    Raises:
        ValueError: pictures, state or actions that are not what the model reads; both sides are named.
    """
    ready = read_start(start, spec)
    given = (*ready.images, *(ready.sim or ()))
    step_s = (spec.num_frames - 1) / spec.fps / max(spec.num_actions, 1)
    frames = np.zeros((len(spec.streams), spec.num_frames, spec.resize.height, spec.resize.width, 3), np.uint8)
    frames[: len(given), 0] = given
    dim = spec.stored_state_dim
    state = np.zeros(dim, np.float32) if ready.state is None else ready.state
    known = np.full(dim, ready.state is not None)
    history = np.repeat(state[None], spec.num_history, axis=0) if ready.history is None else ready.history
    return Clip(
        episode=start.name,
        start=0,
        task=start.task,
        frames=frames,
        view_present=np.arange(len(spec.streams)) < len(given),
        frame_time_s=np.arange(spec.num_frames) / spec.fps,
        action=read_action(start, action, spec),
        action_valid=np.ones(action.shape, bool),
        action_time_s=np.arange(len(action)) * step_s,
        state=state,
        state_valid=known,
        cameras=ready.cameras,
        history=history if spec.num_history else None,
        history_valid=np.repeat(known[None], spec.num_history, axis=0) if spec.num_history else None,
    )


def read_action(start: Start, action: Float[np.ndarray, "k a"], spec: DataSpec) -> Float[np.ndarray, "k a"]:
    """The commands in float32. ValueError where their number, width or values are not what the model reads."""
    values = checked_table(action, spec.action.layout, f"{start.name}: action")
    if len(values) != spec.num_actions:
        raise ValueError(f"{start.name}: {len(values)} actions; a window of this model holds {spec.num_actions}")
    return values


def read_state(start: Start, spec: DataSpec) -> Float[np.ndarray, " s"] | None:
    """The state in float32; None where there is none or the model reads none."""
    dim = spec.stored_state_dim
    if start.state is None or not dim:
        return None
    if start.state.shape != (dim,):
        assert spec.state is not None
        raise ValueError(
            f"{start.name}: a state of {start.state.size} numbers; this model reads layout {spec.state.layout.name}"
            f" ({dim} numbers: {', '.join(spec.state.layout.slices)})"
        )
    if not np.isfinite(start.state).all():
        raise ValueError(f"{start.name}: state number {int(np.argmin(np.isfinite(start.state)))} is not finite")
    return start.state.astype(np.float32)


def read_history(start: Start, spec: DataSpec) -> Float[np.ndarray, "m s"] | None:
    """The states before the start in float32; None where none are given or the model reads none."""
    if start.history is None or not spec.num_history:
        return None
    shape = (spec.num_history, spec.stored_state_dim)
    if start.history.shape != shape or not np.isfinite(start.history).all():
        raise ValueError(
            f"{start.name}: a history of shape {list(start.history.shape)}; this model reads {list(shape)} finite"
            f" numbers: states evenly spaced over the {spec.history_span_s:g} s before"
        )
    return start.history.astype(np.float32)
