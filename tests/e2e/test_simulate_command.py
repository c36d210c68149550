"""From the command line to a paired set and its page; what cannot be done is one line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from simforcing.data.tabletop import TabletopSets
from simforcing.sim.tabletop import TabletopConfig

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}


def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "simforcing", *map(str, arguments)]
    return subprocess.run(
        command, env=ENVIRONMENT | environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulated")
    TabletopSets(num_episodes=2, seed=0, simulator=TabletopConfig(num_frames=5, size_px=32), num_processes=1).write(
        folder
    )
    return folder


def test_the_cost_comes_first_and_the_result_last_and_a_page_shows_it(root: Path) -> None:
    given = ("--workspace", "0", "-1", "0", "1", "1", "2", "--table-height", "-0.01")
    result = run("simulate", root / "episodes", root / "set", "--variants", "1", "--processes", "1", *given)
    assert result.returncode == 0, result.stderr
    lines = [line.split("] ", 1)[1] for line in result.stderr.splitlines()]
    assert "on this machine, at most" in lines[1]
    assert lines[-2].startswith(f"{root / 'set'}: 2 episodes with real and sim, 0 left out; replays are off by at most")
    assert lines[-1].startswith(f"{root / 'set-variants'}: 2 variants, ")
    perturbation = json.loads((root / "set" / "meta" / "simulation.json").read_text())["perturbation"]
    assert perturbation["workspace_m"] == [[0, -1, 0], [1, 1, 2]]
    assert perturbation["table_height_m"] == -0.01
    result = run("view", root / "set", "--episodes", "0", "--out", root / "page.html")
    assert result.returncode == 0, result.stderr
    page = (root / "page.html").read_text()
    assert page.startswith("<!doctype html>")
    assert page.count("<article>") == 1


@pytest.mark.parametrize(
    ("arguments", "environment", "code", "message"),
    [
        (
            ("simulate", "{root}/episodes", "{root}/new", "--robot", "aloha"),
            {},
            2,
            "robot aloha: no model file aloha.xml",
        ),
        (
            ("simulate", "{root}/episodes", "{root}/new", "--workspace", *"100110"),
            {},
            2,
            "expected a lowest and a highest corner",
        ),
        (("simulate", "{root}/episodes", "{root}/new"), {"MUJOCO_GL": "vulkan"}, 1, "choices: egl, osmesa"),
        (("view", "{root}/set", "--episodes", "7"), {}, 2, "no episode '7'"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    root: Path, arguments: tuple[str, ...], environment: dict[str, str], code: int, message: str
) -> None:
    result = run(*(argument.format(root=root) for argument in arguments), **environment)
    assert result.returncode == code, result.stderr
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("simforcing: ")]
    assert message in line
    assert "Traceback" not in result.stderr
    assert not (root / "new").exists()
