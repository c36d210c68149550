"""The real-like domain: every knob does what it says, and nothing else."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simforcing.sim.model import RobotModel
from simforcing.sim.real_like import RealLike
from simforcing.sim.render import Renderer
from simforcing.sim.tabletop import BRANCHES, SimulatedEpisode, TabletopConfig
from simforcing.sim.tabletop_arm import TABLETOP_ARM

SHORT = TabletopConfig(num_frames=9, size_px=32)
ALL = RealLike(
    appearance="full", actuator_lag=1, stiction_rad=0.02, frame_lag=2, camera_error_px=2.0, shared_camera=True
)


def episodes(num: int = 2, *, config: TabletopConfig = SHORT, held_out: bool = False, **knobs: Any):
    simulator = replace(config, real=RealLike(**knobs)).build()
    found = [simulator.episode(seed=5, index=index, held_out=held_out) for index in range(num)]
    simulator.close()
    return found


@pytest.fixture(scope="module")
def plain() -> list[SimulatedEpisode]:
    return episodes(4)


@pytest.mark.parametrize(
    "knobs",
    [{"appearance": "light"}, {"appearance": "full"}, {"frame_lag": 2}, {"camera_error_px": 3.0}],
    ids=lambda knobs: next(iter(knobs)),
)
def test_what_is_only_seen_changes_no_measured_number(plain: list[SimulatedEpisode], knobs: dict[str, Any]):
    for before, after in zip(plain, episodes(**knobs), strict=False):
        np.testing.assert_array_equal(after.action, before.action)
        np.testing.assert_array_equal(after.state, before.state)
        np.testing.assert_array_equal(after.joint_rad, before.joint_rad)
        assert (after.task, after.camera) == (before.task, before.camera)


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_frames_show_the_state_of_so_many_rows_before(plain: list[SimulatedEpisode], lag: int):
    shown = np.maximum(0, np.arange(9) - lag)
    for before, after in zip(plain, episodes(frame_lag=lag), strict=False):
        np.testing.assert_array_equal(after.frames, before.frames[shown])


@pytest.mark.parametrize("lag", [1, 2])
def test_commands_reach_the_servos_so_many_steps_late(lag: int):
    early, late = (episodes(3, contact=False, actuator_lag=steps) for steps in (0, lag))
    for before, after in zip(early, late, strict=True):
        np.testing.assert_array_equal(after.action, before.action)
        np.testing.assert_allclose(after.joint_rad[: lag + 1], after.joint_rad[:1].repeat(lag + 1, 0), atol=2e-3)
        np.testing.assert_allclose(after.joint_rad[lag:], before.joint_rad[:-lag], atol=2e-3)


def test_stiction_holds_the_joints_off_their_command_within_the_dead_band():
    errors = {}
    for band in (0.0, 0.03):
        found = episodes(6, contact=False, stiction_rad=band)
        errors[band] = np.concatenate([np.abs(e.state[1:, :3] - e.action[:-1, :3]).max(axis=1) for e in found])
    assert np.median(errors[0.03]) > 2 * np.median(errors[0.0])
    assert errors[0.03].max() < 0.06


def test_without_contact_no_object_is_ever_near_the_arm_or_moved():
    simulator = replace(SHORT, num_frames=33, size_px=16, real=RealLike(contact=False)).build()
    highest_m = 2 * SHORT.scene.half_height_m[1]
    for index in range(8):
        for episode in (simulator.episode(seed=0, index=index), *simulator.counterfactuals(seed=0, index=index)):
            assert episode.kind in ("reach", "move")
            assert episode.state[:, 2].min() > highest_m + 0.01
            assert np.abs(simulator._data.qvel[-6 * len(simulator._objects) :]).max() < 1e-9
    simulator.close()


def test_half_coverage_keeps_demonstrations_on_one_side_and_held_out_ones_everywhere():
    config = replace(SHORT, num_frames=17, size_px=16)
    demonstrations = np.concatenate([e.state[:, 1] for e in episodes(12, config=config, coverage="half")])
    held_out = np.concatenate([e.state[:, 1] for e in episodes(12, config=config, coverage="half", held_out=True)])
    assert (demonstrations > -0.03).mean() > 0.97
    assert 0.2 < (held_out < -0.03).mean() < 0.8


def test_held_out_episodes_are_others():
    one, other = episodes(1)[0], episodes(1, held_out=True)[0]
    assert (one.action != other.action).any()


def test_a_shared_camera_is_one_for_all_sets_of_a_seed_and_another_for_other_seeds():
    simulator = replace(SHORT, real=ALL).build()
    found = [simulator.episode(seed=5, index=index) for index in range(2)]
    found += [simulator.episode(seed=5, index=0, held_out=True), *simulator.counterfactuals(seed=5, index=0)]
    other = simulator.episode(seed=6, index=0)
    simulator.close()
    assert {e.camera for e in found} == {found[0].camera}
    assert {e.declared_camera for e in found} == {found[0].declared_camera}
    assert other.camera != found[0].camera
    assert other.declared_camera != found[0].declared_camera


@pytest.mark.parametrize("error_px", [1.0, 5.0])
def test_the_declared_camera_misplaces_the_robot_by_about_the_asked_distance(error_px: float):
    robot, distances = RobotModel(TABLETOP_ARM), []
    for episode in episodes(12, config=replace(SHORT, size_px=64), camera_error_px=error_px):
        assert episode.declared_camera is not None
        for joint_rad in episode.joint_rad[::4]:
            robot.place(robot.configuration(joint_rad[None], np.ones((1, 1)))[0])
            seen = [camera.project(robot.data.xpos[1:]) for camera in (episode.camera, episode.declared_camera)]
            distances.append(np.linalg.norm(seen[0] - seen[1], axis=1).mean())
    assert abs(np.mean(distances) / error_px - 1) < 0.2


def test_a_camera_is_declared_right_wrong_or_not_at_all(plain: list[SimulatedEpisode]):
    assert plain[0].declared_camera == plain[0].camera
    assert episodes(1, declare_camera=False)[0].declared_camera is None
    assert episodes(1, declare_camera=False)[0].camera == plain[0].camera


def test_branches_of_all_knobs_share_frame_zero_and_nothing_after():
    simulator = replace(SHORT, real=ALL, truth=True).build()
    branches = simulator.counterfactuals(seed=0, index=1)
    again = simulator.counterfactuals(seed=0, index=1)
    simulator.close()
    assert len(branches) == BRANCHES
    for branch, repeated in zip(branches, again, strict=True):
        np.testing.assert_array_equal(branch.frames, repeated.frames)
        np.testing.assert_array_equal(branch.frames[0], branches[0].frames[0])
        np.testing.assert_array_equal(branch.depth_m[0], branches[0].depth_m[0])
    # Frames 1 and 2 show the same state, by the lag; each has noise of its own.
    assert (branches[0].frames[1] != branches[0].frames[2]).mean() > 0.3
    assert (branches[0].frames[1] != branches[1].frames[1]).mean() > 0.3
    np.testing.assert_array_equal(branches[0].mask[1], branches[1].mask[1])


def test_every_appearance_is_seen(plain: list[SimulatedEpisode]):
    change = {
        level: np.mean([np.abs(a.frames.astype(float) - b.frames).mean() for a, b in zip(plain, found, strict=True)])
        for level in ("light", "full")
        for found in [episodes(4, appearance=level)]
    }
    assert change["light"] > 5
    assert change["full"] > 5


@pytest.mark.parametrize("appearance", ["none", "full"])
def test_a_clean_replay_of_recorded_joints_covers_the_true_mask_where_nothing_hides_the_robot(appearance: str):
    config = TabletopConfig(num_frames=9, size_px=64, truth=True, real=RealLike(appearance=appearance, frame_lag=1))
    simulator = config.build()
    found = [simulator.episode(seed=3, index=index) for index in range(6)]
    simulator.close()
    robot = RobotModel(TABLETOP_ARM)
    renderer = Renderer(robot.model, size=(64, 64))
    overlaps, hidden = [], 0
    for episode in found:
        shown = np.maximum(0, np.arange(9) - 1)
        qpos = robot.configuration(episode.joint_rad[shown], episode.state[shown, 6:])
        for row, mask, depth_m in zip(qpos, episode.mask, episode.depth_m, strict=True):
            robot.place(row)
            picture = renderer.picture(robot.data, episode.camera)
            free = depth_m > picture.depth_m - 0.003  # elsewhere an object stands in front
            hidden += int((picture.mask & ~free).sum())
            both, either = (mask & picture.mask & free).sum(), ((mask | picture.mask) & (free | ~picture.mask)).sum()
            overlaps.append(both / either)
            # All but edges, where the nearest thing in a pixel may be another one.
            wrong = np.abs(depth_m - picture.depth_m)[mask & picture.mask] > 0.005
            assert wrong.mean() < 0.02
    renderer.close()
    assert np.median(overlaps) > 0.97
    assert min(overlaps) > 0.9
    assert hidden > 0


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"frame_lag": 9}, "frame_lag 9: from 0 to 5"),
        ({"actuator_lag": -1}, "actuator_lag -1"),
        ({"stiction_rad": 1.0}, "stiction_rad 1.0"),
        ({"camera_error_px": float("nan")}, "camera_error_px nan"),
    ],
)
def test_impossible_knobs_are_refused_by_name(knobs: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        RealLike(**knobs)


def test_knobs_that_do_not_fit_the_simulator_are_refused_by_name():
    with pytest.raises(ValueError, match=r"camera_error_px 20\.0: at most a quarter of 64"):
        TabletopConfig(real=RealLike(camera_error_px=20.0))
    with pytest.raises(ValueError, match="without contact there is only reach and move"):
        TabletopConfig(real=RealLike(contact=False), task_weights=(0.0, 0.0, 1.0, 0.0, 0.0))
