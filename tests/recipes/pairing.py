"""What tests of `simulate` share: one call of it, and what lies on disk afterwards."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from simforcing.data.lerobot import read_lerobot
from simforcing.data.pair_streams import variants_root
from simforcing.data.tabletop import VIEW
from simforcing.data.windows import MASK_LEVEL
from simforcing.recipes.simulate import SimulateOptions, simulate
from simforcing.types import Episode
from simforcing.types.calibration import Calibration, EpisodeFit, GroupFit, write_calibration

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


def calibration_of(
    source: Path, path: Path, *, lag: int = 0, reject: str = "", fitted_frames: tuple[int, ...] = (), **changes: Any
) -> Path:
    """A calibration file with the true cameras, one group per episode."""
    data = read_lerobot(source)
    groups = tuple(
        GroupFit(
            name=episode.name,
            camera=episode.view(VIEW).camera,
            lag=lag,
            episodes=(
                EpisodeFit(
                    name=episode.name,
                    accepted=episode.name != reject,
                    iou=0.9,
                    fitted_frames=fitted_frames,
                    reason="never in view" if episode.name == reject else "",
                ),
            ),
        )
        for episode in data.episodes
    )
    fitted = Calibration(
        data=str(source),
        fingerprint=data.fingerprint,
        view=VIEW,
        robot="tabletop_arm",
        groups=groups,
        seed=0,
        settings={},
    )
    write_calibration(path, replace(fitted, **changes))
    return path
