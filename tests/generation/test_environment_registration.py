"""The environment's name in Gymnasium: there in any order of imports, and neither library imported for it."""

import subprocess
import sys
from pathlib import Path

import pytest

ID = "simforcing/WorldModel-v0"
pytest.importorskip("gymnasium")


@pytest.mark.parametrize(
    "program",
    [
        "import gymnasium, simforcing",
        "import simforcing, gymnasium",
        "import simforcing; from gymnasium.vector import VectorEnv; import gymnasium",
        "import simforcing; from importlib.util import find_spec; find_spec('gymnasium'); import gymnasium",
        "import gymnasium, simforcing; from simforcing.environment import register; register()",
    ],
)
def test_either_order_of_imports_registers_without_a_warning(program: str, project_root: Path):
    told = f"{program}; import sys; print({ID!r} in gymnasium.registry, 'torch' in sys.modules, len(sys.meta_path))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", told], capture_output=True, text=True, cwd=project_root / "src"
    )
    assert done.stdout.split()[:2] == ["True", "False"], done.stderr


def test_importing_the_package_imports_no_gymnasium(project_root: Path):
    told = "import sys, simforcing; print('gymnasium' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, cwd=project_root / "src")
    assert done.stdout == "False\n"


def test_the_module_before_the_name_is_enough(project_root: Path):
    told = "import gymnasium; gymnasium.make('simforcing.environment:simforcing/WorldModel-v0', model='/nowhere')"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, cwd=project_root / "src")
    assert "/nowhere: no such" in done.stderr.splitlines()[-1]


def test_without_gymnasium_one_line_names_the_extra(project_root: Path):
    told = "import sys; sys.modules['gymnasium'] = None\nimport simforcing.generation.environment"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, cwd=project_root / "src")
    assert "pip install 'simforcing[sim]'" in done.stderr.splitlines()[-1]
