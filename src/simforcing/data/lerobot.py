"""Reads LeRobot data sets, v2.1 and v3.0, from a folder or the hub. Opening reads tables and video indices."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from jaxtyping import UInt8

from simforcing.data.depth_video import DepthVideo
from simforcing.data.formats import declared, fingerprint
from simforcing.data.frame_index import one_line
from simforcing.data.lerobot_format import (
    DEPTH_PATH,
    IMAGE_PREFIX,
    INDEX_DTYPES,
    JOINT_KEY,
    Declaration,
    read_declaration,
    read_episode_cameras,
)
from simforcing.data.lerobot_tables import DAMAGED, NUMBERS, EpisodeRow, LeRobotTables
from simforcing.data.validate import Candidate, Inspector
from simforcing.data.video import JpegFrames, VideoFrames, probe
from simforcing.types import Camera, EpisodeSet, FrameSource, Layout, View
from simforcing.types.files import inside


@dataclass(frozen=True, kw_only=True)
class LeRobotKeys:
    """Which columns hold actions and states; several are put side by side in this order.

    Empty: `action` and `observation.state`, or where a set has neither, all numeric columns named `action(s).*` and
    `state(s).*` in the set's own order (with a warning line that spells the order out).
    """

    action: tuple[str, ...] = ()
    state: tuple[str, ...] = ()


def read_lerobot(
    root: str | Path,
    *,
    cameras: Sequence[str] | None = None,
    keys: LeRobotKeys | None = None,
    layout: str | None = None,
) -> EpisodeSet:
    """Open a set.

    Args:
        root: a folder, or a hub id `owner/name`, which is downloaded (only the chosen cameras' videos).
        cameras: view names (`front`, or the full key `observation.images.front`) in the wanted order; None: all.
        keys: columns of actions and states.
        layout: name of the action layout; overrules the set's own declaration in meta/simforcing.json.
    Raises:
        ValueError: in one line, where the set cannot be used at all; single bad episodes are rejected by name instead.
    """
    folder = _local_folder(root, cameras)
    tables = LeRobotTables(folder)
    declaration = declared(folder, layout, Declaration(robot=_text(tables.info.get("robot_type")), fps=tables.fps))
    inspector = Inspector(
        str(root), declaration.action_layout, declaration.state_layout, joint_layout=declaration.joint_layout
    )
    columns = _columns(tables, keys or LeRobotKeys(), inspector)
    _check_width(tables, "action", columns.action, declaration.action_layout)
    if columns.state:
        _check_width(tables, "state", columns.state, declaration.state_layout)
    if declaration.joint_layout is not None:
        if JOINT_KEY not in tables.keys(*NUMBERS):
            raise ValueError(f"{tables.info_path}: no feature {JOINT_KEY}, but a joint layout is declared")
        _check_width(tables, "joint", (JOINT_KEY,), declaration.joint_layout)
    views = _chosen_views(tables, declaration, cameras, inspector)
    own_cameras = read_episode_cameras(folder)
    names = _episode_names(tables, declaration)
    if declaration.episode_names and list(declaration.episode_names) != names:
        found = f"{len(declaration.episode_names)} episode names for {len(names)} episodes"
        inspector.warn(f"{folder}: {found}: numbers are used")
    for name, episode in zip(names, tables.episodes, strict=True):
        pinholes = {**declaration.cameras, **own_cameras.get(name, {})}
        opened = _Opening(tables, declaration, columns, views, episode, name, pinholes)
        inspector.consider(name, opened.candidate)
    data_files = {episode.data_file for episode in tables.episodes}
    videos = {episode.videos[key][0] for episode in tables.episodes for key in views.values() if key in episode.videos}
    depth = {_depth_path(folder, view, row) for view in declaration.depth if view in views for row in tables.episodes}
    present = [path for path in data_files | videos | depth if path.is_file()]
    return inspector.finish(
        kind=f"lerobot {tables.version}",
        robot=declaration.robot,
        fingerprint=fingerprint(folder, [*tables.meta_files(), *present]),
    )


def read_columns(root: str | Path, columns: Sequence[str]) -> list[dict[str, list]]:
    """Extra columns, episode by episode in the set's order: {"parent": [0, 0, ...]}; ValueError lists the choices."""
    tables = LeRobotTables(Path(root))
    for column in columns:
        if column not in tables.features:
            raise ValueError(f"{root}: no column {column!r}; columns: {', '.join(tables.features)}")
    return [{column: tables.rows(episode)[column].to_pylist() for column in columns} for episode in tables.episodes]


def extra_columns(root: str | Path) -> list[str]:
    """Columns of a set beside actions, states, indices and pictures, in the set's order."""
    tables = LeRobotTables(Path(root))
    used = _columns(tables, LeRobotKeys(), Inspector(str(root), None, None))
    joint = (JOINT_KEY,) if read_declaration(root).joint_layout is not None else ()
    known = {*used.action, *used.state, *joint, *INDEX_DTYPES}
    return [key for key in tables.keys(*NUMBERS, "string") if key not in known]


def episode_names(root: str | Path) -> list[str]:
    """Names of all episodes of a set, rejected ones included, in the order of `read_columns`."""
    return _episode_names(LeRobotTables(Path(root)), read_declaration(root))


def _episode_names(tables: LeRobotTables, declaration: Declaration) -> list[str]:
    if len(declaration.episode_names) == len(tables.episodes):
        return list(declaration.episode_names)
    return [f"episode_{episode.index:06d}" for episode in tables.episodes]


class TableImages:
    """Frames stored as PNG or JPEG strings in a parquet column; only the row groups of the window are read."""

    def __init__(self, path: str | Path, column: str, first_row: int, num_frames: int) -> None:
        self.path, self._column = str(path), column
        self._first_row, self.num_frames = first_row, num_frames

    @property
    def size(self) -> tuple[int, int]:
        """Stored (height, width) of the first frame."""
        return self._images(0, 1).size

    def read(self, start: int, stop: int) -> UInt8[np.ndarray, "f h w 3"]:
        """Frames start..stop-1. ValueError names the file and the frame."""
        if not 0 <= start <= stop <= self.num_frames:
            raise ValueError(
                f"{self.path}: frames {start}..{stop - 1} asked for, expected within 0..{self.num_frames - 1}"
            )
        return self._images(start, stop).read(0, stop - start)

    def _images(self, start: int, stop: int) -> JpegFrames:
        first, last = self._first_row + start, self._first_row + stop
        try:
            with pq.ParquetFile(self.path, page_checksum_verification=True) as file:
                num_rows = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
                ends = np.cumsum(num_rows)
                groups = np.flatnonzero((ends > first) & (ends - num_rows < last)).tolist()
                begin = int(ends[groups[0]]) - num_rows[groups[0]]
                column = file.read_row_groups(groups, columns=[self._column], use_threads=False)[self._column]
                images = [image["bytes"] for image in column.slice(first - begin, stop - start).to_pylist()]
        except (*DAMAGED, IndexError) as error:
            raise ValueError(f"{self.path}: images {self._column} cannot be read ({one_line(error):.200})") from error
        if len(images) != stop - start or not all(isinstance(image, bytes) for image in images):
            raise ValueError(f"{self.path}: images {self._column} end or are missing within rows {first}..{last - 1}")
        return JpegFrames(images, name=f"{self.path}: {self._column} from row {first}")


@dataclass(frozen=True)
class _Opening:
    """Everything that is known when one episode is opened."""

    tables: LeRobotTables
    declaration: Declaration
    columns: LeRobotKeys
    views: dict[str, str]
    episode: EpisodeRow
    name: str
    cameras: dict[str, Camera]

    def candidate(self) -> Candidate:
        rows = self.tables.rows(self.episode)
        sources = {view: self._source(key) for view, key in self.views.items()}
        masks = self.declaration.masks
        hidden = set(masks.values())
        fps = self.declaration.fps or self.tables.fps
        row_s = np.arange(self.episode.length) / fps  # a LeRobot set has one row per frame
        files = {self.episode.videos[key][0] for key in self.views.values() if key in self.episode.videos}
        return Candidate(
            name=self.name,
            task=self.tables.task(rows, self.episode),
            fps=fps,
            num_frames=self.episode.length,
            views=tuple(
                View(
                    name=view,
                    frames=source,
                    camera=self.cameras.get(view),
                    masks=sources.get(masks.get(view, "")),
                    depth=self._depth(view),
                )
                for view, source in sources.items()
                if view not in hidden
            ),
            action=self.tables.vector(rows, self.episode, self.columns.action),
            action_time_s=row_s,
            state=self.tables.vector(rows, self.episode, self.columns.state) if self.columns.state else None,
            state_time_s=row_s if self.columns.state else None,
            joint=None
            if self.declaration.joint_layout is None
            else self.tables.vector(rows, self.episode, (JOINT_KEY,)),
            header_fps=tuple(probe(path).fps for path in sorted(files)),
        )

    def _depth(self, view: str) -> DepthVideo | None:
        if view not in self.declaration.depth:
            return None
        source = DepthVideo(_depth_path(self.tables.root, view, self.episode))
        _ = source.size  # a missing or damaged file is named here
        return source

    def _source(self, key: str) -> FrameSource:
        if key not in self.episode.videos:
            first_row = self.tables.first_row(self.episode)
            return TableImages(self.episode.data_file, key, first_row, self.episode.length)
        path, start_s, stop_s = self.episode.videos[key]
        if start_s is not None and stop_s is not None and not 0 <= start_s < stop_s < np.inf:
            raise ValueError(
                f"{self.tables.root}: videos/{key} of episode {self.episode.index} is from {start_s} to {stop_s} s,"
                " expected 0 <= from_timestamp < to_timestamp"
            )
        source = VideoFrames(path, start_s=start_s, stop_s=stop_s)
        height, width = source.size
        if tuple(self.tables.features[key]["shape"]) not in ((height, width, 3), (3, height, width)):
            shape = self.tables.features[key]["shape"]
            raise ValueError(f"{path}: video of {height}x{width} pixels, info.json declares {shape} for {key}")
        return source


def _local_folder(root: str | Path, cameras: Sequence[str] | None) -> Path:
    """The folder itself, or where the hub's copy was downloaded to."""
    folder = Path(root)
    if folder.exists():
        return folder
    if len(str(root).split("/")) != 2 or str(root).startswith((".", "/", "~")):
        raise ValueError(f"{root}: no such folder, and no hub id (owner/name)")
    from huggingface_hub import snapshot_download

    def download(*patterns: str) -> Path:
        try:
            return Path(snapshot_download(str(root), repo_type="dataset", allow_patterns=list(patterns) or None))
        except Exception as error:  # the hub client raises its own, httpx' and OSError; all mean the same here
            raise ValueError(
                f"{root}: no such folder, and not to be had from the hub ({one_line(error):.200})"
            ) from error

    if cameras is None:
        return download()
    views = {_short(camera) for camera in cameras}
    declaration = read_declaration(download("meta/*"))
    depth = [f"depth/{view}/*" for view in declaration.depth if view in views]
    views |= {mask for view, mask in declaration.masks.items() if view in views}
    return download("meta/*", "data/*", *(f"videos/*{view}/*" for view in sorted(views)), *depth)


def _depth_path(root: Path, view: str, episode: EpisodeRow) -> Path:
    return inside(root, root / DEPTH_PATH.format(view=view, episode_index=episode.index))


def _short(key: str) -> str:
    """observation.images.front -> front; images.rgb.head -> rgb.head."""
    for prefix in (IMAGE_PREFIX, "observation.", "images."):
        key = key.removeprefix(prefix)
    return key


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _columns(tables: LeRobotTables, keys: LeRobotKeys, inspector: Inspector) -> LeRobotKeys:
    """The columns of actions and states that exist; ValueError lists the choices."""
    numeric = [key for key in tables.keys(*NUMBERS) if len(tables.features[key]["shape"]) == 1]
    for key in (*keys.action, *keys.state):
        if key not in numeric:
            raise ValueError(f"{tables.info_path}: no numeric feature {key!r}; choices: {', '.join(numeric)}")
    found = {}
    for field, standard, given in (("action", "action", keys.action), ("state", "observation.state", keys.state)):
        parts = tuple(key for key in numeric if key.startswith((f"{field}.", f"{field}s.")))
        found[field] = given or ((standard,) if standard in numeric else parts)
        if not given and standard not in numeric and parts:
            inspector.warn(f"{inspector.root}: no {standard}; the {field} is {', '.join(parts)}, in this order")
    if not found["action"]:
        raise ValueError(f"{tables.info_path}: no feature action; numeric features: {', '.join(numeric)}")
    return LeRobotKeys(action=found["action"], state=found["state"])


def _check_width(tables: LeRobotTables, field: str, keys: tuple[str, ...], layout: Layout | None) -> None:
    width = sum(tables.features[key]["shape"][0] for key in keys)
    if layout is not None and width != layout.dim:
        raise ValueError(
            f"{tables.info_path}: {field} ({', '.join(keys)}) has {width} numbers,"
            f" layout {layout.name} has {layout.dim} ({', '.join(layout.slices)})"
        )


def _chosen_views(
    tables: LeRobotTables, declaration: Declaration, cameras: Sequence[str] | None, inspector: Inspector
) -> dict[str, str]:
    """View name -> feature key, masks of chosen views included; ValueError lists the choices."""
    images = {_short(key): key for key in tables.keys("video", "image")}
    depth = [view for view, key in images.items() if _is_depth(tables.features[key])]
    keys = {view: key for view, key in images.items() if view not in depth}
    if depth:
        inspector.warn(f"{inspector.root}: LeRobot's own depth streams are not read: {', '.join(depth)} left out")
    if cameras is None:
        return keys
    chosen = {}
    for camera in cameras:
        view = _short(camera)
        if view not in keys:
            raise ValueError(f"{tables.root}: no camera {camera!r}; cameras: {', '.join(keys)}")
        chosen[view] = keys[view]
        mask = declaration.masks.get(view)
        if mask in keys:
            chosen[mask] = keys[mask]
    return chosen


def _is_depth(feature: dict) -> bool:
    """v2.1 and v3.0 mark depth in the video's info; some sets in the feature's own."""
    info = feature.get("info") or feature.get("video_info")
    return isinstance(info, dict) and bool(info.get("video.is_depth_map") or info.get("is_depth_map"))
