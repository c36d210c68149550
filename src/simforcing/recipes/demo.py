"""`make demo`: table-top data -> autoencoder -> world model -> predictions -> report, on a CPU, in minutes."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from simforcing.data.open import open_dataset
from simforcing.data.tabletop import write_tabletop
from simforcing.data.validate import describe
from simforcing.data.verify import verify_videos
from simforcing.evaluation.pictures import animation
from simforcing.recipes import recipe_named
from simforcing.recipes.estimate import training_cost
from simforcing.recipes.evaluate import Evaluated, evaluate_run, summary
from simforcing.recipes.execute import execute
from simforcing.recipes.run import RunOptions

Report = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class DemoSize:
    """How much the demo simulates and trains."""

    recipe: str
    num_episodes: int
    num_counterfactual_starts: int
    num_frames: int
    held_out: int
    num_steps: int | None = None


FULL = DemoSize(recipe="tabletop", num_episodes=300, num_counterfactual_starts=8, num_frames=33, held_out=24)
SMOKE = DemoSize(recipe="debug", num_episodes=6, num_counterfactual_starts=1, num_frames=13, held_out=2)


def demo(
    out: Path,
    *,
    data: str | None = None,
    smoke: bool = False,
    overwrite: bool = False,
    seed: int = 0,
    device: str = "cpu",
    report: Report = print,
) -> Evaluated:
    """Make everything that is not there yet under `out`, evaluate, and say where the report is.

    Args:
        data: a data set of your own instead of the table top.
        smoke: the same path at a size that takes seconds.
        overwrite: train again where a run is there already.
    """
    size = SMOKE if smoke else FULL
    if data is None:
        data = str(tabletop_data(out, size, seed, report) / "episodes")
        recipe = size.recipe
    else:
        recipe = "debug" if smoke else "laptop"
    opened = open_dataset(data)
    for line in describe(opened):
        report(line)
    first_view = opened.episodes[0].views[0].name
    opened = verify_videos(opened, (first_view,))
    held_out = size.held_out if recipe == size.recipe else None
    options = RunOptions(seed=seed, device=device, held_out=held_out, num_steps=size.num_steps)
    run = recipe_named(recipe)(opened, options)
    report(training_cost(run, opened))
    execute(run, opened, out / "run", report=report, command="simforcing demo", overwrite=overwrite)
    evaluated = evaluate_run(out / "run", device=device, overwrite=True, command="simforcing demo", report=report)
    examples = evaluated.result.examples[:3]
    animation([(e.truth, e.predicted) for e in examples], run.spec.fps, out / "demo.gif")
    for line in summary(evaluated):
        report(line)
    report(f"report: {evaluated.report}")
    return evaluated


def tabletop_data(out: Path, size: DemoSize, seed: int, report: Report) -> Path:
    """The simulated sets, written once; a set that is there is complete."""
    root = out / f"tabletop-{size.num_episodes}-{seed}"
    if (root / "episodes" / "meta").is_dir() and (root / "counterfactuals" / "meta").is_dir():
        report(f"table-top data: {root}, already there")
        return root

    def progress(done: int, total: int) -> None:
        if done % max(1, total // 10) == 0:
            report(f"simulating episodes: {done}/{total}")

    write_tabletop(
        root,
        num_episodes=size.num_episodes,
        seed=seed,
        num_frames=size.num_frames,
        num_counterfactual_starts=size.num_counterfactual_starts,
        progress=progress,
    )
    return root
