"""What `import simforcing` offers: every name is there, and nothing heavy is loaded before one is used."""

import subprocess
import sys

import pytest

import simforcing

HEAVY = ("numpy", "torch", "scipy", "av", "pyarrow", "matplotlib", "mujoco", "huggingface_hub", "tyro")


@pytest.mark.parametrize("name", simforcing.__all__)
def test_a_public_name_is_the_one_that_its_module_defines(name: str):
    value = getattr(simforcing, name)
    assert name in dir(simforcing)
    if name != "__version__":
        assert value.__name__ == name
        assert value.__module__.startswith("simforcing.")
        assert value.__doc__


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        simforcing.nothing  # noqa: B018


def test_the_import_loads_nothing_heavy():
    program = f"import simforcing, sys; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
