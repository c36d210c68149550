"""Two processes of one thread train as one does, and nobody is left waiting."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simforcing.data.open import open_dataset
from simforcing.recipes.execute import execute
from simforcing.recipes.run import RunOptions
from simforcing.recipes.side_by_side import side_by_side
from simforcing.recipes.train import planned
from simforcing.training.log import read_log


def quiet(line: str) -> None:
    """Nobody reads it."""


def test_two_processes_train_as_one_does(paired: Path, tmp_path: Path):
    data = open_dataset(paired)
    run = planned("teacher", data, RunOptions(scale="debug", held_out=1, num_steps=6))
    losses = []
    for count in (1, 2):
        out = tmp_path / str(count)
        with side_by_side(run, data, out, None, count):
            execute(run, data, out, report=quiet)
        losses.append([record["loss"] for record in read_log(out / "log.jsonl")])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert "WORLD_SIZE" not in os.environ


def test_processes_that_cannot_share_a_batch_are_refused(paired: Path, tmp_path: Path):
    data = open_dataset(paired)
    run = planned("teacher", data, RunOptions(scale="debug", held_out=1))
    for count in (0, 3):
        with (
            pytest.raises(ValueError, match=f"processes is {count}; expected at least 1 and a divisor"),
            side_by_side(run, data, tmp_path, None, count),
        ):
            pass


def test_a_killed_run_leaves_no_process_behind(paired: Path, tmp_path: Path):
    program = f"""
from pathlib import Path
from simforcing.data.open import open_dataset
from simforcing.recipes.execute import execute
from simforcing.recipes.run import RunOptions
from simforcing.recipes.side_by_side import side_by_side
from simforcing.recipes.train import planned
data = open_dataset({str(paired)!r})
run = planned("teacher", data, RunOptions(scale="debug", held_out=1, num_steps=100000))
out = Path({str(tmp_path / "run")!r})
with side_by_side(run, data, out, None, 2):
    execute(run, data, out, report=lambda line: None)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while not read_log(tmp_path / "run" / "log.jsonl"):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        (other,) = children_of(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
        while Path(f"/proc/{other}").exists() and not is_zombie(other):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        process.kill()


def children_of(pid: int) -> list[int]:
    """Processes that this one started (Linux)."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    if not path.exists():
        pytest.skip("needs /proc")
    return [int(word) for word in path.read_text().split()]


def is_zombie(pid: int) -> bool:
    """Whether a process has ended and only its entry is left."""
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True
