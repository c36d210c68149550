"""Recipes: one function is one complete run, `recipe(data, options) -> Run`."""

from collections.abc import Callable

from simforcing.recipes.debug import debug
from simforcing.recipes.laptop import laptop
from simforcing.recipes.run import Run, RunOptions
from simforcing.recipes.tabletop import tabletop
from simforcing.types import EpisodeSet

Recipe = Callable[[EpisodeSet, RunOptions], Run]

RECIPES: dict[str, Recipe] = {"debug": debug, "laptop": laptop, "tabletop": tabletop}


def recipe_named(name: str) -> Recipe:
    """A recipe; ValueError lists the choices."""
    if name not in RECIPES:
        raise ValueError(f"unknown recipe {name!r}; choices: {', '.join(RECIPES)}")
    return RECIPES[name]
