"""One episode as it is given to `LeRobotWriter`, and its table columns, checked against what the set declares."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped, UInt8

from simforcing.data.lerobot_format import JOINT_KEY
from simforcing.data.lerobot_stats import Stats
from simforcing.types import Camera, Layout


@dataclass(frozen=True, kw_only=True)
class EncodedVideo:
    """A finished video file of one episode, taken into the set as it is.

    Args:
        path: the file: in the codec of the set; it is linked or copied, never moved.
        size: (height, width) in pixels.
        stats: image statistics of its frames as they were before encoding; None for depth.
    """

    path: Path
    num_frames: int
    size: tuple[int, int]
    stats: Stats | None = None


@dataclass(frozen=True, kw_only=True)
class NewEpisode:
    """One episode to write.

    Args:
        frames: every view's frames, or its finished video.
        action, state: one row per frame; action i is commanded at frame i, state i measured at it.
        joint: measured joints beside the state, one row per frame, where the set declares a joint layout.
        depth: view name -> metres, 0 = unknown (or its finished video), for every view that the set declares depth of.
        task: the instruction.
        extra: further columns, one value or row per frame, or one value for the whole episode.
        name: the episode's original name.
        cameras: view name -> its camera in this episode, where it is not the set's.
    """

    frames: dict[str, UInt8[np.ndarray, "f _ _ 3"] | EncodedVideo]
    action: Float[np.ndarray, "k a"]
    state: Float[np.ndarray, "m s"] | None = None
    joint: Float[np.ndarray, "n j"] | None = None
    depth: dict[str, Float[np.ndarray, "g _ _"] | EncodedVideo] = field(default_factory=dict)
    task: str = ""
    extra: dict[str, Any] | None = None
    name: str | None = None
    cameras: dict[str, Camera] | None = None


@dataclass(frozen=True, kw_only=True)
class DeclaredSet:
    """What all episodes of a set have in common, for `checked_columns`."""

    views: dict[str, tuple[int, int]]
    depth: tuple[str, ...]
    action_layout: Layout
    state_layout: Layout | None
    joint_layout: Layout | None


def checked_columns(where: str, episode: NewEpisode, declared: DeclaredSet) -> dict[str, np.ndarray]:
    """Action, state, joint and extra columns by feature name. ValueError, beginning with `where`, for what differs."""
    num_frames = len(episode.action)
    if num_frames == 0:
        raise ValueError(f"{where}: no rows, expected at least one")
    _check_pictures(where, episode, declared)
    columns = {"action": _checked(f"{where}: action", episode.action, (num_frames, declared.action_layout.dim))}
    measured = (
        ("state", "observation.state", episode.state, declared.state_layout),
        ("joint", JOINT_KEY, episode.joint, declared.joint_layout),
    )
    for name, key, values, layout in measured:
        if (values is None) != (layout is None):
            raise ValueError(f"{where}: a {name} is given exactly where the set declares a {name} layout")
        if values is not None and layout is not None:
            columns[key] = _checked(f"{where}: {key}", values, (num_frames, layout.dim))
    for key, value in (episode.extra or {}).items():
        columns[key] = _extra_column(f"{where}: {key}", value, num_frames)
    return columns


def extra_feature(where: str, key: str, values: np.ndarray) -> dict[str, Any]:
    """Entry of info.json for an extra column."""
    if "/" in key:
        raise ValueError(f"{where}: extra column {key!r} is no free name")
    dtype = "string" if values.dtype.kind == "U" else str(values.dtype)
    return {"dtype": dtype, "shape": list(values.shape[1:]) or [1], "names": None}


def _check_pictures(where: str, episode: NewEpisode, declared: DeclaredSet) -> None:
    """Frames of every view and depth of every declared one, in shape and number."""
    num_frames = len(episode.action)
    for view in declared.views.keys() | episode.frames.keys():
        if view not in declared.views:
            raise ValueError(f"{where}: unknown view {view!r}; views: {', '.join(declared.views)}")
        _check_video(f"{where}: view {view}", episode.frames.get(view), "u", (num_frames, *declared.views[view], 3))
    for view in {*declared.depth, *episode.depth}:
        if view not in declared.depth:
            raise ValueError(
                f"{where}: depth of view {view!r}; the set declares: {', '.join(declared.depth) or 'none'}"
            )
        _check_video(f"{where}: depth of {view}", episode.depth.get(view), "f", (num_frames, *declared.views[view]))


def _check_video(where: str, found: np.ndarray | EncodedVideo | None, kind: str, expected: tuple[int, ...]) -> None:
    if isinstance(found, EncodedVideo):
        if (found.num_frames, *found.size) != expected[:3]:
            raise ValueError(f"{where} is a video of {found.num_frames} frames of {found.size}, expected {expected}")
        return
    fits = found is not None and found.shape == expected and found.dtype.kind == kind
    if not fits or (kind == "u" and found is not None and found.dtype != np.uint8):
        words = "nothing" if found is None else f"{found.dtype} {found.shape}"
        raise ValueError(f"{where} is {words}, expected {'uint8' if kind == 'u' else 'float'} {expected}")


def _checked(field_name: str, values: np.ndarray, shape: tuple[int, int]) -> Float[np.ndarray, "f a"]:
    """The values as float32 of that shape, all finite."""
    if values.shape != shape or values.dtype.kind not in "fiu":
        raise ValueError(f"{field_name} is {values.dtype} {values.shape}, expected float32 {shape}")
    if not np.isfinite(values).all():
        row = int(np.argwhere(~np.isfinite(values))[0][0])
        raise ValueError(f"{field_name} has {values[row].tolist()} at row {row}, expected finite numbers")
    return values.astype(np.float32)


def _extra_column(field_name: str, value: Any, num_frames: int) -> Shaped[np.ndarray, "f ..."]:
    """One value or row per frame, in a dtype that LeRobot knows; a single value is repeated."""
    values = np.asarray(value)
    if values.ndim == 0:
        values = np.broadcast_to(values, (num_frames,))
    dtype = {"i": np.int64, "u": np.int64, "f": np.float32, "b": np.bool_, "U": None}.get(values.dtype.kind, "unknown")
    if dtype == "unknown" or len(values) != num_frames or values.ndim > 2 or (dtype is None and values.ndim > 1):
        raise ValueError(
            f"{field_name} is {values.dtype} {values.shape}, expected numbers, booleans or strings,"
            f" {num_frames} rows or one value"
        )
    values = values if dtype is None else values.astype(dtype)
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
