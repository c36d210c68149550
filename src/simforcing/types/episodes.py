"""Episodes as stored and clips as read: one vocabulary for every reader, recipe and report."""

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, UInt8

from simforcing.types.cameras import Camera
from simforcing.types.layouts import Layout

ResizePolicy = Literal["pad", "crop", "squash"]


@runtime_checkable
class FrameSource(Protocol):
    """Frames that are decoded only when read: a video file, a list of JPEG strings, an array."""

    @property
    def num_frames(self) -> int: ...

    @property
    def size(self) -> tuple[int, int]:
        """Stored (height, width) in pixels."""
        ...

    def read(self, start: int, stop: int) -> UInt8[np.ndarray, "f h w 3"]:
        """Frames start..stop-1, decoding no more than it must. Raises ValueError naming file and frame."""
        ...


@runtime_checkable
class DepthSource(Protocol):
    """Metric depth along the camera's axis, decoded only when read."""

    @property
    def num_frames(self) -> int: ...

    @property
    def size(self) -> tuple[int, int]:
        """Stored (height, width) in pixels."""
        ...

    def read(self, start: int, stop: int) -> Float[np.ndarray, "f h w"]:
        """Frames start..stop-1 in metres; 0 = unknown, never NaN."""
        ...


@dataclass(frozen=True, kw_only=True)
class View:
    """One camera's stream of an episode, with what else was recorded or rendered from the same place.

    `masks` are pictures, white inside; `depth` has numbers of its own. Both count the same frames.
    """

    name: str
    frames: FrameSource
    camera: Camera | None = None
    masks: FrameSource | None = None
    depth: DepthSource | None = None


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One demonstration. Action i is commanded at `action_time_s[i]` and holds until the next one.

    Args:
        name: unique in its data set, stable across reads; error messages and splits use it.
        task: the instruction in words; empty where none was recorded.
        fps: true video rate in Hz (a wrong file header is corrected by the reader).
        num_frames: frames per view, after a surplus frame was trimmed.
        views: cameras in the data set's order; a camera missing from this episode is left out.
        action, action_time_s: commands as stored, in the data set's action layout.
        state, state_time_s: measured proprioception, in the data set's state layout.
        joint: measured joints, one row per state, in the data set's joint layout, where they are recorded beside a
            state that does not hold them.
        action_valid, state_valid: which stored numbers exist (parts of an action space that this robot has, sensors
            that answered); None: all. What does not exist is stored as 0.
    """

    name: str
    task: str
    fps: float
    num_frames: int
    views: tuple[View, ...]
    action: Float[np.ndarray, "k a"]
    action_time_s: Float[np.ndarray, " k"]
    state: Float[np.ndarray, "m s"] | None = None
    state_time_s: Float[np.ndarray, " m"] | None = None
    joint: Float[np.ndarray, "m j"] | None = None
    action_valid: Bool[np.ndarray, "k a"] | None = None
    state_valid: Bool[np.ndarray, "m s"] | None = None

    def view(self, name: str) -> View:
        """The view of that name; ValueError lists the choices."""
        for view in self.views:
            if view.name == name:
                return view
        raise ValueError(f"episode {self.name}: no view {name!r}; views: {', '.join(v.name for v in self.views)}")


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """An episode left out before training starts, and why, in one line."""

    name: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class EpisodeSet:
    """A data set as opened: usable episodes, rejected ones by name, and what was declared about them.

    `fingerprint` changes when any table, text or video of the set changes.
    """

    root: str
    kind: str
    episodes: tuple[Episode, ...]
    rejected: tuple[Rejected, ...]
    warnings: tuple[str, ...]
    action_layout: Layout | None
    state_layout: Layout | None
    robot: str | None
    fingerprint: str
    joint_layout: Layout | None = None


@dataclass(frozen=True, kw_only=True)
class Resize:
    """How stored frames become the model's frames; stored with every run."""

    height: int
    width: int
    policy: ResizePolicy = "squash"

    def __post_init__(self) -> None:
        if self.policy not in ("pad", "crop", "squash"):
            raise ValueError(f"resize policy {self.policy!r} is unknown; choices: pad, crop, squash")
        if self.height < 1 or self.width < 1:
            raise ValueError(f"resize to {self.height}x{self.width}: both sides must be at least 1 pixel")


@dataclass(frozen=True, kw_only=True)
class Clip:
    """A window of an episode, decoded and resized. Views missing from the episode are black and not present.

    `action[i]` drives the robot from `action_time_s[i]`; times count from the window's first frame.
    `state` is the one measured at the window's first frame (zeros and not valid where none was recorded).

    Depth (m, 0 = unknown) and masks (True inside) are None where they were not asked for or no view has them; a view
    without them, by the `_present` flags, is 0. Cameras are those of the resized frames, None where not known.
    `history` holds states measured before the window, oldest first, where they were asked for.
    """

    episode: str
    start: int
    task: str
    frames: UInt8[np.ndarray, "v f h w 3"]
    view_present: Bool[np.ndarray, " v"]
    frame_time_s: Float[np.ndarray, " f"]
    action: Float[np.ndarray, "k a"]
    action_valid: Bool[np.ndarray, "k a"]
    action_time_s: Float[np.ndarray, " k"]
    state: Float[np.ndarray, " s"]
    state_valid: Bool[np.ndarray, " s"]
    masks: Bool[np.ndarray, "v f h w"] | None = None
    mask_present: Bool[np.ndarray, " v"] | None = None
    depth: Float[np.ndarray, "v f h w"] | None = None
    depth_present: Bool[np.ndarray, " v"] | None = None
    cameras: tuple[Camera | None, ...] = ()
    history: Float[np.ndarray, "m s"] | None = None
    history_valid: Bool[np.ndarray, "m s"] | None = None
