"""Folders of mp4 + json (DROID, Language-Table, own recordings) and of mp4 + npz (BridgeData V2 clips).

docs/your-own-data.md describes the forms. Which frames are decoded and when is the affair of `video` and `windows`.
"""

import json
import math
import os
import zipfile
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from simforcing.data.formats import declared, fingerprint
from simforcing.data.lerobot_format import MAX_FPS, Declaration
from simforcing.data.validate import Candidate, Inspector
from simforcing.data.video import VideoFrames, probe, write_video
from simforcing.types import LAYOUTS, EpisodeSet, FrameSource
from simforcing.types.files import inside, read_json

DROID_FPS = 5.0  # every third row of 15 Hz recordings
DROID_RAW_STEP = 3
DROID_CAMERAS = {"0": "exterior_0", "1": "exterior_1", "2": "wrist"}
BRIDGE_FPS = 5.0
MAIN_VIEW = "main"
SHOWN_VIDEOS = 5  # of those without a record
# What reading a damaged npz can raise, beside ValueError.
DAMAGED_NPZ = (
    OSError,
    EOFError,
    KeyError,
    TypeError,
    SyntaxError,
    RuntimeError,
    MemoryError,
    OverflowError,
    zipfile.BadZipFile,
    zlib.error,
)


@dataclass(frozen=True, kw_only=True)
class Record:
    """One json or npz file as read: fields by name, and the mp4 files that belong to it by view."""

    name: str
    path: Path
    fields: dict[str, Any]
    videos: dict[str, Path] = field(default_factory=dict)


def read_folder(root: str | Path, *, cameras: tuple[str, ...] | None = None, layout: str | None = None) -> EpisodeSet:
    """Open a folder of mp4 + json or mp4 + npz files, with every view that an episode has unless `cameras` says which.

    Args:
        root: the folder: `annotation/**/*.json` with `videos/`, or `*.json` / `*.npz` beside the mp4 files.
        cameras: names of the views to read; DROID's are exterior_0, exterior_1 and wrist.
        layout: the action layout, where neither the folder's meta/simforcing.json nor its format tells.

    Raises ValueError where no episode is left, a camera exists nowhere or the layout is unknown.
    """
    root = Path(root)
    files = record_files(root)
    if not files:
        raise ValueError(f"{root}: no annotation/**/*.json, *.json or *.npz file")
    outcomes = [(path, _read_record(root, path)) for path in files]
    kind, known = _known(outcomes)
    declaration = declared(root, layout, known)
    inspector = Inspector(
        str(root),
        declaration.action_layout,
        declaration.state_layout,
        cameras,
        joint_layout=declaration.joint_layout,
    )
    used = list(files)
    for path, outcome in outcomes:
        if isinstance(outcome, ValueError):
            inspector.reject(_name(root, path), str(outcome))
            continue
        used += outcome.videos.values()
        inspector.consider(outcome.name, lambda outcome=outcome: _candidate(outcome, kind, declaration, inspector))
    _warn_of_unused_videos(root, files, used, inspector)
    return inspector.finish(kind=kind, robot=declaration.robot, fingerprint=fingerprint(root, used))


def write_recording(
    root: str | Path,
    *,
    name: str,
    task: str,
    fps: float,
    videos: dict[str, UInt8[np.ndarray, "f h w 3"]],
    action: Float[np.ndarray, "k a"],
    state: Float[np.ndarray, "m s"] | None = None,
) -> None:
    """Write one episode as `annotation/<name>.json` and `videos/<name>/<view>.mp4`, the form that `read_folder` opens.

    Args:
        root: the set's folder, created where it is missing.
        name: unique in the set.
        task: the instruction in words.
        fps: frame rate in Hz.
        videos: view name -> frames.
        action: one row per frame, or one fewer.
        state: one row per frame.
    """
    root = Path(root)
    stored = {view: f"videos/{name}/{view}.mp4" for view in videos}
    for view, frames in videos.items():
        (root / stored[view]).parent.mkdir(parents=True, exist_ok=True)
        write_video(root / stored[view], frames, fps)
    record: dict[str, Any] = {"task": task, "fps": fps, "videos": stored, "action": action.tolist()}
    if state is not None:
        record["state"] = state.tolist()
    (root / "annotation").mkdir(exist_ok=True)
    (root / "annotation" / f"{name}.json").write_text(json.dumps(record))


def record_files(root: Path) -> list[Path]:
    """The files that hold one episode's numbers each, sorted; the set's own metadata is not among them."""
    if (root / "annotation").is_dir():
        return sorted((root / "annotation").rglob("*.json"))
    return sorted(root.glob("*.json")) or sorted(root.glob("*.npz"))


def _read_record(root: Path, path: Path) -> Record | ValueError:
    """The record, or the one-line error that rejects it."""
    if not path.is_file():
        return ValueError(f"{path}: no regular file, or a link to nothing")
    try:
        fields = _read_npz(path) if path.suffix == ".npz" else _read_object(path)
        return Record(name=_name(root, path), path=path, fields=fields, videos=_videos(root, path, fields))
    except ValueError as error:
        return error


def _name(root: Path, path: Path) -> str:
    base = root / "annotation" if (root / "annotation").is_dir() else root
    return "_".join(path.relative_to(base).with_suffix("").parts)


def _read_object(path: Path) -> dict[str, Any]:
    value = read_json(path)
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def _read_npz(path: Path) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if not isinstance(arrays, np.lib.npyio.NpzFile):
                raise ValueError("it is no zip of arrays")
            return {key: arrays[key] for key in arrays}
    except (ValueError, *DAMAGED_NPZ) as error:
        raise ValueError(f"{path}: damaged npz ({type(error).__name__}: {error})") from error


def _videos(root: Path, path: Path, fields: dict[str, Any]) -> dict[str, Path]:
    """View name -> mp4, from the record's own field, else from where such files lie. ValueError names what is not."""
    stated = _stated_videos(path, fields)
    base = root / "annotation"
    relative = path.relative_to(base).with_suffix("") if base.is_dir() else path.relative_to(root).with_suffix("")
    folder = root / "videos" / relative
    if not stated:
        stated = {video.stem: str(video) for video in sorted(folder.glob("*.mp4")) if video.is_file()} or {
            MAIN_VIEW: f"{relative}.mp4"
        }
    found = {}
    for view, text in stated.items():
        places = [root / text, path.parent / text]
        if Path(text).parent.name == folder.name:  # DROID states videos/val/0001/0.mp4, stored as videos/0001/0.mp4
            places.append(folder / Path(text).name)
        existing = [place for place in places if place.is_file()]
        if not existing:
            looked = ", ".join(map(str, places))
            raise ValueError(f"{path}: video of view {view} not found: {text!r}, looked for {looked}")
        found[view] = inside(root, existing[0])
    return found


def _stated_videos(path: Path, fields: dict[str, Any]) -> dict[str, str]:
    """What the field `videos` (an object, or a list of {video_path}), `video` or `video_path` says."""
    value = fields.get("videos", fields.get("video", fields.get("video_path")))
    if value is None or path.suffix == ".npz":
        return {}
    if isinstance(value, str):
        value = {MAIN_VIEW: value}
    elif isinstance(value, list):
        paths = [item.get("video_path") if isinstance(item, dict) else item for item in value]
        value = {Path(item).stem if isinstance(item, str) else str(i): item for i, item in enumerate(paths)}
    if not isinstance(value, dict) or not value or not all(isinstance(item, str) and item for item in value.values()):
        raise ValueError(
            f"{path}: videos is {str(value)[:80]!r}, expected a path, or an object of view names and paths"
        )
    is_droid = "states" in fields and set(value) <= set(DROID_CAMERAS)
    return {DROID_CAMERAS[name] if is_droid else str(name): str(item) for name, item in value.items()}


def _known(outcomes: list[tuple[Path, Record | ValueError]]) -> tuple[str, Declaration]:
    """The format that most records are recognised as (one bad record decides nothing), and what it tells by itself."""
    kinds = Counter(_kind(outcome) for _, outcome in outcomes if isinstance(outcome, Record))
    del kinds[None]
    if not kinds:
        return "mp4 + npz" if outcomes[0][0].suffix == ".npz" else "mp4 + json", Declaration()
    kind = kinds.most_common(1)[0][0]
    droid = LAYOUTS["droid"]
    known = {
        "mp4 + npz (Bridge)": Declaration(action_layout=LAYOUTS["bridge_scaled"], robot="widowx_250s", fps=BRIDGE_FPS),
        "mp4 + json (DROID)": Declaration(
            action_layout=droid,
            state_layout=droid,
            joint_layout=LAYOUTS["droid_joint"],
            robot="panda_robotiq_2f85",
            fps=DROID_FPS,
        ),
        "mp4 + json (Language-Table)": Declaration(action_layout=LAYOUTS["language_table"], robot="xarm6"),
    }
    return str(kind), known.get(str(kind), Declaration())


def _kind(record: Record) -> str | None:
    """The format that one record looks like; None where it looks like none."""
    fields = record.fields
    if record.path.suffix == ".npz":
        if "arr_0" in fields and fields["arr_0"].shape[1:] == (LAYOUTS["bridge_scaled"].dim,):
            return "mp4 + npz (Bridge)"
        return "mp4 + npz" if fields.keys() & {"action", "actions"} else None
    if "actions" not in fields and "action" not in fields:
        return "mp4 + json (DROID)" if "states" in fields else None
    if "latent_video_path" not in fields:
        return "mp4 + json"
    rows = fields.get("actions")
    first = rows[0] if isinstance(rows, list) and rows else None
    is_pair = isinstance(first, list) and len(first) == 2 and not any(isinstance(item, list) for item in first)
    return "mp4 + json (Language-Table)" if is_pair else None


def _warn_of_unused_videos(root: Path, files: list[Path], used: list[Path], inspector: Inspector) -> None:
    """One line for the mp4 files that no record uses and that are not named like one."""
    base = root / "annotation" if (root / "annotation").is_dir() else root
    records = {path.relative_to(base).with_suffix("") for path in files}
    known = {os.path.abspath(path) for path in used}
    lone = []
    for folder, videos in ((root, root.glob("*.mp4")), (root / "videos", (root / "videos").rglob("*.mp4"))):
        for video in videos:
            name = video.relative_to(folder).with_suffix("")
            if os.path.abspath(video) not in known and video.is_file() and not records & {name, *name.parents}:
                lone.append(str(video.relative_to(root)))
    if lone:
        shown = ", ".join(sorted(lone)[:SHOWN_VIDEOS])
        more = f" and {len(lone) - SHOWN_VIDEOS} more" if len(lone) > SHOWN_VIDEOS else ""
        inspector.warn(f"{root}: {len(lone)} mp4 file(s) without a json or npz file are left out: {shown}{more}")


def _candidate(record: Record, kind: str, declaration: Declaration, inspector: Inspector) -> Candidate:
    """One record's tables, times and opened views. ValueError names file and field."""
    header_fps: list[float] = []

    def opened(video: Path) -> FrameSource:
        header_fps.append(probe(video).fps)
        return VideoFrames(video)

    views = inspector.views({name: lambda video=video: opened(video) for name, video in record.videos.items()})
    stored_fps = _number(record, "fps", MAX_FPS) or declaration.fps
    fps = stored_fps or (header_fps[0] if header_fps else 0.0)
    if not fps > 0:
        raise ValueError(f"{record.path}: no frame rate: neither a field fps nor the video's header has one")
    is_joint = declaration.action_layout == LAYOUTS["droid_joint"]
    is_droid = kind.endswith("(DROID)")
    action, state = _droid_tables(record, is_joint=is_joint) if is_droid else _own_tables(record)
    video_frames = views[0].frames.num_frames if views else 0
    layouts = (declaration.action_layout, declaration.state_layout)
    timed = any(f"{field}_time_s" in record.fields for field in ("action", "state"))
    own_rate = timed or any(layout is not None and layout.rate_hz is not None for layout in layouts)
    num_frames = _stated_frames(record) or (
        video_frames if own_rate else _table_frames(record, action, state, video_frames)
    )
    if depth := [name for name in record.fields if "depth" in name]:
        inspector.warn_once(f"{inspector.root}: depth is not read from folders: {', '.join(depth)} left out")
    return Candidate(
        name=record.name,
        task=_task(record.fields),
        fps=fps,
        num_frames=num_frames,
        views=views,
        action=action,
        action_time_s=_times(record, "action_time_s", len(action)),
        state=state,
        state_time_s=_times(record, "state_time_s", 0 if state is None else len(state)),
        joint=None if is_joint or declaration.joint_layout is None else _joints(record),
        header_fps=tuple(rate for rate in header_fps if rate > 0),
    )


def _table_frames(
    record: Record, action: Float[np.ndarray, "k a"], state: Float[np.ndarray, "m s"] | None, video_frames: int
) -> int:
    """Frames by the data's own tables: one per state, or for k actions alone k or k + 1 as the video has."""
    if state is not None:
        return len(state)
    return len(action) if video_frames == len(action) or record.path.suffix == ".npz" else len(action) + 1


def _stated_frames(record: Record) -> int | None:
    """Frames of each video, where the record says so."""
    stated = _number(record, "num_frames") or _number(record, "video_length")
    return None if stated is None else int(stated)


def _droid_tables(record: Record, *, is_joint: bool) -> tuple[Float[np.ndarray, "k a"], Float[np.ndarray, "m s"]]:
    """States, and as action the next state; raw recordings have the commanded pose at every third row instead."""
    state = _table(record, "joints" if is_joint else "states")
    if is_joint or "action.cartesian_position" not in record.fields:
        if len(state) < 2:
            raise ValueError(f"{record.path}: states has {len(state)} row(s), expected at least 2")
        return state[1:], state
    return _raw_rows(record, "action.cartesian_position", "action.gripper_position"), state


def _joints(record: Record) -> Float[np.ndarray, "n j"] | None:
    """Measured joints beside the states, where the record has them; raw DROID recordings have them at every row."""
    if record.fields.get("joints") is not None:
        return _table(record, "joints")
    if "observation.state.joint_position" not in record.fields:
        return None
    return _raw_rows(record, "observation.state.joint_position", "observation.state.gripper_position")


def _raw_rows(record: Record, arm_field: str, gripper_field: str) -> Float[np.ndarray, "k a"]:
    """Every third row of two fields of a raw DROID recording, side by side."""
    arm, gripper = _table(record, arm_field), _table(record, gripper_field)
    if len(arm) != len(gripper):
        raise ValueError(f"{record.path}: {arm_field} has {len(arm)} rows, {gripper_field} {len(gripper)}")
    return np.concatenate([arm, gripper], axis=1)[::DROID_RAW_STEP]


def _own_tables(record: Record) -> tuple[Float[np.ndarray, "k a"], Float[np.ndarray, "m s"] | None]:
    names = [name for name in ("action", "actions", "arr_0") if name in record.fields]
    if not names:
        raise ValueError(
            f"{record.path}: no field action (rows x numbers); fields: {', '.join(map(str, record.fields))}"
        )
    state_names = [name for name in ("state", "states") if record.fields.get(name) is not None]
    return _table(record, names[0]), _table(record, state_names[0]) if state_names else None


def _table(record: Record, name: str) -> Float[np.ndarray, "m n"]:
    """A field as rows x numbers in float64; a list of numbers is one column."""
    try:
        values = np.asarray(record.fields[name], dtype=np.float64)
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{record.path}: field {name} is no table of numbers ({error})") from error
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2:
        raise ValueError(f"{record.path}: field {name} has shape {values.shape}, expected rows x numbers")
    return values


def _times(record: Record, name: str, num_rows: int) -> Float[np.ndarray, " m"] | None:
    if record.fields.get(name) is None:
        return None
    times = _table(record, name)
    if times.shape != (num_rows, 1):
        raise ValueError(f"{record.path}: field {name} has shape {times.shape}, expected one time per row, {num_rows}")
    return times[:, 0]


def _number(record: Record, name: str, most: float = math.inf) -> float | None:
    """A positive number of the record, None where the field is absent."""
    value = record.fields.get(name)
    if value is None:
        return None
    try:
        number = float(np.asarray(value).reshape(()))
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{record.path}: field {name} is {str(value)[:80]!r}, expected a number") from error
    if not (np.isfinite(number) and number > 0):
        raise ValueError(f"{record.path}: field {name} is {number}, expected a positive number")
    if number > most:
        raise ValueError(f"{record.path}: field {name} is {number}, expected at most {most:g}")
    return number


def _task(fields: dict[str, Any]) -> str:
    value = fields.get("task", fields.get("texts", fields.get("text", "")))
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list):
        value = value[0] if value else ""
    return value.strip() if isinstance(value, str) else ""
