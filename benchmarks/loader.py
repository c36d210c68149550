"""Loading against training: clips per second of the data path of the table-top run, beside its training step.

    OMP_NUM_THREADS=1 python benchmarks/loader.py

A run decodes and encodes each window once, keeps latents, and from then on a step only gathers rows and draws noise.
Aim: either way the loader is faster than the training step, so that it is never the bottleneck.
"""

import argparse
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from statistics import median

import torch
from machine import cpu_seconds, describe, median_ratio

from simforcing.data.clips import Clips
from simforcing.data.latents import LatentWindows, encode_clips
from simforcing.data.open import open_dataset
from simforcing.data.tabletop import TabletopSets
from simforcing.recipes.run import Run, RunOptions
from simforcing.recipes.tabletop import tabletop
from simforcing.training.draws import draw, window_indices
from simforcing.types import Episode

NUM_EPISODES = 12
STEP = "training step"
AIM = 1.0


def pieces(run: Run, episodes: list[Episode]) -> dict[str, Callable[[], object]]:
    """Name -> one batch of that piece of the data path, and of the training step."""
    clips = Clips(episodes, run.spec, stride=run.window_stride)
    torch.manual_seed(0)
    autoencoder = run.autoencoder.config.build()
    windows = LatentWindows.encode(clips, autoencoder, run.spec)
    model, size = run.model.build(), run.trainer.batch_size
    steps = count()
    decoded = [clips[i] for i in range(size)]

    def indices(step: int) -> list[int]:
        return window_indices(windows.num_windows, size, run.seed, step)

    def load() -> None:
        step = next(steps)
        draw(windows.batch(indices(step)), run.seed, step, range(size))

    batch = windows.batch(indices(0))
    draws = draw(batch, run.seed, 0, range(size))

    def train() -> None:
        model.zero_grad()
        run.objective(model, batch, draws).total.backward()

    return {
        "decode windows (once a run)": lambda: [clips[i] for i in indices(next(steps))],
        "encode windows (once a run)": lambda: encode_clips(decoded, autoencoder),
        "gather latents and draw noise (every step)": load,
        STEP: train,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        TabletopSets(num_episodes=NUM_EPISODES, seed=0).write(Path(folder))
        data = open_dataset(str(Path(folder) / "episodes"))
        run = tabletop(data, RunOptions())
        spent = cpu_seconds(pieces(run, list(data.episodes)), args.rounds)
    size = run.trainer.batch_size
    print(f"OMP_NUM_THREADS=1 python benchmarks/loader.py --rounds {args.rounds}")
    print(f"{describe()}; medians of {args.rounds} rounds, CPU time")
    print(f"{f'batches of {size} windows':46s} {'ms':>8s} {'clips/s':>9s} {'over training':>14s}")
    for name, times in spent.items():
        rate = size / median(times)
        print(f"{name:46s} {1e3 * median(times):8.2f} {rate:9.0f} {median_ratio(spent[STEP], times):13.1f}x")
    slowest = min(median_ratio(spent[STEP], times) for name, times in spent.items() if name != STEP)
    print(f"slowest piece {slowest:.1f}x the training rate; aim {AIM:.0f}x: {'reached' if slowest > AIM else 'MISSED'}")


if __name__ == "__main__":
    main()
