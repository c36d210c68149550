"""Writes LeRobot data sets, v3.0 or v2.1: nothing appears under the final name until all of it is there."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from simforcing.data import lerobot_format as on_disk
from simforcing.data.lerobot_episode import DeclaredSet, EncodedVideo, NewEpisode, checked_columns, extra_feature
from simforcing.data.lerobot_files import DepthFiles, Storage, TableFiles, VideoFiles, take_file
from simforcing.data.lerobot_format import IMAGE_PREFIX, JOINT_KEY, Declaration, Version
from simforcing.data.lerobot_stats import Stats, aggregate, image_stats, plain, vector_stats, without_quantiles
from simforcing.data.partial_folder import PartialFolder
from simforcing.data.video import Codec
from simforcing.types import Camera, Layout

VIEW_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")  # it becomes a folder's name


@dataclass
class LeRobotWriter:
    """Writes one data set episode by episode, under `<root>.partial`; closing it renames the whole to `root`.

    Use as a context manager: an exception inside leaves `root` as it was and removes what was written.

    Args:
        root: the data set's folder; it must not exist unless `overwrite`.
        fps: frame and row rate in Hz.
        views: camera name -> (height, width); camera `x` becomes the feature `observation.images.x`.
        action_layout, state_layout: what the numbers of `action` and `observation.state` mean; no state: None.
        robot: robot type, for the reader.
        version: v3.0 (episodes share files) or v2.1 (a file per episode).
        codec: h264 | av1.
        joint_layout: what the numbers of `observation.joint_position` mean, where joints are recorded beside the state.
        masks: view name -> the view that holds its masks.
        depth: views that have depth, which LeRobot itself does not see: depth/<view>/episode_000000.mkv.
        cameras: view name -> its camera in all episodes that are not added with one of their own.
        meta: further JSON files of the folder meta/, by name.
        files: further finished files, name in the folder meta/ -> where it lies; read when the set is closed.
        overwrite: replace an existing `root`, at closing time.
        data_file_mb, video_file_mb: v3.0 starts a new file where one would grow beyond this.
        crf: video quality, lower is better; None: the codec's default.
    """

    root: str | Path
    _: KW_ONLY
    fps: float | int
    views: dict[str, tuple[int, int]]
    action_layout: Layout
    state_layout: Layout | None = None
    joint_layout: Layout | None = None
    robot: str | None = None
    version: Version = "v3.0"
    codec: Codec = "h264"
    masks: dict[str, str] = field(default_factory=dict)
    depth: tuple[str, ...] = ()
    cameras: dict[str, Camera] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)
    overwrite: bool = False
    data_file_mb: int | float = on_disk.DATA_FILE_MB
    video_file_mb: int | float = on_disk.VIDEO_FILE_MB
    crf: int | None = None

    def __post_init__(self) -> None:
        self.root, self.fps = Path(self.root), float(self.fps)
        if self.version not in on_disk.VERSIONS:
            raise ValueError(f"unknown LeRobot version {self.version!r}; choices: {', '.join(on_disk.VERSIONS)}")
        if not self.views or not self.fps > 0:
            raise ValueError(
                f"{self.root}: {len(self.views)} views at {self.fps} Hz, expected at least one and fps > 0"
            )
        self._check_cameras(self.cameras)
        for mask in {*self.masks, *self.masks.values()} - set(self.views):
            raise ValueError(f"{self.root}: mask of or in view {mask!r}; views: {', '.join(self.views)}")
        for view in set(self.depth) - set(self.views):
            raise ValueError(f"{self.root}: depth of view {view!r}; views: {', '.join(self.views)}")
        for view in self.views:
            if not VIEW_NAME.fullmatch(view):
                raise ValueError(f"{self.root}: view name {view!r}; expected letters, digits and . _ - only")
        self._features = _features(self)
        self._extra_names: list[str] | None = None
        self._tasks: dict[str, int] = {}
        self._episodes: list[dict[str, Any]] = []
        self._stats: list[dict[str, Stats]] = []
        self._names: list[str] = []
        self._episode_cameras: dict[str, dict[str, Camera]] = {}
        self._num_rows = 0
        self._is_given_up = False
        with self._reporting_disk_errors():
            self._folder = PartialFolder(self.root, overwrite=self.overwrite)
        self._partial = self._folder.path
        storage = Storage(
            version=self.version,
            fps=self.fps,
            codec=self.codec,
            crf=self.crf,
            data_file_mb=self.data_file_mb,
            video_file_mb=self.video_file_mb,
        )
        self._tables = TableFiles(self._partial, storage)
        self._videos = {view: VideoFiles(self._partial, storage, view, size) for view, size in self.views.items()}
        self._depth = {view: DepthFiles(self._partial, self.fps, view, self.views[view]) for view in self.depth}
        self._declared = DeclaredSet(
            views=self.views,
            depth=self.depth,
            action_layout=self.action_layout,
            state_layout=self.state_layout,
            joint_layout=self.joint_layout,
        )

    def add(self, **fields: Any) -> None:
        """Append one episode, given by the fields of `NewEpisode`.

        Raises:
            ValueError: a field of the wrong shape, dtype or length, NaN, or columns that differ between episodes.
            OSError: the disk is full; the data set is then given up and `root` untouched.
        """
        episode = NewEpisode(**fields)
        self._check_cameras(episode.cameras or {})
        columns = self._columns(episode)
        num_frames = len(episode.action)
        index = len(self._episodes)
        task_index = self._tasks.setdefault(episode.task, len(self._tasks))
        row = np.arange(num_frames)
        columns |= {
            "timestamp": (row / self.fps).astype(np.float32),
            "frame_index": row,
            "episode_index": np.full(num_frames, index),
            "index": row + self._num_rows,
            "task_index": np.full(num_frames, task_index),
        }
        where: dict[str, Any] = {"episode_index": index, "tasks": [episode.task], "length": num_frames}
        with self._reporting_disk_errors():
            where |= self._tables.append(self._arrow_table(columns), index)
            where |= {"dataset_from_index": self._num_rows, "dataset_to_index": self._num_rows + num_frames}
            for view in self.views:
                where |= self._videos[view].append(episode.frames[view], index)
            for view, files in self._depth.items():
                files.append(episode.depth[view], index)
        stats = {key: vector_stats(values) for key, values in columns.items() if values.dtype.kind != "U"}
        stats |= {IMAGE_PREFIX + view: _image_stats(episode.frames[view]) for view in self.views}
        self._episodes.append(where)
        self._stats.append(stats)
        self._names.append(episode.name or f"episode_{index:06d}")
        if episode.cameras:
            self._episode_cameras[self._names[-1]] = episode.cameras
        self._num_rows += num_frames

    def close(self) -> None:
        """Write the metadata and give the set its name, unless it was given up. ValueError without any episode."""
        if self._is_given_up:
            return
        if not self._episodes:
            self.abort()
            raise ValueError(f"{self.root}: no episode was added, nothing to write")
        with self._reporting_disk_errors():
            self._tables.close()
            for video in self._videos.values():
                video.close()
            self._write_meta()
            self._folder.finish()

    def abort(self) -> None:
        """Give up: remove what was written and leave `root` as it was."""
        self._is_given_up = True
        with suppress(OSError):
            self._tables.close()
        for video in self._videos.values():
            video.abort()
        self._folder.remove()

    def __enter__(self) -> "LeRobotWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    @contextmanager
    def _reporting_disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if hasattr(self, "_videos"):
                self.abort()
            reason = error.strerror or " ".join(str(error).split())
            raise OSError(
                error.errno, f"{self.root}: cannot write the data set ({reason}); nothing was changed"
            ) from error

    def _check_cameras(self, cameras: dict[str, Camera]) -> None:
        for view, camera in cameras.items():
            if view not in self.views:
                raise ValueError(f"{self.root}: camera of view {view!r}; views: {', '.join(self.views)}")
            if camera.size != self.views[view]:
                raise ValueError(
                    f"{self.root}: camera of view {view} is of {camera.size}, frames of {self.views[view]}"
                )

    def _columns(self, episode: NewEpisode) -> dict[str, np.ndarray]:
        """The episode's table columns; the first episode declares the extra ones, all others must have the same."""
        where = f"{self.root}: episode {len(self._episodes)}"
        columns = checked_columns(where, episode, self._declared)
        found = {key: extra_feature(where, key, columns[key]) for key in episode.extra or {}}
        if self._extra_names is None:
            if taken := [key for key in found if key in self._features]:
                raise ValueError(f"{where}: extra column {taken[0]!r} is no free name")
            self._extra_names = list(found)
            index_features = {key: self._features.pop(key) for key in on_disk.INDEX_DTYPES}
            self._features |= found | index_features
        for key in self._extra_names + [key for key in found if key not in self._extra_names]:
            expected = self._features[key] if key in self._extra_names else None
            if expected != found.get(key):
                raise ValueError(f"{where}: extra column {key!r} is {found.get(key)}, the first episode has {expected}")
        return columns

    def _arrow_table(self, columns: dict[str, np.ndarray]) -> pa.Table:
        features = {key: feature for key, feature in self._features.items() if feature["dtype"] != "video"}
        types = {key: on_disk.arrow_type(feature) for key, feature in features.items()}
        arrays = []
        for key, kind in types.items():
            values = columns[key]
            if pa.types.is_fixed_size_list(kind):
                flat = pa.array(values.reshape(-1), kind.value_type)
                arrays.append(pa.FixedSizeListArray.from_arrays(flat, type=kind))
            else:
                arrays.append(pa.array(values.reshape(-1), kind))
        return pa.table(arrays, schema=pa.schema(list(types.items())))

    def _write_meta(self) -> None:
        meta = self._partial / "meta"
        meta.mkdir()
        merged = {key: aggregate([stats[key] for stats in self._stats]) for key in self._stats[0]}
        tasks = list(self._tasks)
        if self.version == "v3.0":
            on_disk.write_json(self._partial / on_disk.STATS_PATH, plain(merged))
            pq.write_table(on_disk.tasks_table(tasks), self._partial / on_disk.TASKS_PATH["v3.0"])
            path = self._partial / on_disk.EPISODES_PATH_V30.format(chunk_index=0, file_index=0)
            path.parent.mkdir(parents=True)
            pq.write_table(self._episodes_table(), path, compression="snappy")
        else:
            index = [{"task_index": i, "task": task} for i, task in enumerate(tasks)]
            on_disk.write_json_lines(self._partial / on_disk.TASKS_PATH["v2.1"], index)
            keys = ("episode_index", "tasks", "length")
            rows = [{key: where[key] for key in keys} for where in self._episodes]
            on_disk.write_json_lines(self._partial / on_disk.EPISODES_PATH_V21, rows)
            stats = [
                {"episode_index": i, "stats": plain(without_quantiles(stats))} for i, stats in enumerate(self._stats)
            ]
            on_disk.write_json_lines(self._partial / on_disk.EPISODE_STATS_PATH_V21, stats)
        on_disk.write_json(self._partial / on_disk.INFO_PATH, self._info())
        for name, value in self.meta.items():
            on_disk.write_json(meta / name, value)
        for name, path in self.files.items():
            (meta / name).parent.mkdir(exist_ok=True)
            take_file(path, meta / name)
        numbered = all(name == f"episode_{i:06d}" for i, name in enumerate(self._names))
        declaration = Declaration(
            action_layout=self.action_layout,
            state_layout=self.state_layout,
            joint_layout=self.joint_layout,
            robot=self.robot,
            fps=self.fps,
            masks=self.masks,
            depth=self.depth,
            episode_names=() if numbered else tuple(self._names),
            cameras=self.cameras,
        )
        if self._episode_cameras:
            cameras = {name: on_disk.cameras_to_json(views) for name, views in self._episode_cameras.items()}
            on_disk.write_json(self._partial / on_disk.CAMERAS_PATH, cameras)
        on_disk.write_declaration(self._partial, declaration)

    def _info(self) -> dict[str, Any]:
        num_episodes = len(self._episodes)
        info: dict[str, Any] = {
            "codebase_version": self.version,
            "robot_type": self.robot,
            "total_episodes": num_episodes,
            "total_frames": self._num_rows,
            "total_tasks": len(self._tasks),
            "chunks_size": on_disk.FILES_PER_CHUNK,
        }
        if self.version == "v3.0":
            info |= {"data_files_size_in_mb": self.data_file_mb, "video_files_size_in_mb": self.video_file_mb}
        else:
            num_chunks = -(-num_episodes // on_disk.FILES_PER_CHUNK)
            info |= {"total_videos": num_episodes * len(self.views), "total_chunks": num_chunks}
        return info | {
            "fps": on_disk.whole(self.fps),
            "splits": {"train": f"0:{num_episodes}"},
            "data_path": on_disk.DATA_PATH[self.version],
            "video_path": on_disk.VIDEO_PATH[self.version],
            "features": self._features,
        }

    def _episodes_table(self) -> pa.Table:
        rows = []
        for where, stats in zip(self._episodes, self._stats, strict=True):
            flat = {
                f"stats/{feature}/{name}": value.tolist()
                for feature, values in stats.items()
                for name, value in values.items()
            }
            rows.append(where | flat | {"meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0})
        return pa.Table.from_pylist(rows)


def _features(writer: LeRobotWriter) -> dict[str, dict[str, Any]]:
    """The `features` of info.json, before extra columns."""
    features = {
        IMAGE_PREFIX + view: on_disk.video_feature(size, writer.fps, writer.codec)
        for view, size in writer.views.items()
    }
    if writer.state_layout is not None:
        features["observation.state"] = on_disk.vector_feature(on_disk.number_names(writer.state_layout))
    if writer.joint_layout is not None:
        features[JOINT_KEY] = on_disk.vector_feature(on_disk.number_names(writer.joint_layout))
    features["action"] = on_disk.vector_feature(on_disk.number_names(writer.action_layout))
    for key, dtype in on_disk.INDEX_DTYPES.items():
        features[key] = {"dtype": dtype, "shape": [1], "names": None}
    return features


def _image_stats(frames: np.ndarray | EncodedVideo) -> Stats:
    if not isinstance(frames, EncodedVideo):
        return image_stats(frames)
    if frames.stats is None:
        raise ValueError(f"{frames.path}: a finished video comes with the statistics of its frames")
    return frames.stats
