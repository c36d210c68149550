"""Registers the environment with Gymnasium, which `import simforcing` does too, before or after `import gymnasium`.

The environment itself, generation/environment.py, is imported when one is made.
"""

import sys
import threading
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

ID = "simforcing/WorldModel-v0"


def register() -> None:
    """Make the environment known to Gymnasium, once."""
    from gymnasium.envs.registration import register as add
    from gymnasium.envs.registration import registry

    if ID not in registry:
        add(
            ID,
            entry_point="simforcing.generation.environment:WorldModelEnv",
            vector_entry_point="simforcing.generation.vector_environment:WorldModelVectorEnv",
        )


class _Waiting(threading.local):
    """A finder that finds nothing itself, but registers as soon as Gymnasium has been imported, and is gone then."""

    is_asking = False  # in this thread, the other finders

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of Gymnasium, whose loader registers at its end; None for every other module."""
        if name != "gymnasium" or self.is_asking:
            return None
        self.is_asking = True
        try:
            spec = find_spec(name)
        finally:
            self.is_asking = False
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def load_and_register(module: ModuleType) -> None:
            load(module)
            register()
            if self in sys.meta_path:
                sys.meta_path.remove(self)

        spec.loader.exec_module = load_and_register  # the loader is this spec's own
        return spec


def register_with_gymnasium() -> None:
    """Register now where Gymnasium is imported already, else as soon as it is; it is never imported for this."""
    if sys.modules.get("gymnasium") is not None:
        register()
    else:
        sys.meta_path.insert(0, _Waiting())
