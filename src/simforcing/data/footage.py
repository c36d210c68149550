"""Small pictures of a view with the robot's configurations: what a calibration is fitted to.

Frames are few and small whatever the set's size, and only the episodes asked for are read.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from simforcing.data.resize import resize_frames, resize_nearest
from simforcing.data.video import VideoFrames
from simforcing.data.windows import MASK_LEVEL
from simforcing.sim.calibrate import Group
from simforcing.sim.grouping import camera_groups
from simforcing.sim.robot import Robot
from simforcing.sim.studio import shown_rows
from simforcing.types import Camera, Episode, FrameSource, Resize

WORKING_PX = 96  # short side at most
NUM_FRAMES = 64  # of an episode at most, evenly chosen
NUM_BACKGROUND_FRAMES = 24


@dataclass(frozen=True, kw_only=True)
class Footage:
    """One episode's small frames, masks if asked for, and the rows of its replay that they show without a lag."""

    frames: UInt8[np.ndarray, "f h w 3"]
    masks: Bool[np.ndarray, "f h w"] | None
    rows: Int[np.ndarray, " f"]


def working_size(stored: tuple[int, int]) -> tuple[int, int]:
    """Height and width of the small pictures."""
    scale = min(1.0, WORKING_PX / min(stored))
    return round(stored[0] * scale), round(stored[1] * scale)


def read_footage(episode: Episode, view: str, *, with_masks: bool = False, num_frames: int = NUM_FRAMES) -> Footage:
    """Decode an episode, keep evenly chosen frames. ValueError where a frame cannot be read, or masks are missing."""
    source = episode.view(view)
    height, width = working_size(source.frames.size)
    rows = np.unique(np.linspace(0, episode.num_frames - 1, min(num_frames, episode.num_frames)).round().astype(int))
    small = Resize(height=height, width=width)
    frames = np.concatenate([resize_frames(frame[None], small) for frame in chosen_frames(source.frames, rows)])
    masks = None
    if with_masks:
        if source.masks is None:
            raise ValueError(f"episode {episode.name}: view {view} has no masks")
        inside = (mask[None].max(axis=-1) > MASK_LEVEL for mask in chosen_frames(source.masks, rows))
        masks = np.concatenate([resize_nearest(mask, small) for mask in inside])
    return Footage(frames=frames, masks=masks, rows=rows)


def chosen_frames(source: FrameSource, rows: Int[np.ndarray, " n"]) -> Iterator[UInt8[np.ndarray, "h w 3"]]:
    """Some frames in rising order, one by one: a video is decoded once, and never held as a whole."""
    if not isinstance(source, VideoFrames):
        for row in rows:
            yield source.read(int(row), int(row) + 1)[0]
        return
    wanted = set(rows.tolist())
    for row, frame in enumerate(source.each(int(rows[-1]) + 1)):
        if row in wanted:
            yield frame


def background(episode: Episode, view: str) -> UInt8[np.ndarray, "h w 3"]:
    """The median of some frames, small."""
    frames = read_footage(episode, view, num_frames=NUM_BACKGROUND_FRAMES).frames
    return np.median(frames, axis=0).astype(np.uint8)


def group_episodes(
    episodes: list[Episode], view: str, backgrounds: dict[str, UInt8[np.ndarray, "_ _ 3"]]
) -> list[list[Episode]]:
    """Episodes that share a camera by what their backgrounds (by episode name) look like; of one stored size each."""
    sizes = sorted({episode.view(view).frames.size for episode in episodes})
    groups: list[list[Episode]] = []
    for size in sizes:
        own = [episode for episode in episodes if episode.view(view).frames.size == size]
        labels = camera_groups(np.stack([backgrounds[episode.name] for episode in own]))
        groups += [[e for e, label in zip(own, labels, strict=True) if label == i] for i in range(labels.max() + 1)]
    return groups


@dataclass(frozen=True, kw_only=True)
class CameraPrior:
    """What is known of a group's camera and lag before they are fitted; the fields are those of `Group`."""

    template: Camera
    lags: tuple[int, ...]
    starts: tuple[Camera, ...] = ()
    pixel_aspect: float = 1.0


def build_group(
    name: str,
    episodes: list[Episode],
    view: str,
    *,
    robot: Robot,
    qpos: dict[str, Float[np.ndarray, "f q"]],
    prior: CameraPrior,
    with_masks: bool = False,
) -> Group:
    """Read the episodes' footage into a group that can be fitted or judged.

    Args:
        qpos: by episode name, one configuration per video frame, without any lag.
    """
    footage = [read_footage(episode, view, with_masks=with_masks) for episode in episodes]
    configurations = []
    for lag in prior.lags:
        rows = [shown_rows(len(qpos[e.name]), lag)[f.rows] for f, e in zip(footage, episodes, strict=True)]
        configurations.append(np.concatenate([qpos[e.name][r] for e, r in zip(episodes, rows, strict=True)]))
    masks = [f.masks for f in footage if f.masks is not None]
    return Group(
        name=name,
        episodes=tuple(episode.name for episode in episodes),
        robot=robot,
        frames=np.concatenate([f.frames for f in footage]),
        episode=np.repeat(np.arange(len(episodes)), [len(f.frames) for f in footage]),
        number=np.concatenate([f.rows for f in footage]),
        lags=prior.lags,
        qpos=np.stack(configurations),
        template=prior.template,
        starts=prior.starts,
        pixel_aspect=prior.pixel_aspect,
        masks=np.concatenate(masks) if masks else None,
    )
