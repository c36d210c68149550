"""The held-out loss is a fixed question: equal for equal weights, whatever the step, never of training windows."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from simforcing.recipes import recipe_named
from simforcing.recipes.execute import LATENTS, LOCKS, PREPARE_LOCK, RUN, WRITTEN, clear, execute, prepare_files
from simforcing.recipes.run import RunOptions
from simforcing.recipes.validation import held_out_loss
from simforcing.training.checkpoint import CHECKPOINT_FOLDER, sole_owner
from simforcing.training.log import read_log
from simforcing.types import EpisodeSet

SHORT = RunOptions(num_steps=2, batch_size=2)


def quiet(line: str) -> None:
    """Reports go nowhere."""


def test_equal_weights_have_equal_held_out_loss_at_every_step(square_set: EpisodeSet, tmp_path: Path):
    run = recipe_named("debug")(square_set, SHORT)
    bundle = execute(run, square_set, tmp_path, report=quiet)
    _, trained, held = prepare_files(run, square_set, tmp_path, tmp_path / LATENTS, quiet)
    assert held is not None
    validate = held_out_loss(run, run.objective, held)
    first = validate(bundle.model, 1)
    assert first == validate(bundle.model, 2)
    assert first != held_out_loss(run, run.objective, trained)(bundle.model, 1)
    assert read_log(tmp_path / "log.jsonl")[-1]["validation"]["held_out_loss"] == pytest.approx(
        first["held_out_loss"], rel=1e-5
    )
    with torch.no_grad():
        bundle.model.video_head.linear.bias += 1
    assert validate(bundle.model, 1) != first


def test_held_out_windows_come_from_held_out_episodes(square_set: EpisodeSet, tmp_path: Path):
    run = recipe_named("debug")(square_set, SHORT)
    execute(run, square_set, tmp_path, report=quiet)
    per_episode = 2  # 13 frames, windows of 9 every 4
    _, _, held = prepare_files(run, square_set, tmp_path, tmp_path / LATENTS, quiet)
    assert held is not None
    assert held.num_windows == per_episode * len(run.held_out)
    config = json.loads((tmp_path / "config.json").read_text())
    assert set(config["about"]["training"]) == {e.name for e in square_set.episodes} - set(run.held_out)


def test_two_processes_never_share_a_run_folder(square_set: EpisodeSet, tmp_path: Path):
    run = recipe_named("debug")(square_set, SHORT)
    with sole_owner(tmp_path, PREPARE_LOCK), pytest.raises(ValueError, match="another process"):
        execute(run, square_set, tmp_path, report=quiet)


def test_a_folder_with_other_files_is_no_run(square_set: EpisodeSet, tmp_path: Path):
    (tmp_path / "autoencoder.safetensors").write_bytes(b"somebody's")
    with pytest.raises(ValueError, match=r"no run but other files \(autoencoder\.safetensors"):
        execute(recipe_named("debug")(square_set, SHORT), square_set, tmp_path, report=quiet, overwrite=True)
    assert (tmp_path / "autoencoder.safetensors").read_bytes() == b"somebody's"


def test_overwriting_removes_what_a_run_wrote_and_nothing_else(square_set: EpisodeSet, tmp_path: Path):
    out = tmp_path / "run"
    execute(recipe_named("debug")(square_set, SHORT), square_set, out, report=quiet)
    written = {path.name for path in out.iterdir()}
    assert written == {*WRITTEN, *LOCKS, RUN, LATENTS, CHECKPOINT_FOLDER}
    (out / "evaluation").mkdir()
    (out / "model.safetensors.17.partial").write_text("half")
    (out / "notes").mkdir()
    (out / "notes/mine.txt").write_text("mine")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/video.mp4").write_text("mine")
    (out / "generated").symlink_to(tmp_path / "elsewhere")
    clear(out)
    assert {path.name for path in out.iterdir()} == {"notes", RUN, *LOCKS}
    assert (out / "notes/mine.txt").read_text() == "mine"
    assert (tmp_path / "elsewhere/video.mp4").read_text() == "mine"
    other = recipe_named("debug")(square_set, replace(SHORT, batch_size=3))
    execute(other, square_set, out, report=quiet, overwrite=True)
    assert (out / "notes/mine.txt").read_text() == "mine"


def test_a_run_killed_at_its_very_first_file_starts_again(square_set: EpisodeSet, tmp_path: Path):
    for name in ("run.json.17.partial", "autoencoder.safetensors.4.partial"):
        (tmp_path / name).write_text("half")
    execute(recipe_named("debug")(square_set, SHORT), square_set, tmp_path, report=quiet)
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize("inside", ["run/data", "run", "."])
def test_a_run_and_its_data_never_share_a_folder(square_set: EpisodeSet, tmp_path: Path, inside: str):
    out, root = tmp_path / "run", tmp_path / inside
    run = recipe_named("debug")(square_set, SHORT)
    execute(run, square_set, out, report=quiet)
    root.mkdir(exist_ok=True)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match=r"lies in .*choose another --out"):
        execute(run, replace(square_set, root=str(root)), out, report=quiet, overwrite=True)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_description_of_another_type_is_named(square_set: EpisodeSet, tmp_path: Path):
    (tmp_path / RUN).write_text("[1]")
    with pytest.raises(ValueError, match=r"run\.json: damaged: expected an object, found list"):
        execute(recipe_named("debug")(square_set, SHORT), square_set, tmp_path, report=quiet)


def test_a_run_continues_from_another_folder_and_by_another_path(square_set: EpisodeSet, tmp_path: Path):
    run = recipe_named("debug")(square_set, SHORT)
    execute(run, square_set, tmp_path, report=quiet, command="one way")
    execute(run, replace(square_set, root="./squares"), tmp_path, report=quiet, command="another way")
