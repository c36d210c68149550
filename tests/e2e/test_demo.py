"""The demo in miniature: on the table top, on a data set of one's own, and again; and what each command costs first."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from simforcing.data.tabletop import TabletopSets
from simforcing.models.pretrained import packaged_models
from simforcing.recipes.demo import SIZES, tabletop_data
from simforcing.recipes.tabletop_sets import simulate_tabletop
from simforcing.sim.tabletop import TabletopConfig

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
COST = re.compile(r"about (\d+ (s|min) on this machine.*|[\d.]+) MB( of disk| and \d+ s)")


def run(*arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "simforcing", *map(str, arguments)]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated set, another one of the same kind, and a finished run on the first."""
    folder = tmp_path_factory.mktemp("demo")
    for name, seed in (("first", 0), ("second", 1)):
        TabletopSets(
            num_episodes=4, seed=seed, simulator=TabletopConfig(num_frames=13, size_px=32), num_processes=1
        ).write(folder / name)
    result = run("train", folder / "first/episodes", "--out", folder / "run", "--recipe", "debug", "--held-out", 2)
    assert result.returncode == 0, result.stderr
    return folder


def test_the_demo_runs_on_its_own_data_on_yours_and_again(tmp_path: Path):
    demo = ("demo", "--smoke", "--out", tmp_path)
    first = run(*demo)
    assert first.returncode == 0, first.stderr
    assert "min" in first.stderr.splitlines()[0] or " s on two CPU cores" in first.stderr.splitlines()[0]
    assert "MB of disk" in first.stderr.splitlines()[0]
    looked = first.stderr.splitlines()[1]
    if "tabletop" in packaged_models():
        assert re.search(r"first look: .*first-look\.gif: .* in [\d.]+ s$", looked)
        assert (tmp_path / "smoke/first-look.gif").stat().st_size > 10_000
    else:
        assert looked.startswith("first look: this source tree holds no trained model")
    table = next((tmp_path / "smoke").glob("tabletop-*"))
    for name, stage in (("episodes", "run"), ("episodes", "run"), ("pairs/episodes", "student")):
        result = run(*demo, "--data", table / name)
        assert result.returncode == 0, result.stderr
        assert "first look: left out" in result.stderr.splitlines()[1]
        assert "/data-" in result.stderr.splitlines()[-1]
        assert f"/{stage}/evaluation" in result.stderr.splitlines()[-1]
    again = run(*demo)
    assert again.returncode == 0, again.stderr
    assert "already there" in again.stderr
    assert (tmp_path / "smoke/student/evaluation/report.html").exists()
    assert (tmp_path / "smoke/teacher/config.json").exists()
    assert len(list((tmp_path / "smoke").glob("data-*/run/evaluation/report.html"))) == 1
    changed = run(*demo, "--dtype", "bfloat16")
    assert changed.returncode == 2
    assert "--overwrite" in changed.stderr.splitlines()[-1]


def test_the_demo_finishes_a_simulation_that_was_stopped_between_its_sets(tmp_path: Path):
    def quiet(line: str) -> None:
        """Reports go nowhere."""

    data = tabletop_data(tmp_path, SIZES["smoke"], 0, quiet)
    (data / "counterfactuals").rename(tmp_path / "gone")
    tabletop_data(tmp_path, SIZES["smoke"], 0, quiet)
    assert (data / "counterfactuals/meta").is_dir()


@pytest.mark.parametrize("command", ["convert", "tabletop", "train", "generate", "evaluate", "doctor"])
def test_every_long_command_says_its_time_and_disk_before_it_works(command: str, root: Path, tmp_path: Path):
    arguments = {
        "convert": (root / "first/episodes", tmp_path / "converted"),
        "tabletop": (tmp_path / "simulated", "--episodes", 2, "--frames", 5, "--size", 32, "--processes", 1),
        "train": (root / "first/episodes", "--out", tmp_path / "run", "--recipe", "debug", "--steps", 2),
        "generate": (root / "run", "--out", tmp_path / "videos"),
        "evaluate": (root / "run", "--out", tmp_path / "report"),
        "doctor": (root / "run",),
    }[command]
    result = run(command, *arguments)
    assert result.returncode == (1 if command == "doctor" else 0), result.stderr  # a debug run does not obey
    lines = result.stderr.splitlines()
    costs = [i for i, line in enumerate(lines) if COST.search(line)]
    assert costs, result.stderr
    done = [i for i, line in enumerate(lines) if re.search(r"written|step \d|generated|scoring", line)]
    assert not done or costs[0] < done[0]
    if command in ("train", "generate", "evaluate", "doctor"):
        assert re.search(r"checking that \d+ frames decode: about \d+ s", result.stderr)


def test_a_run_is_used_on_another_set_of_its_kind(root: Path, tmp_path: Path):
    other = root / "second/episodes"
    generated = run("generate", root / "run", "--data", other, "--out", tmp_path / "videos")
    assert generated.returncode == 0, generated.stderr
    assert len(list((tmp_path / "videos").glob("*.compare.mp4"))) == 4  # all of its episodes, one window each
    evaluated = run("evaluate", root / "run", "--data", other, "--out", tmp_path / "report", "--view", "front")
    assert evaluated.returncode == 0, evaluated.stderr
    assert "4 held-out clips of 4 episodes, view front" in evaluated.stderr
    refused = run("evaluate", root / "run", "--out", tmp_path / "other", "--view", "wrist")
    assert refused.returncode == 2
    assert "no view 'wrist'; views: front" in refused.stderr


def test_views_resizing_and_tensorboard_are_options_of_training(root: Path, tmp_path: Path):
    options = ("--camera", "front", "--resize", "pad", "--tensorboard", "--normaliser", "quantile", "--steps", 2)
    arguments = ("--recipe", "debug", "--size", 16, 32)
    result = run("train", root / "first/episodes", "--out", tmp_path / "run", *arguments, *options)
    assert result.returncode == 0, result.stderr
    assert [path for path in (tmp_path / "run").rglob("*") if path.name.startswith("events.out.tfevents")]
    config = (tmp_path / "run/config.json").read_text()
    assert '"pad"' in config
    assert '"quantile"' in config


def test_stale_videos_are_refused(root: Path, tmp_path: Path):
    generate = ("generate", root / "run", "--out", tmp_path / "videos", "--max-clips", 1)
    assert run(*generate).returncode == 0
    refused = run(*generate, "--seed", 3)
    assert refused.returncode == 2
    assert "seed was 0, is 3" in refused.stderr
    assert run(*generate, "--seed", 3, "--overwrite").returncode == 0


def test_simulated_sets_are_replaced_only_when_asked(tmp_path: Path):
    lines: list[str] = []
    sets = TabletopSets(num_episodes=1, simulator=TabletopConfig(num_frames=3, size_px=16), num_processes=1)
    simulate_tabletop(sets, tmp_path, report=lines.append)
    with pytest.raises(ValueError, match="exists already; choose another folder, or --overwrite"):
        simulate_tabletop(sets, tmp_path, report=lines.append)
    simulate_tabletop(sets, tmp_path, overwrite=True, report=lines.append)
    assert COST.search(lines[0])


@pytest.mark.parametrize(
    "arguments",
    [("--autoencoder", "taef2"), ("--taef2", "weights"), ("--held-out", 40), ("--camera", "ceiling")],
)
def test_options_that_cannot_be_used_are_exit_code_2(arguments: tuple, root: Path, tmp_path: Path):
    result = run("train", root / "first/episodes", "--out", tmp_path / "run", "--recipe", "debug", *arguments)
    assert result.returncode == 2, result.stderr
    assert len([line for line in result.stderr.splitlines() if line.startswith("simforcing: ")]) == 1
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "run").exists()


def test_without_the_simulator_the_rest_works_and_the_demo_says_what_to_install(root: Path, tmp_path: Path):
    def without(*arguments: object) -> subprocess.CompletedProcess:
        program = (
            "import sys; sys.modules['mujoco'] = sys.modules['mink'] = None;"
            f"sys.argv = {['simforcing', *map(str, arguments)]!r};"
            "from simforcing.cli import main; main()"
        )
        command = [sys.executable, "-c", program]
        return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)

    for command in (("demo", "--out", tmp_path, "--smoke"), ("tabletop", tmp_path / "table")):
        result = without(*command)
        assert result.returncode == 1
        assert re.fullmatch(r"simforcing: (mujoco|mink) is missing: pip install 'simforcing\[sim\]'\n", result.stderr)
    trained = without("train", root / "first/episodes", "--out", tmp_path / "run", "--recipe", "debug", "--steps", 1)
    assert trained.returncode == 0, trained.stderr
    assert without("evaluate", tmp_path / "run").returncode == 0
