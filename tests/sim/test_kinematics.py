"""Laws of the arm: kinematics and gripper round trips."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from simforcing.sim.kinematics import Kinematics, euler_from_matrix, quaternion_from_euler
from simforcing.sim.tabletop_arm import RANGES_RAD, TABLETOP_ARM
from simforcing.sim.tasks import Workspace

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


def test_gripper_mapping_round_trips_and_opens_upwards():
    fractions = np.linspace(0, 1, 11)
    gripper = TABLETOP_ARM.arms[0].gripper
    assert gripper is not None
    fingers_m = gripper.positions(fractions)
    np.testing.assert_allclose(gripper.openness(fingers_m), fractions, atol=1e-12)
    assert (np.diff(fingers_m, axis=0) > 0).all()
    assert tuple(fingers_m[-1]) == gripper.opened
