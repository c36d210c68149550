"""A first look at the model that comes with the package: fresh starts of the table top, predicted in seconds.

Each start is predicted twice, under its own commands and under other ones, beside what the simulator shows of both.
"""

import time
from contextlib import closing
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from simforcing.evaluation.pictures import labelled_row, write_animation
from simforcing.generation.chunks import Rollout
from simforcing.generation.world_model import WorldModel
from simforcing.models.pretrained import packaged_models
from simforcing.sim.real_like import RealLike
from simforcing.sim.tabletop import SimulatedEpisode, TabletopConfig
from simforcing.types.progress import Report

NAME = "tabletop"
PICTURE = "first-look.gif"
PANELS = ("what happened", "simulation it makes", "predicted", "other commands", "predicted")
STARTS = (1000, 1001)  # numbers that no set of ours reaches
NUM_FRAMES = 33  # of an episode, as in training: the arm goes on where the window ends
OWN, OTHER = 0, 3  # branches of a start that soon look different: a pick, and a move to elsewhere
ENLARGED = 3
NUM_COLOURS = 128  # the picture is in the README, where size counts


def table_top(num_frames: int) -> TabletopConfig:
    """The table top of the demo and of the model: 64 pixels, real-like looks, one camera for all episodes."""
    looks = RealLike(appearance="light", shared_camera=True)
    return TabletopConfig(num_frames=num_frames, size_px=64, real=looks)


def first_look(out: Path, *, device: str = "cpu", report: Report = print) -> Path | None:
    """Write `out`/first-look.gif with the packaged model; None, and one line, where the package holds none."""
    if NAME not in packaged_models():
        report("first look: this source tree holds no trained model (scripts/train_pretrained.py makes it)")
        return None
    begun_s = time.perf_counter()
    model, path = WorldModel.from_pretrained(NAME, device=device), Path(out) / PICTURE
    path.parent.mkdir(parents=True, exist_ok=True)
    write_animation(look_frames(model), model.fps, path, num_colours=NUM_COLOURS)
    report(
        f"first look: {path}: {len(STARTS)} fresh starts under two series of commands each,"
        f" predicted by the model that comes with the package, in {time.perf_counter() - begun_s:.1f} s"
    )
    return path


def look_frames(model: WorldModel) -> UInt8[np.ndarray, "f h w 3"]:
    """A row of panels for each start, below each other."""
    starts = fresh_starts(model)
    predicted = predict_both(model, starts)
    rows = []
    for episodes, (own, other) in zip(starts, predicted, strict=True):
        simulation = own.frames[0] if own.sim_frames is None else own.sim_frames[0]
        happened = [episode.frames[: model.spec.num_frames] for episode in episodes]
        videos = (happened[0], simulation, own.frames[0], happened[1], other.frames[0])
        rows.append(labelled_row(list(zip(PANELS, videos, strict=True)), model.fps, ENLARGED))
    return np.concatenate(rows, axis=1)


def fresh_starts(model: WorldModel) -> list[tuple[SimulatedEpisode, SimulatedEpisode]]:
    """Two true episodes from each of some starts that no training or held-out set holds, seen by the same camera."""
    seed = int(model.bundle.about.get("seed", 0))  # the shared camera is drawn from it
    with closing(table_top(NUM_FRAMES).build()) as simulator:
        branches = [simulator.counterfactuals(seed=seed, index=index) for index in STARTS]
    return [(four[OWN], four[OTHER]) for four in branches]


def predict_both(
    model: WorldModel, starts: list[tuple[SimulatedEpisode, SimulatedEpisode]]
) -> list[tuple[Rollout, Rollout]]:
    """Each start under its own commands and under the other episode's; words, state and noise stay the same."""
    begun = [model.start(own.frames[0], task=own.task, state=own.state[0]) for own, _ in starts]
    number = len(starts)
    actions = np.stack([pair[which].action[: model.num_actions] for which in (0, 1) for pair in starts])
    made = model.rollouts([*begun, *begun], actions, [*range(number), *range(number)])
    return list(zip(made[:number], made[number:], strict=True))
