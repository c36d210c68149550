"""The tables of a LeRobot set, v2.1 or v3.0, read and checked: info, tasks, episodes, rows. No video is opened here."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float

from simforcing.data import lerobot_format as on_disk
from simforcing.types.files import inside, read_json

# What pyarrow raises on bytes that are not the table they claim to be.
DAMAGED = (pa.ArrowException, OSError, ValueError, KeyError, TypeError, OverflowError, MemoryError)
NUMBERS = ("float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")


@dataclass(frozen=True, kw_only=True)
class EpisodeRow:
    """One episode as the metadata describe it.

    Args:
        index: number in the set.
        length: rows and frames.
        data_file: parquet file of its rows.
        videos: camera key -> (file, start, stop), times in the file in seconds; None: the whole file.
        tasks: instructions.
    """

    index: int
    length: int
    data_file: Path
    videos: dict[str, tuple[Path, float | None, float | None]]
    tasks: tuple[str, ...]


class LeRobotTables:
    """The metadata of a set, checked; rows are read file by file when asked for.

    Raises ValueError in one line that names file and field where the set as a whole cannot be read.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.info_path = root / on_disk.INFO_PATH
        self.info = read_json(self.info_path)
        if not isinstance(self.info, dict):
            raise ValueError(f"{self.info_path}: expected an object, found {type(self.info).__name__}")
        version = self._info_field("codebase_version", str)
        if not version.startswith(("v2", "v3")):
            raise ValueError(f"{self.info_path}: codebase_version is {version!r}, expected v2.1 or v3.0")
        self.is_v3 = version.startswith("v3")
        self.version = version
        self.fps = float(self._info_field("fps", int | float))
        if not 0 < self.fps <= on_disk.MAX_FPS:
            raise ValueError(f"{self.info_path}: fps is {self.fps}, expected a positive rate in Hz")
        self.features = self._features()
        self.tasks = self._tasks()
        self.episodes = self._episodes_v30() if self.is_v3 else self._episodes_v21()
        self._files: dict[Path, pa.Table] = {}

    def keys(self, *dtypes: str) -> list[str]:
        """Features of these dtypes, in the set's order."""
        return [key for key, feature in self.features.items() if feature["dtype"] in dtypes]

    def meta_files(self) -> list[Path]:
        """All files below meta/."""
        return [path for path in (self.root / "meta").rglob("*") if path.is_file()]

    def rows(self, episode: EpisodeRow) -> pa.Table:
        """The rows of one episode, without image columns. ValueError where rows are missing or out of order."""
        path = episode.data_file
        rows = self._table(path).slice(self.first_row(episode), episode.length)
        frame_index = _column(path, rows, "frame_index", (1,)).reshape(-1)
        if (frame_index != np.arange(episode.length)).any():
            raise ValueError(f"{path}: frame_index of episode {episode.index} does not count 0, 1, 2 ...")
        return rows

    def first_row(self, episode: EpisodeRow) -> int:
        """Where the episode's rows begin in its file. ValueError where they are not together or not as many as said."""
        path = episode.data_file
        number = _column(path, self._table(path), "episode_index", (1,)).reshape(-1)
        mine = np.flatnonzero(number == episode.index)
        if len(mine) != episode.length or len(mine) == 0 or mine[-1] - mine[0] + 1 != len(mine):
            raise ValueError(f"{path}: {len(mine)} rows of episode {episode.index}, its metadata say {episode.length}")
        return int(mine[0])

    def _table(self, path: Path) -> pa.Table:
        if path not in self._files:
            self._files = {path: self._read_rows(path)}  # episodes come file by file: one table in memory
        return self._files[path]

    def vector(self, rows: pa.Table, episode: EpisodeRow, keys: tuple[str, ...]) -> Float[np.ndarray, "f a"]:
        """Columns side by side as float32; ValueError says which field, shape and dtype was expected and found."""
        parts = [
            _column(episode.data_file, rows, key, tuple(self.features[key]["shape"])).astype(np.float32) for key in keys
        ]
        return np.concatenate(parts, axis=1)

    def task(self, rows: pa.Table, episode: EpisodeRow) -> str:
        """The instruction of an episode: by its rows' task_index, or what its metadata say."""
        if "task_index" in rows.column_names and len(rows):
            number = int(_column(episode.data_file, rows, "task_index", (1,))[0, 0])
            if number in self.tasks:
                return self.tasks[number]
        return episode.tasks[0] if episode.tasks else ""

    def _info_field(self, name: str, kind: Any) -> Any:
        value = self.info.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            expected = getattr(kind, "__name__", "number")
            raise ValueError(f"{self.info_path}: field {name} is {value!r:.80}, expected {expected}")
        return value

    def _features(self) -> dict[str, dict[str, Any]]:
        features = self._info_field("features", dict)
        for key, feature in features.items():
            shape = feature.get("shape") if isinstance(feature, dict) else None
            well_formed = isinstance(shape, list | tuple) and all(type(n) is int and 0 < n < 1e6 for n in shape)
            if not well_formed or not isinstance(feature.get("dtype"), str):
                raise ValueError(f"{self.info_path}: feature {key} is {feature!r:.80}, expected a dtype and a shape")
        return features

    def _tasks(self) -> dict[int, str]:
        path = self.root / on_disk.TASKS_PATH["v3.0" if self.is_v3 else "v2.1"]
        if not self.is_v3:
            lines = _json_lines(path, ("task_index", int), ("task", str))
            return {line["task_index"]: line["task"] for line in lines}
        table = _read_parquet(path)
        texts = [name for name in table.column_names if name != "task_index"]
        try:
            numbers = table["task_index"].to_pylist()
            return {int(n): str(text) for n, text in zip(numbers, table[texts[0]].to_pylist(), strict=True)}
        except (*DAMAGED, IndexError) as error:
            raise ValueError(f"{path}: expected the columns task_index and task, found {table.column_names}") from error

    def _episodes_v21(self) -> list[EpisodeRow]:
        path = self.root / on_disk.EPISODES_PATH_V21
        lines = _json_lines(path, ("episode_index", int), ("length", int))
        chunk_size = self.info.get("chunks_size", on_disk.FILES_PER_CHUNK)
        if type(chunk_size) is not int or chunk_size < 1:
            raise ValueError(f"{self.info_path}: chunks_size is {chunk_size!r:.80}, expected a positive integer")
        rows = []
        for line in sorted(lines, key=lambda line: line["episode_index"]):
            index = line["episode_index"]
            where = {"episode_chunk": index // chunk_size, "episode_index": index}
            tasks = line.get("tasks")
            rows.append(
                EpisodeRow(
                    index=index,
                    length=line["length"],
                    data_file=self._path("data_path", where),
                    videos={
                        key: (self._path("video_path", where | {"video_key": key}), None, None)
                        for key in self.keys("video")
                    },
                    tasks=tuple(str(task) for task in tasks) if isinstance(tasks, list) else (),
                )
            )
        return rows

    def _episodes_v30(self) -> list[EpisodeRow]:
        folder = self.root / on_disk.EPISODES_DIR_V30
        files = sorted(folder.glob("*/*.parquet"))
        if not files:
            raise ValueError(f"{folder}: no parquet file, expected the episodes' metadata")
        rows = []
        for path in files:
            table = _read_parquet(path, skip="stats/")
            for line in table.to_pylist():
                try:
                    rows.append(self._episode_v30(line))
                except (*DAMAGED, AttributeError) as error:
                    problem = f"field {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
                    raise ValueError(f"{path}: an episode's metadata are damaged or incomplete ({problem})") from error
        return sorted(rows, key=lambda row: row.index)

    def _episode_v30(self, line: dict[str, Any]) -> EpisodeRow:
        videos = {}
        for key in self.keys("video"):
            column = f"videos/{key}"
            where = {"chunk_index": line[f"{column}/chunk_index"], "file_index": line[f"{column}/file_index"]}
            start_s, stop_s = float(line[f"{column}/from_timestamp"]), float(line[f"{column}/to_timestamp"])
            videos[key] = (self._path("video_path", where | {"video_key": key}), start_s, stop_s)
        where = {"chunk_index": line["data/chunk_index"], "file_index": line["data/file_index"]}
        return EpisodeRow(
            index=int(line["episode_index"]),
            length=int(line["length"]),
            data_file=self._path("data_path", where),
            videos=videos,
            tasks=tuple(str(task) for task in line.get("tasks") or ()),
        )

    def _path(self, field_name: str, where: dict[str, Any]) -> Path:
        pattern = self._info_field(field_name, str)
        try:
            return inside(self.root, self.root / pattern.format(**where))
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{self.info_path}: {field_name} {pattern!r:.80} does not fit {where}") from error

    def _read_rows(self, path: Path) -> pa.Table:
        images = tuple(self.keys("image", "video"))
        return _read_parquet(path, skip=images) if images else _read_parquet(path)


def _column(path: Path, table: pa.Table, key: str, shape: tuple[int, ...]) -> np.ndarray:
    """One column as (rows, numbers); ValueError says what was expected and found."""
    if key not in table.column_names:
        raise ValueError(f"{path}: no column {key}, expected one of shape {shape}; columns: {table.column_names}")
    column = table[key].combine_chunks()
    found, width = column.type, 1
    if pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found):
        lengths = {None if row is None else len(row) for row in column.to_numpy(zero_copy_only=False)}
        width = lengths.pop() if len(lengths) == 1 else None
        column = column.flatten()
    is_number = (
        pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type)
    )
    if width != int(np.prod(shape)) and len(table):
        raise ValueError(f"{path}: field {key} is {found}, {width} numbers a row, expected shape {shape}")
    if not is_number or column.null_count:
        raise ValueError(f"{path}: field {key} is {found} with {column.null_count} nulls, expected numbers of {shape}")
    return column.to_numpy(zero_copy_only=False).reshape(len(table), -1)


def _read_parquet(path: Path, skip: str | tuple[str, ...] = ()) -> pa.Table:
    """A parquet file without the columns whose name starts so; ValueError names it where it is missing or damaged."""
    if not path.is_file():
        raise ValueError(f"{path}: no such table")
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            names = [name for name in file.schema_arrow.names if not (skip and name.startswith(skip))]
            return file.read(columns=names, use_threads=False)
    except DAMAGED as error:
        raise ValueError(f"{path}: damaged parquet file ({' '.join(str(error).split()):.200})") from error


def _json_lines(path: Path, *fields: tuple[str, type]) -> list[dict[str, Any]]:
    """A .jsonl file whose objects all have these fields; ValueError names file, line and field."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: no regular file, expected one JSON object per line")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror}), expected one JSON object per line") from error
    except ValueError as error:
        raise ValueError(f"{path}: damaged text ({error})") from error
    values = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: line {number} is damaged JSON ({error})") from error
        if not isinstance(value, dict):
            raise ValueError(f"{path}: line {number} is {value!r:.80}, expected an object")
        for name, kind in fields:
            found = value.get(name)
            if type(found) is not kind or (isinstance(found, int) and found < 0):
                raise ValueError(f"{path}: line {number}: field {name} is {found!r:.80}, expected {kind.__name__}")
        values.append(value)
    return values
