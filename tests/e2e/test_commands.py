"""The command line from data to report, as processes: results, exit codes, one line for bad input, kills and ranks."""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from simforcing.data.tabletop import TabletopSets
from simforcing.sim.tabletop import TabletopConfig

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
TRAIN = ("--recipe", "debug", "--held-out", "2")


def run(*arguments: object, launcher: tuple[str, ...] = (sys.executable, "-m")) -> subprocess.CompletedProcess:
    command = [*launcher, "simforcing", *map(str, arguments)]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("e2e")
    TabletopSets(
        num_episodes=6,
        num_counterfactual_starts=2,
        seed=0,
        simulator=TabletopConfig(num_frames=13, size_px=32),
        num_processes=1,
    ).write(folder)
    result = run("train", folder / "episodes", "--out", folder / "run", *TRAIN)
    assert result.returncode == 0, result.stderr
    return folder


def one_line(result: subprocess.CompletedProcess, code: int = 2) -> str:
    assert result.returncode == code, result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("simforcing: ")]
    assert len(lines) == 1, result.stderr
    assert "Traceback" not in result.stderr
    return lines[0]


def test_training_says_its_cost_first(root: Path):
    result = run("train", root / "episodes", "--out", root / "again", *TRAIN)
    assert "on this machine" in result.stderr
    assert "MB of disk" in result.stderr


def test_evaluate_writes_report_and_record_beside_copy_and_ceiling(root: Path):
    result = run("evaluate", root / "run")
    assert result.returncode == 0, result.stderr
    assert "copy of the given frame" in result.stdout
    record = json.loads((root / "run/evaluation/results.json").read_text())
    assert set(record["rows"]) == {"model", "copy", "ceiling"}
    assert record["following"]["swaps"]
    assert (root / "run/evaluation/report.html").stat().st_size > 10_000


def test_generate_writes_videos_and_keeps_what_is_there(root: Path):
    assert run("generate", root / "run", "--max-clips", 2).returncode == 0
    videos = sorted((root / "run/generated").glob("*.mp4"))
    assert len(videos) == 4
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in videos}
    videos[0].unlink()
    redone = videos[:2]  # a clip's two videos belong together
    assert run("generate", root / "run", "--max-clips", 2).returncode == 0
    for path, (content, written_ns) in before.items():
        assert path.read_bytes() == content
        assert (path.stat().st_mtime_ns == written_ns) == (path not in redone)


def test_doctor_fails_a_model_that_has_not_learnt_to_obey(root: Path):
    result = run("doctor", root / "run")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "FAIL  obedience" in result.stdout
    assert "ok    checkpoint" in result.stdout
    assert "ok    action layout" in result.stdout


def test_doctor_refuses_a_checkpoint_that_lacks_a_tensor(root: Path, tmp_path: Path):
    broken = tmp_path / "run"
    shutil.copytree(root / "run", broken)
    config = json.loads((broken / "config.json").read_text())
    config["model"]["state_dim"] = 0
    (broken / "config.json").write_text(json.dumps(config))
    result = run("doctor", broken)
    assert result.returncode == 1
    assert "extra state_in.bias" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "nowhere", "--out", "out"), "nowhere: no such file or folder"),
        (("evaluate", "nowhere"), "nowhere: no such run"),
        (("doctor", "nowhere"), "nowhere: no such run"),
        (("doctor", "nowhere", "--seed", -1), "seed is -1; it must be at least 0 and below 2**63"),
        (("train", "nowhere", "--out", "/dev/null"), "/dev/null cannot be written to: /dev/null is not a folder"),
        (("convert", "nowhere", "out"), "nowhere: no such file or folder"),
    ],
)
def test_unusable_input_is_exit_code_2_and_one_line(arguments: tuple, message: str, tmp_path: Path):
    assert message in one_line(run(*arguments))


def test_other_settings_do_not_continue_a_run(root: Path):
    line = one_line(run("train", root / "episodes", "--out", root / "run", *TRAIN, "--seed", 5))
    assert "holds another run" in line


def test_another_layout_is_refused_by_name(root: Path, tmp_path: Path):
    other = tmp_path / "episodes"
    shutil.copytree(root / "episodes", other)
    declared = other / "meta/simforcing.json"
    declared.write_text(declared.read_text().replace('"name": "tabletop"', '"name": "mine"'))
    line = one_line(run("evaluate", root / "run", "--data", other, "--out", tmp_path / "out"))
    assert "action layout is mine; the model was trained on tabletop" in line


def test_a_broken_video_costs_its_episode_by_name(root: Path, tmp_path: Path):
    """The episodes that share the damaged stretch are named and left out; the others are trained on."""
    other = tmp_path / "episodes"
    TabletopSets(num_episodes=6, seed=0, simulator=TabletopConfig(num_frames=13, size_px=32), num_processes=1).write(
        tmp_path
    )
    video = next(other.glob("videos/**/*.mp4"))
    content = bytearray(video.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 600] = np.random.default_rng(0).bytes(600)
    video.write_bytes(content)
    result = run("train", other, "--out", tmp_path / "run", "--recipe", "debug", "--steps", 1)
    if result.returncode == 0:
        assert "is left out" in result.stderr
    else:
        assert str(video.name) in one_line(result)


def test_a_set_without_a_readable_episode_is_exit_code_2(root: Path, tmp_path: Path):
    other = tmp_path / "episodes"
    shutil.copytree(root / "episodes", other)
    for video in other.rglob("*.mp4"):
        content = bytearray(video.read_bytes())
        box = content.index(b"mdat")  # the coded frames: size, name, content
        num_bytes = int.from_bytes(content[box - 4 : box]) - 8
        content[box + 4 : box + 4 + num_bytes] = bytes(num_bytes)
        video.write_bytes(content)
    line = one_line(run("train", other, "--out", tmp_path / "run", "--recipe", "debug"))
    assert "no usable episode (6 rejected: " in line


def test_overwriting_never_touches_a_data_set_in_the_folder_of_the_run(root: Path, tmp_path: Path):
    out = tmp_path / "run"
    shutil.copytree(root / "run", out)
    shutil.copytree(root / "episodes", out / "episodes")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    line = one_line(run("train", out / "episodes", "--out", out, *TRAIN, "--overwrite"))
    assert "lies in the folder" in line
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_a_full_disk_is_exit_code_1_and_names_the_file(root: Path, tmp_path: Path):
    def limit_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    command = [sys.executable, "-m", "simforcing", "train", root / "episodes", "--out", tmp_path / "run", *TRAIN]
    result = subprocess.run(
        list(map(str, command)), env=ENVIRONMENT, capture_output=True, text=True, timeout=300, preexec_fn=limit_files
    )
    assert "not written" in one_line(result, code=1)


def finished(folder: Path) -> dict[str, np.ndarray]:
    return load_file(folder / "model.safetensors")


def same(first: Path, second: Path) -> bool:
    ours, theirs = finished(first), finished(second)
    return ours.keys() == theirs.keys() and all(np.array_equal(ours[name], theirs[name]) for name in ours)


def newest_step(out: Path) -> int:
    """Of the checkpoints of a run; 0 where there is none yet."""
    return max((int(path.stem.split("_")[1]) for path in out.glob("checkpoints/step_*.safetensors")), default=0)


def kill_at_random(root: Path, out: Path, kills: int, steps: int) -> None:
    """Start a training, kill -9 it again and again, and let it end at last.

    The first kill falls anywhere, preparation included; each further one shortly after the run has come further than
    before, so that what is continued is a checkpoint and not the start.
    """
    moments = random.Random(kills)
    arguments = ("train", root / "episodes", "--out", out, *TRAIN, "--steps", steps)
    command = [sys.executable, "-m", "simforcing", *map(str, arguments)]
    for kill in range(kills):
        reached = newest_step(out)
        process = subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while kill > 0 and newest_step(out) <= reached and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(moments.uniform(0.5, 3.0) if kill == 0 else moments.uniform(0.0, 0.1))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "the run ended before it was killed: give it more steps"
    assert kills == 1 or newest_step(out) > 0
    result = run(*arguments)
    assert result.returncode == 0, result.stderr


def killed_equals_straight(root: Path, folder: Path, kills: int, steps: int) -> None:
    straight = run("train", root / "episodes", "--out", folder / "straight", *TRAIN, "--steps", steps)
    assert straight.returncode == 0, straight.stderr
    kill_at_random(root, folder / "killed", kills, steps)
    assert same(folder / "straight", folder / "killed")
    losses = [
        [(record["step"], record["loss"]) for record in map(json.loads, (folder / name / "log.jsonl").open())]
        for name in ("straight", "killed")
    ]
    assert losses[0] == losses[1]


def test_three_kills_change_no_bit(root: Path, tmp_path: Path):
    killed_equals_straight(root, tmp_path, kills=3, steps=200)


@pytest.mark.slow
def test_fifty_kills_change_no_bit(root: Path, tmp_path: Path):
    killed_equals_straight(root, tmp_path, kills=50, steps=3000)


def test_two_processes_have_the_losses_of_one(root: Path, tmp_path: Path):
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m")
    result = run("train", root / "episodes", "--out", tmp_path / "run", *TRAIN, launcher=launcher)
    assert result.returncode == 0, result.stderr
    losses = [
        [json.loads(line)["loss"] for line in (folder / "log.jsonl").read_text().splitlines()]
        for folder in (root / "run", tmp_path / "run")
    ]
    assert losses[1] == pytest.approx(losses[0], rel=2e-5)  # measured: 1e-6
