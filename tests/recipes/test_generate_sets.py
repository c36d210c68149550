"""The LeRobot set of generated videos: what it holds and says of itself, and that it trains a model."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from requesting import FEW_STEPS, item_of, quiet, written

from simforcing.data.open import open_dataset
from simforcing.data.video import VideoFrames
from simforcing.models.bundle import load_bundle
from simforcing.recipes.generate import generate
from simforcing.recipes.generated_folder import SETTINGS
from simforcing.recipes.requests import Asked
from simforcing.recipes.run import RunOptions
from simforcing.recipes.train import train_on


@pytest.fixture
def made_set(student: Path, files: Path, tmp_path: Path) -> Callable[..., Path]:
    """-> the LeRobot set of two videos."""

    def make(**options: Any) -> Path:
        asked = Asked(requests=written(files, [item_of(i, name=f"v{i}", task="move it") for i in range(2)]))
        root = tmp_path / "set"
        generate(
            student,
            asked,
            out=tmp_path / "out",
            lerobot=root,
            options=replace(FEW_STEPS, **options),
            report=quiet,
        )
        return root

    return make


def test_a_lerobot_set_holds_videos_commands_and_carried_states_and_says_that_it_is_generated(
    made_set: Callable[..., Path], student: Path, files: Path, tmp_path: Path
):
    data = open_dataset(made_set())
    spec = load_bundle(student).spec
    assert (data.action_layout, data.robot) == (spec.action.layout, spec.robot)
    assert [episode.name for episode in data.episodes] == ["v0", "v1"]
    for index, episode in enumerate(data.episodes):
        action = np.load(files / f"moves{index}.npy")
        np.testing.assert_array_equal(episode.action[: len(action)], action)
        assert (episode.task, episode.fps) == ("move it", spec.fps)
        assert episode.state is not None
        np.testing.assert_allclose(episode.state[0], json.loads((files / f"state{index}.json").read_text()), rtol=1e-6)
        np.testing.assert_allclose(episode.state[1 : len(action) + 1], action, atol=1e-6)  # targets in force
        video = VideoFrames(tmp_path / f"out/v{index}.mp4")
        stored = episode.view("real").frames.read(0, episode.num_frames)
        np.testing.assert_array_equal(stored, video.read(0, video.num_frames))
    record = json.loads((tmp_path / "set/meta/generated.json").read_text())
    settings = json.loads((tmp_path / "out" / SETTINGS).read_text())
    assert record["generated"] is True
    assert record["model_sha256"] == settings["model_sha256"]
    assert record["videos"]["v1"]["seed"] == 1


def test_a_lerobot_set_trains_a_model_as_it_is(made_set: Callable[..., Path], tmp_path: Path):
    options = RunOptions(num_steps=2, batch_size=2, held_out=1)
    train_on(str(made_set()), tmp_path / "trained", recipe="debug", options=options, report=quiet)
    assert load_bundle(tmp_path / "trained").spec.views == ("real",)


@pytest.mark.parametrize("place", ["trained", "videos", "foreign"])
def test_a_set_replaces_neither_what_the_model_learnt_from_nor_foreign_files(
    student: Path, files: Path, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    trained = tmp_path / load_bundle(student).about["data"]
    (trained / "meta").mkdir(parents=True)
    (trained / "meta/info.json").write_text("{}")
    root = {"trained": trained, "videos": tmp_path / "out", "foreign": tmp_path / "mine"}[place]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("kept")
    asked = Asked(requests=written(files, [item_of(0, name="v")]))
    with pytest.raises(ValueError, match="choose another --lerobot"):
        generate(
            student,
            asked,
            out=tmp_path / "out",
            lerobot=root,
            options=replace(FEW_STEPS, overwrite=True),
            report=quiet,
        )
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "mine/notes.txt").is_file()
    assert (trained / "meta/info.json").read_text() == "{}"


def test_a_set_that_is_there_is_kept_and_another_is_refused_before_any_work(
    made_set: Callable[..., Path], tmp_path: Path
):
    root = made_set()
    written_ns = (root / "meta/info.json").stat().st_mtime_ns
    assert made_set() == root
    assert (root / "meta/info.json").stat().st_mtime_ns == written_ns
    (root / "meta/generated.json").unlink()
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(ValueError, match="set exists and holds other data; choose another --lerobot, or --overwrite"):
        made_set()
    assert not (tmp_path / "out").exists()
    made_set(overwrite=True)
    assert (root / "meta/generated.json").is_file()
