"""`make demo`: the packaged model predicts at once; then table-top data, its simulation, teacher, student, predictions,
report, on a CPU, in minutes."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from simforcing.data.open import open_dataset
from simforcing.data.pair_streams import REAL, SIM
from simforcing.data.tabletop import TabletopSets
from simforcing.data.validate import describe
from simforcing.evaluation.pictures import animation
from simforcing.recipes.estimate import training_cost, verified
from simforcing.recipes.evaluate import Evaluated, evaluate_run, summary
from simforcing.recipes.execute import execute
from simforcing.recipes.first_look import first_look, table_top
from simforcing.recipes.output import require_writable
from simforcing.recipes.prediction import DEFAULT, PredictionOptions
from simforcing.recipes.run import Run, RunOptions
from simforcing.recipes.side_by_side import side_by_side
from simforcing.recipes.simulate import SimulateOptions, simulate
from simforcing.recipes.tabletop_sets import simulate_tabletop
from simforcing.recipes.train import planned, streams_of
from simforcing.sim.workers import usable_processes
from simforcing.types import EpisodeSet
from simforcing.types.progress import Report

TEACHER, STUDENT, ALONE, LATENTS = "teacher", "student", "run", "latents"


@dataclass(frozen=True, kw_only=True)
class DemoSize:
    """How much the demo simulates and trains.

    Args:
        scale: of the paired recipes.
        data_recipe: of a set of one's own that holds no pairs.
        cost, data_cost: of the whole demo with either, in words, measured on two CPU cores.
        teacher_steps, student_steps: of the two stages.
    """

    scale: Literal["debug", "laptop"]
    data_recipe: str
    cost: str
    data_cost: str
    num_episodes: int
    num_counterfactual_starts: int
    num_frames: int
    held_out: int
    teacher_steps: int
    student_steps: int


SIZES = {
    "smoke": DemoSize(
        scale="debug",
        data_recipe="debug",
        cost="about 40 s on two CPU cores, 5 MB of disk",
        data_cost="about 30 s on two CPU cores, 5 MB of disk",
        num_episodes=6,
        num_counterfactual_starts=1,
        num_frames=13,
        held_out=2,
        teacher_steps=20,
        student_steps=20,
    ),
    "full": DemoSize(
        scale="laptop",
        data_recipe="laptop",
        cost="about 7 to 9 min on two CPU cores, 900 MB of disk",
        data_cost="about 5 to 20 min on two CPU cores, 900 MB of disk",
        num_episodes=240,
        num_counterfactual_starts=8,
        num_frames=33,
        held_out=24,
        teacher_steps=1000,
        student_steps=1200,
    ),
    "long": DemoSize(
        scale="laptop",
        data_recipe="laptop",
        cost="about 14 to 15 min on two CPU cores, 1200 MB of disk",
        data_cost="about 10 to 30 min on two CPU cores, 1200 MB of disk",
        num_episodes=320,
        num_counterfactual_starts=8,
        num_frames=33,
        held_out=24,
        teacher_steps=2000,
        student_steps=3200,
    ),
}


def demo(
    out: Path,
    *,
    size: DemoSize,
    options: PredictionOptions = DEFAULT,
    report: Report = print,
) -> Evaluated:
    """Make everything that is not there yet under `out`, evaluate, and say where the report is.

    A data set of your own gets a folder of its own, named by its fingerprint. Where it holds pairs (`simforcing
    simulate`) both stages are trained on it, else a world model of its video alone.

    Args:
        size: one of SIZES.
        options: options.data is a data set of your own instead of the table top; options.overwrite trains again where
            another run is there already.

    Raises:
        ValueError: unusable data, or another run in the folder.
    """
    require_writable(out)
    report(f"the whole demo: {size.cost if options.data is None else size.data_cost}")
    if options.data is None:
        first_look(out, device=options.device, report=report)
        opened = open_dataset(paired_data(tabletop_data(out, size, options.seed, report), report))
    else:
        report("first look: left out; the model that comes with the package knows the table top alone")
        opened = open_dataset(options.data)
        out = out / f"data-{opened.fingerprint[:8]}"
    for line in describe(opened):
        report(line)
    stored = RunOptions(seed=options.seed, device=options.device, dtype=options.dtype)
    run_dir = train_stages(opened, out, size, stored, options, report)
    again = replace(options, data=None, overwrite=True)
    evaluated = evaluate_run(run_dir, options=again, command="simforcing demo", report=report)
    examples = evaluated.result.examples[:3]
    fps = opened.episodes[0].fps
    animation([(e.truth, e.predicted) for e in examples], fps, out / "demo.gif")
    for line in summary(evaluated):
        report(line)
    report(f"report: {evaluated.report}")
    return evaluated


def train_stages(
    data: EpisodeSet, out: Path, size: DemoSize, stored: RunOptions, options: PredictionOptions, report: Report
) -> Path:
    """Teacher and student where the set holds pairs, else one model; returns the last run's folder."""
    is_paired = {REAL, SIM} <= {view.name for view in data.episodes[0].views}
    known = verified(data, streams_of("teacher" if is_paired else size.data_recipe, data, stored), report)
    train = Trainer(data=known, out=out, overwrite=options.overwrite, report=report)
    held_out = size.held_out if options.data is None else None
    if not is_paired:
        return train(size.data_recipe, ALONE, stored)
    shared = replace(stored, held_out=held_out, scale=size.scale, cache=str(out / LATENTS))
    own_steps = options.data is not None  # the table top's numbers of steps are for its number of windows
    if options.overwrite and (out / LATENTS).is_dir():
        shutil.rmtree(out / LATENTS)  # of the autoencoder that the new teacher replaces
    report("stage 1: a teacher that knows motion, from simulation alone")
    teacher = train("teacher", TEACHER, replace(shared, num_steps=None if own_steps else size.teacher_steps))
    report("stages 2 and 3: a student that learns real video and keeps the teacher's motion")
    taught = replace(shared, teacher=str(teacher), num_steps=None if own_steps else size.student_steps)
    return train("student", STUDENT, taught)


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """Plans, estimates and trains one run of the demo on verified data; a run that is there already is kept."""

    data: EpisodeSet
    out: Path
    overwrite: bool
    report: Report

    def __call__(self, recipe: str, name: str, options: RunOptions) -> Path:
        """The run's folder."""
        run = planned(recipe, self.data, options)
        folder = self.out / name
        self.report(training_cost(run, self.data))
        cache = None if options.cache is None else Path(options.cache)
        how = {"report": self.report, "command": "simforcing demo", "overwrite": self.overwrite, "cache": cache}
        with side_by_side(run, self.data, folder, cache, num_processes(run)):
            execute(run, self.data, folder, **how)
        return folder


def num_processes(run: Run) -> int:
    """Two, where there are two cores: on them, two processes of one thread train half again as fast as two threads."""
    on_cpu = run.trainer.device == "cpu" and run.trainer.batch_size % 2 == 0
    return 2 if on_cpu and usable_processes(None) >= 2 else 1


def tabletop_data(out: Path, size: DemoSize, seed: int, report: Report) -> Path:
    """The "real" sets: the table top as a camera sees it. Written once; a set that is there is complete."""
    root = out / f"tabletop-{size.num_episodes}x{size.num_frames}-{size.num_counterfactual_starts}-{seed}"
    if (root / "episodes" / "meta").is_dir() and (root / "counterfactuals" / "meta").is_dir():
        report(f"table-top data: {root}, already there")
        return root
    sets = TabletopSets(
        num_episodes=size.num_episodes,
        num_counterfactual_starts=size.num_counterfactual_starts,
        seed=seed,
        simulator=table_top(size.num_frames),
    )
    # One of the two may be there where the demo was stopped in between.
    simulate_tabletop(sets, root, overwrite=True, report=report)
    return root


def paired_data(root: Path, report: Report) -> Path:
    """The same episodes beside their simulation, with perturbed variants; counterfactuals as well, without."""
    pairs = root / "pairs"
    for name, variants in (("episodes", 3), ("counterfactuals", 0)):
        if (pairs / name / "meta").is_dir():
            report(f"pairs: {pairs / name}, already there")
        else:
            simulate(str(root / name), pairs / name, SimulateOptions(variants=variants), report=report)
    return pairs / "episodes"
