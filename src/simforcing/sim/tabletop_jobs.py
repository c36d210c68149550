"""Tabletop episodes in parallel processes: in order, and equal to those of a single one."""

from collections.abc import Generator, Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Literal

from simforcing.sim.tabletop import SimulatedEpisode, Tabletop, TabletopConfig
from simforcing.sim.workers import in_order


@dataclass(frozen=True, kw_only=True)
class Job:
    """One episode of the set with that seed, a held-out one, or all branches of one start."""

    kind: Literal["episode", "held_out", "counterfactuals"]
    seed: int
    index: int


_simulators: dict[TabletopConfig, Tabletop] = {}  # of this process, kept from job to job


def simulate_jobs(
    config: TabletopConfig, jobs: Iterable[Job], *, num_processes: int | None = None
) -> Generator[tuple[SimulatedEpisode, ...], None, None]:
    """The episodes of every job, in order, whatever the number of processes; see `workers.in_order`."""
    try:
        with closing(in_order(jobs, partial(_simulate_job, config), num_processes=num_processes)) as results:
            yield from results
    finally:
        if config in _simulators:
            _simulators.pop(config).close()


def _simulate_job(config: TabletopConfig, job: Job) -> tuple[SimulatedEpisode, ...]:
    if config not in _simulators:
        _simulators[config] = config.build()
    simulator = _simulators[config]
    if job.kind == "counterfactuals":
        return simulator.counterfactuals(seed=job.seed, index=job.index)
    return (simulator.episode(seed=job.seed, index=job.index, held_out=job.kind == "held_out"),)
