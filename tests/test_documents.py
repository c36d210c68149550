"""Documents and examples do what they say: each command of a ```console block runs, in order, a folder per document.

A command that cannot run here (hours, an accelerator, the reader's data) stands in a ```sh block, after the reason;
scripts/check_documents.py looks its options up.
"""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from simforcing import RunOptions, execute, open_dataset, recipe_named
from simforcing.data.tabletop import TabletopSets
from simforcing.data.video import VideoFrames
from simforcing.sim.tabletop import TabletopConfig

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
# These run this test themselves, or are run by CI in miniature.
LEFT_OUT = re.compile(r"^(make (demo|test)\b|git clone\b|cd simforcing\b)")
LAUNCHER = f'#!/bin/sh\nexec "{sys.executable}" -m simforcing "$@"\n'


def commands(text: str) -> list[str]:
    """The lines after "$ " of all console blocks, a trailing backslash continues."""
    found = []
    for block in BLOCK.findall(text):
        joined = block.replace("\\\n", " ")
        found += [line[2:].strip() for line in joined.splitlines() if line.startswith("$ ")]
    return [command for command in found if not LEFT_OUT.match(command)]


def documents() -> list[Path]:
    """Documents with at least one command to run."""
    paths = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(path for path in paths if commands(path.read_text()))


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """PATH with this interpreter, and with a `simforcing` of it where the package is not installed."""
    folder = tmp_path_factory.mktemp("bin")
    if not (Path(sys.executable).parent / "simforcing").exists():
        (folder / "simforcing").write_text(LAUNCHER)
        (folder / "simforcing").chmod(0o755)
    return os.pathsep.join([str(Path(sys.executable).parent), str(folder), os.environ["PATH"]])


@pytest.fixture
def check_documents() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_documents", ROOT / "scripts" / "check_documents.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_of_the_document_runs(document: Path, programs: str, tmp_path: Path):
    environment = os.environ | {"PATH": programs, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    for command in commands(document.read_text()):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


def test_the_examples_predict_clips_of_a_debug_run(tmp_path: Path):
    TabletopSets(num_episodes=3, seed=0, simulator=TabletopConfig(num_frames=9, size_px=32), num_processes=1).write(
        tmp_path
    )
    data = open_dataset(tmp_path / "episodes")
    options = RunOptions(num_steps=1, batch_size=2, held_out=1)
    run = recipe_named("debug")(data, options)
    execute(run, data, tmp_path / "run", report=lambda line: None)
    said = example("predict.py", tmp_path / "run", tmp_path / "out.mp4")
    assert repr(run.held_out[0]) in said
    assert VideoFrames(tmp_path / "out.mp4").num_frames == run.spec.num_frames
    said = example("closed_loop.py", tmp_path / "run", tmp_path / "loop.mp4", "--num-envs", "2", "--num-steps", "2")
    assert "steps/s (2 clips at once" in said
    assert VideoFrames(tmp_path / "loop.mp4").num_frames == 1 + 2 * 4
    said = example("long_rollout.py", tmp_path / "run", tmp_path / "long.mp4", "--seconds", "4")
    assert "actions: tabletop: translation 3 (absolute, m)" in said
    assert VideoFrames(tmp_path / "long.mp4").num_frames == 1 + 3 * (run.spec.num_frames - 1)


def example(name: str, *arguments: Path | str) -> str:
    """What an example prints."""
    command = [sys.executable, ROOT / "examples" / name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_commands_are_found_and_continued_lines_joined():
    text = "```console\n$ make demo\n$ simforcing a \\\n    --b\nits output\n```\n```sh\nsimforcing long\n```\n"
    assert commands(text) == ["simforcing a      --b"]


def test_links_names_and_commands_in_the_documents_exist(check_documents: ModuleType, capsys: pytest.CaptureFixture):
    assert check_documents.main() == 0, capsys.readouterr().out


def test_commands_options_and_targets_that_do_not_exist_are_found(check_documents: ModuleType, tmp_path: Path):
    document = tmp_path / "document.md"
    document.write_text(
        "`make demo DATA=path`, `make coffee`, `simforcing doctor RUN`, `simforcing RUN` and `simforcing --help`\n"
        "```sh\nA=b simforcing train data --recipe debug --fast | tail\n"
        "torchrun -m simforcing evaluate run \\\n    --device cpu --wings 2  # --not-seen\n```\n"
        "```console\n$ cd simforcing && make test\n$ simforcing fly\n```\n```text\nsimforcing swim\n```\n"
    )
    assert sorted(check_documents.unknown_commands(document)) == [
        "make coffee: no such target",
        "simforcing evaluate: no option --wings",
        "simforcing fly: no such command",
        "simforcing train: no option --fast",
    ]
