"""Pictures like those of the training pass; noise, a plain picture and photos of another scene do not."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_world import commands, small_start, small_world

from simforcing.data.resize import resize_frames
from simforcing.data.video import ArrayFrames
from simforcing.generation.familiarity import (
    MIN_PICTURES,
    Distance,
    Familiarity,
    familiarity_of,
    measure_familiarity,
    stored_familiarity,
)
from simforcing.generation.world_model import WorldModel
from simforcing.models.autoencoder import TinyAutoencoder, TinyAutoencoderConfig
from simforcing.sim.tabletop import TabletopConfig
from simforcing.types import Episode, Resize, View, to_json

RESIZE = Resize(height=32, width=32)


def first_frames(seed: int, count: int) -> list[np.ndarray]:
    """Of the simulated table top, in memory."""
    simulator = TabletopConfig(num_frames=2, size_px=32).build()
    try:
        return [simulator.episode(seed=seed, index=index).frames[0] for index in range(count)]
    finally:
        simulator.close()


@pytest.fixture(scope="module")
def autoencoder() -> TinyAutoencoder:
    torch.manual_seed(0)
    return TinyAutoencoderConfig(channels=16, width=8, num_decoder_blocks=0).build().eval()


@pytest.fixture(scope="module")
def known(autoencoder: TinyAutoencoder) -> Familiarity:
    measured = measure_familiarity(first_frames(0, 48), autoencoder)
    assert measured is not None
    return measured


def test_pictures_of_other_seeds_are_familiar(known: Familiarity, autoencoder: TinyAutoencoder):
    faults = [known.fault(picture, autoencoder) for picture in first_frames(1, 16)]
    assert sum(fault is not None for fault in faults) <= 1


def test_noise_and_plain_pictures_are_not(known: Familiarity, autoencoder: TinyAutoencoder):
    rng = np.random.default_rng(0)
    strange = [rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)]
    strange += [np.full((32, 32, 3), level, np.uint8) for level in (0, 128, 255)]
    for picture in strange:
        fault = known.fault(picture, autoencoder)
        assert fault is not None
        assert "spreads from theirs (at most" in fault


def test_photos_of_other_robots_are_mostly_not(
    known: Familiarity, autoencoder: TinyAutoencoder, real_photos: list[np.ndarray]
):
    found = [known.fault(resize_frames(photo[None], RESIZE)[0], autoencoder) is not None for photo in real_photos]
    assert np.mean(found) > 0.6


def test_the_distance_of_a_cloud_is_about_one_and_grows_outside():
    rng = np.random.default_rng(0)
    mixed = rng.normal(size=(400, 5)) @ rng.normal(size=(5, 5)) + 3
    distance = Distance.fit(mixed[:200])
    assert 0.8 < np.sqrt((distance(mixed[200:]) ** 2).mean()) < 1.2
    assert (distance(mixed[200:]) < distance.limit).mean() > 0.97
    assert (distance(mixed[200:] + 20 * mixed.std(axis=0)) > distance.limit).all()


def test_too_few_pictures_say_nothing(autoencoder: TinyAutoencoder):
    assert measure_familiarity(first_frames(0, MIN_PICTURES - 1), autoencoder) is None


def test_a_model_warns_of_what_its_bundle_records(tmp_path: Path):
    world = small_world()
    rng = np.random.default_rng(1)
    dark = [rng.integers(20, 40, (16, 16, 3), dtype=np.uint8) for _ in range(20)]
    measured = measure_familiarity(dark, world.bundle.autoencoder)
    about = {**world.bundle.about, "familiarity": to_json({"front": measured})}
    replace(world.bundle, about=about).save(tmp_path)
    loaded = WorldModel.from_pretrained(tmp_path)
    assert stored_familiarity(loaded.bundle.about, "here") == {"front": measured}
    loaded.predict(replace(small_start(), images=(dark[0],)), commands(0, 8))
    with pytest.warns(UserWarning, match="start 0: view front is unlike the training's pictures: .* spreads from"):
        loaded.predict(small_start(), commands(0, 8))
    with pytest.raises(ValueError, match=r"here: about\.familiarity\.front"):
        stored_familiarity({"familiarity": {"front": 3}}, "here")


def test_a_run_is_measured_on_first_and_middle_frames_of_its_episodes(autoencoder: TinyAutoencoder):
    pictures = first_frames(0, 2 * MIN_PICTURES)
    episodes = [
        Episode(
            name=f"episode {i}",
            task="",
            fps=5.0,
            num_frames=3,
            views=(View(name="front", frames=ArrayFrames(np.stack([pictures[2 * i]] + 2 * [pictures[2 * i + 1]]))),),
            action=np.zeros((3, 7)),
            action_time_s=np.arange(3) / 5,
        )
        for i in range(MIN_PICTURES)
    ]
    spec = small_world(resize=RESIZE).spec
    assert familiarity_of(episodes, spec, autoencoder) == {"front": measure_familiarity(pictures, autoencoder)}
