"""The small student as an environment: its id, starts for it, actions near a pose, and one that is made."""

from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from small_world import picture, small_start, small_world

from simforcing.generation.start import Start
from simforcing.generation.world_model import WorldModel

ID, FPS = "simforcing/WorldModel-v0", 5.0
WORLD = small_world(sim=False)


def starts(model: WorldModel, count: int = 3) -> list[Start]:
    """What this model reads, and nothing besides."""
    spec = model.spec

    def pictures(first: int, views: tuple[str, ...]) -> tuple[np.ndarray, ...]:
        return tuple(picture(first + view) for view in range(len(views)))

    return [
        replace(
            small_start(i),
            images=pictures(10 * i, spec.views),
            sim=pictures(100 + 10 * i, spec.sim_views) or None,
            state=small_start(i).state if spec.state else None,
        )
        for i in range(count)
    ]


def make(model: WorldModel = WORLD, **how: Any) -> Any:
    return gymnasium.make(ID, **{"model": model, "starts": starts(model), **how})


def near(state: np.ndarray, count: int = 4, seed: int = 0) -> np.ndarray:
    """Actions around a pose."""
    moved = state[-1] + np.random.default_rng(seed).uniform(-0.05, 0.05, (count, 7))
    return np.concatenate([moved[:, :6], moved[:, 6:].clip(0, 1)], axis=1).astype(np.float32)
