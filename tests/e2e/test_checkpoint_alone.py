"""A checkpoint file is enough to use its weights, and options of a trainer change no bit that they should not."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from simforcing.data.open import open_dataset
from simforcing.data.tabletop import TabletopSets
from simforcing.models.bundle import load_bundle
from simforcing.models.mixture import Mixture
from simforcing.models.world_model import WorldModelConfig
from simforcing.nn.strict import load_strictly
from simforcing.recipes import recipe_named
from simforcing.recipes.execute import execute
from simforcing.recipes.run import RunOptions
from simforcing.sim.tabletop import TabletopConfig
from simforcing.training.checkpoint import CHECKPOINT_FOLDER, list_checkpoints, read_checkpoint
from simforcing.types import DataSpec, EpisodeSet, from_json

OPTIONS = RunOptions(num_steps=3, batch_size=2, held_out=1)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> EpisodeSet:
    root = tmp_path_factory.mktemp("set")
    TabletopSets(num_episodes=3, seed=0, simulator=TabletopConfig(num_frames=9, size_px=32), num_processes=1).write(
        root
    )
    return open_dataset(root / "episodes")


@pytest.fixture(scope="module")
def finished(data: EpisodeSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    execute(recipe_named("debug")(data, OPTIONS), data, out, report=lambda line: None)
    return out


def test_the_newest_checkpoint_rebuilds_the_data_spec_and_the_model_strictly(finished: Path):
    newest = read_checkpoint(list_checkpoints(finished / CHECKPOINT_FOLDER)[-1])
    run = newest.description["metadata"]["run"]
    bundle = load_bundle(finished)
    spec = from_json(DataSpec, run["spec"], "spec")
    assert spec == bundle.spec
    model = from_json(WorldModelConfig, run["model"], "model").build()
    load_strictly(model, newest.weights(), str(newest.path))
    for name, tensor in bundle.model.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name


def test_recomputed_activations_train_the_same_bits(
    data: EpisodeSet, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    seen = []
    forward = Mixture.forward
    monkeypatch.setattr(Mixture, "forward", lambda self, *args: seen.append(self.recompute) or forward(self, *args))
    run = recipe_named("debug")(data, OPTIONS)
    run = replace(run, trainer=replace(run.trainer, recompute=True))
    bundle = execute(run, data, tmp_path / "run", report=lambda line: None)
    assert len(seen) >= OPTIONS.num_steps
    assert all(seen)
    for name, tensor in load_bundle(finished).model.state_dict().items():
        assert torch.equal(bundle.model.state_dict()[name], tensor), name
