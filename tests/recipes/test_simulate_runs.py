"""However a paired set comes about, its bytes are the same, and it is never half there."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pairing import NUM_EPISODES, NUM_FRAMES, record, run, tree

from simforcing.data.lerobot import read_lerobot
from simforcing.data.lerobot_writer import LeRobotWriter
from simforcing.data.pair_streams import variants_root
from simforcing.data.partial_folder import PartialFolder
from simforcing.data.video import VideoFrames, VideoWriter
from simforcing.recipes.simulate import SimulateOptions, plan_pairs
from simforcing.sim.replay import TrackingLimits


def test_processes_change_no_byte(source: Path, paired: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "set", variants=2, depth=True, track=True, processes=2)
    assert tree(tmp_path / "set") == tree(paired)


def test_another_seed_changes_the_variants_alone(source: Path, paired: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "set", variants=2, depth=True, track=True, seed=1)
    before, after = tree(paired), tree(tmp_path / "set")
    changed = {name for name in before if before[name] != after[name]}
    assert not any(name.startswith("set/") and "simulation.json" not in name for name in changed)
    assert any(name.startswith("set-variants/videos") for name in changed)


def test_a_killed_run_goes_on_and_ends_in_the_same_sets(source: Path, paired: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "simforcing", "simulate", str(source), str(tmp_path / "set")]
    command += ["--variants", "2", "--depth", "--track", "--processes", "1"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    parts = tmp_path / "set.parts"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None and not (parts / "000000").is_dir():
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "set").exists()
    kept = {path: path.stat().st_ino for path in parts.glob("0*/*.mp4")}
    assert kept
    lines = run(source, tmp_path / "set", variants=2, depth=True, track=True)
    assert any("episodes are finished already" in line for line in lines)
    assert tree(tmp_path / "set") == tree(paired)
    used = {path.stat().st_ino for path in (tmp_path / "set").rglob("*.mp4")}
    assert used & set(kept.values())  # taken as they were, not rendered again
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set", "set-variants"]


def test_a_run_that_stops_between_the_two_sets_goes_on(
    source: Path, paired: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = LeRobotWriter.close

    def stop(writer: LeRobotWriter) -> None:
        if "real" in writer.views:
            writer.abort()
            raise KeyboardInterrupt
        close(writer)

    monkeypatch.setattr(LeRobotWriter, "close", stop)
    with pytest.raises(KeyboardInterrupt):
        run(source, tmp_path / "set", variants=2, depth=True, track=True)
    monkeypatch.undo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set-variants", "set.parts"]
    run(source, tmp_path / "set", variants=2, depth=True, track=True)
    assert tree(tmp_path / "set") == tree(paired)


def test_finished_episodes_of_other_options_are_neither_used_nor_lost(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(writer: LeRobotWriter) -> None:
        writer.abort()
        raise KeyboardInterrupt

    monkeypatch.setattr(LeRobotWriter, "close", stop)
    with pytest.raises(KeyboardInterrupt):
        run(source, tmp_path / "set", variants=0)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"3 finished episodes of other options \(background grey, now white\)"):
        run(source, tmp_path / "set", variants=0, background="white")
    assert len(list((tmp_path / "set.parts").glob("0*"))) == NUM_EPISODES
    run(source, tmp_path / "set", variants=0, background="white", overwrite=True)
    assert record(tmp_path / "set")["background"]["kind"] == "white"


def test_existing_sets_are_kept_unless_overwritten(source: Path, paired: Path) -> None:
    before = tree(paired)
    with pytest.raises(ValueError, match="exists; choose another name or overwrite it"):
        run(source, paired, variants=0)
    assert tree(paired) == before


@pytest.fixture(scope="module")
def stopped(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a run leaves that was stopped when all episodes were finished."""

    def stop(writer: LeRobotWriter) -> None:
        writer.abort()
        raise KeyboardInterrupt

    root = tmp_path_factory.mktemp("stopped")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LeRobotWriter, "close", stop)
        with pytest.raises(KeyboardInterrupt):
            run(source, root / "set", variants=2, depth=True, track=True)
    return root / "set.parts"


def test_damaged_parts_are_rendered_again(source: Path, paired: Path, stopped: Path, tmp_path: Path) -> None:
    parts = tmp_path / "set.parts"
    shutil.copytree(stopped, parts)
    sim, tables = parts / "000000" / "sim.mp4", parts / "000001" / "tables.safetensors"
    sim.write_bytes(sim.read_bytes()[:300])
    content = bytearray(tables.read_bytes())
    content[len(content) // 2] ^= 255
    tables.write_bytes(content)
    (parts / "000002" / "sim_depth.mkv").unlink()
    lines = run(source, tmp_path / "set", variants=2, depth=True, track=True)
    assert [line.removeprefix(f"{parts}/") for line in lines if line.endswith("rendered again")] == [
        "000000: sim.mp4 is damaged; rendered again",
        "000001: tables.safetensors is damaged; rendered again",
        "000002: sim_depth.mkv is missing; rendered again",
    ]
    assert tree(tmp_path / "set") == tree(paired)


def test_a_part_without_an_outcome_or_of_another_episode_is_rendered_again(
    source: Path, paired: Path, stopped: Path, tmp_path: Path
) -> None:
    parts = tmp_path / "set.parts"
    shutil.copytree(stopped, parts)
    (parts / "000000" / "outcome.json").write_text("{")
    shutil.rmtree(parts / "000001")
    (parts / "000002").rename(parts / "000001")
    lines = run(source, tmp_path / "set", variants=2, depth=True, track=True)
    assert sum(line.endswith("rendered again") for line in lines) == 2
    assert tree(tmp_path / "set") == tree(paired)


def test_a_foreign_file_among_parts_is_not_removed(source: Path, stopped: Path, tmp_path: Path) -> None:
    shutil.copytree(stopped, tmp_path / "set.parts")
    (tmp_path / "set.parts" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"notes\.txt lies among finished episodes.*move it away"):
        run(source, tmp_path / "set", variants=2, depth=True, track=True)
    assert (tmp_path / "set.parts" / "notes.txt").read_text() == "mine"


def test_what_a_kill_after_the_last_rename_leaves_is_removed_by_the_same_command(
    source: Path, paired: Path, stopped: Path, tmp_path: Path
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    root = tmp_path / "set"
    for folder, copy in (
        (paired, root),
        (variants_root(paired), variants_root(root)),
        (stopped, tmp_path / "set.parts"),
        (paired, tmp_path / f"set.old-{ended.pid}"),
        (paired, tmp_path / f"set.old-{os.getpid()}"),
    ):
        shutil.copytree(folder, copy)
    other = PartialFolder(root, overwrite=True)  # of a process that is replacing the set with the help of these parts
    with pytest.raises(ValueError, match="another process is writing this data set"):
        run(source, root, variants=2, depth=True, track=True)
    assert (tmp_path / "set.parts" / "000000").is_dir()
    other.remove()
    lines = run(source, root, variants=2, depth=True, track=True)
    assert any("set: complete already" in line for line in lines)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set", "set-variants", f"set.old-{os.getpid()}"]
    assert tree(root) == tree(paired)
    with pytest.raises(ValueError, match="exists; choose another name or overwrite it"):
        run(source, root, variants=2, depth=True, track=True)


def test_a_link_is_not_overwritten(source: Path, paired: Path, tmp_path: Path) -> None:
    (tmp_path / "set").symlink_to(paired)
    with pytest.raises(ValueError, match="set is a link; name the folder that it leads to; it is not overwritten"):
        run(source, tmp_path / "set", variants=0, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set"]


def test_an_episode_that_was_left_out_is_tried_again(source: Path, paired: Path, stopped: Path, tmp_path: Path) -> None:
    shutil.copytree(stopped, tmp_path / "set.parts")
    outcome = tmp_path / "set.parts" / "000001" / "outcome.json"
    outcome.write_text(json.dumps(json.loads(outcome.read_text()) | {"reason": "no such mesh"}))
    run(source, tmp_path / "set", variants=2, depth=True, track=True)
    assert tree(tmp_path / "set") == tree(paired)


@pytest.mark.parametrize(
    ("given", "destination"),
    [("set", "set"), ("set-variants", "set"), ("set.parts", "set"), ("set", "set/pairs"), ("in/set", "in"), ("a", ".")],
)
def test_a_source_is_never_replaced_by_what_is_made_of_it(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, destination: str
) -> None:
    shutil.copytree(source, tmp_path / given)
    monkeypatch.chdir(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=r"must not contain each other|name a folder to create"):
        run(Path(given), Path(destination), overwrite=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_frame_that_does_not_decode_leaves_its_episode_out(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = VideoFrames.each

    def damaged(video: VideoFrames, stop: int) -> Iterator[np.ndarray]:
        for i, frame in enumerate(whole(video, stop)):
            if video.start_frame == NUM_FRAMES and i == 4:
                raise ValueError("frame 4 is damaged")
            yield frame

    monkeypatch.setattr(VideoFrames, "each", damaged)
    run(source, tmp_path / "set", variants=0)
    assert record(tmp_path / "set")["left_out"] == {"episode_000001": "frame 4 is damaged"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set"]


def test_a_full_disk_is_one_line_and_keeps_finished_episodes(
    source: Path, paired: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = VideoWriter.write

    def full(writer: VideoWriter, frames: np.ndarray) -> None:
        if "000002" in writer.path:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(writer, frames)

    monkeypatch.setattr(VideoWriter, "write", full)
    message = (
        r"set\.parts: episode episode_000002 cannot be written \(No space left on device\); finished episodes are kept"
    )
    with pytest.raises(OSError, match=message):
        run(source, tmp_path / "set", variants=2, depth=True, track=True)
    monkeypatch.undo()
    kept = sorted(path.name for path in (tmp_path / "set.parts").iterdir())
    assert kept == ["000000", "000001", "job.json"]
    assert not (tmp_path / "set.partial").exists()
    run(source, tmp_path / "set", variants=2, depth=True, track=True)
    assert tree(tmp_path / "set") == tree(paired)


def test_a_ray_cluster_changes_no_byte(source: Path, paired: Path, tmp_path: Path) -> None:
    """Its own one, though another was started here; that one, of which only the notice is left, cannot be joined."""
    pytest.importorskip("ray", reason="ray is not installed (extra cluster)")
    # In a process of its own, as a cluster's workers import the package as installed, unchanged by pytest.
    command = [sys.executable, "-m", "simforcing", "simulate", str(source), str(tmp_path / "set")]
    command += ["--variants", "2", "--depth", "--track", "--engine", "ray", "--processes", "2"]
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with tempfile.TemporaryDirectory(prefix="ray") as folder:  # Ray's sockets need a short path
        (Path(folder) / "ray").mkdir()
        (Path(folder) / "ray" / "ray_current_cluster").write_text("127.0.0.1:1")
        environment["RAY_TMPDIR"] = folder
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert tree(tmp_path / "set") == tree(paired)


def test_a_job_is_another_one_when_its_robot_changes_not_when_it_moves(source: Path, tmp_path: Path) -> None:
    def described(name: str, change: str = "") -> str:
        path = tmp_path / f"{name}.py"
        path.write_text(
            "from dataclasses import replace\nfrom simforcing.sim.tabletop_arm import TABLETOP_ARM\n"
            f"ROBOT = replace(TABLETOP_ARM, {change})\n"
        )
        options = SimulateOptions(robot_path=path)
        return plan_pairs(read_lerobot(source), options, report=lambda line: None).fingerprint

    here = described("here")
    assert described("there") == here
    assert described("here", "table_height_m=0.01") != here
    assert described("here", "model=TABLETOP_ARM.model.replace('<geom ', '<geom rgba=\"1 0 0 1\" ', 1)") != here


def test_the_record_says_what_made_the_pictures(paired: Path) -> None:
    found = record(paired)
    assert found["model"]["fingerprint"]
    assert found["model"]["path"] is None  # built in
    assert found["mujoco"]
    assert found["gl"] == os.environ.get("MUJOCO_GL")
    assert found["tracking_limits"]["position_m"] == TrackingLimits().position_m
    assert found == record(variants_root(paired))
    rejected = found["rejected_proposals"]
    assert rejected["count"] == sum(rejected["reasons"].values())
