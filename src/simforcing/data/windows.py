"""Windows of episodes: which starts fit, and clips decoded, resized and cut in time (docs/paper-to-code.md).

A window decodes only its own frames. Actions are chosen by time, so the control rate need not be the video's.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8
from PIL import Image

from simforcing.types import Clip, Episode, Resize

TIME_SLACK = 1e-3  # of one frame: what rounding may move a time stamp across a frame's boundary


@dataclass(frozen=True, kw_only=True)
class WindowSpec:
    """What every window of a run has in common: consecutive frames, views in order, the model's frame size."""

    num_frames: int
    views: tuple[str, ...]
    resize: Resize

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
    action_valid[:, :own_dim] = True
    frames, view_present = _read_views(episode, start, spec)
    state, state_valid = _state_at(episode, start_s, state_dim)
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


def resize_frames(frames: UInt8[np.ndarray, "f h w 3"], resize: Resize) -> UInt8[np.ndarray, "f h2 w2 3"]:
    """Bicubic, antialiased. squash: stretch; crop: cover, then cut the centre; pad: fit inside, black around."""
    height, width = frames.shape[1:3]
    if (height, width) == (resize.height, resize.width):
        return frames
    if resize.policy == "squash":
        scaled_size = (resize.height, resize.width)
    else:
        ratios = (resize.height / height, resize.width / width)
        ratio = max(ratios) if resize.policy == "crop" else min(ratios)
        scaled_size = (max(1, round(height * ratio)), max(1, round(width * ratio)))
    scaled = np.stack([_resize_frame(frame, scaled_size) for frame in frames])
    return _fit(scaled, resize)


def _fit(frames: UInt8[np.ndarray, "f h w 3"], resize: Resize) -> UInt8[np.ndarray, "f h2 w2 3"]:
    """Centre `frames` on a black canvas of the target size, cutting what is larger."""
    height, width = frames.shape[1:3]
    out = np.zeros((len(frames), resize.height, resize.width, 3), np.uint8)
    kept_height, kept_width = min(height, resize.height), min(width, resize.width)
    top, left = (height - kept_height) // 2, (width - kept_width) // 2
    out_top, out_left = (resize.height - kept_height) // 2, (resize.width - kept_width) // 2
    kept = frames[:, top : top + kept_height, left : left + kept_width]
    out[:, out_top : out_top + kept_height, out_left : out_left + kept_width] = kept
    return out


def _resize_frame(frame: UInt8[np.ndarray, "h w 3"], size: tuple[int, int]) -> UInt8[np.ndarray, "h2 w2 3"]:
    if frame.shape[:2] == size:
        return frame
    height, width = size
    return np.asarray(Image.fromarray(frame).resize((width, height), Image.Resampling.BICUBIC))


def _read_views(
    episode: Episode, start: int, spec: WindowSpec
) -> tuple[UInt8[np.ndarray, "v f h w 3"], Bool[np.ndarray, " v"]]:
    """Frames and which views are present."""
    shape = (len(spec.views), spec.num_frames, spec.resize.height, spec.resize.width, 3)
    frames = np.zeros(shape, np.uint8)
    stored = {view.name: view for view in episode.views}
    present = np.array([name in stored for name in spec.views])
    if not present.any():
        raise ValueError(
            f"episode {episode.name}: none of the views {', '.join(spec.views)}; views: {', '.join(stored)}"
        )
    for index in np.flatnonzero(present):
        decoded = stored[spec.views[index]].frames.read(start, start + spec.num_frames)
        frames[index] = resize_frames(decoded, spec.resize)
    return frames, present


def _state_at(
    episode: Episode, time_s: float, state_dim: int
) -> tuple[Float[np.ndarray, " s"], Bool[np.ndarray, " s"]]:
    """The latest state measured at or before `time_s`, and which of its numbers exist."""
    own_dim = 0 if episode.state is None else episode.state.shape[1]
    state = np.zeros(max(own_dim, state_dim), np.float32)
    if episode.state is not None and episode.state_time_s is not None:
        row = int(np.searchsorted(episode.state_time_s, time_s + TIME_SLACK / episode.fps, side="right")) - 1
        state[:own_dim] = episode.state[max(row, 0)]
    return state, np.arange(len(state)) < own_dim


def _name_hash(name: str, seed: int) -> str:
    return hashlib.sha256(f"{seed}:{name}".encode()).hexdigest()
