"""Refinement: from a few pixels off to a fraction of one, never to a worse camera, with what it does not know."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from simforcing.sim.calibrate import Group
from simforcing.sim.model import RobotModel
from simforcing.sim.refine import Refined, Refiner
from simforcing.sim.search import moved
from simforcing.sim.surface import SurfacePoints
from simforcing.types import Camera

TURN_RAD, SHIFT_M = np.array([0.045, -0.04, 0.04]), np.array([0.02, 0.01, 0.02])


@pytest.fixture(scope="module")
def refiner(filmed: Group) -> Iterator[Refiner]:
    chosen = np.arange(0, len(filmed.frames), 3)
    observation, qpos = filmed.observation.take(chosen), filmed.configurations(chosen, 1)
    with Refiner(filmed.robot, observation, qpos) as made:
        yield made


@pytest.fixture(scope="module")
def refined(refiner: Refiner, filmed_camera: Camera) -> Refined:
    return refiner.refine(moved(filmed_camera, TURN_RAD, SHIFT_M), free_focal=False)


def overlay_px(group: Group, camera: Camera, truth: Camera) -> float:
    """Mean distance between the robot's points as both cameras see them."""
    points = SurfacePoints(RobotModel(group.robot), num_points=200).place(group.qpos[0][::7]).reshape(-1, 3)
    return float(np.linalg.norm(camera.project(points) - truth.project(points), axis=1).mean())


def test_a_camera_two_pixels_off_is_brought_to_a_fraction_of_one(
    refined: Refined, filmed: Group, filmed_camera: Camera
):
    assert overlay_px(filmed, moved(filmed_camera, TURN_RAD, SHIFT_M), filmed_camera) > 2
    assert overlay_px(filmed, refined.camera, filmed_camera) < 0.4


def test_the_camera_that_is_given_back_scores_as_well_as_any_that_was_tried(
    refiner: Refiner, filmed_camera: Camera, monkeypatch: pytest.MonkeyPatch
):
    """Within the one per cent that whole pixels leave open, far better than the start's, and it is its own score."""
    scores: dict[str, float] = {}
    look = Refiner._look

    def noted(self: Refiner, camera: Camera, reach_px: float, free_focal: bool):
        found = look(self, camera, reach_px, free_focal)
        scores[str(camera.pose)] = found.score
        return found

    monkeypatch.setattr(Refiner, "_look", noted)
    start = moved(filmed_camera, 2 * TURN_RAD, SHIFT_M)
    refined = refiner.refine(start, free_focal=False)
    assert refined.score == scores[str(refined.camera.pose)]
    assert refined.score >= 0.99 * max(scores.values())
    assert refined.score > scores[str(start.pose)] + 0.1


def test_a_given_focal_length_stays_and_counts_as_known(refined: Refined, filmed_camera: Camera):
    np.testing.assert_array_equal(refined.camera.intrinsics, filmed_camera.intrinsics)
    np.testing.assert_array_equal(refined.covariance[6], 0)
    np.testing.assert_array_equal(refined.covariance[:, 6], 0)
    assert np.linalg.eigvalsh(refined.covariance[:6, :6]).min() > 0
    np.testing.assert_allclose(refined.covariance, refined.covariance.T, rtol=1e-6)
    assert 0 < refined.residual_px < 2


def test_a_free_focal_length_leaves_the_overlay_right_and_the_distance_in_doubt(
    refined: Refined, refiner: Refiner, filmed: Group, filmed_camera: Camera
):
    start = moved(filmed_camera, TURN_RAD, SHIFT_M, 0.08)
    free = refiner.refine(start, free_focal=True)
    assert np.linalg.eigvalsh(free.covariance).min() > 0
    assert overlay_px(filmed, free.camera, filmed_camera) < 0.5
    along, given = np.sqrt(free.covariance[5, 5]), np.sqrt(refined.covariance[5, 5])
    assert along > 1.5 * given


def test_an_outline_out_of_view_is_refused(refiner: Refiner, filmed_camera: Camera):
    with pytest.raises(ValueError, match="outline is not in view"):
        refiner.refine(moved(filmed_camera, np.array([0, np.pi, 0]), np.zeros(3)), free_focal=False)


def test_renderings_are_the_true_masks_of_the_lag(
    refiner: Refiner, filmed: Group, filmed_camera: Camera, filmed_masks: np.ndarray
):
    """Where nothing stands before the robot; by another lag they overlap less."""
    chosen = np.arange(0, len(filmed.frames), 3)
    overlaps = {}
    for lag in (1, 0):
        refiner.set_configurations(filmed.configurations(chosen, lag))
        seen = refiner.render(filmed_camera).coverage >= 0.5
        overlaps[lag] = (seen & filmed_masks[chosen]).sum() / (seen | filmed_masks[chosen]).sum()
    refiner.set_configurations(filmed.configurations(chosen, 1))
    assert overlaps[1] > 0.9
    assert overlaps[0] < overlaps[1] - 0.1


def test_a_squashed_picture_is_refined_as_well(filmed: Group, filmed_camera: Camera):
    """Frames cut to half of their columns: another focal length across than down."""
    chosen = np.arange(0, len(filmed.frames), 3)
    assert filmed_camera.intrinsics is not None
    squashed = replace(
        filmed_camera,
        size=(64, 32),
        intrinsics=np.array([[0.5, 0, -0.25], [0, 1, 0], [0, 0, 1]]) @ filmed_camera.intrinsics,
    )
    narrow = replace(filmed, frames=filmed.frames.reshape(-1, 64, 32, 2, 3).mean(axis=3).astype(np.uint8))
    with Refiner(filmed.robot, narrow.observation.take(chosen), filmed.configurations(chosen, 1)) as refiner:
        found = refiner.refine(moved(squashed, TURN_RAD, SHIFT_M), free_focal=False)
    assert overlay_px(filmed, found.camera, squashed) < 0.4


def test_a_robot_whose_base_lies_elsewhere_in_its_model_gives_the_same_camera(filmed: Group, filmed_camera: Camera):
    """Cameras are in the base frame, whatever the model's world is."""
    assert isinstance(filmed.robot.model, str)
    lifted = filmed.robot.model.replace('<body name="base"', '<body name="base" pos="0.4 0.3 0.2" euler="0 0 0.5"', 1)
    robot = replace(filmed.robot, model=lifted, base="base")
    chosen = np.arange(0, len(filmed.frames), 9)
    found = []
    for one in (filmed.robot, robot):
        with Refiner(one, filmed.observation.take(chosen), filmed.configurations(chosen, 1)) as refiner:
            found.append(refiner.refine(moved(filmed_camera, TURN_RAD, SHIFT_M), free_focal=False).camera)
    assert overlay_px(filmed, found[0], found[1]) < 0.05
