"""Training in several processes of one machine without torchrun: small batches gain nothing from threads.

This process is rank 0. The others are given the run, the names of the episodes and the folders on their standard input,
join the same group and write nothing.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from simforcing.recipes.run import Run
from simforcing.types import EpisodeSet, from_json, to_json

INTERRUPTED = (130, -2, -15)  # exit codes of a process that was asked to stop, as this one was


@contextmanager
def side_by_side(run: Run, data: EpisodeSet, out: Path, cache: Path | None, num_processes: int) -> Iterator[None]:
    """Inside, `num_processes - 1` further processes execute the same run, one thread each; this one is rank 0.

    Raises:
        ValueError: fewer than one process, or a batch that they cannot share evenly.
    """
    if num_processes < 1 or run.trainer.batch_size % num_processes:
        raise ValueError(
            f"processes is {num_processes}; expected at least 1 and a divisor of the batch size,"
            f" {run.trainer.batch_size}"
        )
    if num_processes == 1 or "WORLD_SIZE" in os.environ:  # alone, or torchrun has made the group
        yield
        return
    group = {"WORLD_SIZE": str(num_processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    order = {
        "run": to_json(run),
        "data": str(data.root),
        "episodes": [episode.name for episode in data.episodes],
        "out": str(out),
        "cache": None if cache is None else str(cache),
    }
    others = [start_process(group, rank, json.dumps(order)) for rank in range(1, num_processes)]
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    os.environ.update({**group, "RANK": "0", "LOCAL_RANK": "0"})
    try:
        yield
        for other in others:
            other.wait(timeout=60)
    finally:
        for name in (*group, "RANK", "LOCAL_RANK"):
            os.environ.pop(name, None)
        torch.set_num_threads(num_threads)
        for other in others:
            other.kill()


def start_process(group: dict[str, str], rank: int, order: str) -> subprocess.Popen:
    """One further rank, and a thread that ends this process where that one dies: nobody may wait for it in vain."""
    environment = {**os.environ, **group, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"}
    program = "from simforcing.recipes.side_by_side import take_part; take_part()"
    process = subprocess.Popen([sys.executable, "-c", program], env=environment, stdin=subprocess.PIPE, text=True)
    assert process.stdin is not None
    process.stdin.write(order)
    process.stdin.close()
    threading.Thread(target=_watch, args=(process,), daemon=True).start()
    return process


def take_part() -> None:
    """What a further process does: the same run, without a word."""
    from simforcing.data.open import open_dataset
    from simforcing.recipes.execute import execute
    from simforcing.training.interrupt import Interrupted

    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    order: dict[str, Any] = json.loads(sys.stdin.read())
    run = from_json(Run, order["run"])
    data = open_dataset(order["data"])  # all cameras, as the demo does: the fingerprint is of the files that are opened
    names = set(order["episodes"])
    known = replace(data, episodes=tuple(episode for episode in data.episodes if episode.name in names))
    cache = None if order["cache"] is None else Path(order["cache"])
    try:
        execute(run, known, Path(order["out"]), report=lambda line: None, cache=cache)
    except (Interrupted, KeyboardInterrupt):
        raise SystemExit(130) from None


def free_port() -> int:
    """A port of this machine that nobody uses now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def _end_with(parent: int) -> None:
    """End this process when the one that started it is gone, however it went."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _watch(process: subprocess.Popen) -> None:
    code = process.wait()
    if code and code not in (*INTERRUPTED, -9):
        print("simforcing: a process that trained beside this one failed (its own lines stand above)", file=sys.stderr)
        os._exit(1)  # locks are the system's, files are whole: the same command goes on
