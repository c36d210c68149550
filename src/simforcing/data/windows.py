"""Windows of episodes: which starts fit, and clips decoded, resized and cut in time (docs/paper-to-code.md).

A window decodes only its own frames. Actions are chosen by time, so the control rate need not be the video's.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from simforcing.data.resize import resize_camera, resize_frames, resize_nearest
from simforcing.types import Camera, Clip, Episode, Resize, View

MASK_LEVEL = 127  # masks are stored as pictures, white inside
TIME_SLACK = 1e-3  # of one frame: what rounding may move a time stamp across a frame's boundary


@dataclass(frozen=True, kw_only=True)
class WindowSpec:
    """What every window of a run has in common: consecutive frames, views in order, the model's frame size.

    Masks and depth are read only where `with_masks` and `with_depth` ask for them. Without `with_frames` no video is
    decoded: frames are then black (and take no memory), and all else is as with them. `num_history` states
    are read from before the window, evenly spaced over `history_span_s` seconds.
    """

    num_frames: int
    views: tuple[str, ...]
    resize: Resize
    with_masks: bool = False
    with_depth: bool = False
    with_frames: bool = True
    num_history: int = 0
    history_span_s: float = 2.0

    def __post_init__(self) -> None:
        if self.num_frames < 2:
            raise ValueError(f"a window of {self.num_frames} frame(s) holds no action; num_frames must be at least 2")
        if not self.views:
            raise ValueError("a window needs at least one view")
        if len(set(self.views)) != len(self.views):
            raise ValueError(f"window views repeat: {', '.join(self.views)}")


def window_starts(episode: Episode, spec: WindowSpec, stride: int = 1) -> list[int]:
    """Every stride-th start whose window lies inside the episode's frames and whose last interval is commanded.

    An episode that is too short has none; nothing is ever padded.
    """
    if stride < 1:
        raise ValueError(f"window stride {stride} must be at least 1")
    if not any(view.name in spec.views for view in episode.views):
        return []
    starts = np.arange(0, episode.num_frames - spec.num_frames + 1, stride)
    times = episode.action_time_s
    step_s = float(np.median(np.diff(times))) if len(times) > 1 else 1.0 / episode.fps
    slack_s = TIME_SLACK / episode.fps
    begins = times[0] <= starts / episode.fps + slack_s
    ends = times[-1] + step_s >= (starts + spec.num_frames - 1) / episode.fps - slack_s
    return starts[begins & ends].tolist()


def read_clip(episode: Episode, start: int, spec: WindowSpec, action_dim: int, state_dim: int = 0) -> Clip:
    """Decode and cut one window.

    Args:
        episode: where to read.
        start: first frame.
        spec: frames, views and size.
        action_dim: width of the returned actions; columns beyond the episode's own are zero and not valid.
        state_dim: least width of the returned state, filled up in the same way.

    Raises ValueError, naming the episode, where the window does not fit, the actions are wider than `action_dim`,
    no action is commanded in it, or a frame cannot be decoded.
    """
    stop = start + spec.num_frames
    if start < 0 or stop > episode.num_frames:
        raise ValueError(
            f"episode {episode.name}: frames {start}..{stop - 1} are not within 0..{episode.num_frames - 1}"
        )
    own_dim = episode.action.shape[1]
    if own_dim > action_dim:
        raise ValueError(f"episode {episode.name}: actions have {own_dim} numbers, more than action_dim {action_dim}")
    rows = action_rows(episode, start, spec.num_frames)
    if len(rows) == 0:
        raise ValueError(f"episode {episode.name}: no action between frames {start} and {stop - 1}")
    start_s = start / episode.fps
    action = np.zeros((len(rows), action_dim), np.float32)
    action[:, :own_dim] = episode.action[rows]
    action_valid = np.zeros((len(rows), action_dim), bool)
    action_valid[:, :own_dim] = True if episode.action_valid is None else episode.action_valid[rows]
    frames, view_present = _read_views(episode, start, spec)
    masks, mask_present = _read_masks(episode, start, spec)
    depth, depth_present = _read_depth(episode, start, spec)
    state, state_valid = state_at(episode, start_s, state_dim)
    history, history_valid = _history(episode, start_s, spec, state_dim)
    return Clip(
        episode=episode.name,
        start=start,
        task=episode.task,
        frames=frames,
        view_present=view_present,
        frame_time_s=np.arange(spec.num_frames) / episode.fps,
        action=action,
        action_valid=action_valid,
        action_time_s=episode.action_time_s[rows] - start_s,
        state=state,
        state_valid=state_valid,
        masks=masks,
        mask_present=mask_present,
        depth=depth,
        depth_present=depth_present,
        cameras=_cameras(episode, spec),
        history=history,
        history_valid=history_valid,
    )


def action_rows(episode: Episode, start: int, num_frames: int) -> Int[np.ndarray, " k"]:
    """Rows of the actions in force between the window's first and last frame, by time.

    One per interval where action and video rates agree; the first may have been commanded before the window begins.
    """
    slack_s = TIME_SLACK / episode.fps
    first_s, last_s = start / episode.fps, (start + num_frames - 1) / episode.fps
    in_force = int(np.searchsorted(episode.action_time_s, first_s + slack_s, side="right")) - 1
    stop = int(np.searchsorted(episode.action_time_s, last_s - slack_s, side="left"))
    return np.arange(max(in_force, 0), stop)


def split_episodes(
    episodes: Sequence[Episode], *, fraction: float | None = None, count: int | None = None, seed: int = 0
) -> tuple[list[Episode], list[Episode]]:
    """(training, held-out) episodes, whole episodes only, by a hash of (seed, name).

    Stable: the order of reading and the other episodes' presence do not change an episode's rank. At least one
    episode is held out and at least one is kept.

    Args:
        episodes: what to split, at least two.
        fraction: share to hold out, in (0, 1); the nearest whole number, at least one.
        count: how many to hold out, instead of `fraction`.
        seed: another seed holds out others.
    """
    if (fraction is None) == (count is None):
        raise ValueError("give either the fraction or the count of episodes to hold out")
    if len(episodes) < 2:
        raise ValueError(f"{len(episodes)} episode(s) cannot be split by episode; at least 2 are needed")
    if fraction is not None and not 0.0 < fraction < 1.0:
        raise ValueError(f"held-out fraction {fraction} must lie between 0 and 1")
    num_held_out = max(1, round(fraction * len(episodes))) if fraction is not None else count
    assert num_held_out is not None
    if not 1 <= num_held_out < len(episodes):
        raise ValueError(f"cannot hold out {num_held_out} of {len(episodes)} episodes; choices: 1..{len(episodes) - 1}")
    ranked = sorted(episodes, key=lambda episode: _name_hash(episode.name, seed))
    held_names = {episode.name for episode in ranked[:num_held_out]}
    training = [episode for episode in episodes if episode.name not in held_names]
    held_out = [episode for episode in episodes if episode.name in held_names]
    return training, held_out


def _read_views(
    episode: Episode, start: int, spec: WindowSpec
) -> tuple[UInt8[np.ndarray, "v f h w 3"], Bool[np.ndarray, " v"]]:
    """Frames and which views are present."""
    shape = (len(spec.views), spec.num_frames, spec.resize.height, spec.resize.width, 3)
    frames = np.zeros(shape, np.uint8) if spec.with_frames else np.broadcast_to(np.zeros((), np.uint8), shape)
    stored = {view.name: view for view in episode.views}
    present = np.array([name in stored for name in spec.views])
    if not present.any():
        raise ValueError(
            f"episode {episode.name}: none of the views {', '.join(spec.views)}; views: {', '.join(stored)}"
        )
    for index in np.flatnonzero(present & spec.with_frames):
        decoded = stored[spec.views[index]].frames.read(start, start + spec.num_frames)
        frames[index] = resize_frames(decoded, spec.resize)
    return frames, present


def _chosen(episode: Episode, spec: WindowSpec) -> list[View | None]:
    """The spec's views, None where the episode lacks one."""
    stored = {view.name: view for view in episode.views}
    return [stored.get(name) for name in spec.views]


def _read_masks(
    episode: Episode, start: int, spec: WindowSpec
) -> tuple[Bool[np.ndarray, "v f h w"] | None, Bool[np.ndarray, " v"] | None]:
    """Masks and which views have one; None where none has, or they were not asked for."""
    sources = [None if view is None else view.masks for view in _chosen(episode, spec)]
    if not spec.with_masks or all(source is None for source in sources):
        return None, None
    masks = np.zeros((len(sources), spec.num_frames, spec.resize.height, spec.resize.width), bool)
    for i, source in enumerate(sources):
        if source is not None:
            stored = source.read(start, start + spec.num_frames)[..., 0] > MASK_LEVEL
            masks[i] = resize_nearest(stored, spec.resize)
    return masks, np.array([source is not None for source in sources])


def _read_depth(
    episode: Episode, start: int, spec: WindowSpec
) -> tuple[Float[np.ndarray, "v f h w"] | None, Bool[np.ndarray, " v"] | None]:
    """Depth and which views have it, likewise."""
    sources = [None if view is None else view.depth for view in _chosen(episode, spec)]
    if not spec.with_depth or all(source is None for source in sources):
        return None, None
    depth = np.zeros((len(sources), spec.num_frames, spec.resize.height, spec.resize.width), np.float32)
    for i, source in enumerate(sources):
        if source is not None:
            depth[i] = resize_nearest(source.read(start, start + spec.num_frames), spec.resize)
    return depth, np.array([source is not None for source in sources])


def _cameras(episode: Episode, spec: WindowSpec) -> tuple[Camera | None, ...]:
    cameras = [None if view is None else view.camera for view in _chosen(episode, spec)]
    return tuple(None if camera is None else resize_camera(camera, spec.resize) for camera in cameras)


def state_at(episode: Episode, time_s: float, state_dim: int) -> tuple[Float[np.ndarray, " s"], Bool[np.ndarray, " s"]]:
    """The latest state measured at or before `time_s`, and which of its numbers exist."""
    own_dim = 0 if episode.state is None else episode.state.shape[1]
    state = np.zeros(max(own_dim, state_dim), np.float32)
    valid = np.arange(len(state)) < own_dim
    if episode.state is not None and episode.state_time_s is not None:
        row = int(np.searchsorted(episode.state_time_s, time_s + TIME_SLACK / episode.fps, side="right")) - 1
        state[:own_dim] = episode.state[max(row, 0)]
        if episode.state_valid is not None:
            valid[:own_dim] = episode.state_valid[max(row, 0)]
    return state, valid


def _history(
    episode: Episode, start_s: float, spec: WindowSpec, state_dim: int
) -> tuple[Float[np.ndarray, "m s"] | None, Bool[np.ndarray, "m s"] | None]:
    """States before the window, oldest first; before the episode's start its first one."""
    if not spec.num_history:
        return None, None
    times_s = start_s - spec.history_span_s * np.arange(spec.num_history, 0, -1) / spec.num_history
    rows = [state_at(episode, float(time_s), state_dim) for time_s in times_s]
    return np.stack([state for state, _ in rows]), np.stack([valid for _, valid in rows])


def _name_hash(name: str, seed: int) -> str:
    return hashlib.sha256(f"{seed}:{name}".encode()).hexdigest()
