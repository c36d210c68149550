"""Jobs on this machine's cores or on a Ray cluster: the same functions, results in the order of their jobs.

There is no scheduler here: Ray places the tasks. Files that jobs read and write must be reachable from every node.
"""

import logging
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Any, Literal, TypeVar

from simforcing.sim.workers import JOBS_AHEAD, in_order, usable_processes

Engine = Literal["local", "ray"]
Job = TypeVar("Job")
Result = TypeVar("Result")
# What a job's process must find in its environment before it imports anything.
KEPT_VARIABLES = (
    "MUJOCO_GL",
    "LP_NUM_THREADS",
    "OMP_NUM_THREADS",
    "PYTHONPATH",
    "ROBOT_DESCRIPTIONS_CACHE",
    "SIMFORCING_ROBOTS",
)


def run_jobs(
    jobs: Iterable[Job],
    function: Callable[[Job], Result],
    *,
    engine: Engine = "local",
    num_processes: int | None = None,
) -> Generator[Result, None, None]:
    """`function` of every job, in the order of the jobs, computed side by side; a few are drawn ahead.

    Args:
        function: of a module's top level.
        engine: processes of this machine, or tasks of the Ray cluster that RAY_ADDRESS names. Without it one is started
            on this machine and stopped in the end, even where another one runs here already.
        num_processes: local: all usable cores where None. ray: tasks in flight; None: thrice the cluster's cores.

    Raises:
        ValueError: unknown engine, or num_processes below 1.
        RuntimeError: a process died; what `function` raises is raised here.
        ModuleNotFoundError: ray is not installed.
    """
    if engine == "local":
        return in_order(jobs, function, num_processes=num_processes)
    if engine == "ray":
        return _on_ray(jobs, function, None if num_processes is None else usable_processes(num_processes))
    raise ValueError(f"unknown engine {engine!r}; choices: local, ray")


def _on_ray(
    jobs: Iterable[Job], function: Callable[[Job], Result], num_processes: int | None
) -> Generator[Result, None, None]:
    import ray  # pyright: ignore[reportMissingImports] - in the extra cluster

    was_running = ray.is_initialized()
    if not was_running:
        kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        # Without an address Ray would join a cluster that somebody left running here, and refuse `num_cpus`.
        where: dict[str, Any] = {"address": "local", "num_cpus": usable_processes(num_processes)}
        ray.init(
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            runtime_env={"env_vars": kept},
            **({} if os.environ.get("RAY_ADDRESS") else where),
        )
    waiting: deque[Any] = deque()
    try:
        task = ray.remote(function)
        ahead = JOBS_AHEAD * int(ray.cluster_resources().get("CPU", 1)) if num_processes is None else num_processes
        for job in jobs:
            waiting.append(task.remote(job))
            if len(waiting) >= ahead:
                yield _result(ray, waiting.popleft())
        while waiting:
            yield _result(ray, waiting.popleft())
    finally:
        for reference in waiting:
            ray.cancel(reference)
        if not was_running:
            ray.shutdown()


def _result(ray: Any, reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        reason = " ".join(str(error).split())
        raise RuntimeError(f"a Ray task ended without an answer ({reason:.300})") from error
