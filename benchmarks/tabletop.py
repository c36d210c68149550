"""Simulated and rendered frames per second of the table top's domains, by one process, without video encoding.

    python benchmarks/tabletop.py

CPU time of whole episodes of 33 frames, medians over episodes; the same episodes in every domain.
"""

import argparse
from statistics import median
from time import process_time

from machine import describe

from simforcing.sim.real_like import RealLike
from simforcing.sim.tabletop import Tabletop, TabletopConfig

HARD = RealLike(appearance="full", actuator_lag=1, stiction_rad=0.02, frame_lag=1, camera_error_px=3.0)
DOMAINS = {
    "plain": (RealLike(), False),
    "light": (RealLike(appearance="light"), False),
    "full, all knobs": (HARD, False),
    "full, all knobs, --truth": (HARD, True),
}


def frames_per_s(simulator: Tabletop, index: int) -> float:
    """Of one episode."""
    begun_s = process_time()
    episode = simulator.episode(seed=0, index=index)
    return len(episode.frames) / (process_time() - begun_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    args = parser.parse_args()
    print(f"python benchmarks/tabletop.py --rounds {args.rounds}")
    print(f"{describe()}; frames/s, medians of {args.rounds} episodes")
    for size_px in (64, 128):
        for name, (real, truth) in DOMAINS.items():
            simulator = TabletopConfig(size_px=size_px, real=real, truth=truth).build()
            frames_per_s(simulator, 0)
            speed = median(frames_per_s(simulator, index) for index in range(1, args.rounds + 1))
            simulator.close()
            print(f"{size_px:4d} {name:26s} {speed:6.0f}")


if __name__ == "__main__":
    main()
