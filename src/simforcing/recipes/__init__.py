"""Recipes: one function is one complete run, `recipe(data, options) -> Run`. Each is imported when it is asked for."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from simforcing.types import EpisodeSet

if TYPE_CHECKING:
    from simforcing.recipes.run import Run, RunOptions

    Recipe = Callable[[EpisodeSet, RunOptions], Run]

# Name of a recipe, and of its function -> the module that it is in.
RECIPES = {
    "debug": "debug",
    "laptop": "laptop",
    "tabletop": "tabletop",
    "teacher": "teacher",
    "student": "student",
    "joint": "student",
    "sft": "baselines",
    "rendered": "baselines",
    "modulation": "baselines",
    "cross_attention": "baselines",
    "maps": "baselines",
}
# They learn from sets with real video and its simulation; the first of them start from a teacher's run.
TAUGHT = ("student", "joint")
PAIRED = (*TAUGHT, "teacher", "sft", "rendered", "modulation", "cross_attention", "maps")


def recipe_named(name: str) -> "Recipe":
    """A recipe; ValueError lists the choices."""
    if name not in RECIPES:
        raise ValueError(f"unknown recipe {name!r}; choices: {', '.join(RECIPES)}")
    return getattr(import_module(f"simforcing.recipes.{RECIPES[name]}"), name)
