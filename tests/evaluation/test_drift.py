"""Drift: chunks are scored by themselves, shorter episodes end earlier, and reports say why there is nothing."""

import numpy as np
import pytest

from simforcing.evaluation.drift import LongVideo, measure_drift, no_drift
from simforcing.evaluation.frames import psnr
from simforcing.evaluation.protocols import PROTOCOLS

RULES = PROTOCOLS["predicted-frames"]


def long_video(seed: int, num_chunks: int, growth: float) -> LongVideo:
    rng = np.random.default_rng(seed)
    count = 1 + 4 * num_chunks
    truth = rng.integers(60, 190, (count, 16, 16, 3), dtype=np.uint8)
    noise = rng.normal(size=truth.shape) * growth * np.arange(count)[:, None, None, None]
    return LongVideo(
        episode=f"episode {seed}", truth=truth, predicted=np.clip(truth + noise, 0, 255).round().astype(np.uint8)
    )


def test_a_chunk_has_the_mean_of_its_own_frames():
    video = long_video(0, 3, 1.0)
    found = measure_drift([video], 4, RULES, fps=5.0)
    frames = psnr(video.truth[1:], video.predicted[1:])
    np.testing.assert_allclose(found.scores["model", "psnr"][0], frames.reshape(3, 4).mean(axis=1))
    copied = psnr(video.truth[1:], np.repeat(video.truth[:1], 12, axis=0))
    np.testing.assert_allclose(found.scores["copy", "psnr"][0], copied.reshape(3, 4).mean(axis=1))
    assert found.end_s == (0.8, 1.6, 2.4)


def test_growing_errors_are_seen_and_shorter_episodes_end_earlier():
    found = measure_drift([long_video(i, 2 + i % 2, 1.0) for i in range(4)], 4, RULES, fps=5.0)
    assert found.num_episodes == [4, 4, 2]
    mean = found.curve("model", "psnr").mean
    assert mean[0] > mean[1] + 3 > mean[2] + 4


def test_without_a_long_episode_there_is_a_reason():
    assert measure_drift([], 4, RULES, fps=5.0).reason == "no held-out episode is longer than one window"
    assert no_drift("because").reason == "because"


def test_a_protocols_size_binds_long_videos_too():
    rules = PROTOCOLS["tabletop"]

    video = long_video(0, 2, 1.0)
    with pytest.raises(ValueError, match="scores 64x64 px"):
        measure_drift([video], 4, rules, fps=5.0)
