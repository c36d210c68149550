"""Depth on disk: millimetres without loss, only the window is decoded, and what 16 bits cannot hold is refused."""

from pathlib import Path

import numpy as np
import pytest

from simforcing.data.convert import convert
from simforcing.data.depth_video import MAX_DEPTH_M, DepthVideo, DepthWriter
from simforcing.data.lerobot import read_lerobot
from simforcing.data.lerobot_writer import LeRobotWriter
from simforcing.data.windows import WindowSpec, read_clip
from simforcing.types import LAYOUTS, DepthSource, Resize

SIZE = (24, 32)


def millimetres(num_frames: int, seed: int = 0, size: tuple[int, int] = SIZE) -> np.ndarray:
    """Random whole millimetres up to the most that 16 bits hold, some of them 0."""
    rng = np.random.default_rng(seed)
    return (rng.integers(0, 65536, (num_frames, *size)) * (rng.random((num_frames, *size)) > 0.2)).astype(np.int64)


def write(path: Path, depth_m: np.ndarray) -> DepthVideo:
    with DepthWriter(path, 30, depth_m.shape[1:]) as writer:
        for start in range(0, len(depth_m), 7):
            writer.write(depth_m[start : start + 7])
    return DepthVideo(path)


@pytest.mark.parametrize("size", [(24, 32), (7, 13)])
def test_every_millimetre_comes_back_exactly_in_any_window(tmp_path: Path, size: tuple[int, int]) -> None:
    stored = millimetres(20, size=size)
    source = write(tmp_path / "depth.mkv", stored / 1000)
    assert isinstance(source, DepthSource)
    assert (source.num_frames, source.size) == (20, size)
    for start, stop in ((0, 20), (3, 4), (13, 20), (5, 5)):
        np.testing.assert_array_equal(np.round(source.read(start, stop) * 1000).astype(int), stored[start:stop])


def test_what_is_not_finite_or_not_positive_is_unknown_and_too_far_is_refused(tmp_path: Path) -> None:
    depth_m = np.full((1, 2, 2), 1.5)
    depth_m[0, 0], depth_m[0, 1, 0] = (np.nan, -1.0), np.inf
    np.testing.assert_array_equal(write(tmp_path / "a.mkv", depth_m).read(0, 1), [[[0, 0], [0, 1.5]]])
    with pytest.raises(ValueError, match=r"a depth of 70 m, 16 bits of millimetres hold 65\.535 m"):
        write(tmp_path / "b.mkv", np.full((1, 2, 2), 70.0))
    assert MAX_DEPTH_M < 70


def test_a_cut_or_foreign_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.mkv"
    source = write(path, millimetres(6) / 1000)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(ValueError, match=r"a\.mkv"):
        source.read(0, 6)
    with pytest.raises(ValueError, match=r"a\.mkv: frames 3\.\.8 asked for"):
        write(path, millimetres(6) / 1000).read(3, 9)


@pytest.mark.parametrize("version", ["v3.0", "v2.1"])
def test_a_set_gives_its_depth_to_clips_and_convert_keeps_it(tmp_path: Path, frames_of, version: str) -> None:
    stored = [millimetres(8, seed) / 1000 for seed in range(2)]
    with LeRobotWriter(
        tmp_path / "set",
        fps=5,
        views={"front": SIZE, "side": SIZE},
        depth=("front",),
        action_layout=LAYOUTS["tabletop"],
        version=version,
    ) as writer:
        for depth_m in stored:
            frames = {view: frames_of(8) for view in writer.views}
            writer.add(frames=frames, action=np.zeros((8, 7), np.float32), depth={"front": depth_m})
    before = read_lerobot(tmp_path / "set")
    after = convert(tmp_path / "set", tmp_path / "again", layout=None, version=version, report=lambda line: None)
    spec = WindowSpec(num_frames=3, views=("front", "side"), resize=Resize(height=24, width=32), with_depth=True)
    for opened in (before, after):
        for episode, depth_m in zip(opened.episodes, stored, strict=True):
            assert episode.view("side").depth is None
            clip = read_clip(episode, 2, spec, 7)
            assert clip.depth is not None
            assert clip.depth_present is not None
            np.testing.assert_array_equal(clip.depth[0], depth_m[2:5].astype(np.float32))
            assert clip.depth_present.tolist() == [True, False]


def test_depth_must_fit_the_frames_and_changes_the_fingerprint(tmp_path: Path, frames_of) -> None:
    layout = LAYOUTS["tabletop"]
    options = {"fps": 5, "views": {"front": SIZE}, "action_layout": layout, "depth": ("front",)}
    fields = {"frames": {"front": frames_of(8)}, "action": np.zeros((8, 7), np.float32)}
    with LeRobotWriter(tmp_path / "set", **options) as writer:
        with pytest.raises(ValueError, match="depth of front is nothing"):
            writer.add(**fields)
        with pytest.raises(ValueError, match=r"depth of front is float64 \(7, 24, 32\)"):
            writer.add(**fields, depth={"front": np.ones((7, *SIZE))})
        for _ in range(2):
            writer.add(**fields, depth={"front": np.ones((8, *SIZE))})
    path = tmp_path / "set" / "depth" / "front" / "episode_000001.mkv"
    before = read_lerobot(tmp_path / "set").fingerprint
    write(path, np.full((8, *SIZE), 2.0))
    changed = read_lerobot(tmp_path / "set")
    assert changed.fingerprint != before
    write(path, np.ones((3, *SIZE)))
    (rejected,) = read_lerobot(tmp_path / "set").rejected
    assert rejected.reason == "depth of view front has 3 frames, the table 8"
    path.unlink()
    (rejected,) = read_lerobot(tmp_path / "set").rejected
    assert "no such video file" in rejected.reason
