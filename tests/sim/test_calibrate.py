"""Calibration of one group: from a start far off to the camera and the lag, and verdicts that are never made up."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from simforcing.sim.calibrate import CalibrateConfig, Group, Hypothesis, fit_group, group_fit, hypotheses, judge, polish
from simforcing.sim.model import RobotModel
from simforcing.sim.refine import Refined
from simforcing.sim.search import moved
from simforcing.sim.surface import SurfacePoints
from simforcing.types import Camera
from simforcing.types.calibration import EpisodeFit

GIVEN = CalibrateConfig(free_focal=False, num_coarse_frames=16, num_fine_frames=24, num_scored_frames=12)
TURN_RAD = np.deg2rad(10) * np.array([0.6, -0.64, 0.48])
SHIFT_M = 0.1 * np.array([0.48, 0.6, -0.64])


def fit(group: Group, config: CalibrateConfig) -> tuple[Hypothesis, Refined]:
    """As the command does it; AssertionError where no camera is found."""
    best = fit_group(group, config)
    assert best is not None
    return polish(group, config, best)


def only(group: Group, *lags: int) -> Group:
    """With fewer lags to try."""
    return replace(group, lags=lags, qpos=group.qpos[[group.lags.index(lag) for lag in lags]])


@pytest.fixture(scope="module")
def started(filmed: Group, filmed_camera: Camera) -> Group:
    """With a start that is 10 cm and 10 degrees off."""
    return replace(filmed, starts=(moved(filmed_camera, TURN_RAD, SHIFT_M),))


@pytest.fixture(scope="module")
def found(started: Group) -> tuple[Hypothesis, Refined]:
    return fit(started, GIVEN)


@pytest.fixture(scope="module")
def right(filmed_camera: Camera) -> Hypothesis:
    return Hypothesis(camera=filmed_camera, lag=1, score=1.0)


def errors(group: Group, camera: Camera, truth: Camera) -> tuple[float, float, float]:
    """Distance (m), turn (degrees), overlay (px)."""
    assert camera.pose is not None
    assert truth.pose is not None
    points = SurfacePoints(RobotModel(group.robot), num_points=200).place(group.qpos[0][::7]).reshape(-1, 3)
    return (
        float(np.linalg.norm(camera.pose[:3, 3] - truth.pose[:3, 3])),
        float(np.rad2deg(Rotation.from_matrix(camera.pose[:3, :3].T @ truth.pose[:3, :3]).magnitude())),
        float(np.linalg.norm(camera.project(points) - truth.project(points), axis=1).mean()),
    )


def test_from_10_cm_and_10_degrees_off_the_camera_is_found_within_1_cm_and_1_degree_and_the_lag_exactly(
    found: tuple[Hypothesis, Refined], started: Group, filmed_camera: Camera
):
    start = errors(started, started.starts[0], filmed_camera)
    assert start[0] == pytest.approx(0.1, abs=1e-3)
    assert start[1] == pytest.approx(10, abs=0.1)
    hypothesis, refined = found
    distance_m, turn_deg, overlay_px = errors(started, hypothesis.camera, filmed_camera)
    assert hypothesis.lag == 1
    assert distance_m < 0.01
    assert turn_deg < 1
    assert overlay_px < 0.5
    assert hypothesis.camera == refined.camera


def test_with_a_free_field_of_view_the_overlay_is_right_within_half_a_pixel(started: Group, filmed_camera: Camera):
    wider = moved(started.starts[0], np.zeros(3), np.zeros(3), -0.1)
    hypothesis, refined = fit(only(replace(started, starts=(wider,)), 1, 2), replace(GIVEN, free_focal=True))
    assert hypothesis.lag == 1
    assert errors(started, hypothesis.camera, filmed_camera)[2] < 0.5
    assert refined.covariance[6, 6] > 0


def test_masks_take_the_place_of_change(started: Group, filmed_masks: np.ndarray, filmed_camera: Camera):
    masked = only(replace(started, masks=filmed_masks), 1, 2)
    hypothesis, _ = fit(masked, GIVEN)
    assert hypothesis.lag == 1
    assert errors(started, hypothesis.camera, filmed_camera)[2] < 0.5
    assert all(one.accepted and one.iou is not None and one.iou > 0.8 for one in judge(masked, GIVEN, hypothesis))


@pytest.mark.slow
def test_without_any_start_the_camera_is_found_from_all_around(filmed: Group, filmed_camera: Camera):
    hypothesis, _ = fit(filmed, CalibrateConfig(free_focal=True))
    assert hypothesis.lag == 1
    assert errors(filmed, hypothesis.camera, filmed_camera)[2] < 0.5


def test_the_same_seed_gives_the_same_hypotheses_bit_for_bit(started: Group):
    config = replace(GIVEN, num_coarse_frames=6)
    first, second = (hypotheses(only(started, 1), config) for _ in range(2))
    assert first == second


def test_the_right_camera_is_accepted_in_every_episode(filmed: Group, right: Hypothesis):
    fits = judge(filmed, GIVEN, right)
    assert [one.name for one in fits] == list(filmed.episodes)
    for one in fits:
        assert one.accepted, one.reason
        assert one.iou is not None
        assert one.iou_low is not None
        assert one.iou_high is not None
        assert one.iou > 0.5
        assert one.iou_low <= one.iou <= one.iou_high
        assert one.lag == 1
        assert one.reason == ""


def test_a_camera_that_is_turned_by_8_pixels_is_accepted_nowhere(filmed: Group, right: Hypothesis):
    assert right.camera.intrinsics is not None
    turn = 8 / right.camera.intrinsics[0, 0]
    for side in ((turn, 0, 0), (0, turn, 0)):
        wrong = replace(right, camera=moved(right.camera, np.array(side), np.zeros(3)))
        assert not any(one.accepted for one in judge(filmed, GIVEN, wrong))


def with_episode(
    group: Group, number: int, *, frames: np.ndarray | None = None, qpos: np.ndarray | None = None
) -> Group:
    """The group with other frames, or another motion, in one of its episodes."""
    own = group.episode == number
    changed, moves = group.frames.copy(), group.qpos.copy()
    if frames is not None:
        changed[own] = frames
    if qpos is not None:
        moves[:, own] = qpos
    return replace(group, frames=changed, qpos=moves)


def test_an_episode_whose_robot_never_moves_is_left_out_with_the_reason(filmed: Group, right: Hypothesis):
    still = with_episode(filmed, 1, qpos=filmed.qpos[:, filmed.episode == 1][:, :1])
    fits = judge(still, GIVEN, right)
    assert [one.accepted for one in fits] == [True, False, True]
    assert "the robot is seen to move in 0 of 12 frames only" in fits[1].reason
    assert fits[1].iou is None


def test_an_episode_whose_robot_is_never_in_view_is_left_out_with_the_reason(filmed: Group, right: Hypothesis):
    """Of a group whose camera looks the other way, every one is."""
    away = replace(right, camera=moved(right.camera, np.array([0, np.pi, 0]), np.zeros(3)))
    for one in judge(filmed, GIVEN, away):
        assert not one.accepted
        assert "seen to move in 0 of 12 frames only" in one.reason


def test_an_episode_with_frames_of_another_one_is_left_out(filmed: Group, right: Hypothesis):
    """What is seen does not go with the measured motion."""
    fits = judge(with_episode(filmed, 2, frames=filmed.frames[filmed.episode == 0][::-1]), GIVEN, right)
    assert [one.accepted for one in fits[:2]] == [True, True]
    assert not fits[2].accepted
    assert fits[2].reason


def test_an_episode_of_noise_is_left_out(filmed: Group, right: Hypothesis):
    noise = np.random.default_rng(0).integers(0, 256, filmed.frames[filmed.episode == 2].shape, dtype=np.uint8)
    fits = judge(with_episode(filmed, 2, frames=noise), GIVEN, right)
    assert not fits[2].accepted
    assert fits[2].iou is not None
    assert fits[2].iou < 0.3


def test_frames_that_are_all_equal_give_no_camera(started: Group):
    still = replace(started, frames=np.repeat(started.frames[:1], len(started.frames), axis=0))
    with pytest.raises(ValueError, match="nothing changes in any frame"):
        hypotheses(still, GIVEN)
    assert fit_group(still, GIVEN) is None


@pytest.mark.parametrize(("level", "said"), [(False, "nothing changes"), (True, "never seen to move")])
def test_masks_that_are_all_black_or_all_white_give_no_camera(started: Group, level: bool, said: str):
    masks = np.full(started.frames.shape[:3], level)
    with pytest.raises(ValueError, match=said):
        hypotheses(replace(started, masks=masks), GIVEN)


def test_under_masks_that_are_all_white_no_episode_is_accepted(filmed: Group, right: Hypothesis):
    white = replace(filmed, masks=np.ones(filmed.frames.shape[:3], bool))
    assert not any(one.accepted for one in judge(white, GIVEN, right))


def test_a_start_that_looks_away_gives_no_camera_or_none_that_is_accepted(filmed: Group, filmed_camera: Camera):
    away = moved(filmed_camera, np.array([0, np.pi, 0]), np.zeros(3))
    with pytest.raises(ValueError, match="never seen to move"):
        hypotheses(
            replace(filmed, starts=(away,), lags=(1,), qpos=filmed.qpos[1:2]), replace(GIVEN, num_coarse_frames=6)
        )


def test_motion_of_other_episodes_overlaps_at_chance_and_every_episode_is_left_out(started: Group):
    """Frames of one episode, states of another, backwards: whatever camera fits best, its score tells."""
    swapped = only(replace(started, qpos=np.roll(started.qpos, 21, axis=1)[:, ::-1]), 1)
    best = fit_group(swapped, GIVEN)
    if best is None:
        return
    fits = judge(swapped, GIVEN, best[0])
    assert max(one.iou or 0.0 for one in fits) < 0.3
    assert not any(one.accepted for one in fits)


def test_other_times_are_of_the_same_episode_and_never_the_same_frame(filmed: Group):
    every = np.arange(len(filmed.frames))
    other = filmed.half_an_episode_away(every)
    np.testing.assert_array_equal(np.sort(other), every)
    np.testing.assert_array_equal(filmed.episode[other], filmed.episode)
    away = np.abs(other - every)
    assert away.min() >= 10
    assert away.max() <= 11


def test_the_record_of_a_fit_holds_its_deviations(right: Hypothesis):
    covariance = np.diag([1, 4, 4, 9, 36, 36, 0.25])
    refined = Refined(camera=right.camera, score=1.0, covariance=covariance, residual_px=0.5)
    episodes = (EpisodeFit(name="a", accepted=True, iou=0.5),)
    record = group_fit("g", right, refined, episodes, right.camera)
    assert (record.rotation_deviation_rad, record.position_deviation_m, record.focal_deviation) == (3.0, 9.0, 0.5)
    assert (record.name, record.lag, record.camera, record.episodes) == ("g", 1, right.camera, episodes)


@pytest.mark.parametrize("name", ["num_coarse_frames", "num_fine_frames", "num_scored_frames"])
def test_fewer_than_4_frames_are_refused_by_name(name: str):
    with pytest.raises(ValueError, match=f"{name} 3: needs at least 4 frames"):
        CalibrateConfig(**{name: 3})
