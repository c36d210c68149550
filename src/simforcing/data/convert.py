"""Any readable data set -> a LeRobot set with its action layout declared in meta/simforcing.json."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8

from simforcing.data.lerobot import episode_names, extra_columns, read_columns
from simforcing.data.lerobot_format import Version
from simforcing.data.lerobot_writer import LeRobotWriter
from simforcing.data.open import open_dataset, require_layout
from simforcing.data.validate import describe, table_fault
from simforcing.data.windows import MASK_LEVEL
from simforcing.types import DepthSource, Episode, EpisodeSet, Layout, layout_named
from simforcing.types.conversions import StartState, convert_actions

# Measured on one core over DROID and Bridge clips: H.264 of short keyframe distance; decoding, encoding, statistics.
BYTES_PER_PIXEL = 0.2
SET_BYTES = 300e3
PIXELS_PER_S = 4.5e6
TIME_SLACK = 0.05  # of one frame


def convert(
    source: str | Path,
    destination: str | Path,
    *,
    layout: str | None,
    version: Version = "v3.0",
    cameras: tuple[str, ...] | None = None,
    overwrite: bool = False,
    report: Callable[[str], None] = print,
) -> EpisodeSet:
    """Write every usable episode of `source` as a LeRobot set and open the result.

    Nothing appears under `destination` until all of it is there; an interrupted conversion leaves `<name>.partial`,
    which the next one replaces.

    Args:
        source: anything that `open_dataset` reads.
        destination: folder to create.
        layout: what the actions of an undeclared set are; where the set's own layout is known, the layout to convert
            to exactly (from the first measured state, where a start is needed). None: as declared or recognised.
        version: LeRobot format version, v3.0 or v2.1.
        cameras: views to keep; None: all that every episode has.
        overwrite: replace an existing destination.
        report: takes one line at a time: what was read, estimates, progress.

    Raises:
        ValueError: unreadable source, no layout, rates that a LeRobot set cannot hold, existing destination.
        OSError: the disk is full.
    """
    source_set = _open_source(source, cameras, layout)
    action_layout = require_layout(source_set) if layout is None else layout_named(layout)
    destination = Path(destination)
    if destination.exists() and not overwrite:
        raise ValueError(f"{destination} exists; choose another name or overwrite it")
    here, there = Path(source).resolve(), destination.resolve()
    if here.is_relative_to(there) or there.is_relative_to(here):
        raise ValueError(f"{destination}: source and destination must not contain each other")
    for line in describe(source_set):
        report(line)
    if source_set.action_layout != action_layout:
        source_name = require_layout(source_set).name
        report(f"{destination}: actions are converted from layout {source_name} to {action_layout.name}")
    views = _common_views(source_set, report)
    masks = _common_masks(source_set, views, report)
    fps = common_fps(source_set)
    state_layout = kept_state_layout(source_set, report)
    joint_layout = kept_joint_layout(source_set, report)
    extra = extra_by_episode(source_set, report)
    num_bytes, seconds = estimate(source_set, tuple(views))
    report(f"{destination}: about {num_bytes / 1e6:.1f} MB and {seconds:.0f} s")
    check_free_space(destination, num_bytes)
    with LeRobotWriter(
        destination,
        fps=fps,
        views=views | {mask: views[view] for view, mask in masks.items()},
        masks=masks,
        action_layout=action_layout,
        state_layout=state_layout,
        joint_layout=joint_layout,
        depth=_common_depth(source_set, views, report),
        robot=source_set.robot,
        version=version,
        overwrite=overwrite,
    ) as writer:
        num_written = 0
        for episode in source_set.episodes:
            num_written += _add(writer, _Source(data=source_set, extra=extra), episode, report)
        report(f"{destination}: {num_written} of {len(source_set.episodes)} episodes written")
    return open_dataset(destination)


def estimate(episode_set: EpisodeSet, views: tuple[str, ...]) -> tuple[float, float]:
    """(bytes, seconds) that writing the set's chosen views will take, roughly."""
    num_pixels = 0
    for episode in episode_set.episodes:
        for view in episode.views:
            if view.name in views:
                height, width = view.frames.size
                num_pixels += episode.num_frames * height * width
    return SET_BYTES + num_pixels * BYTES_PER_PIXEL, num_pixels / PIXELS_PER_S


def check_free_space(destination: Path, num_bytes: float) -> None:
    """OSError naming both sizes where the disk of `destination` has less room than is needed."""
    existing = destination.absolute()
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if free < num_bytes:
        raise OSError(f"{destination}: about {num_bytes / 1e6:.1f} MB are needed, {free / 1e6:.1f} MB are free")


def rows_per_frame(
    values: Float[np.ndarray, "k a"], times_s: Float[np.ndarray, " k"], episode: Episode, layout: Layout
) -> Float[np.ndarray, "f a"]:
    """One row per frame: row i is what was commanded (measured) at frame i.

    Frames after the last row hold it; increments there are zero, as nothing more was commanded. Raises ValueError where
    the rows' times are not the frames': a LeRobot set has one row per frame.
    """
    num_rows = min(len(values), episode.num_frames)
    frame_s = np.arange(num_rows) / episode.fps
    if len(values) < episode.num_frames - 1 or np.abs(times_s[:num_rows] - frame_s).max() > TIME_SLACK / episode.fps:
        raise ValueError(
            f"episode {episode.name}: {len(values)} rows at {times_s[0]:.3g} .. {times_s[-1]:.3g} s do not fall on its"
            f" {episode.num_frames} frames at {episode.fps:g} fps; resample them to one row per frame first"
        )
    missing = episode.num_frames - num_rows
    last = np.where(_is_delta(layout), 0.0, values[num_rows - 1])
    return np.concatenate([values[:num_rows], np.tile(last, (missing, 1))]).astype(np.float32)


def _is_delta(layout: Layout) -> np.ndarray:
    return np.concatenate([np.full(part.size, part.mode == "delta") for part in layout.parts])


def _open_source(source: str | Path, cameras: tuple[str, ...] | None, layout: str | None) -> EpisodeSet:
    """The source under its own layout where it has one that `layout` can be made from, else under `layout`."""
    if layout is None:
        return open_dataset(source, cameras=cameras)
    target = layout_named(layout)
    own = open_dataset(source, cameras=cameras)
    if own.action_layout is not None and own.action_layout.slices.keys() == target.slices.keys():
        return own
    return open_dataset(source, cameras=cameras, layout=layout)


def _converted(episode: Episode, source_set: EpisodeSet, target: Layout) -> Float[np.ndarray, "k a"]:
    """The episode's actions in the target layout; ValueError where they cannot be converted or leave its range."""
    source = require_layout(source_set)
    if source == target:
        return episode.action
    start = None
    if episode.state is not None and source_set.state_layout is not None:
        start = StartState(values=episode.state[0], layout=source_set.state_layout)
    converted = convert_actions(episode.action, source, target, start=start)
    if (fault := table_fault(converted, target, "action")) is not None:
        raise ValueError(fault)
    return converted


@dataclass(frozen=True, kw_only=True)
class _Source:
    """A set, and by episode name its extra columns."""

    data: EpisodeSet
    extra: dict[str, dict[str, list]]


def _add(writer: LeRobotWriter, source: _Source, episode: Episode, report: Callable[[str], None]) -> bool:
    """Write one episode; an unreadable frame leaves it out by name, and is counted by the caller."""
    try:
        frames = _frames(writer, episode)
        converted = _converted(episode, source.data, writer.action_layout)
        action = rows_per_frame(converted, episode.action_time_s, episode, writer.action_layout)
        state = _measured(episode.state, writer.state_layout, episode)
        joint = _measured(episode.joint, writer.joint_layout, episode)
        depth = {name: _cut(episode.view(name).depth, writer.views[name], episode) for name in writer.depth}
    except ValueError as error:
        report(f"{writer.root}: episode {episode.name} is left out: {error}")
        return False
    cameras = {
        view.name: replace(view.camera, size=writer.views[view.name])  # sides are cut at the far end alone
        for view in episode.views
        if view.name in writer.views and view.camera is not None
    }
    writer.add(
        frames=frames,
        action=action,
        state=state,
        joint=joint,
        depth=depth,
        task=episode.task,
        extra=source.extra.get(episode.name),
        name=episode.name,
        cameras=cameras,
    )
    return True


def _measured(
    values: Float[np.ndarray, "m s"] | None, layout: Layout | None, episode: Episode
) -> Float[np.ndarray, "f s"] | None:
    """States or joints, one row per frame, where the set keeps them."""
    if values is None or layout is None or episode.state_time_s is None:
        return None
    return rows_per_frame(values, episode.state_time_s, episode, layout)


def _cut(depth: DepthSource | None, size: tuple[int, int], episode: Episode) -> Float[np.ndarray, "f h w"]:
    assert depth is not None  # views are chosen so that every episode has it
    return depth.read(0, episode.num_frames)[:, : size[0], : size[1]]


def _frames(writer: LeRobotWriter, episode: Episode) -> dict[str, UInt8[np.ndarray, "f h w 3"]]:
    """All pictures of an episode, masks as black and white."""
    frames = {}
    for name, (height, width) in writer.views.items():
        if name in writer.masks.values():
            continue
        view = episode.view(name)
        frames[name] = view.frames.read(0, episode.num_frames)[:, :height, :width]
        if name in writer.masks and view.masks is not None:
            inside = view.masks.read(0, episode.num_frames)[:, :height, :width] > MASK_LEVEL
            frames[writer.masks[name]] = np.where(inside, 255, 0).astype(np.uint8)
    return frames


def _common_masks(
    episode_set: EpisodeSet, views: dict[str, tuple[int, int]], report: Callable[[str], None]
) -> dict[str, str]:
    """View -> the view to write its masks to, where every episode has them in the view's size."""
    masks = {}
    for name in views:
        stored = [episode.view(name) for episode in episode_set.episodes]
        fitting = [view.masks is not None and view.masks.size == view.frames.size for view in stored]
        if all(fitting) and f"{name}_mask" not in views:
            masks[name] = f"{name}_mask"
        elif any(view.masks is not None for view in stored):
            report(
                f"{episode_set.root}: masks of view {name} are left out: {sum(fitting)} of {len(stored)} have them in"
                " the view's size"
            )
    return masks


def _common_depth(
    episode_set: EpisodeSet, views: dict[str, tuple[int, int]], report: Callable[[str], None]
) -> tuple[str, ...]:
    """Views whose depth is written: where every episode has it."""
    kept = []
    for name in views:
        count = sum(episode.view(name).depth is not None for episode in episode_set.episodes)
        if count == len(episode_set.episodes):
            kept.append(name)
        elif count:
            report(
                f"{episode_set.root}: depth of view {name} is left out: {count} of {len(episode_set.episodes)} have it"
            )
    return tuple(kept)


def extra_by_episode(episode_set: EpisodeSet, report: Callable[[str], None]) -> dict[str, dict[str, list]]:
    """Further columns of a LeRobot set by episode name, as far as a LeRobot set takes them back."""
    root = Path(episode_set.root)
    if not episode_set.kind.startswith("lerobot") or not root.is_dir():
        return {}
    columns = extra_columns(root)
    if refused := [column for column in columns if "/" in column]:
        report(f"{root}: columns {', '.join(refused)} are left out: their names hold a slash")
    rows = read_columns(root, [column for column in columns if column not in refused])
    return dict(zip(episode_names(root), rows, strict=True))


def _common_views(episode_set: EpisodeSet, report: Callable[[str], None]) -> dict[str, tuple[int, int]]:
    """Views that every episode has in one size, with that size made even (a last odd row or column is left out)."""
    sizes: dict[str, set[tuple[int, int]]] = {}
    counts: dict[str, int] = {}
    for episode in episode_set.episodes:
        for view in episode.views:
            sizes.setdefault(view.name, set()).add(view.frames.size)
            counts[view.name] = counts.get(view.name, 0) + 1
    common = {}
    for name, found in sizes.items():
        if counts[name] < len(episode_set.episodes):
            report(
                f"{episode_set.root}: view {name} is left out: {counts[name]} of {len(episode_set.episodes)} have it"
            )
        elif len(found) > 1:
            listed = ", ".join(f"{height}x{width}" for height, width in sorted(found))
            raise ValueError(f"{episode_set.root}: view {name} has several sizes ({listed}), a LeRobot set has one")
        else:
            height, width = next(iter(found))
            common[name] = (height - height % 2, width - width % 2)
            if common[name] != (height, width):
                report(f"{episode_set.root}: view {name} is cut from {height}x{width} to even sides")
    if not common:
        raise ValueError(f"{episode_set.root}: no view is in every episode; views: {', '.join(sizes)}")
    return common


def common_fps(episode_set: EpisodeSet) -> float:
    """The rate of all episodes; ValueError where they differ, as a LeRobot set has one."""
    rates = sorted({episode.fps for episode in episode_set.episodes})
    if len(rates) > 1:
        raise ValueError(
            f"{episode_set.root}: episodes at {', '.join(f'{rate:g}' for rate in rates)} fps, expected one"
        )
    return rates[0]


def kept_state_layout(episode_set: EpisodeSet, report: Callable[[str], None]) -> Layout | None:
    """The layout to declare for the states; None, with a line, where they cannot be kept."""
    count = sum(episode.state is not None for episode in episode_set.episodes)
    return _kept_layout(episode_set, "state", count, episode_set.state_layout, report)


def kept_joint_layout(episode_set: EpisodeSet, report: Callable[[str], None]) -> Layout | None:
    """The same for joints that are recorded beside the states."""
    count = sum(episode.joint is not None for episode in episode_set.episodes)
    return _kept_layout(episode_set, "joint", count, episode_set.joint_layout, report)


def _kept_layout(
    episode_set: EpisodeSet, what: str, count: int, layout: Layout | None, report: Callable[[str], None]
) -> Layout | None:
    if count == 0:
        return None
    if count < len(episode_set.episodes):
        report(f"{episode_set.root}: {what}s are left out: {count} of {len(episode_set.episodes)} have them")
        return None
    if layout is None:
        report(f"{episode_set.root}: {what}s are left out: their layout is not declared ({what}_layout)")
    return layout
