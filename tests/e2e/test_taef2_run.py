"""A run on TAEF2's latents, from training to a bundle that is read back and predicts; needs the published weights."""

from pathlib import Path

import numpy as np
import pytest
import torch

from simforcing.data.clips import Clips
from simforcing.data.open import open_dataset
from simforcing.data.tabletop import TabletopSets
from simforcing.generation.rollout import Predictor
from simforcing.generation.sampler import SamplerConfig
from simforcing.models.bundle import load_bundle
from simforcing.models.taef2 import Taef2
from simforcing.recipes import recipe_named
from simforcing.recipes.execute import execute
from simforcing.recipes.run import RunOptions
from simforcing.sim.tabletop import TabletopConfig


@pytest.fixture
def weights(shared_dir: Path) -> Path:
    folder = shared_dir / "weights/taef2"
    if not folder.is_dir():
        pytest.skip(f"no TAEF2 weights at {folder}")
    return folder


def test_a_taef2_run_trains_saves_loads_and_predicts(weights: Path, tmp_path: Path):
    TabletopSets(num_episodes=3, seed=0, simulator=TabletopConfig(num_frames=5, size_px=32), num_processes=1).write(
        tmp_path
    )
    data = open_dataset(tmp_path / "episodes")
    options = RunOptions(
        autoencoder="taef2", taef2_path=str(weights), num_steps=1, batch_size=2, size=(32, 32), num_frames=3, held_out=1
    )
    run = recipe_named("laptop")(data, options)
    trained = execute(run, data, tmp_path / "run", report=lambda line: None)
    bundle = load_bundle(tmp_path / "run")
    assert isinstance(bundle.autoencoder, Taef2)
    for name, tensor in trained.autoencoder.state_dict().items():
        assert torch.equal(bundle.autoencoder.state_dict()[name], tensor), name
    held_out = [episode for episode in data.episodes if episode.name in run.held_out]
    clips = Clips(held_out, bundle.spec, stride=2)
    (ours,), (theirs,) = (
        Predictor(either, SamplerConfig(num_steps=2)).predict([clips[0]], [0]) for either in (bundle, trained)
    )
    assert ours.shape == (3, 32, 32, 3)
    assert np.array_equal(ours, theirs)
    # The given frame comes back as the autoencoder shows it: the weights that were read back are the published ones.
    ceiling = Predictor(bundle, SamplerConfig(num_steps=2)).reconstruct([clips[0]])[0]
    assert np.abs(ceiling.astype(int) - clips[0].frames[0]).mean() < 16
