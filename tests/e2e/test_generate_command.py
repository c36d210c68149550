"""`simforcing generate` of a picture and actions as a process: help, one line for bad input, a kill in the middle."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from simforcing.data.open import open_dataset
from simforcing.data.tabletop import TabletopSets
from simforcing.recipes import recipe_named
from simforcing.recipes.execute import execute
from simforcing.recipes.run import RunOptions
from simforcing.sim.tabletop import TabletopConfig

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
NUM_REQUESTS = 12


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "simforcing", "generate", *map(str, arguments)]


def run(*arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run(
        command(*arguments), env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, a photo, and a requests file."""
    folder = tmp_path_factory.mktemp("generate")
    simulator = TabletopConfig(num_frames=13, size_px=32)
    TabletopSets(num_episodes=3, num_counterfactual_starts=0, seed=0, simulator=simulator, num_processes=1).write(
        folder
    )
    data = open_dataset(folder / "episodes")
    execute(recipe_named("debug")(data, RunOptions(held_out=1)), data, folder / "run", report=lambda line: None)
    episode = data.episodes[0]
    assert episode.state is not None
    Image.fromarray(episode.views[0].frames.read(0, 1)[0]).save(folder / "photo.png")
    np.save(folder / "moves.npy", episode.action[:12])
    np.save(folder / "state.npy", episode.state[0])
    same = {"image": "photo.png", "actions": "moves.npy", "state": "state.npy"}
    requests = [same | {"name": f"v{i:02d}"} for i in range(NUM_REQUESTS)]
    (folder / "requests.json").write_text(json.dumps(requests))
    return folder


def videos(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.mp4"))}


def test_a_killed_call_goes_on_and_ends_bit_for_bit_as_if_it_had_not_been(root: Path):
    rest = ("--requests", root / "requests.json", "--batch-size", 2, "--steps", 60, "--lerobot")
    whole = run(root / "run", *rest, root / "whole-set", "--out", root / "whole")
    assert whole.returncode == 0, whole.stderr
    assert len(videos(root / "whole")) == NUM_REQUESTS
    killed = (root / "run", *rest, root / "killed-set", "--out", root / "killed")
    with subprocess.Popen(command(*killed), env=ENVIRONMENT, stderr=subprocess.DEVNULL) as process:
        limit_s = time.monotonic() + 200
        while not list((root / "killed").glob("v0*.mp4")) and time.monotonic() < limit_s:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    done = videos(root / "killed")
    assert 0 < len(done) < NUM_REQUESTS
    again = run(*killed)
    assert again.returncode == 0, again.stderr
    assert f"{NUM_REQUESTS} videos, {len(done)} already there" in again.stderr
    assert videos(root / "killed") == videos(root / "whole")
    tables = [sorted((root / name / "data").rglob("*.parquet")) for name in ("whole-set", "killed-set")]
    assert [path.read_bytes() for path in tables[0]] == [path.read_bytes() for path in tables[1]]
    names = {path.name for path in (root / "killed").iterdir()}
    assert names == {"settings.json", *done, *videos(root / "whole")}  # nothing half written of the killed process


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--image", "gone.png", "--actions", "moves.npy"), "gone.png: no such file, expected a picture"),
        (("--image", "photo.png", "--actions", "gone.csv"), "gone.csv: no such file"),
        (("--image", "photo.png"), "no actions; give a file of them"),
        (("--requests", "gone.json"), "gone.json: no such file"),
        (
            ("--image", "photo.png", "--actions", "moves.npy", "--sim-guidance", "nan"),
            "sim_guidance is nan; it must be a finite number",
        ),
        (("--num-seeds", "0"), "num_seeds is 0; it must be at least 1"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], line: str, root: Path):
    named = [
        str(root / word) if word.rpartition(".")[2] in ("png", "npy", "csv", "json") else word for word in arguments
    ]
    result = run(root / "run", *named, "--out", root / "bad")
    assert result.returncode == 2, result.stderr
    assert [text for text in result.stderr.splitlines() if text.startswith("simforcing: ")], result.stderr
    assert line in result.stderr
    assert "Traceback" not in result.stderr
    assert not (root / "bad").exists()


def test_the_help_tells_how_to_begin(root: Path):
    text = run("--help").stdout
    assert "simforcing generate MODEL --image photo.png --actions moves.csv --out DIR" in text
    for option in ("--image", "--actions", "--requests", "--lerobot", "--sim-guidance", "--rollout", "--num-seeds"):
        assert option in text
