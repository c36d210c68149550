"""`simforcing train`: a data set and a recipe to a finished run, with an estimate first."""

from collections.abc import Callable
from pathlib import Path

from simforcing.data.open import open_dataset, require_layout
from simforcing.data.validate import describe
from simforcing.data.verify import verify_videos
from simforcing.models.bundle import Bundle
from simforcing.recipes import recipe_named
from simforcing.recipes.estimate import training_cost
from simforcing.recipes.execute import execute
from simforcing.recipes.run import RunOptions

Report = Callable[[str], None]


def train_on(
    data: str,
    out: Path,
    *,
    recipe: str,
    options: RunOptions,
    overwrite: bool = False,
    command: str = "",
    report: Report = print,
) -> Bundle:
    """Open, verify, plan, estimate, train.

    Raises:
        ValueError: unusable data, no declared layout, a choice that does not fit, or another run in `out`.
    """
    plan = recipe_named(recipe)
    opened = open_dataset(data)
    for line in describe(opened):
        report(line)
    require_layout(opened)
    known = verify_videos(opened, options.views or (opened.episodes[0].views[0].name,))
    for item in known.rejected[len(opened.rejected) :]:
        report(f"{known.root}: episode {item.name} is left out: {item.reason}")
    run = plan(known, options)
    report(training_cost(run, known))
    return execute(run, known, out, report=report, command=command, overwrite=overwrite)
