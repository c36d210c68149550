"""The writer keeps LeRobot's rules of layout and statistics, and nothing half-written ever has the final name."""

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from simforcing.data import lerobot_files
from simforcing.data.lerobot import read_lerobot
from simforcing.data.lerobot_format import number_names
from simforcing.data.lerobot_stats import aggregate, image_stats, sampled_frames, vector_stats
from simforcing.data.lerobot_writer import LeRobotWriter
from simforcing.types import Layout, Part

LAYOUT = Layout(name="three", parts=(Part(kind="translation", size=3),))


def writer(root: Path, **options: object) -> LeRobotWriter:
    """A writer of one small view."""
    return LeRobotWriter(root, **({"fps": 5, "views": {"x": (32, 32)}, "action_layout": LAYOUT} | options))


def episode(num_frames: int = 8, seed: int = 0) -> dict:
    """Random frames and actions."""
    rng = np.random.default_rng(seed)
    frames = rng.integers(0, 255, (num_frames, 4, 4, 3), np.uint8).repeat(8, 1).repeat(8, 2)
    return {"frames": {"x": frames}, "action": rng.normal(size=(num_frames, 3)).astype(np.float32), "task": "push"}


def tree(root: Path) -> dict[str, bytes]:
    """All files with their content."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_v30_fills_files_and_moves_on_at_the_limit(tmp_path):
    with writer(tmp_path / "set", data_file_mb=0.004, video_file_mb=0.008) as out:
        for seed in range(6):
            out.add(**episode(20, seed))
    names = sorted(tree(tmp_path / "set"))
    assert "data/chunk-000/file-001.parquet" in names
    assert "videos/observation.images.x/chunk-000/file-001.mp4" in names
    opened = read_lerobot(tmp_path / "set")
    assert [e.num_frames for e in opened.episodes] == [20] * 6
    for seed, e in enumerate(opened.episodes):
        assert (e.action == episode(20, seed)["action"]).all()


@pytest.mark.parametrize("version", ["v3.0", "v2.1"])
def test_the_thousand_and_first_file_opens_a_new_chunk(tmp_path, monkeypatch, version):
    monkeypatch.setattr(lerobot_files, "FILES_PER_CHUNK", 2)
    with writer(tmp_path / "set", version=version, data_file_mb=1e-6, video_file_mb=1e-6) as out:
        for seed in range(3):
            out.add(**episode(4, seed))
    names = tree(tmp_path / "set").keys()
    if version == "v3.0":
        assert {"data/chunk-001/file-000.parquet", "videos/observation.images.x/chunk-001/file-000.mp4"} <= names
        assert [e.num_frames for e in read_lerobot(tmp_path / "set").episodes] == [4, 4, 4]
    else:
        assert {
            "data/chunk-001/episode_000002.parquet",
            "videos/chunk-001/observation.images.x/episode_000002.mp4",
        } <= names


def test_the_same_episodes_give_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        with writer(tmp_path / name) as out:
            out.add(**episode())
    assert tree(tmp_path / "a") == tree(tmp_path / "b")


def test_info_counts_what_was_written(tmp_path):
    with writer(tmp_path / "set", version="v2.1", robot="arm") as out:
        for seed in range(3):
            out.add(**(episode(4 + seed, seed) | {"task": f"task {seed % 2}"}))
    info = json.loads((tmp_path / "set/meta/info.json").read_text())
    counts = {key: info[key] for key in info if key.startswith("total_")}
    expected = {"episodes": 3, "frames": 15, "tasks": 2, "videos": 3, "chunks": 1}
    assert counts == {f"total_{key}": value for key, value in expected.items()}
    assert (info["robot_type"], info["fps"], info["splits"]) == ("arm", 5, {"train": "0:3"})


def test_numbers_are_named_by_their_parts():
    layout = Layout(
        name="all",
        parts=(
            Part(kind="translation", size=3),
            Part(kind="rotation", size=3, unit="rad", rotation="euler_xyz"),
            Part(kind="unused", size=1),
            Part(kind="joint", size=2, side="left", frame="joint", unit="rad"),
            Part(kind="gripper", size=1, side="left", unit="fraction", gripper="closed_0_open_1"),
        ),
    )
    assert number_names(layout) == [
        *("x", "y", "z", "roll", "pitch", "yaw", "pad_6"),
        *("left_joint_0", "left_joint_1", "left_gripper"),
    ]


def test_aggregated_statistics_are_those_of_all_rows(rng):
    parts = [rng.normal(size=(length, 4)).astype(np.float32) for length in (3, 17, 40)]
    merged = aggregate([vector_stats(part) for part in parts])
    rows = np.concatenate(parts).astype(np.float64)
    assert np.allclose(merged["mean"], rows.mean(axis=0), atol=1e-12)
    assert np.allclose(merged["std"], rows.std(axis=0), atol=1e-12)
    assert (merged["min"] == rows.min(axis=0)).all()
    assert (merged["max"] == rows.max(axis=0)).all()
    assert merged["count"] == [60]


def test_image_statistics_are_those_of_the_pixels(rng):
    frames = rng.integers(0, 256, (9, 16, 16, 3), np.uint8)
    stats = image_stats(frames)
    pixels = frames.reshape(-1, 3) / 255
    for name, expected in (
        ("min", pixels.min(0)),
        ("max", pixels.max(0)),
        ("mean", pixels.mean(0)),
        ("std", pixels.std(0)),
    ):
        assert stats[name].shape == (3, 1, 1)
        assert np.allclose(stats[name].ravel(), expected, atol=1e-12)
    assert np.allclose(stats["q50"].ravel(), np.quantile(pixels, 0.5, axis=0, method="inverted_cdf"))
    assert stats["count"] == [9]
    assert [len(sampled_frames(n)) for n in (7, 100, 500, 1000, 10_000)] == [7, 100, 105, 177, 1000]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"action": np.zeros((8, 4), np.float32)}, r"action is float32 \(8, 4\), expected float32 \(8, 3\)"),
        ({"action": np.full((8, 3), np.nan, np.float32)}, r"action has \[nan, nan, nan\] at row 0, expected finite"),
        (
            {"action": np.zeros((7, 3), np.float32)},
            r"view x is uint8 \(8, 32, 32, 3\), expected uint8 \(7, 32, 32, 3\)",
        ),
        ({"frames": {}}, r"view x is nothing, expected uint8"),
        ({"frames": {"x": episode()["frames"]["x"], "y": episode()["frames"]["x"]}}, "unknown view 'y'; views: x"),
        ({"state": np.zeros((8, 3), np.float32)}, "a state is given exactly where the set declares a state layout"),
        ({"extra": {"action": 3}}, "extra column 'action' is no free name"),
        ({"extra": {"parent": np.zeros(5)}}, r"parent is float64 \(5,\), expected .* 8 rows or one value"),
    ],
)
def test_a_wrong_field_is_refused_with_what_was_expected(tmp_path, change, message):
    with writer(tmp_path / "set") as out:
        with pytest.raises(ValueError, match=message):
            out.add(**(episode() | change))
        out.add(**episode())
    assert len(read_lerobot(tmp_path / "set").episodes) == 1


def test_extra_columns_must_stay_the_same(tmp_path):
    with writer(tmp_path / "set") as out:
        out.add(**episode(), extra={"parent": 1})
        with pytest.raises(ValueError, match="extra column 'parent' is None, the first episode has"):
            out.add(**episode())


def test_an_existing_set_is_kept_unless_overwriting_and_then_until_the_end(tmp_path):
    root = tmp_path / "set"
    with writer(root) as out:
        out.add(**episode())
    before = tree(root)
    with pytest.raises(ValueError, match="set exists; choose another name or overwrite it"):
        writer(root)

    def interrupted() -> None:
        with writer(root, overwrite=True) as out:
            out.add(**episode(seed=1))
            assert tree(root) == before
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert tree(root) == before
    with writer(root, overwrite=True) as out:
        out.add(**episode(seed=1))
    assert tree(root) != before
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_a_folder_that_is_not_ours_is_never_removed(tmp_path):
    (tmp_path / "set.partial").mkdir()
    (tmp_path / "set.partial/thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match=r"set\.partial exists and is no interrupted data set"):
        writer(tmp_path / "set")
    assert (tmp_path / "set.partial/thesis.txt").is_file()


def test_a_set_that_is_being_written_is_refused_to_others_and_stays_whole(tmp_path):
    with writer(tmp_path / "set") as out:
        out.add(**episode())
        for overwrite in (False, True):
            with pytest.raises(ValueError, match="another process is writing this data set"):
                writer(tmp_path / "set", overwrite=overwrite)
        out.add(**episode(seed=1))
    assert len(read_lerobot(tmp_path / "set").episodes) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_another_process_cannot_take_a_set_that_is_being_written(tmp_path):
    process = script(tmp_path / "set", limit=resource.RLIM_INFINITY)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        with pytest.raises(ValueError, match="another process is writing this data set"):
            writer(tmp_path / "set")
        assert (tmp_path / "set.partial/data").is_dir()
    finally:
        process.kill()
        process.communicate()


def test_a_name_that_was_taken_while_writing_is_not_overwritten(tmp_path):
    out = writer(tmp_path / "set")
    out.add(**episode())
    (tmp_path / "set").mkdir()
    (tmp_path / "set/thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match="set exists"):
        out.close()
    assert tree(tmp_path) == {"set/thesis.txt": b"years of work"}


def test_a_set_with_foreign_files_beside_it_is_not_overwritten(tmp_path):
    with writer(tmp_path / "set") as out:
        out.add(**episode())
    (tmp_path / "set/thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match=r"set holds thesis\.txt beside its data set; it is not overwritten"):
        writer(tmp_path / "set", overwrite=True)
    assert (tmp_path / "set/thesis.txt").is_file()


def test_a_set_without_episodes_is_refused_and_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="no episode was added"), writer(tmp_path / "set"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["write_table", "replace"])
def test_a_full_disk_is_one_line_and_changes_nothing(tmp_path, monkeypatch, where):
    root = tmp_path / "set"
    with writer(root) as out:
        out.add(**episode())
    before = tree(root)

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write() -> None:
        with writer(root, overwrite=True) as out:
            out.add(**episode(seed=1))
            monkeypatch.setattr(*((pq, "write_table") if where == "write_table" else (os, "replace")), full)

    with pytest.raises(OSError, match=r"cannot write the data set \(No space left on device\)") as raised:
        write()
    monkeypatch.undo()
    assert raised.value.errno == errno.ENOSPC
    assert str(root) in str(raised.value)
    assert tree(root) == before
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


SCRIPT = """
import resource, signal, sys
sys.path.insert(0, {tests!r})
from test_lerobot_writer import episode, writer
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, resource.RLIM_INFINITY))
with writer({root!r}) as out:
    for seed in range(10_000):
        out.add(**episode(40, seed))
        print(seed, flush=True)
"""


def script(root: Path, limit: int) -> subprocess.Popen:
    """A process that writes episodes without end, its files limited to so many bytes."""
    code = SCRIPT.format(tests=str(Path(__file__).parent), root=str(root), limit=limit)
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", code], env=os.environ | path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_write_error_of_the_system_ends_in_one_line_and_leaves_nothing(tmp_path):
    process = script(tmp_path / "set", limit=60_000)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors.strip().splitlines()[-1].endswith("cannot write the data set (File too large); nothing was changed")
    assert list(tmp_path.iterdir()) == []


def test_a_killed_writer_leaves_no_set_and_the_next_one_takes_over(tmp_path):
    process = script(tmp_path / "set", limit=resource.RLIM_INFINITY)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "set").exists()
    with writer(tmp_path / "set") as out:
        out.add(**episode())
    assert len(read_lerobot(tmp_path / "set").episodes) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
