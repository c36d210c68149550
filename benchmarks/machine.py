"""The machine that a benchmark ran on, in one line, and CPU times of several pieces of work taken in turns.

CPU time of one thread, so that other programs disturb little; ratios are medians of the rounds' own ratios.
"""

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from time import process_time

import torch

WARM_UP_ROUNDS = 2


def describe() -> str:
    """CPU, vector instructions, threads, Python and torch."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    vectors = torch.backends.cpu.get_cpu_capability()
    cpu = f"{names[0] if names else platform.processor()} ({os.cpu_count()} cores), {vectors}"
    return f"{cpu}; {torch.get_num_threads()} thread; Python {platform.python_version()}, torch {torch.__version__}"


def cpu_seconds(work: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """CPU seconds of each piece of work in each round."""
    spent: dict[str, list[float]] = {name: [] for name in work}
    for i in range(rounds + WARM_UP_ROUNDS):
        for name, run in work.items():
            start = process_time()
            run()
            if i >= WARM_UP_ROUNDS:
                spent[name].append(process_time() - start)
    return spent


def median_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    return median(a / b for a, b in zip(above, below, strict=True))


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(describe())
