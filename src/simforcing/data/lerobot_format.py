"""What LeRobot v2.1 and v3.0 sets look like on disk: paths, features, tasks, and our own declaration beside them.

Facts of the format only; `lerobot` reads it, `lerobot_writer` writes it, `lerobot_stats` computes its statistics.
"""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from simforcing.types import Camera, Layout, from_json, layout_named, to_json
from simforcing.types.cameras import camera_from_json, camera_to_json
from simforcing.types.files import read_json

Version = Literal["v2.1", "v3.0"]
VERSIONS: tuple[Version, ...] = ("v3.0", "v2.1")
INFO_PATH = "meta/info.json"
STATS_PATH = "meta/stats.json"
DECLARATION_PATH = "meta/simforcing.json"
CAMERAS_PATH = "meta/cameras.json"
FILES_PER_CHUNK = 1000
DATA_FILE_MB = 100
VIDEO_FILE_MB = 200
MAX_FPS = 1000.0
TASKS_PATH = {"v3.0": "meta/tasks.parquet", "v2.1": "meta/tasks.jsonl"}
EPISODES_DIR_V30 = "meta/episodes"
EPISODES_PATH_V30 = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
EPISODES_PATH_V21 = "meta/episodes.jsonl"
EPISODE_STATS_PATH_V21 = "meta/episodes_stats.jsonl"
DATA_PATH = {
    "v3.0": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
    "v2.1": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
}
VIDEO_PATH = {
    "v3.0": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
    "v2.1": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
}
DEPTH_PATH = "depth/{view}/episode_{episode_index:06d}.mkv"  # ours: LeRobot does not look there
IMAGE_PREFIX = "observation.images."
JOINT_KEY = "observation.joint_position"
INDEX_DTYPES = {
    "timestamp": "float32",
    "frame_index": "int64",
    "episode_index": "int64",
    "index": "int64",
    "task_index": "int64",
}
COMPONENT_NAMES = {
    "translation": ("x", "y", "z"),
    "euler_xyz": ("roll", "pitch", "yaw"),
    "axis_angle": ("rx", "ry", "rz"),
    "quaternion_wxyz": ("qw", "qx", "qy", "qz"),
    "quaternion_xyzw": ("qx", "qy", "qz", "qw"),
}
LAYOUT_KEYS = ("action_layout", "state_layout", "joint_layout")


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """meta/simforcing.json: what the numbers of a set mean, which LeRobot itself has no place for.

    Args:
        action_layout, state_layout, joint_layout: layouts of `action`, `observation.state` and
            `observation.joint_position`; None where not declared.
        robot: robot type.
        fps: true rate in Hz; None: info.json is right.
        masks: view name -> name of the view that holds its mask (white inside).
        depth: views that have depth, a video per episode.
        episode_names: original names of the episodes; empty: `episode_000000` and so on.
        cameras: view name -> its camera in every episode that meta/cameras.json does not name.
    """

    action_layout: Layout | None = None
    state_layout: Layout | None = None
    joint_layout: Layout | None = None
    robot: str | None = None
    fps: float | None = None
    masks: dict[str, str] = field(default_factory=dict)
    depth: tuple[str, ...] = ()
    episode_names: tuple[str, ...] = ()
    cameras: dict[str, Camera] = field(default_factory=dict)


def read_declaration(root: str | Path) -> Declaration:
    """The declaration of a set, empty where there is none; a layout may be given by name. ValueError names it."""
    path = Path(root) / DECLARATION_PATH
    if not path.is_file():
        return Declaration()
    value = read_json(path)
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected an object, found {type(value).__name__}")
    try:
        layouts = {key: _layout_json(value[key]) for key in LAYOUT_KEYS if value.get(key)}
        cameras = cameras_from_json(value.pop("cameras", {}), "cameras")
        declaration = from_json(Declaration, {**value, **layouts}, "declaration")
        if declaration.fps is not None and not 0 < declaration.fps <= MAX_FPS:
            raise ValueError(f"declaration.fps is {declaration.fps}, expected above 0 and at most {MAX_FPS:g} Hz")
        return replace(declaration, cameras=cameras)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from error


def read_episode_cameras(root: str | Path) -> dict[str, dict[str, Camera]]:
    """meta/cameras.json: episode name -> view name -> camera, where episodes differ; empty where there is none."""
    path = Path(root) / CAMERAS_PATH
    if not path.is_file():
        return {}
    value = read_json(path)
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected an object, found {type(value).__name__}")
    try:
        return {name: cameras_from_json(cameras, name) for name, cameras in value.items()}
    except ValueError as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from error


def cameras_from_json(value: Any, where: str) -> dict[str, Camera]:
    """View name -> camera; ValueError names the place."""
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected an object of cameras by view, found {value!r:.80}")
    return {view: camera_from_json(camera, f"{where}.{view}") for view, camera in value.items()}


def cameras_to_json(cameras: dict[str, Camera]) -> dict[str, Any]:
    """The inverse."""
    return {view: camera_to_json(camera) for view, camera in cameras.items()}


def _layout_json(value: Any) -> Any:
    """A layout as people write it: its name, or its fields without "type"."""
    if isinstance(value, str):
        return to_json(layout_named(value))
    return {"type": "Layout", **value} if isinstance(value, dict) else value


def write_declaration(root: str | Path, declaration: Declaration) -> None:
    """Write meta/simforcing.json of a set."""
    value = to_json(replace(declaration, cameras={})) | {"cameras": cameras_to_json(declaration.cameras)}
    for key in ("masks", "episode_names", "cameras", "depth", "joint_layout"):
        if not value[key]:
            del value[key]
    write_json(Path(root) / DECLARATION_PATH, value)


def number_names(layout: Layout) -> list[str]:
    """One unique name per number of a layout: x, roll, left_joint_3, gripper, pad_7."""
    names: list[str] = []
    for part in layout.parts:
        components = COMPONENT_NAMES.get(part.rotation or part.kind, ())
        side = "" if part.side == "single" else f"{part.side}_"
        if part.kind == "unused":
            names += [f"pad_{len(names) + i}" for i in range(part.size)]
        elif part.size == len(components):
            names += [f"{side}{component}" for component in components]
        elif part.size == 1:
            names.append(part.name)
        else:
            names += [f"{part.name}_{i}" for i in range(part.size)]
    return names


def vector_feature(names: list[str]) -> dict[str, Any]:
    """Entry of info.json for a float32 vector."""
    return {"dtype": "float32", "shape": [len(names)], "names": names}


def video_feature(size: tuple[int, int], fps: float, codec: str) -> dict[str, Any]:
    """Entry of info.json for a camera."""
    height, width = size
    info = {
        "video.height": height,
        "video.width": width,
        "video.codec": codec,
        "video.pix_fmt": "yuv420p",
        "video.is_depth_map": False,
        "video.fps": whole(fps),
        "video.channels": 3,
        "has_audio": False,
    }
    return {"dtype": "video", "shape": [height, width, 3], "names": ["height", "width", "channels"], "info": info}


def arrow_type(feature: dict[str, Any]) -> pa.DataType:
    """Column type of a table feature: a scalar for shape (1,), else a list of fixed length."""
    scalar = pa.type_for_alias("bool" if feature["dtype"] == "bool" else feature["dtype"])
    (size,) = feature["shape"]
    return scalar if size == 1 else pa.list_(scalar, size)


def whole(fps: float) -> int | float:
    """LeRobot writes whole rates as integers."""
    return int(fps) if float(fps).is_integer() else float(fps)


def tasks_table(tasks: list[str]) -> pa.Table:
    """tasks.parquet of v3.0: a pandas frame with the task strings as index, as LeRobot looks tasks up."""
    index = "__index_level_0__"
    columns = [
        {
            "name": "task_index",
            "field_name": "task_index",
            "pandas_type": "int64",
            "numpy_type": "int64",
            "metadata": None,
        },
        {"name": None, "field_name": index, "pandas_type": "unicode", "numpy_type": "object", "metadata": None},
    ]
    pandas = {"index_columns": [index], "column_indexes": [], "columns": columns, "pandas_version": "2.2.0"}
    schema = pa.schema([("task_index", pa.int64()), (index, pa.string())], {"pandas": json.dumps(pandas)})
    return pa.table([pa.array(range(len(tasks)), pa.int64()), pa.array(tasks, pa.string())], schema=schema)


def write_json(path: Path, value: Any) -> None:
    """Pretty JSON, as LeRobot writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=4, ensure_ascii=False), encoding="utf-8")


def write_json_lines(path: Path, values: list[Any]) -> None:
    """One JSON value per line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values), encoding="utf-8")
