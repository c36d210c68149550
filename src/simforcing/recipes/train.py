"""`simforcing train`: a data set and a recipe to a finished run, with an estimate first."""

from pathlib import Path

from simforcing.data.open import open_dataset, require_layout
from simforcing.data.pair_streams import REAL, SIM
from simforcing.data.paired import require_paired
from simforcing.data.validate import describe
from simforcing.models.bundle import Bundle, load_bundle
from simforcing.models.taef2 import HUB_ID
from simforcing.recipes import PAIRED, TAUGHT, recipe_named
from simforcing.recipes.estimate import training_cost, verified
from simforcing.recipes.execute import execute
from simforcing.recipes.output import require_apart, require_writable
from simforcing.recipes.release import as_released
from simforcing.recipes.run import Run, RunOptions
from simforcing.recipes.settings import with_settings
from simforcing.types import EpisodeSet
from simforcing.types.progress import Report


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
    recipe_named(recipe)
    require_writable(out)
    opened = open_dataset(data, cameras=options.views)
    require_apart(out, opened.root)
    for line in describe(opened):
        report(line)
    require_layout(opened)
    known = verified(opened, streams_of(recipe, opened, options), report)
    run = planned(recipe, known, options)
    if options.autoencoder == "taef2" and options.taef2_path is None:
        report(f"TAEF2 weights: {HUB_ID} from the hub; --taef2 PATH reads a folder")
    report(training_cost(run, known))
    cache = None if options.cache is None else Path(options.cache)
    bundle = execute(run, known, out, report=report, command=command, overwrite=overwrite, cache=cache)
    report(f"finished: {out} (next: simforcing evaluate {out})")
    return bundle


def planned(recipe: str, data: EpisodeSet, options: RunOptions) -> Run:
    """The recipe's run, in the preset that was asked for, with every setting applied."""
    require_meaning(recipe, options)
    run = recipe_named(recipe)(data, options)
    if options.preset == "release":
        run = as_released(run)
    changed = with_settings(run, options.settings)
    if options.settings:
        require_fitting(changed, data)
    return changed


def require_fitting(run: Run, data: EpisodeSet) -> None:
    """ValueError where a setting made a run of something else than the set holds."""
    run.spec.check(data)
    if run.spec.sim_views:
        require_paired(data, run.spec.views, run.spec.sim_views)
    names = {episode.name for episode in data.episodes}
    if not run.held_out or not set(run.held_out) < names:
        unknown = sorted(set(run.held_out) - names)
        found = f"no episode {unknown[0]!r}" if unknown else f"{len(run.held_out)} of {len(names)} episodes"
        raise ValueError(f"held_out: {found}; expected some of the set's episodes, and not all")
    if run.start is not None:
        learnt = set(load_bundle(Path(run.start.path)).about.get("training", [])) & set(run.held_out)
        if learnt:
            raise ValueError(f"held_out names {min(learnt)}, which the teacher learnt from")
    if run.variants and run.variants_fingerprint is None:
        raise ValueError(f"variants is true, but there is no set of variants beside {data.root}")


def require_meaning(recipe: str, options: RunOptions) -> None:
    """ValueError, in one line, for an option that a recipe would ignore."""
    recipe_named(recipe)
    only = {
        "preset": (("teacher", *TAUGHT), "ours"),
        "teacher": (TAUGHT, None),
        "lora_rank": (TAUGHT, None),
        "max_episodes": (PAIRED, None),
        "scale": (PAIRED, "laptop"),
    }
    for name, (recipes, default) in only.items():
        value = getattr(options, name)
        if value != default and recipe not in recipes:
            raise ValueError(f"{name} is {value}, but recipe {recipe} has none; recipes: {', '.join(recipes)}")
    if options.views is not None and recipe in PAIRED:
        raise ValueError(f"cameras {', '.join(options.views)}: recipe {recipe} learns the streams {REAL} and {SIM}")


def streams_of(recipe: str, data: EpisodeSet, options: RunOptions) -> tuple[str, ...]:
    """The cameras that a recipe decodes: both domains of a paired set, else those asked for, else the first."""
    if recipe in PAIRED:
        return tuple(view.name for view in data.episodes[0].views if view.name in (REAL, SIM))
    return options.views or (data.episodes[0].views[0].name,)
