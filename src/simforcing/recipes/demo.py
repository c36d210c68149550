"""`make demo`: table-top data -> autoencoder -> world model -> predictions -> report, on a CPU, in minutes."""

from dataclasses import dataclass, replace
from pathlib import Path

from simforcing.data.open import open_dataset
from simforcing.data.tabletop import TabletopSets
from simforcing.data.validate import describe
from simforcing.evaluation.pictures import animation
from simforcing.recipes import recipe_named
from simforcing.recipes.estimate import training_cost, verified
from simforcing.recipes.evaluate import Evaluated, evaluate_run, summary
from simforcing.recipes.execute import execute
from simforcing.recipes.output import require_writable
from simforcing.recipes.prediction import DEFAULT, PredictionOptions
from simforcing.recipes.run import RunOptions
from simforcing.recipes.tabletop_sets import simulate_tabletop
from simforcing.sim.tabletop import TabletopConfig
from simforcing.types import EpisodeSet
from simforcing.types.progress import Report


@dataclass(frozen=True, kw_only=True)
class DemoSize:
    """How much the demo simulates and trains.

    Args:
        recipe: of the simulated set.
        data_recipe: of a set that is given.
        cost, data_cost: of the whole demo with either, in words, measured on two CPU cores.
    """

    recipe: str
    data_recipe: str
    cost: str
    data_cost: str
    num_episodes: int
    num_counterfactual_starts: int
    num_frames: int
    held_out: int


FULL = DemoSize(
    recipe="tabletop",
    data_recipe="laptop",
    cost="about 5 to 7 min on two CPU cores, 250 MB of disk",
    data_cost="about 5 to 20 min on two CPU cores, 250 MB of disk",
    num_episodes=300,
    num_counterfactual_starts=8,
    num_frames=33,
    held_out=24,
)
SMOKE = DemoSize(
    recipe="debug",
    data_recipe="debug",
    cost="about 30 s on two CPU cores, 5 MB of disk",
    data_cost="about 30 s on two CPU cores, 5 MB of disk",
    num_episodes=6,
    num_counterfactual_starts=1,
    num_frames=13,
    held_out=2,
)


def demo(out: Path, *, smoke: bool = False, options: PredictionOptions = DEFAULT, report: Report = print) -> Evaluated:
    """Make everything that is not there yet under `out`, evaluate, and say where the report is.

    A data set of your own gets a folder of its own, named by its fingerprint.

    Args:
        smoke: the same path at a size that takes seconds.
        options: options.data is a data set of your own instead of the table top; options.overwrite trains again where
            another run is there already.

    Raises:
        ValueError: unusable data, or another run in the folder.
    """
    size = SMOKE if smoke else FULL
    require_writable(out)
    report(f"the whole demo: {size.cost if options.data is None else size.data_cost}")
    if options.data is None:
        opened = open_dataset(tabletop_data(out, size, options.seed, report) / "episodes")
        recipe, held_out = size.recipe, size.held_out
    else:
        opened = open_dataset(options.data)
        recipe, held_out = size.data_recipe, None
        out = out / f"data-{opened.fingerprint[:8]}"
    for line in describe(opened):
        report(line)
    opened = verified(opened, (opened.episodes[0].views[0].name,), report)
    train_options = RunOptions(seed=options.seed, device=options.device, dtype=options.dtype, held_out=held_out)
    train(opened, out / "run", recipe, train_options, overwrite=options.overwrite, report=report)
    again = replace(options, data=None, overwrite=True)
    evaluated = evaluate_run(out / "run", options=again, command="simforcing demo", report=report)
    examples = evaluated.result.examples[:3]
    fps = opened.episodes[0].fps
    animation([(e.truth, e.predicted) for e in examples], fps, out / "demo.gif")
    for line in summary(evaluated):
        report(line)
    report(f"report: {evaluated.report}")
    return evaluated


def train(data: EpisodeSet, folder: Path, recipe: str, options: RunOptions, *, overwrite: bool, report: Report) -> None:
    """Plan, estimate and train; a run that is there already is kept."""
    run = recipe_named(recipe)(data, options)
    report(training_cost(run, data))
    execute(run, data, folder, report=report, command="simforcing demo", overwrite=overwrite)


def tabletop_data(out: Path, size: DemoSize, seed: int, report: Report) -> Path:
    """The simulated sets, written once; a set that is there is complete."""
    root = out / f"tabletop-{size.num_episodes}x{size.num_frames}-{size.num_counterfactual_starts}-{seed}"
    if (root / "episodes" / "meta").is_dir() and (root / "counterfactuals" / "meta").is_dir():
        report(f"table-top data: {root}, already there")
        return root
    sets = TabletopSets(
        num_episodes=size.num_episodes,
        num_counterfactual_starts=size.num_counterfactual_starts,
        seed=seed,
        simulator=TabletopConfig(num_frames=size.num_frames, size_px=64),
    )
    # One of the two may be there where the demo was stopped in between.
    simulate_tabletop(sets, root, overwrite=True, report=report)
    return root
