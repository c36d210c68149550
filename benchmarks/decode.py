"""Reading one window against decoding its whole episode, as ratios in one run; frames per second of the loader.

    OMP_NUM_THREADS=1 python benchmarks/decode.py

Our own files have a keyframe every 2 frames (aim: at least 5x for 21 of 200 frames); foreign files often have one.
"""

import argparse
import os
import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path
from time import process_time

import numpy as np

from simforcing.data.lerobot import read_lerobot
from simforcing.data.lerobot_writer import LeRobotWriter
from simforcing.data.video import VideoFrames
from simforcing.types import Episode, Layout, Part

NUM_FRAMES, WINDOW = 200, 21
AIM = 5.0
LAYOUT = Layout(name="benchmark", parts=(Part(kind="translation", size=3),))


def moving_picture(size: int, seed: int) -> np.ndarray:
    """200 frames of a smooth background with moving blocks and sensor noise."""
    rng = np.random.default_rng(seed)
    x = np.linspace(0, 6, size)
    background = 120 + 50 * np.sin(x)[:, None] + 50 * np.cos(1.3 * x)[None]
    frames = np.repeat(background[None, ..., None], NUM_FRAMES, axis=0).repeat(3, axis=3)
    block = size // 6
    for i in range(NUM_FRAMES):
        row, column = (np.array([i * 0.7, i * 1.1]) * size / 64).astype(int) % (size - block)
        frames[i, row : row + block, column : column + block] = rng.integers(0, 255, 3)
    frames += rng.normal(0, 3, (NUM_FRAMES, size, size, 1))
    return frames.clip(0, 255).astype(np.uint8)


def write_set(root: Path, size: int, codec: str, version: str, num_episodes: int) -> list[Episode]:
    """Episodes of 200 frames, written by us and opened again."""
    views = {"front": (size, size)}
    with LeRobotWriter(root, fps=5, views=views, action_layout=LAYOUT, codec=codec, version=version) as writer:
        for seed in range(num_episodes):
            action = np.zeros((NUM_FRAMES, 3), np.float32)
            writer.add(frames={"front": moving_picture(size, seed)}, action=action)
    return list(read_lerobot(root).episodes)


def seconds(work: Callable[[], object]) -> float:
    """CPU time of one call, of all its threads, so that other programs disturb little."""
    start = process_time()
    work()
    return process_time() - start


def compare(sources: list[VideoFrames], num_windows: int) -> tuple[float, float, float]:
    """Medians in ms of one window and one whole episode, read in turns, and the median of their ratios."""
    rng = np.random.default_rng(0)
    window_s, whole_s = [], []
    for _ in range(num_windows):
        source = sources[rng.integers(len(sources))]
        length = min(WINDOW, source.num_frames)
        start = int(rng.integers(source.num_frames - length + 1))
        window_s.append(seconds(lambda s=source, a=start, b=start + length: s.read(a, b)))
        whole_s.append(seconds(lambda s=source: s.read(0, s.num_frames)))
    ratios = np.array(whole_s) / np.array(window_s)
    return 1e3 * float(np.median(window_s)), 1e3 * float(np.median(whole_s)), float(np.median(ratios))


def row(name: str, sources: list[VideoFrames], num_windows: int) -> float:
    """Print one line of the table and return its ratio."""
    window_ms, whole_ms, ratio = compare(sources, num_windows)
    print(f"{name:44s} {window_ms:9.2f} {whole_ms:9.2f} {ratio:7.2f}x {WINDOW / window_ms * 1e3:10.0f}", flush=True)
    return ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--windows", type=int, default=60, help="windows per line")
    shared = os.environ.get("SIMFORCING_SHARED", Path(__file__).resolve().parents[2] / "shared")
    parser.add_argument(
        "--foreign", type=Path, default=Path(shared) / "data", help="folder of other people's mp4 files"
    )
    args = parser.parse_args()
    print(f"windows of {WINDOW} frames; CPU time, medians of {args.windows} windows read in turns with whole episodes")
    print(f"{'files':44s} {'window ms':>9s} {'whole ms':>9s} {'ratio':>8s} {'frames/s':>10s}")
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        for size, codec, version in product((64, 256), ("h264", "av1"), ("v2.1", "v3.0")):
            root = Path(folder) / f"{size}-{codec}-{version}"
            episodes = write_set(root, size, codec, version, num_episodes=4 if size == 256 else 10)
            sources = [episode.views[0].frames for episode in episodes]
            name = f"ours {codec} {size}x{size}, {'one file' if version == 'v3.0' else 'file each'}"
            ratios.append(row(name, sources, args.windows))
    for group in sorted(path for path in args.foreign.glob("*") if path.is_dir()):
        paths = sorted(group.rglob("*.mp4"))
        if paths:
            sources = [VideoFrames(path) for path in paths]
            row(f"foreign {group.name}, {len(paths)} files", sources, args.windows)
    verdict = "reached" if min(ratios) >= AIM else "MISSED"
    print(f"smallest ratio in our files {min(ratios):.2f}x; aim {AIM:.0f}x: {verdict}")


if __name__ == "__main__":
    main()
