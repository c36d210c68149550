"""Kinematics of any arm: what the inverse reaches, what it keeps, and what decides its bits."""

import numpy as np
import pytest
from scipy.optimize import least_squares
from scipy.spatial.transform import Rotation

from simforcing.sim.kinematics import Kinematics, euler_from_matrix, follow, quaternion_from_euler
from simforcing.sim.model import RobotModel
from simforcing.sim.tabletop_arm import RANGES_RAD, TABLETOP_ARM
from simforcing.sim.tasks import Workspace
from simforcing.types.layouts import Side

HOME = np.array(TABLETOP_ARM.arms[0].home_rad)


@pytest.fixture(scope="module")
def kinematics() -> Kinematics:
    return Kinematics(TABLETOP_ARM)


def test_inverse_kinematics_reaches_every_workspace_pose(kinematics: Kinematics):
    rng = np.random.default_rng(0)
    for _ in range(300):
        pose = Workspace().draw(rng)[:6]
        start = np.array([np.arctan2(pose[1], pose[0]), *HOME[1:]])
        error = np.abs(kinematics.forward(kinematics.inverse(pose, start)) - pose)
        assert error[:3].max() < 2e-4, pose
        assert error[3:].max() < 2e-3, pose


def test_inverse_kinematics_returns_to_the_joints_it_came_from(kinematics: Kinematics):
    rng = np.random.default_rng(1)
    for _ in range(50):
        joint_rad = HOME + rng.uniform(-0.3, 0.3, 6)
        found = kinematics.inverse(kinematics.forward(joint_rad), joint_rad + rng.uniform(-0.1, 0.1, 6))
        np.testing.assert_allclose(kinematics.forward(found), kinematics.forward(joint_rad), atol=2e-3)


def test_unreachable_pose_stays_within_joint_limits(kinematics: Kinematics):
    far = np.array([3.0, 1.0, 2.0, 0.0, 0.0, 3.0])
    joint_rad = kinematics.inverse(far, HOME)
    low_rad, high_rad = np.array(list(RANGES_RAD.values())).T
    assert (joint_rad >= low_rad).all()
    assert (joint_rad <= high_rad).all()


def test_home_points_straight_down_with_euler_angles_zero(kinematics: Kinematics):
    pose = kinematics.forward(HOME)
    np.testing.assert_allclose(pose[3:], 0.0, atol=0.01)
    assert 0.2 < pose[0] < 0.3
    assert abs(pose[1]) < 1e-6


@pytest.mark.parametrize("euler", [(0.3, -0.7, 1.1), (-0.2, 0.1, -2.9), (0.0, 0.0, 0.0), (1.2, 1.4, 3.0)])
def test_euler_angles_are_extrinsic_xyz_as_scipy_has_them(euler: tuple[float, float, float]):
    reference = Rotation.from_euler("xyz", euler)
    np.testing.assert_allclose(euler_from_matrix(reference.as_matrix()), euler, atol=1e-9)
    ours = Rotation.from_quat(quaternion_from_euler(np.array(euler)), scalar_first=True)
    assert (ours * reference.inv()).magnitude() < 1e-9


def test_forward_is_the_tool_pose_of_the_placed_model(widowx: RobotModel):
    """With a tool frame that is turned and shifted against its body, and an arm that is one of two."""
    kinematics = Kinematics(widowx)
    for joint_rad in np.random.default_rng(0).uniform(-1, 1, (10, 6)):
        widowx.place(widowx.configuration(joint_rad[None], np.ones((1, 1)))[0])
        tool, pose = widowx.tool_pose("single"), kinematics.forward(joint_rad)
        np.testing.assert_allclose(pose[:3], tool[:3, 3], atol=1e-12)
        np.testing.assert_allclose(Rotation.from_euler("xyz", pose[3:]).as_matrix(), tool[:3, :3], atol=1e-9)


def test_either_arm_of_two_is_reached_on_its_own(two_arms: RobotModel):
    """The base frame is the world's: the same joints, the other arm, mirrored about the axis between them."""
    joint_rad = HOME + np.array([0.2, 0.1, -0.2, 0.3, 0.1, -0.4])
    sides: tuple[Side, Side] = ("left", "right")
    poses = {side: Kinematics(two_arms, side).forward(joint_rad) for side in sides}
    np.testing.assert_allclose(poses["left"][:2], -poses["right"][:2], atol=1e-9)
    for side, pose in poses.items():
        found = Kinematics(two_arms, side).inverse(pose, HOME)
        np.testing.assert_allclose(found, joint_rad, atol=2e-3)
    before = two_arms.data.qpos.copy()
    Kinematics(two_arms, "left").forward(joint_rad)
    np.testing.assert_array_equal(two_arms.data.qpos, before)


def test_seven_joints_reach_poses_and_stay_near_the_previous_posture(panda: RobotModel):
    """A closed loop of the tool brings the redundant arm back to nearly the same posture."""
    kinematics = Kinematics(panda, position_tolerance_m=1e-6, rotation_tolerance_rad=1e-5)
    home = kinematics.forward(panda.home_rad)
    phase = np.linspace(0, 2 * np.pi, 60)
    poses = np.tile(home, (60, 1))
    poses[:, 0] += 0.1 * np.sin(phase)
    poses[:, 2] += 0.1 * (np.cos(phase) - 1)
    path = follow(kinematics, poses, panda.home_rad)
    reached = np.array([kinematics.forward(row) for row in path])
    np.testing.assert_allclose(reached[:, :3], poses[:, :3], atol=2e-6)
    assert np.abs(np.diff(path, axis=0)).max() < 0.1
    assert np.abs(path[-1] - panda.home_rad).max() < 0.1


@pytest.mark.parametrize("robot", ["widowx", "panda"])
def test_poses_are_reached_without_a_start(robot: str, request: pytest.FixtureRequest):
    model: RobotModel = request.getfixturevalue(robot)
    kinematics, rng = Kinematics(model), np.random.default_rng(3)
    for _ in range(20):
        pose = kinematics.forward(model.home_rad + rng.uniform(-0.6, 0.6, model.num_joints))
        found = kinematics.forward(kinematics.reach(pose))
        np.testing.assert_allclose(found[:3], pose[:3], atol=2e-4)


def test_a_start_within_tolerance_is_returned_bit_for_bit(kinematics: Kinematics):
    start = HOME + 0.1
    np.testing.assert_array_equal(kinematics.inverse(kinematics.forward(start), start), start)


def test_two_solvers_agree_bit_for_bit_whatever_they_solved_before():
    rng = np.random.default_rng(4)
    first, second = Kinematics(TABLETOP_ARM), Kinematics(TABLETOP_ARM)
    for _ in range(5):
        first.inverse(Workspace().draw(rng)[:6], HOME)
    pose = Workspace().draw(rng)[:6]
    assert first.inverse(pose, HOME).tobytes() == second.inverse(pose, HOME).tobytes()


def test_inverse_agrees_with_a_general_least_squares_solver(kinematics: Kinematics):
    """Parity with scipy on reachable poses: both find the posture next to the start (measured: 2e-5 rad)."""
    rng = np.random.default_rng(5)

    def residual(joint_rad: np.ndarray, pose: np.ndarray) -> np.ndarray:
        found = kinematics.forward(joint_rad)
        turned = Rotation.from_euler("xyz", pose[3:]) * Rotation.from_euler("xyz", found[3:]).inv()
        return np.concatenate([pose[:3] - found[:3], 0.1 * turned.as_rotvec()])

    for _ in range(10):
        start = HOME + rng.uniform(-0.3, 0.3, 6)
        pose = kinematics.forward(start + rng.uniform(-0.15, 0.15, 6))
        expected = least_squares(residual, start, args=(pose,), xtol=1e-12, ftol=1e-12, gtol=1e-12).x
        np.testing.assert_allclose(kinematics.inverse(pose, start), expected, atol=3e-3)
