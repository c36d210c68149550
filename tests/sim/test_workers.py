"""The ordered pool: the answers of one process, errors in their place, and no process left behind."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from simforcing.sim.workers import JOBS_AHEAD, in_order, usable_processes


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch, project_root: Path):
    """Other processes import the functions below by this module's name, wherever pytest was started from."""
    monkeypatch.syspath_prepend(project_root)


def slower_when_even(job: int) -> tuple[int, int]:
    time.sleep(0.0 if job % 2 else 0.02)
    return job * job, os.getpid()


def failing_at_three(job: int) -> int:
    if job == 3:
        raise ValueError(f"job {job} is bad")
    return job


def dying_at_three(job: int) -> int:
    if job == 3:
        os._exit(9)
    return job


def test_results_come_in_the_order_of_jobs_from_several_processes():
    results = list(in_order(range(12), slower_when_even, num_processes=2))
    assert [square for square, _ in results] == [job * job for job in range(12)]
    assert len({pid for _, pid in results} - {os.getpid()}) == 2


def test_one_process_is_this_one():
    assert {pid for _, pid in in_order(range(3), slower_when_even, num_processes=1)} == {os.getpid()}


@pytest.mark.parametrize("num_processes", [1, 2])
def test_what_a_job_raises_is_raised_in_its_place(num_processes: int):
    results = in_order(range(6), failing_at_three, num_processes=num_processes)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="job 3 is bad"):
        next(results)


def test_a_process_that_dies_is_reported_in_one_line():
    with pytest.raises(RuntimeError, match="one of 2 processes ended without an answer"):
        list(in_order(range(8), dying_at_three, num_processes=2))


def test_jobs_are_drawn_only_a_few_ahead():
    drawn: list[int] = []

    def jobs() -> Iterator[int]:
        for job in range(100):
            drawn.append(job)
            yield job

    with closing(in_order(jobs(), failing_at_three, num_processes=2)) as results:
        next(results)
    assert len(drawn) <= 2 * JOBS_AHEAD + 1


def test_number_of_processes_below_one_is_refused_at_once():
    with pytest.raises(ValueError, match="num_processes 0"):
        in_order([], slower_when_even, num_processes=0)
    assert usable_processes(None) >= 1


def test_processes_end_with_the_one_that_started_them(tmp_path):
    pids = tmp_path / "pids"
    script = tmp_path / "start.py"
    script.write_text(
        "import os, signal, sys, time\n"
        "from pathlib import Path\n"
        "from simforcing.sim.workers import in_order\n"
        "def note(job):\n"
        f"    with open({str(pids)!r}, 'a') as file: file.write(f'{{os.getpid()}}\\n')\n"
        "    time.sleep(0.2)\n"
        "if __name__ == '__main__':\n"
        "    results = in_order(range(100), note, num_processes=2)\n"
        "    next(results)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, script], check=False, stderr=subprocess.DEVNULL)
    assert killed.returncode == -9
    started = {int(line) for line in pids.read_text().split()}
    deadline_s = time.monotonic() + 10
    while time.monotonic() < deadline_s and any(is_running(pid) for pid in started):
        time.sleep(0.05)
    assert not [pid for pid in started if is_running(pid)]


def is_running(pid: int) -> bool:
    """A process that ended but was not waited for does not count."""
    if sys.platform == "linux":
        try:
            with open(f"/proc/{pid}/stat") as file:
                return file.read().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
