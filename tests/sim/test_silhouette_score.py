"""The score that decides: high for the right camera, falling with its error, and at chance where nothing is right."""

from collections.abc import Iterator

import numpy as np
import pytest

from simforcing.sim.calibrate import Group
from simforcing.sim.contours import Rendered
from simforcing.sim.observation import observe
from simforcing.sim.refine import Refiner
from simforcing.sim.search import moved
from simforcing.sim.silhouette_score import Overlap, overlap
from simforcing.types import Camera


@pytest.fixture(scope="module")
def refiner(filmed: Group) -> Iterator[Refiner]:
    every = np.arange(len(filmed.frames))
    with Refiner(filmed.robot, filmed.observation, filmed.configurations(every, 1)) as made:
        yield made


def score(refiner: Refiner, filmed: Group, camera: Camera) -> float:
    return overlap(refiner.render(camera), filmed.observation).iou()


def turned(camera: Camera, column_px: float, row_px: float) -> Camera:
    assert camera.intrinsics is not None
    return moved(camera, np.array([row_px, column_px, 0]) / camera.intrinsics[0, 0], np.zeros(3))


def test_the_right_camera_scores_high_and_displaced_ones_low(refiner: Refiner, filmed: Group, filmed_camera: Camera):
    right = score(refiner, filmed, filmed_camera)
    assert right > 0.65
    for column, row in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        near, far = (score(refiner, filmed, turned(filmed_camera, d * column, d * row)) for d in (3, 10))
        assert right > near + 0.08
        assert near > far
        assert far < 0.4


def test_a_wrong_lag_scores_lower(refiner: Refiner, filmed: Group, filmed_camera: Camera):
    every, scores = np.arange(len(filmed.frames)), {}
    for lag in filmed.lags:
        refiner.set_configurations(filmed.configurations(every, lag))
        scores[lag] = score(refiner, filmed, filmed_camera)
    refiner.set_configurations(filmed.configurations(every, 1))
    assert max(scores, key=lambda lag: scores[lag]) == 1


def test_recognised_silhouettes_are_the_true_ones(
    refiner: Refiner, filmed: Group, filmed_camera: Camera, filmed_masks: np.ndarray
):
    """Measured against masks that the score never saw."""
    found = overlap(refiner.render(filmed_camera), filmed.observation)
    free = refiner.render(filmed_camera).coverage.mean(axis=0) < 0.3
    truth, observed = filmed_masks[:, free], found.observed[:, free]
    assert (truth & observed).sum() / (truth | observed).sum() > 0.6


def test_given_masks_are_compared_as_they_are(filmed: Group, filmed_masks: np.ndarray):
    observation = observe(filmed.frames, filmed.episode, filmed_masks)
    found = overlap(
        Rendered(coverage=filmed_masks.astype(np.float32), depth_m=np.ones(filmed_masks.shape, np.float32)), observation
    )
    assert found.iou() == 1.0
    shifted = np.roll(filmed_masks, 3, axis=2)
    found = overlap(
        Rendered(coverage=shifted.astype(np.float32), depth_m=np.ones(shifted.shape, np.float32)), observation
    )
    np.testing.assert_allclose(found.iou(), (shifted & filmed_masks).sum() / (shifted | filmed_masks).sum())


def test_pictures_of_noise_score_at_chance(refiner: Refiner, filmed: Group, filmed_camera: Camera):
    noise = np.random.default_rng(0).integers(0, 256, filmed.frames.shape, dtype=np.uint8)
    assert overlap(refiner.render(filmed_camera), observe(noise, filmed.episode)).iou() < 0.2


def test_still_pictures_score_at_chance(refiner: Refiner, filmed: Group, filmed_camera: Camera):
    """A robot painted on the wall matches one pose at best."""
    still = np.repeat(filmed.frames[:1], len(filmed.frames), axis=0)
    assert overlap(refiner.render(filmed_camera), observe(still, filmed.episode)).iou() < 0.2


def test_a_robot_that_stands_still_is_not_seen(filmed: Group):
    """Where it never leaves, nothing tells it from the background: no pixel counts, and no score is made up."""
    coverage = np.zeros(filmed.frames.shape[:3], np.float32)
    coverage[:, 20:40, 20:30] = 1
    found = overlap(Rendered(coverage=coverage, depth_m=coverage), filmed.observation)
    assert not found.visible.any()
    assert found.iou() == 0.0


def counts(intersection: list[int], union: list[int]) -> Overlap:
    size = len(union)
    return Overlap(
        intersection_px=np.array(intersection),
        union_px=np.array(union),
        visible=np.ones(size, bool),
        observed=np.zeros((size, 2, 2), bool),
    )


def test_iou_is_over_all_pixels_of_the_chosen_frames():
    found = counts([1, 30, 0], [10, 40, 50])
    assert found.iou() == 0.31
    assert found.iou(np.array([True, True, False])) == 0.62
    assert counts([0, 0], [0, 0]).iou() == 0.0


def test_interval_encloses_the_score_narrows_with_frames_and_repeats(rng: np.random.Generator):
    union = rng.integers(50, 100, 200)
    intersection = (union * rng.uniform(0.4, 0.8, 200)).astype(int)
    found, every = counts(intersection.tolist(), union.tolist()), np.ones(200, bool)
    low, high = found.interval(every, 0)
    assert low < found.iou() < high
    assert found.interval(every, 0) == (low, high)
    few = np.arange(200) < 8
    few_low, few_high = found.interval(few, 0)
    assert few_high - few_low > 2 * (high - low)
    assert found.interval(np.zeros(200, bool), 0) == (0.0, 0.0)


def test_interval_of_equal_frames_is_a_point():
    assert counts([5] * 6, [10] * 6).interval(np.ones(6, bool), 3) == (0.5, 0.5)
