"""The package as a user gets it: light to import, complete as a wheel, pinned and layered as it says."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from simforcing.models.pretrained import packaged_models

HEAVY = (
    "torch",
    "scipy",
    "av",
    "pyarrow",
    "matplotlib",
    "mujoco",
    "mink",
    "diffusers",
    "transformers",
    "huggingface_hub",
)


def heavy_after(statement: str) -> list[str]:
    """Heavy libraries that a fresh interpreter has loaded after a statement."""
    program = f"{statement}\nimport sys\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()


@pytest.fixture(scope="module")
def project(project_root: Path) -> dict:
    with (project_root / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["project"]


@pytest.fixture(scope="module")
def pins(project_root: Path) -> dict[str, str]:
    lines = [line for line in (project_root / "constraints.txt").read_text().splitlines() if line[:1] not in ("#", "")]
    return dict(line.split("==") for line in lines)


def requirements(project: dict) -> list[Requirement]:
    """All requirements of the base and of every extra, without the extras that name extras."""
    texts = [*project["dependencies"], *(text for extra in project["optional-dependencies"].values() for text in extra)]
    return [r for r in map(Requirement, texts) if canonicalize_name(r.name) != "simforcing"]


def test_importing_the_package_loads_nothing_heavy():
    assert heavy_after("import simforcing") == []


def test_importing_the_command_line_loads_nothing_heavy():
    assert heavy_after("import simforcing.cli") == []


@pytest.mark.parametrize("recipe", ["tabletop_sets", "calibrate", "simulate", "view"])
def test_commands_on_simulation_start_without_torch(recipe: str):
    assert "torch" not in heavy_after(f"import simforcing.recipes.{recipe}")


def test_help_loads_nothing_heavy_and_names_the_commands():
    program = "import sys; sys.argv = ['simforcing', '--help']; import simforcing.cli\n"
    program += "try: simforcing.cli.main()\nexcept SystemExit: pass\n"
    program += f"print('heavy:', *[name for name in {HEAVY!r} if name in sys.modules])"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert output.splitlines()[-1].split() == ["heavy:"]
    for command in ("convert", "train", "generate", "evaluate", "demo", "doctor"):
        assert command in output


def test_every_requirement_is_pinned_inside_its_range(project: dict, pins: dict[str, str]):
    outside = [
        str(r) for r in requirements(project) if not r.specifier.contains(pins.get(canonicalize_name(r.name), "0"))
    ]
    assert outside == []


def test_pins_are_plain_versions_without_local_build_or_address(pins: dict[str, str]):
    assert pins
    for name, version in pins.items():
        assert name == canonicalize_name(name)
        assert re.fullmatch(r"[0-9][0-9A-Za-z.]*", version), f"{name}=={version}"


def test_no_build_file_names_a_package_registry(project_root: Path):
    files = ["pyproject.toml", "constraints.txt", "Makefile", ".ci/run", ".pre-commit-config.yaml"]
    paths = [project_root / file for file in files] + sorted((project_root / "scripts").iterdir())
    named = [
        path.name for path in paths if path.is_file() and re.search(r"https?://|--(extra-)?index-url", path.read_text())
    ]
    assert named == []


@pytest.fixture(scope="module")
def installed_wheel(project_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources and unpacked without its dependencies."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(project_root / name, source / name)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(project_root / "src", source / "src", ignore=ignored)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    wheels, target = source / "wheels", source / "target"
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, source]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = wheels.glob("simforcing-*.whl")
    subprocess.run(
        [*pip, "install", "--no-deps", "--no-index", "--target", target, wheel], check=True, capture_output=True
    )
    return target


def test_the_wheel_holds_every_source_file(project_root: Path, installed_wheel: Path):
    source = {path.relative_to(project_root / "src") for path in (project_root / "src" / "simforcing").rglob("*")}
    expected = {path for path in source if path.suffix and path.suffix != ".pyc" and not path.name.startswith(".")}
    present = {path.relative_to(installed_wheel) for path in (installed_wheel / "simforcing").rglob("*")}
    assert expected - present == set()


def from_wheel(installed_wheel: Path, statement: str, folder: Path) -> str:
    """What a statement prints in a fresh interpreter that finds the wheel's files first."""
    program = f"import sys; sys.path.insert(0, {str(installed_wheel)!r}); {statement}"
    command = [sys.executable, "-c", program, "--help"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_the_wheel_imports_on_its_own(installed_wheel: Path, tmp_path: Path):
    printed = from_wheel(installed_wheel, "import simforcing; print(simforcing.__file__)", tmp_path)
    assert Path(printed.strip()).is_relative_to(installed_wheel)


def test_the_wheel_answers_for_help(installed_wheel: Path, tmp_path: Path):
    assert "simforcing" in from_wheel(installed_wheel, "import simforcing.cli; simforcing.cli.main()", tmp_path)


def test_the_packaged_model_predicts_from_the_wheel(installed_wheel: Path, tmp_path: Path):
    if "tabletop" not in packaged_models():
        pytest.skip("no packaged model in this source tree; scripts/train_pretrained.py makes it")
    statement = (
        "import warnings; import numpy as np; from simforcing import WorldModel; warnings.simplefilter('ignore');"
        "model = WorldModel.from_pretrained('tabletop'); picture = np.full((*model.size, 3), 128, np.uint8);"
        "actions = np.zeros((model.num_actions, 7)); start = model.start(picture, state=np.zeros(7), sim=picture);"
        "print(model.predict(start, actions).frames.shape[1], model.bundle.source)"
    )
    frames, source = from_wheel(installed_wheel, statement, tmp_path).split()
    assert int(frames) > 1
    assert Path(source).is_relative_to(installed_wheel)
