"""Descriptions of robots: grippers map both ways, and what cannot be a robot is refused."""

import numpy as np
import pytest

from simforcing.sim.robot import Arm, Gripper, Robot
from simforcing.sim.robots import ROBOTS
from simforcing.sim.tabletop_arm import TABLETOP_ARM
from simforcing.types import LAYOUTS


@pytest.mark.parametrize("name", list(ROBOTS))
def test_gripper_mapping_round_trips(name: str):
    """For every robot that comes with the package; a description needs no model file."""
    openness = np.linspace(0, 1, 11)
    for arm in ROBOTS[name](None).arms:
        assert arm.gripper is not None
        positions = arm.gripper.positions(openness)
        assert positions.shape == (11, len(arm.gripper.joints))
        np.testing.assert_allclose(arm.gripper.openness(positions), openness, atol=1e-12)
        assert tuple(positions[0]) == arm.gripper.closed
        np.testing.assert_allclose(positions[-1], arm.gripper.opened, atol=1e-15)


@pytest.mark.parametrize("name", list(ROBOTS))
def test_named_robot_describes_itself(name: str):
    """Its name is the one it is found by, and its layouts are registered and fit its arms."""
    robot = ROBOTS[name](None)
    assert robot.name == name
    for layout_name in robot.layouts:
        layout = LAYOUTS[layout_name]
        for arm in robot.arms:
            part = "joint" if arm.side == "single" else f"{arm.side}_joint"
            if part in layout.slices:
                assert layout.part(part).size == len(arm.joints)


def test_gripper_with_unequal_lists_is_refused():
    with pytest.raises(ValueError, match="2 joints, 1 closed and 2 open"):
        Gripper(joints=("a", "b"), closed=(0.0,), opened=(1.0, 1.0))


def test_gripper_that_does_not_move_is_refused():
    with pytest.raises(ValueError, match=r"joint a does not move: closed and open at 0\.3"):
        Gripper(joints=("a",), closed=(0.3,), opened=(0.3,))


def test_home_of_another_number_of_joints_is_refused():
    with pytest.raises(ValueError, match="arm single: 2 joints, home pose of 1"):
        Arm(joints=("a", "b"), home_rad=(0.0,), site="tip")


def test_two_arms_on_one_side_are_refused():
    with pytest.raises(ValueError, match=r"arms on sides \['single', 'single'\]"):
        Robot(name="r", model="", arms=TABLETOP_ARM.arms * 2)


def test_arm_of_a_missing_side_lists_the_sides():
    with pytest.raises(ValueError, match="no left arm; arms: single"):
        TABLETOP_ARM.arm("left")
