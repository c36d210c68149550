"""What `simulate` writes is what training reads: pairs, variants of training episodes, latents from the cache."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from simforcing.data.clips import Clips
from simforcing.data.latent_cache import cached_windows
from simforcing.data.latents import LatentWindows
from simforcing.data.open import open_dataset
from simforcing.data.pair_streams import variants_root
from simforcing.data.paired import require_paired, variants_beside
from simforcing.data.spec import fit_spec
from simforcing.data.windows import WindowSpec
from simforcing.models.autoencoder import TinyAutoencoderConfig
from simforcing.types import Resize

REAL, SIM = ("real",), ("sim",)


def test_a_simulated_set_is_paired_and_its_variants_are_not(paired: Path):
    require_paired(open_dataset(paired), REAL, SIM)
    with pytest.raises(ValueError, match="is no pair of real and sim: it has sim, and no real"):
        require_paired(open_dataset(variants_root(paired)), REAL, SIM)


def test_each_episode_brings_its_own_variants(paired: Path):
    data = open_dataset(paired)
    variants = variants_beside(data)
    assert variants is not None
    assert len(variants.of(data.episodes)) == len(variants.data.episodes) > 0
    for episode in data.episodes:
        for variant in variants.of([episode]):
            assert variant.task == episode.task
            assert variant.name.startswith(f"{episode.name}_")


def test_cached_windows_of_stored_video_equal_encoded_ones(paired: Path, tmp_path: Path):
    data = open_dataset(paired)
    variants = variants_beside(data)
    assert variants is not None
    window = WindowSpec(num_frames=5, views=REAL, resize=Resize(height=32, width=32))
    spec = replace(fit_spec(data, data.episodes, window=window), sim_views=SIM)
    autoencoder = TinyAutoencoderConfig(channels=6, num_decoder_blocks=0).build().eval()
    lots = [
        Clips(data.episodes, spec, stride=4, fingerprint=data.fingerprint),
        Clips(variants.of(data.episodes), spec, stride=4, fingerprint=variants.data.fingerprint),
    ]
    encoded = LatentWindows.joined([LatentWindows.encode(clips, autoencoder, spec) for clips in lots])
    for _ in range(2):
        parts = [cached_windows(clips, autoencoder, spec, tmp_path, report=lambda line: None) for clips in lots]
        batch, expected = (
            source.batch(range(encoded.num_windows)) for source in (LatentWindows.joined(parts), encoded)
        )
        for name in ("clean", "sim", "has_real"):
            assert torch.equal(getattr(batch, name), getattr(expected, name))
        assert batch.has_real is not None
        assert batch.has_real.tolist() == [True] * len(lots[0]) + [False] * len(lots[1])
