"""An ordered pool of processes: results come in the order of their jobs and equal those of a single process.

Processes are spawned (an OpenGL context does not survive a fork) and end with the one that started them.
"""

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")
JOBS_AHEAD = 3  # per process: keeps them busy without holding all results in memory


def in_order(
    jobs: Iterable[Job], function: Callable[[Job], Result], *, num_processes: int | None = None
) -> Generator[Result, None, None]:
    """`function` of every job, in the order of the jobs, computed side by side.

    Jobs are drawn a few ahead of what was taken. Close the generator (`contextlib.closing`) where it may be left early:
    jobs that have begun are waited for, others are not begun.

    Args:
        function: of a module's top level, as it is sent to other processes by name; jobs and results are pickled.
        num_processes: all usable cores where None; 1 computes in this process.

    Raises:
        ValueError: num_processes below 1, at once.
        RuntimeError: a process died; what `function` raises is raised here for its job.
    """
    num_processes = usable_processes(num_processes)
    return (function(job) for job in jobs) if num_processes == 1 else _pooled(jobs, function, num_processes)


def usable_processes(num_processes: int | None) -> int:
    """The number itself, or the cores that this process may use where None. ValueError below 1."""
    if num_processes is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if num_processes < 1:
        raise ValueError(f"num_processes {num_processes}: must be at least 1")
    return num_processes


def _pooled(
    jobs: Iterable[Job], function: Callable[[Job], Result], num_processes: int
) -> Generator[Result, None, None]:
    spawning = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(num_processes, mp_context=spawning, initializer=_initialise)
    waiting: deque[Future[Result]] = deque()
    taken = 0
    try:
        for job in jobs:
            waiting.append(pool.submit(function, job))
            if len(waiting) >= JOBS_AHEAD * num_processes:
                yield waiting.popleft().result()
                taken += 1
        while waiting:
            yield waiting.popleft().result()
            taken += 1
    except BrokenProcessPool as error:
        raise RuntimeError(
            f"one of {num_processes} processes ended without an answer (killed, or out of memory) after {taken} jobs;"
            " try fewer processes"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _initialise() -> None:
    """Leave Ctrl-C to the parent, and do not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
    os._exit(1)
