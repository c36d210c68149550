"""RLDS / TFDS record files (BridgeData), one episode per record, read without TensorFlow.

Images stay in the file as JPEG or PNG strings and are decoded when a window asks for them.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from simforcing.data.formats import declared, fingerprint
from simforcing.data.lerobot_format import Declaration
from simforcing.data.tfrecord import Feature, RecordSpan, parse_example, read_record, record_spans
from simforcing.data.validate import Candidate, Inspector
from simforcing.data.video import JpegFrames
from simforcing.types import LAYOUTS, EpisodeSet

BRIDGE_FPS = 5.0
IMAGE_MAGIC = (b"\xff\xd8\xff", b"\x89PNG")
OBSERVATION = "steps/observation/"
BLACK_LEVEL = 8  # of 255: what JPEG may make of black


@dataclass(frozen=True, kw_only=True)
class RecordFrames:
    """A FrameSource over byte ranges of a record file: `read` fetches and decodes no other frame.

    Args:
        path: the record file.
        spans: (offset, bytes) of each image in the file.
        size: stored (height, width) in pixels.
        name: where they are, for messages.
    """

    path: Path
    spans: tuple[tuple[int, int], ...]
    size: tuple[int, int]
    name: str

    @property
    def num_frames(self) -> int:
        return len(self.spans)

    def read(self, start: int, stop: int) -> UInt8[np.ndarray, "f h w 3"]:
        """Frames start..stop-1. ValueError names file, view and frame."""
        if not 0 <= start <= stop <= self.num_frames:
            raise ValueError(f"{self.name}: frames {start}..{stop - 1} are not within 0..{self.num_frames - 1}")
        try:
            with open(self.path, "rb") as file:
                images = []
                for offset, num_bytes in self.spans[start:stop]:
                    file.seek(offset)
                    images.append(file.read(num_bytes))
        except OSError as error:
            raise ValueError(f"{self.name}: cannot be read ({error.strerror})") from error
        if not images:
            return np.zeros((0, *self.size, 3), np.uint8)
        frames = JpegFrames(images, f"{self.name}, from frame {start} on").read(0, len(images))
        if frames.shape[1:3] != self.size:
            raise ValueError(f"{self.name}: frame {start} has size {frames.shape[1:3]}, the first frame {self.size}")
        return frames


def read_rlds(root: str | Path, *, cameras: tuple[str, ...] | None = None, layout: str | None = None) -> EpisodeSet:
    """Open a folder of `*.tfrecord-*` files, at `root` or below it (as TFDS lays out versions).

    A record that is cut or damaged is rejected by name; the complete ones before it stay. A camera whose frames are
    all black is not present. Action i of a Bridge record is commanded at frame i.

    Args:
        root: the data set's folder.
        cameras: image keys to read (`image_0`); None: all that are present.
        layout: the action layout, where neither meta/simforcing.json nor the set's name (bridge) tells.

    Raises ValueError where no record is usable, or the rate or layout is unknown.
    """
    root = Path(root)
    paths = tfrecord_files(root)
    if not paths:
        raise ValueError(f"{root}: no *.tfrecord* file")
    known = _known(paths[0])
    declaration = declared(root, layout, known)
    if declaration.fps is None:
        raise ValueError(f"{root}: record files hold no frame rate; declare fps in {root / 'meta' / 'simforcing.json'}")
    inspector = Inspector(str(root), declaration.action_layout, declaration.state_layout, cameras)
    for path in paths:
        spans = record_spans(path)
        for index, span in enumerate(spans):
            name = _episode_name(path, index)
            inspector.consider(
                name, lambda n=name, p=path, s=span: _candidate(n, p, s, float(declaration.fps or 0), inspector)
            )
        _warn_of_missing(path, len(spans), inspector)
    return inspector.finish(kind="RLDS", robot=declaration.robot, fingerprint=fingerprint(root, paths))


def tfrecord_files(root: Path) -> list[Path]:
    """Record files of a set, sorted."""
    if root.is_file():
        return [root]
    return sorted(path for path in root.rglob("*.tfrecord*") if path.is_file())


def _known(path: Path) -> Declaration:
    """What the file's name tells."""
    if path.name.startswith("bridge"):
        return Declaration(
            action_layout=LAYOUTS["bridge"],
            state_layout=LAYOUTS["bridge_state"],
            robot="widowx_250s",
            fps=BRIDGE_FPS,
        )
    return Declaration()


def _episode_name(path: Path, index: int) -> str:
    """train_00000_0007: split, shard and place in it."""
    match = re.fullmatch(r"(?:.*-)?([^-]+)\.tfrecord-(\d+)-of-\d+", path.name)
    stem = f"{match[1]}_{match[2]}" if match else path.name
    return f"{stem}_{index:04d}"


def _warn_of_missing(path: Path, num_records: int, inspector: Inspector) -> None:
    """One line where dataset_info.json promises more records for this file; the info itself may be absent or odd."""
    match = re.fullmatch(r"(?:.*-)?([^-]+)\.tfrecord-(\d+)-of-\d+", path.name)
    try:
        info: Any = json.loads((path.parent / "dataset_info.json").read_bytes())
        lengths = {split["name"]: split["shardLengths"] for split in info["splits"]}
        promised = int(lengths[match[1]][int(match[2])]) if match else num_records
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return
    if num_records < promised:
        inspector.warn(f"{path}: {num_records} records, dataset_info.json says {promised}: the file is cut")


def _candidate(name: str, path: Path, span: RecordSpan, fps: float, inspector: Inspector) -> Candidate:
    """One record's tables and views. ValueError names file and feature."""
    data = read_record(path, span)
    try:
        features = parse_example(data)
    except ValueError as error:
        raise ValueError(f"{path}: record {name}: {error}") from error
    images = _images(features, data)
    if depth := [key.removeprefix(OBSERVATION) for key in features if key.startswith(OBSERVATION) and "depth" in key]:
        inspector.warn_once(f"{inspector.root}: depth is not read from record files: {', '.join(depth)} left out")
    if not images:
        raise ValueError(f"{path}: record {name}: no images under {OBSERVATION}*")
    num_steps = len(next(iter(images.values())))
    stored = {}
    for camera, spans in images.items():
        frames = _present_frames(f"{path}: record {name}: {camera}", path, spans, data, span.offset)
        if frames is not None:
            stored[camera] = lambda frames=frames: frames
    state = features.get(f"{OBSERVATION}state")
    return Candidate(
        name=name,
        task=_task(features, data),
        fps=fps,
        num_frames=num_steps,
        views=inspector.views(stored),
        action=_table(features.get("steps/action"), num_steps, f"{path}: record {name}: steps/action"),
        state=None if state is None else _table(state, num_steps, f"{path}: record {name}: {OBSERVATION}state"),
    )


def _images(features: dict[str, Feature], data: bytes) -> dict[str, list[tuple[int, int]]]:
    """Camera -> spans in the record, for every observation that is a list of JPEG or PNG strings."""
    found = {}
    for key in sorted(features):
        spans = features[key]
        if not key.startswith(OBSERVATION) or not isinstance(spans, list) or not spans:
            continue
        if data[spans[0][0] : spans[0][1]].startswith(IMAGE_MAGIC) and "depth" not in key:
            found[key.removeprefix(OBSERVATION)] = spans
    return found


def _present_frames(
    name: str, path: Path, spans: list[tuple[int, int]], data: bytes, offset: int
) -> RecordFrames | None:
    """The frames of one camera, None where all of them are black. Distinct images are decoded until one is not."""
    images = list(dict.fromkeys(data[start:stop] for start, stop in spans))
    size = JpegFrames(images[:1], name).size
    is_black = all(int(JpegFrames([image], name).read(0, 1).max()) <= BLACK_LEVEL for image in images)
    if is_black:
        return None
    file_spans = tuple((offset + start, stop - start) for start, stop in spans)
    return RecordFrames(path=path, spans=file_spans, size=size, name=name)


def _table(values: Feature | None, num_steps: int, where: str) -> Float[np.ndarray, "m n"]:
    if not isinstance(values, np.ndarray) or values.dtype != np.float32:
        raise ValueError(f"{where}: missing, expected a list of floats")
    if len(values) == 0 or len(values) % num_steps:
        raise ValueError(f"{where}: {len(values)} numbers, expected a multiple of the {num_steps} frames")
    return values.reshape(num_steps, -1).astype(np.float64)


def _task(features: dict[str, Feature], data: bytes) -> str:
    """The first instruction that is not empty."""
    for key in ("steps/language_instruction", f"{OBSERVATION}natural_language_instruction"):
        spans = features.get(key)
        for start, stop in spans if isinstance(spans, list) else []:
            if text := data[start:stop].decode("utf-8", errors="replace").strip():
                return text
    return ""
