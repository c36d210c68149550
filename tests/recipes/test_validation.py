"""The held-out loss is a fixed question: equal for equal weights, whatever the step, never of training windows."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from simforcing.data.latents import LatentWindows
from simforcing.recipes import RunOptions, recipe_named
from simforcing.recipes.execute import HELD_OUT, LATENTS, PREPARE_LOCK, RUN, clear, execute
from simforcing.recipes.validation import held_out_loss
from simforcing.training.checkpoint import sole_owner
from simforcing.training.log import read_log
from simforcing.types import EpisodeSet

SHORT = RunOptions(num_steps=2, batch_size=2)


def quiet(line: str) -> None:
    """Reports go nowhere."""


def test_equal_weights_have_equal_held_out_loss_at_every_step(square_set: EpisodeSet, tmp_path: Path):
    run = recipe_named("debug")(square_set, SHORT)
    bundle = execute(run, square_set, tmp_path, report=quiet)
    held, trained = LatentWindows.load(tmp_path / HELD_OUT), LatentWindows.load(tmp_path / LATENTS)
    validate = held_out_loss(run, held)
    first = validate(bundle.model, 1)
    assert first == validate(bundle.model, 2)
    assert first != held_out_loss(run, trained)(bundle.model, 1)
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
    assert LatentWindows.load(tmp_path / HELD_OUT).num_windows == per_episode * len(run.held_out)
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


def test_a_cleared_folder_says_what_it_holds_to_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("a.bin", RUN, "z.bin"):
        (tmp_path / name).write_text("x")
    removed: list[str] = []
    unlink = Path.unlink
    monkeypatch.setattr(Path, "unlink", lambda self, **how: (removed.append(self.name), unlink(self, **how))[1])
    clear(tmp_path)
    assert removed == ["a.bin", "z.bin", RUN]


def test_a_run_continues_from_another_folder_and_by_another_path(square_set: EpisodeSet, tmp_path: Path):
    run = recipe_named("debug")(square_set, SHORT)
    execute(run, square_set, tmp_path, report=quiet, command="one way")
    execute(run, replace(square_set, root="./squares"), tmp_path, report=quiet, command="another way")
