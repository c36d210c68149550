"""Recipes: one function is one complete run, `recipe(data, options) -> Run`. Each is imported when it is asked for."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from simforcing.types import EpisodeSet

if TYPE_CHECKING:
    from simforcing.recipes.run import Run, RunOptions

    Recipe = Callable[[EpisodeSet, RunOptions], Run]

RECIPES = ("debug", "laptop", "tabletop")  # a module each, and in it a function of that name


def recipe_named(name: str) -> "Recipe":
    """A recipe; ValueError lists the choices."""
    if name not in RECIPES:
        raise ValueError(f"unknown recipe {name!r}; choices: {', '.join(RECIPES)}")
    return getattr(import_module(f"simforcing.recipes.{name}"), name)
