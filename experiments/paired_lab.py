"""What experiments on paired table-top data share: the data, one run from settings to scores, and resuming.

Every unit writes one JSON file when it is finished; a unit that has one is not done again, so a killed call goes on.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from simforcing.data.clips import Clips
from simforcing.data.open import open_dataset
from simforcing.data.tabletop import TabletopSets
from simforcing.evaluation.protocols import protocol_named, score_clip
from simforcing.generation.rollout import Predictor
from simforcing.models.bundle import Bundle
from simforcing.recipes.execute import execute
from simforcing.recipes.run import Run, RunOptions
from simforcing.recipes.simulate import SimulateOptions, simulate
from simforcing.recipes.start import finished_model, starting_model
from simforcing.recipes.tabletop_sets import simulate_tabletop
from simforcing.recipes.train import planned
from simforcing.sim.real_like import RealLike
from simforcing.sim.tabletop import TabletopConfig
from simforcing.training.checkpoint import list_checkpoints
from simforcing.types import EpisodeSet
from simforcing.types.files import read_json, write_json

BATCH = 16


@dataclass(frozen=True, kw_only=True)
class Scenes:
    """Paired table-top data of real-like looks, told apart into training, development and test scenes.

    Args:
        num_training: episodes that training may see.
        num_development, num_test: held-out ones; choices are made on the former, figures are of the latter.
        num_starts: starts of counterfactual videos, for the cost of swapped actions.
    """

    root: Path
    num_training: int
    num_development: int
    num_test: int
    num_starts: int = 0
    seed: int = 0

    def open(self) -> EpisodeSet:
        """Simulate what is missing, then open the pairs."""
        folder = self.root / "pairs" / "episodes"
        if not (folder / "meta").is_dir():
            sets = TabletopSets(
                num_episodes=self.num_training + self.num_development + self.num_test,
                num_counterfactual_starts=self.num_starts,
                seed=self.seed,
                simulator=TabletopConfig(
                    num_frames=33, size_px=64, real=RealLike(appearance="light", shared_camera=True)
                ),
            )
            if not (self.root / "episodes" / "meta").is_dir():
                simulate_tabletop(sets, self.root, overwrite=True, report=say)
            simulate(str(self.root / "episodes"), folder, SimulateOptions(variants=3), report=say)
            if self.num_starts:
                others = folder.parent / "counterfactuals"
                simulate(str(self.root / "counterfactuals"), others, SimulateOptions(variants=0), report=say)
        return open_dataset(folder)

    @property
    def num_held_out(self) -> int:
        return self.num_development + self.num_test


def say(line: str) -> None:
    """One line with the time of day."""
    print(time.strftime("%H:%M:%S"), line, flush=True)


def trained(data: EpisodeSet, recipe: str, options: RunOptions, folder: Path) -> tuple[Run, Bundle, float]:
    """(run, bundle, CPU seconds a step) of one training; a finished one is read back by `execute` itself."""
    run = planned(recipe, data, options)
    cache = None if options.cache is None else Path(options.cache)
    cost_file = folder / "cpu_s.json"
    begun = time.process_time()
    bundle = execute(run, data, folder, report=lambda line: None, command="experiment", cache=cache)
    if not cost_file.exists():
        write_json(cost_file, (time.process_time() - begun) / run.trainer.num_steps)
    return run, bundle, read_json(cost_file)


def scores(predictor: Predictor, clips: Sequence[Any], *, metric: str = "psnr") -> dict[str, list[float]]:
    """Episode -> score of each of its clips; the seed of a clip is its place."""
    rules = protocol_named("predicted-frames")
    out: dict[str, list[float]] = {}
    for start in range(0, len(clips), BATCH):
        part = [clips[i] for i in range(start, min(start + BATCH, len(clips)))]
        for clip, frames in zip(part, predictor.predict(part, list(range(start, start + len(part)))), strict=True):
            found = score_clip(clip.frames[0], frames, rules).mean(metric)
            if np.isfinite(found):
                out.setdefault(clip.episode, []).append(round(float(found), 4))
    return out


def parted(data: EpisodeSet, run: Run, scenes: Scenes) -> tuple[Clips, Clips]:
    """Windows of development and of test episodes: the held-out ones in order of their names."""
    held_out = sorted((e for e in data.episodes if e.name in run.held_out), key=lambda episode: episode.name)
    stride = run.spec.num_frames - 1
    development, test = held_out[: scenes.num_development], held_out[scenes.num_development :]
    return Clips(development, run.spec, stride=stride), Clips(test, run.spec, stride=stride)


def curve(run: Run, bundle: Bundle, folder: Path, clips: Clips, **sampler: Any) -> list[tuple[int, float]]:
    """(step, mean PSNR) on development clips at every kept checkpoint."""
    points = []
    for path in list_checkpoints(folder / "checkpoints"):
        model = finished_model(run, starting_model(run), path)
        predictor = Predictor(replace(bundle, model=model), replace(run.sampler, **sampler))
        found = scores(predictor, clips)
        mean = float(np.mean([np.mean(values) for values in found.values()]))
        points.append((int(path.stem.split("_")[1]), round(mean, 4)))
    return points


def done(path: Path) -> dict[str, Any] | None:
    """The result of a unit that is finished."""
    return json.loads(path.read_text()) if path.exists() else None


def one_thread() -> None:
    """Units run side by side, one thread each."""
    torch.set_num_threads(1)
