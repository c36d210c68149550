"""Small real data sets on disk: a folder of own recordings, and a Bridge-like record file."""

import io
import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent))  # array_pairs.py

from simforcing.data.folders import write_recording
from simforcing.data.tfrecord import masked_crc

SIZE = (24, 32)


def moving_frames(num_frames: int, seed: int = 0, size: tuple[int, int] = SIZE) -> np.ndarray:
    """A bright square that moves over a gradient: every frame differs and none is black."""
    height, width = size
    frames = np.empty((num_frames, height, width, 3), np.uint8)
    frames[...] = np.linspace(60, 120, width).astype(np.uint8)[None, None, :, None]
    for i in range(num_frames):
        left = (3 * i + seed) % (width - 6)
        frames[i, 8:14, left : left + 6] = (230, 40 + 10 * (seed % 8), 30)
    return frames


@pytest.fixture(scope="session")
def frames_of() -> Callable[..., np.ndarray]:
    return moving_frames


@pytest.fixture
def write_own() -> Callable[..., Path]:
    """Writes `annotation/<name>.json` and `videos/<name>/<view>.mp4`: poses of a moving hand, ten frames a second."""

    def write(
        root: Path,
        *,
        num_episodes: int = 3,
        num_frames: int = 12,
        views: tuple[str, ...] = ("front",),
        change: Callable[[int, dict[str, Any]], None] | None = None,
    ) -> Path:
        for index in range(num_episodes):
            state = np.zeros((num_frames, 7))
            state[:, 0] = 0.2 + 0.01 * np.arange(num_frames)
            state[:, 4] = 0.1 * index
            write_recording(
                root,
                name=f"{index:04d}",
                task="push the block",
                fps=10.0,
                videos={view: moving_frames(num_frames, index + 5 * number) for number, view in enumerate(views)},
                action=np.concatenate([state[1:], state[-1:]]),
                state=state,
            )
            if change is not None:
                path = root / "annotation" / f"{index:04d}.json"
                record = json.loads(path.read_text())
                change(index, record)
                path.write_text(json.dumps(record))
        return root

    return write


def varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number: int, content: bytes) -> bytes:
    """A length-delimited protocol buffer field."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def encode_example(features: dict[str, Any]) -> bytes:
    """A tf.train.Example: lists of bytes, float arrays and integer arrays by name."""
    entries = b""
    for name, value in features.items():
        if isinstance(value, list):
            feature = field(1, b"".join(field(1, item) for item in value))
        elif value.dtype.kind == "f":
            feature = field(2, field(1, value.astype("<f4").tobytes()))
        else:
            feature = field(3, field(1, b"".join(varint(int(item) & (1 << 64) - 1) for item in value.reshape(-1))))
        entries += field(1, field(1, name.encode()) + field(2, feature))
    return field(1, entries)


def frame_record(data: bytes) -> bytes:
    """A TFRecord around some data."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data))


def jpeg(frame: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


@pytest.fixture
def bridge_features() -> Callable[..., dict[str, Any]]:
    """Features of one Bridge-like episode: two cameras, the second black."""

    def features(seed: int = 0, num_frames: int = 6) -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        black = np.zeros((*SIZE, 3), np.uint8)
        action = rng.uniform(-0.02, 0.02, (num_frames, 7))
        action[:, 6] = 1.0
        return {
            "steps/observation/image_0": [jpeg(frame) for frame in moving_frames(num_frames, seed)],
            "steps/observation/image_1": [jpeg(black)] * num_frames,
            "steps/observation/state": rng.uniform(0.1, 0.3, (num_frames, 7)),
            "steps/action": action,
            "steps/language_instruction": [b"put carrot on plate"] * num_frames,
            "steps/is_last": np.arange(num_frames) == num_frames - 1,
        }

    return features


@pytest.fixture
def write_bridge(bridge_features: Callable[..., dict[str, Any]]) -> Callable[..., Path]:
    """Writes `1.0.0/bridge_dataset-train.tfrecord-00000-of-00001`; `change` edits one episode's features."""

    def write(
        root: Path, *, num_episodes: int = 3, change: Callable[[int, dict[str, Any]], None] | None = None
    ) -> Path:
        (root / "1.0.0").mkdir(parents=True)
        content = b""
        for index in range(num_episodes):
            features = bridge_features(index)
            if change is not None:
                change(index, features)
            content += frame_record(encode_example(features))
        (root / "1.0.0" / "bridge_dataset-train.tfrecord-00000-of-00001").write_bytes(content)
        return root

    return write
