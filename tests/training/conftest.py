"""Makes the small training problem importable by the tests here and by the processes that they start."""

import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


class Training:
    """The small problem in a process of its own, which can be asked to stop or killed."""

    def __init__(self, run_dir: Path, told: Path, environment: dict[str, str], fields: dict[str, object]) -> None:
        import training_problem

        self.run_dir, self.told_path = run_dir, told
        context = multiprocessing.get_context("forkserver")
        # Imported once for all processes; AdamW imports torch._dynamo when it is first made.
        context.set_forkserver_preload(["torch._dynamo", "simforcing.training.trainer"])
        target = training_problem.train_small_in_a_process
        self.process = context.Process(target=target, args=(run_dir, told, environment, fields))
        self.process.start()

    def wait(self, timeout_s: float = 120) -> tuple[int, str]:
        """Exit code (minus the signal's number where one ended it) and standard error."""
        self.process.join(timeout_s)
        code = self.process.exitcode
        assert code is not None, f"still running after {timeout_s} s: {self.told_path.read_text()}"
        return code, self.told_path.read_text() if self.told_path.exists() else ""

    def wait_for_records(self, num_records: int) -> None:
        """Return when the log has so many records more than now."""
        log = self.run_dir / "log.jsonl"

        def count() -> int:
            return log.read_bytes().count(b"\n") if log.exists() else 0

        changed_ns, deadline_s = log.stat().st_mtime_ns if log.exists() else 0, time.monotonic() + 120
        while not log.exists() or log.stat().st_mtime_ns == changed_ns or count() < num_records:
            assert time.monotonic() < deadline_s, "no step within two minutes"
            assert self.process.is_alive(), self.wait()
            time.sleep(0.001)

    def send(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)


@pytest.fixture
def start_training(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Training]]:
    """start_training(run_dir, environment, num_steps=9, ...): see training_problem.train_small for the fields."""
    started: list[Training] = []
    folder = tmp_path_factory.mktemp("told")

    def start(run_dir: Path, environment: dict[str, str] | None = None, **fields: object) -> Training:
        started.append(Training(run_dir, folder / f"{len(started)}.txt", environment or {}, fields))
        return started[-1]

    yield start
    for training in started:
        training.process.kill()
        training.process.join()
