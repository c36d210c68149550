"""Which files the rows and frames of a LeRobot set go to: one per episode (v2.1), or files that fill up (v3.0)."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from simforcing.data.depth_video import DepthWriter
from simforcing.data.lerobot_episode import EncodedVideo
from simforcing.data.lerobot_format import DATA_PATH, DEPTH_PATH, FILES_PER_CHUNK, IMAGE_PREFIX, VIDEO_PATH, Version
from simforcing.data.video import Codec, VideoWriter

MB = 1024**2


@dataclass(frozen=True, kw_only=True)
class Storage:
    """How a set is stored.

    Args:
        version: v3.0 or v2.1.
        fps: frame rate in Hz.
        codec, crf: of the videos; crf None: the codec's default.
        data_file_mb, video_file_mb: v3.0 starts a new file where one would grow beyond this.
    """

    version: Version
    fps: float
    codec: Codec
    crf: int | None
    data_file_mb: int | float
    video_file_mb: int | float


class TableFiles:
    """Where the rows of each episode go: one file per episode (v2.1), or files that fill up to a limit (v3.0)."""

    def __init__(self, root: Path, storage: Storage) -> None:
        self._root, self._storage = root, storage
        self._writer: pq.ParquetWriter | None = None
        self._path = root
        self._number, self._num_rows = -1, 0

    def append(self, table: pa.Table, episode: int) -> dict[str, int]:
        """Write one episode; returns its columns of the episode table."""
        if self._storage.version == "v2.1" or self._is_full(len(table)):
            self._open(table.schema, episode)
        assert self._writer is not None
        self._writer.write_table(table)
        self._num_rows += len(table)
        chunk, file = divmod(self._number, FILES_PER_CHUNK)
        return {"data/chunk_index": chunk, "data/file_index": file}

    def close(self) -> None:
        """Finish the open file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _is_full(self, new_rows: int) -> bool:
        if self._writer is None:
            return True
        written = self._path.stat().st_size
        return written * (1 + new_rows / self._num_rows) >= self._storage.data_file_mb * MB

    def _open(self, schema: pa.Schema, episode: int) -> None:
        self.close()
        self._number += 1
        self._num_rows = 0
        self._path = self._root / _numbered(DATA_PATH[self._storage.version], self._number, episode)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(self._path, schema, compression="snappy", use_dictionary=True)


class VideoFiles:
    """Where the frames of each episode of one view go, likewise."""

    def __init__(self, root: Path, storage: Storage, view: str, size: tuple[int, int]) -> None:
        self._root, self._storage, self._view, self._size = root, storage, view, size
        self._writer: VideoWriter | None = None
        self._number = -1

    def append(self, frames: np.ndarray | EncodedVideo, episode: int) -> dict[str, Any]:
        """Encode one episode, or take its finished file; returns its columns of the episode table."""
        if isinstance(frames, EncodedVideo):
            self.close()
            self._number += 1
            take_file(frames.path, self._path(episode))
            return self._place(0, frames.num_frames)
        if self._storage.version == "v2.1" or self._is_full(len(frames)):
            self._open(episode)
        assert self._writer is not None
        first = self._writer.num_frames
        self._writer.write(frames)
        return self._place(first, self._writer.num_frames)

    def _place(self, first: int, last: int) -> dict[str, Any]:
        chunk, file = divmod(self._number, FILES_PER_CHUNK)
        key = f"videos/{IMAGE_PREFIX}{self._view}"
        return {
            f"{key}/chunk_index": chunk,
            f"{key}/file_index": file,
            f"{key}/from_timestamp": first / self._storage.fps,
            f"{key}/to_timestamp": last / self._storage.fps,
        }

    def close(self) -> None:
        """Finish the open file."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()

    def abort(self) -> None:
        """Drop the open file."""
        if self._writer is not None:
            self._writer.abort()
            self._writer = None

    def _is_full(self, new_frames: int) -> bool:
        if self._writer is None:
            return True
        written = self._writer.num_bytes
        return written * (1 + new_frames / self._writer.num_frames) >= self._storage.video_file_mb * MB

    def _open(self, episode: int) -> None:
        self.close()
        self._number += 1
        self._writer = VideoWriter(
            self._path(episode), self._storage.fps, self._size, codec=self._storage.codec, crf=self._storage.crf
        )

    def _path(self, episode: int) -> Path:
        pattern = VIDEO_PATH[self._storage.version]
        path = self._root / _numbered(pattern, self._number, episode, IMAGE_PREFIX + self._view)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


class DepthFiles:
    """Where the depth of each episode of one view goes: a file of its own."""

    def __init__(self, root: Path, fps: float, view: str, size: tuple[int, int]) -> None:
        self._root, self._fps, self._view, self._size = root, fps, view, size

    def append(self, depth_m: np.ndarray | EncodedVideo, episode: int) -> None:
        """Encode one episode, or take its finished file."""
        path = self._root / DEPTH_PATH.format(view=self._view, episode_index=episode)
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(depth_m, EncodedVideo):
            take_file(depth_m.path, path)
            return
        with DepthWriter(path, self._fps, self._size) as writer:
            writer.write(depth_m)


def take_file(source: Path, path: Path) -> None:
    """The same content under a second name, without copying it where the disk allows."""
    try:
        os.link(source, path)
    except OSError:  # another disk, or one without links
        shutil.copyfile(source, path)


def _numbered(pattern: str, file: int, episode: int, view: str = "") -> str:
    chunk, file_in_chunk = divmod(file, FILES_PER_CHUNK)
    return pattern.format(
        chunk_index=chunk,
        file_index=file_in_chunk,
        episode_chunk=episode // FILES_PER_CHUNK,
        episode_index=episode,
        video_key=view,
    )
