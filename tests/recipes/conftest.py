"""A small simulated set and a finished debug run, made once; and a set in memory that needs no renderer."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent))  # pairing.py
from pairing import NUM_EPISODES as NUM_PAIRS
from pairing import NUM_FRAMES as PAIR_FRAMES
from pairing import SIZE as PAIR_SIZE
from pairing import run as simulate_pairs

from simforcing.data.open import open_dataset
from simforcing.data.tabletop import TabletopSets
from simforcing.data.video import ArrayFrames
from simforcing.recipes import PAIRED, TAUGHT, recipe_named
from simforcing.recipes.execute import execute
from simforcing.recipes.run import Run, RunOptions
from simforcing.recipes.train import planned
from simforcing.sim.tabletop import TabletopConfig
from simforcing.types import Camera, Episode, EpisodeSet, View, layout_named

NUM_FRAMES, SIDE = 13, 32


@pytest.fixture(scope="session")
def tabletop_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six episodes and one counterfactual start of the simulated table top."""
    root = tmp_path_factory.mktemp("tabletop")
    TabletopSets(
        num_episodes=6,
        num_counterfactual_starts=2,
        seed=0,
        simulator=TabletopConfig(num_frames=NUM_FRAMES, size_px=SIDE),
        num_processes=1,
    ).write(root)
    return root


@pytest.fixture(scope="session")
def debug_run(tabletop_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the debug recipe on it."""
    out = tmp_path_factory.mktemp("run") / "debug"
    data = open_dataset(tabletop_root / "episodes")
    execute(recipe_named("debug")(data, RunOptions(held_out=2)), data, out, report=lambda line: None)
    return out


@pytest.fixture(scope="session")
def square_set() -> EpisodeSet:
    """A bright square that goes where absolute actions say; arrays in memory, the same on every machine."""
    layout = layout_named("tabletop")
    episodes = []
    for index in range(5):
        rng = np.random.default_rng(index)
        corner = np.stack([np.linspace(*rng.uniform(2, 22, 2), NUM_FRAMES) for _ in range(2)], axis=1)
        frames = np.full((NUM_FRAMES, SIDE, SIDE, 3), 60, np.uint8)
        for frame, (row, column) in zip(frames, corner.round().astype(int), strict=True):
            frame[row : row + 8, column : column + 8] = (220, 120, 40)
        state = np.zeros((NUM_FRAMES, 7), np.float32)
        state[:, :2] = corner / 100
        times = np.arange(NUM_FRAMES) / 5
        episodes.append(
            Episode(
                name=f"square {index}",
                task="move the square",
                fps=5.0,
                num_frames=NUM_FRAMES,
                views=(View(name="front", frames=ArrayFrames(frames)),),
                action=np.concatenate([state[1:], state[-1:]]),
                action_time_s=times,
                state=state,
                state_time_s=times,
            )
        )
    return EpisodeSet(
        root="squares",
        kind="arrays",
        episodes=tuple(episodes),
        rejected=(),
        warnings=(),
        action_layout=layout,
        state_layout=layout,
        robot=None,
        fingerprint="squares-1",
    )


@pytest.fixture(scope="session")
def square_pairs(square_set: EpisodeSet) -> EpisodeSet:
    """The squares as pairs: `real` with a striped floor and another colour, `sim` the square alone on grey."""
    pose = np.eye(4)
    pose[:3, :3] = np.array([[0, 1, 0], [1, 0, 0], [0, 0, -1]])  # from above: columns along y, rows along x
    pose[:3, 3] = (0, 0, 1)
    camera = Camera(size=(SIDE, SIDE), intrinsics=np.diag([100.0, 100.0, 1.0]), pose=pose)
    stripes = np.indices((SIDE, SIDE)).sum(axis=0) % 8 < 4
    episodes = []
    for episode in square_set.episodes:
        frames = episode.views[0].frames.read(0, NUM_FRAMES)
        square = (frames == (220, 120, 40)).all(axis=-1)[..., None]
        real = np.where(square, (200, 60, 60), np.where(stripes[..., None], 90, 50)).astype(np.uint8)
        sim = np.where(square, (230, 130, 50), 128).astype(np.uint8)
        mask = np.repeat(np.where(square, 255, 0).astype(np.uint8), 3, axis=-1)
        views = (
            View(name="real", frames=ArrayFrames(real), camera=camera),
            View(name="sim", frames=ArrayFrames(sim), camera=camera, masks=ArrayFrames(mask)),
        )
        episodes.append(replace(episode, views=views))
    return replace(square_set, root="square pairs", episodes=tuple(episodes), fingerprint="square-pairs-1")


@pytest.fixture(scope="session")
def square_teacher(square_pairs: EpisodeSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of recipe teacher on them."""
    out = tmp_path_factory.mktemp("squares") / "teacher"
    run = recipe_named("teacher")(square_pairs, RunOptions(scale="debug", held_out=1))
    execute(run, square_pairs, out, report=lambda line: None)
    return out


@pytest.fixture(scope="session")
def planned_run(square_set: EpisodeSet, square_pairs: EpisodeSet, square_teacher: Path) -> Callable[..., Run]:
    """recipe, options -> its run on the squares, from the teacher's run where it needs one, at the debug scale."""

    def plan(name: str, **options: Any) -> Run:
        if name not in PAIRED:
            return recipe_named(name)(square_set, RunOptions(**options))
        teacher = str(square_teacher) if name in TAUGHT else None
        return planned(name, square_pairs, RunOptions(scale="debug", teacher=teacher, **{"held_out": 1, **options}))

    return plan


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few short episodes of the table top, to be simulated."""
    root = tmp_path_factory.mktemp("to_pair")
    TabletopSets(
        num_episodes=NUM_PAIRS,
        seed=3,
        simulator=TabletopConfig(num_frames=PAIR_FRAMES, size_px=PAIR_SIZE),
        num_processes=1,
    ).write(root)
    return root / "episodes"


@pytest.fixture(scope="session")
def paired(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The paired set of it, with two variants of each episode, depth and track."""
    root = tmp_path_factory.mktemp("paired") / "set"
    simulate_pairs(source, root, variants=2, depth=True, track=True)
    return root


@pytest.fixture(scope="session")
def student(planned_run, square_pairs: EpisodeSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished student of the squares."""
    out = tmp_path_factory.mktemp("student") / "run"
    execute(planned_run("student"), square_pairs, out, report=lambda line: None)
    return out


@pytest.fixture
def files(square_pairs: EpisodeSet, tmp_path: Path) -> Path:
    """Two squares' first frames, simulations, commands and states as files."""
    folder = tmp_path / "files"
    folder.mkdir()
    for index, episode in enumerate(square_pairs.episodes[:2]):
        for view in ("real", "sim"):
            Image.fromarray(episode.view(view).frames.read(0, 1)[0]).save(folder / f"{view}{index}.png")
        np.save(folder / f"moves{index}.npy", episode.action[: episode.num_frames - 1])
        assert episode.state is not None
        (folder / f"state{index}.json").write_text(json.dumps(episode.state[0].tolist()))
    return folder
