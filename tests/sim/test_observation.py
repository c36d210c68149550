"""What frames say by change alone: predictions follow the same rule as observations, whatever the scene looks like."""

import numpy as np
import pytest

from simforcing.sim.observation import NUM_KEYS, mostly_inside, observe, predicted_change, shrink

SIZE = (24, 32)


def block_frames(columns: list[int], seed: int, noise: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """A dark block of 8 columns that stands at these columns, before a smooth bright wall: frames and masks."""
    rng = np.random.default_rng(seed)
    wall = 150 + 40 * np.sin(np.arange(SIZE[1]) / 5 + seed)[None, :, None] * np.ones((*SIZE, 3))
    masks = np.zeros((len(columns), *SIZE), bool)
    for mask, column in zip(masks, columns, strict=True):
        mask[6:18, column : column + 8] = True
    frames = np.where(masks[..., None], [20.0, 30.0, 60.0], wall)
    frames = frames + noise * rng.standard_normal(frames.shape)
    return frames.round().clip(0, 255).astype(np.uint8), masks


PASSING = [0, 4, 8, 12, 16, 20, 24]
MOSTLY_STILL = [4, 4, 4, 4, 4, 14, 22]


@pytest.mark.parametrize("columns", [PASSING, MOSTLY_STILL], ids=["passing", "mostly still"])
def test_what_is_predicted_from_true_silhouettes_is_what_is_observed(columns: list[int]):
    """Also where the block stands most of the time: there the median is block, and change means its absence."""
    frames, masks = block_frames(columns, seed=0)
    observation = observe(frames, np.zeros(len(frames), int))
    np.testing.assert_array_equal(predicted_change(masks, observation), observation.change > 0.5)


def test_predicted_change_flips_where_the_robot_stands_most_of_the_time():
    frames, masks = block_frames(MOSTLY_STILL, seed=0)
    observation = observe(frames, np.zeros(len(frames), int))
    usual = mostly_inside(masks, observation.episode)
    np.testing.assert_array_equal(usual, np.broadcast_to(masks[0], masks.shape))
    predicted = predicted_change(masks, observation)
    np.testing.assert_array_equal(predicted[usual], ~masks[usual])
    np.testing.assert_array_equal(predicted[~usual], masks[~usual])


def test_each_episode_has_its_own_background():
    first, _ = block_frames(PASSING, seed=0)
    second, _ = block_frames(PASSING, seed=3)
    episode = np.repeat([0, 1], len(first))
    together = observe(np.concatenate([first, second]), episode)
    alone = [observe(frames, np.zeros(len(frames), int)) for frames in (first, second)]
    np.testing.assert_array_equal(together.change, np.concatenate([one.change for one in alone]))
    np.testing.assert_array_equal(together.key, np.concatenate([one.key for one in alone]))


def test_sensor_noise_is_no_change():
    frames, masks = block_frames(PASSING, seed=1, noise=4.0)
    change = observe(frames, np.zeros(len(frames), int)).change
    assert change[~masks].mean() < 0.15
    assert change[masks].mean() > 0.9


def test_still_frames_show_no_change_at_all():
    frames = np.repeat(block_frames([5], seed=2)[0], 6, axis=0)
    assert observe(frames, np.zeros(6, int)).change.max() == 0


def test_given_masks_take_the_place_of_change():
    frames, masks = block_frames(MOSTLY_STILL, seed=0)
    observation = observe(frames, np.zeros(len(frames), int), masks)
    np.testing.assert_array_equal(observation.change, masks)
    np.testing.assert_array_equal(predicted_change(masks, observation), masks)
    assert observation.masked
    assert observation.take(np.array([1, 3])).masked


def test_keys_tell_colours_apart_and_stay_below_their_number(rng: np.random.Generator):
    frames = rng.integers(0, 256, (5, *SIZE, 3), dtype=np.uint8)
    frames[:, 0, 0], frames[:, 0, 1] = 0, 255
    observation = observe(frames, np.zeros(5, int))
    assert observation.key.min() >= 0
    assert observation.key.max() < NUM_KEYS
    assert (observation.key[:, 0, 0] != observation.key[:, 0, 1]).all()


def test_frames_that_are_taken_keep_the_cues_of_all():
    frames, _ = block_frames(PASSING, seed=0)
    episode = np.array([0, 0, 0, 0, 1, 1, 1])
    observation, chosen = observe(frames, episode), np.array([5, 2])
    taken = observation.take(chosen)
    for name in ("frames", "episode", "change", "key"):
        np.testing.assert_array_equal(getattr(taken, name), getattr(observation, name)[chosen])
    assert taken.size == SIZE


def test_shrunk_pixels_are_means_and_the_rest_is_cut(rng: np.random.Generator):
    frames = rng.random((2, 7, 11, 3))
    small = shrink(frames, 3)
    assert small.shape == (2, 2, 3, 3)
    np.testing.assert_allclose(small[1, 1, 2], frames[1, 3:6, 6:9].mean(axis=(0, 1)), rtol=1e-6)
    np.testing.assert_allclose(shrink(frames, 1), frames, rtol=1e-6)
