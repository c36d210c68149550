"""What tests of `simulate` share: one call of it, and what lies on disk afterwards."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from simforcing.data.pair_record import variants_root
from simforcing.data.windows import MASK_LEVEL
from simforcing.recipes.simulate import SimulateOptions, simulate
from simforcing.types import Episode

NUM_FRAMES, SIZE, NUM_EPISODES = 9, 48, 3


def run(source: Path, destination: Path, **options: Any) -> list[str]:
    """`simulate` in this process with one variant unless told otherwise; returns what it reported."""
    lines: list[str] = []
    execution = {key: options.pop(key) for key in ("processes", "engine", "overwrite") if key in options}
    simulate(
        str(source),
        destination,
        SimulateOptions(**({"variants": 1} | options)),
        **({"processes": 1} | execution),
        report=lines.append,
    )
    return lines


def tree(root: Path) -> dict[str, bytes]:
    """Every file of both sets."""
    sets = [folder for folder in (root, variants_root(root)) if folder.exists()]
    return {
        str(path.relative_to(root.parent)): path.read_bytes() for s in sets for path in s.rglob("*") if path.is_file()
    }


def frames(episode: Episode, view: str) -> np.ndarray:
    return episode.view(view).frames.read(0, episode.num_frames)


def masks(episode: Episode) -> np.ndarray:
    source = episode.view("sim").masks
    assert source is not None
    return source.read(0, episode.num_frames)[..., 0] > MASK_LEVEL


def record(root: Path) -> dict[str, Any]:
    return json.loads((root / "meta" / "simulation.json").read_text())
