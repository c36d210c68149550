"""Simulates the table top as data sets, with an estimate first."""

import time
from pathlib import Path

from simforcing.data.convert import BYTES_PER_PIXEL, SET_BYTES, check_free_space
from simforcing.data.tabletop import TabletopSets
from simforcing.recipes.output import require_writable
from simforcing.sim.workers import usable_processes
from simforcing.types import check_seed
from simforcing.types.progress import Report, in_words, throttled

TRUTH_BYTES_PER_PIXEL = 0.6  # masks as video, and depth without loss


def simulate_tabletop(sets: TabletopSets, root: Path, *, overwrite: bool = False, report: Report) -> None:
    """Write the sets under `root`, after saying what they cost.

    Raises:
        ValueError: a set is there already, or something else is in the way.
        OSError: the disk has too little room.
        RuntimeError: OpenGL is missing, or a simulation process died.
    """
    root = Path(root)
    check_seed(sets.seed)
    require_writable(root)
    if not overwrite:
        sets.refuse_existing(root)
    num_bytes = tabletop_bytes(sets)
    check_free_space(root, num_bytes)
    report(f"{root}: about {in_words(tabletop_seconds(sets))} on this machine, {num_bytes / 1e6:.1f} MB of disk")
    sets.write(root, throttled(report, "simulated", "episodes"), overwrite=overwrite)
    report(f"{root}: {sets.num_written} episodes written")


def tabletop_seconds(sets: TabletopSets) -> float:
    """One episode is simulated (after a first one, which also sets up the renderer) and timed."""
    simulator = sets.simulator.build()
    try:
        simulator.episode(seed=sets.seed, index=0)
        begun = time.monotonic()
        simulator.episode(seed=sets.seed, index=1)
        episode_s = time.monotonic() - begun
    finally:
        simulator.close()
    return episode_s * sets.num_written / usable_processes(sets.num_processes)


def tabletop_bytes(sets: TabletopSets) -> float:
    """Of all videos and tables, an upper bound."""
    simulator = sets.simulator
    per_pixel = BYTES_PER_PIXEL * (1.0 if simulator.real.appearance == "none" else 1.5)
    if simulator.truth:
        per_pixel += TRUTH_BYTES_PER_PIXEL
    pixels = simulator.num_frames * simulator.size_px**2
    return len(sets.names) * SET_BYTES + sets.num_written * pixels * per_pixel
