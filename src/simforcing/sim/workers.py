"""Simulation in parallel processes: episodes come in order and equal those of a single process, whatever their number.

Processes are spawned (an OpenGL context does not survive a fork) and end with the one that started them.
"""

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Literal

from simforcing.sim.tabletop import SimulatedEpisode, Tabletop, TabletopConfig

Method = Literal["episode", "counterfactuals"]
JOBS_AHEAD = 3  # per process: keeps them busy without holding a whole data set in memory

_simulators: dict[TabletopConfig, Tabletop] = {}


class Workers:
    """Simulators in `num_processes` processes (all usable cores where None; 1 simulates in this process).

    Use as a context manager. Raises ValueError for a number below 1; RuntimeError where a process dies.
    """

    def __init__(self, config: TabletopConfig, *, num_processes: int | None = None) -> None:
        num_processes = _num_cores() if num_processes is None else num_processes
        if num_processes < 1:
            raise ValueError(f"num_processes {num_processes}: must be at least 1")
        self.config, self.num_processes = config, num_processes
        self._pool: ProcessPoolExecutor | None = None

    def episodes(self, *, seed: int, num_episodes: int) -> Generator[SimulatedEpisode, None, None]:
        """Episodes 0 .. num_episodes - 1 of the set with that seed."""
        for episodes in self._in_order("episode", seed, num_episodes):
            yield from episodes

    def counterfactuals(self, *, seed: int, num_starts: int) -> Generator[SimulatedEpisode, None, None]:
        """The branches of starts 0 .. num_starts - 1, start by start."""
        for episodes in self._in_order("counterfactuals", seed, num_starts):
            yield from episodes

    def __enter__(self) -> "Workers":
        if self.num_processes > 1:
            self._pool = ProcessPoolExecutor(
                self.num_processes, mp_context=multiprocessing.get_context("spawn"), initializer=_initialise
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        elif self.config in _simulators:
            _simulators.pop(self.config).close()

    def _in_order(
        self, method: Method, seed: int, num_jobs: int
    ) -> Generator[tuple[SimulatedEpisode, ...], None, None]:
        if self._pool is None:
            for index in range(num_jobs):
                yield _simulate(self.config, method, seed, index)
            return
        waiting: deque[Future[tuple[SimulatedEpisode, ...]]] = deque()
        try:
            for index in range(num_jobs):
                waiting.append(self._pool.submit(_simulate, self.config, method, seed, index))
                if len(waiting) >= JOBS_AHEAD * self.num_processes:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise RuntimeError(
                f"a simulation process ended without an answer (killed, or out of memory) while simulating"
                f" {num_jobs} jobs in {self.num_processes} processes; try fewer processes"
            ) from error


def _simulate(config: TabletopConfig, method: Method, seed: int, index: int) -> tuple[SimulatedEpisode, ...]:
    if config not in _simulators:
        _simulators[config] = config.build()
    simulator = _simulators[config]
    if method == "episode":
        return (simulator.episode(seed=seed, index=index),)
    return simulator.counterfactuals(seed=seed, index=index)


def _initialise() -> None:
    """Leave Ctrl-C to the parent, and do not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
    os._exit(1)


def _num_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
