"""Robot clips in, predicted video out. These names are the public ones; each is imported when it is first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from simforcing.environment import register_with_gymnasium

if TYPE_CHECKING:
    from simforcing.data.convert import convert
    from simforcing.data.open import open_dataset
    from simforcing.generation.rollout import Predictor
    from simforcing.generation.start import Start
    from simforcing.generation.world_model import WorldModel
    from simforcing.models.bundle import load_bundle
    from simforcing.recipes import recipe_named
    from simforcing.recipes.evaluate import evaluate_run
    from simforcing.recipes.execute import execute
    from simforcing.recipes.run import RunOptions
    from simforcing.types import Clip, Episode, layout_named

    __version__: str

__all__ = [
    "Clip",
    "Episode",
    "Predictor",
    "RunOptions",
    "Start",
    "WorldModel",
    "__version__",
    "convert",
    "evaluate_run",
    "execute",
    "layout_named",
    "load_bundle",
    "open_dataset",
    "recipe_named",
]

_MODULES = {
    "Clip": "types",
    "Episode": "types",
    "Predictor": "generation.rollout",
    "RunOptions": "recipes.run",
    "Start": "generation.start",
    "WorldModel": "generation.world_model",
    "convert": "data.convert",
    "evaluate_run": "recipes.evaluate",
    "execute": "recipes.execute",
    "layout_named": "types",
    "load_bundle": "models.bundle",
    "open_dataset": "data.open",
    "recipe_named": "recipes",
}

register_with_gymnasium()


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value = import_module("simforcing.types.version").package_version()
    elif name in _MODULES:
        value = getattr(import_module(f"simforcing.{_MODULES[name]}"), name)
    else:
        raise AttributeError(f"module 'simforcing' has no attribute {name!r}")
    globals()[name] = value  # the next use finds it without this function
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
