"""How long the command line and the import take, against an interpreter that does nothing.

    python benchmarks/startup.py

Aims: `simforcing --help` under 0.7 s, `import simforcing` under 0.3 s. Wall time of whole processes, in turns; medians.
"""

import argparse
import subprocess
import sys
from statistics import median
from time import perf_counter

from machine import describe

BASELINE = "python -c pass"
COMMANDS = {
    BASELINE: ["-c", "pass"],
    "python -c 'import simforcing'": ["-c", "import simforcing"],
    "simforcing --help": ["-m", "simforcing", "--help"],
    "python -c 'import torch'": ["-c", "import torch"],
}
AIMS_S = {"python -c 'import simforcing'": 0.3, "simforcing --help": 0.7}


def process_s(arguments: list[str]) -> float:
    """Wall time of one Python process, start to end."""
    start = perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    for arguments in COMMANDS.values():  # files into the page cache, byte code written
        process_s(arguments)
    rounds = [{name: process_s(arguments) for name, arguments in COMMANDS.items()} for _ in range(args.rounds)]
    print(f"python benchmarks/startup.py --rounds {args.rounds}")
    print(f"{describe()}; medians of {args.rounds} rounds, wall time")
    print(f"{'process':34s} {'s':>7s} {'over baseline':>14s}")
    for name in COMMANDS:
        ratio = median(times[name] / times[BASELINE] for times in rounds)
        print(f"{name:34s} {median(times[name] for times in rounds):7.3f} {ratio:13.1f}x")
    for name, aim_s in AIMS_S.items():
        spent_s = median(times[name] for times in rounds)
        print(f"{name} {spent_s:.3f} s; aim {aim_s} s: {'reached' if spent_s < aim_s else 'MISSED'}")


if __name__ == "__main__":
    main()
