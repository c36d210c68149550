"""Loaded robots: parts are found or refused by name, and a configuration moves what it should."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simforcing.sim.model import RobotModel
from simforcing.sim.robot import Robot
from simforcing.sim.tabletop_arm import TABLETOP_ARM

(ARM,) = TABLETOP_ARM.arms
assert ARM.gripper is not None


def with_arm(**changes: object) -> Robot:
    return replace(TABLETOP_ARM, arms=(replace(ARM, **changes),))


@pytest.mark.parametrize(
    ("robot", "missing"),
    [
        (with_arm(site="flange"), "no body 'flange'; it has: world, base"),
        (with_arm(joints=("waste", *ARM.joints[1:])), "no joint 'waste'; it has: waist"),
        (with_arm(gripper=replace(ARM.gripper, joints=("left", "right_finger"))), "no joint 'left'; it has: "),
        (replace(TABLETOP_ARM, base="pedestal"), "no body 'pedestal'; it has: world, base"),
    ],
)
def test_missing_part_is_named_with_those_there_are(robot: Robot, missing: str):
    with pytest.raises(ValueError, match=f"robot tabletop_arm: its model has {missing}") as error:
        RobotModel(robot)
    assert "\n" not in str(error.value)


def test_arm_joint_that_slides_is_refused():
    with pytest.raises(ValueError, match="joint 'left_finger' is no hinge"):
        RobotModel(with_arm(joints=(*ARM.joints[:5], "left_finger")))


@pytest.mark.parametrize("text", ["", "<mujoco><worldbody><body></mujoco>", "<robot name='urdf'/>"])
def test_unreadable_model_is_one_line_naming_the_robot(text: str):
    with pytest.raises(ValueError, match="robot tabletop_arm: ") as error:
        RobotModel(replace(TABLETOP_ARM, model=text))
    assert "\n" not in str(error.value)


def test_missing_model_file_is_one_line_naming_the_robot(tmp_path: Path):
    with pytest.raises(ValueError, match=r"robot tabletop_arm: .*absent\.xml") as error:
        RobotModel(replace(TABLETOP_ARM, model=lambda: tmp_path / "absent.xml"))
    assert "\n" not in str(error.value)


def test_configuration_moves_named_joints_and_fingers_alone():
    robot = RobotModel(TABLETOP_ARM)
    joint_rad, openness = np.arange(12.0).reshape(2, 6) / 10, np.array([[0.0], [1.0]])
    qpos = robot.configuration(joint_rad, openness)
    np.testing.assert_array_equal(qpos[:, robot.joint_columns], joint_rad)
    assert ARM.gripper is not None
    fingers = [robot.model.joint(name).qposadr[0] for name in ARM.gripper.joints]
    np.testing.assert_allclose(qpos[:, fingers], [ARM.gripper.closed, ARM.gripper.opened])


def test_each_arm_has_its_own_columns(two_arms: RobotModel):
    np.testing.assert_array_equal(two_arms.arm_columns("left"), np.arange(6))
    np.testing.assert_array_equal(two_arms.arm_columns("right"), np.arange(6, 12))
    openness = np.array([[0.0, 1.0]])
    qpos = two_arms.configuration(two_arms.home_rad[None], openness)[0]
    widths = {side: qpos[two_arms.model.joint(f"{side}/left_finger").qposadr[0]] for side in ("left", "right")}
    assert widths == {"left": 0.001, "right": 0.038}


def test_base_frame_is_that_of_the_named_body(two_arms: RobotModel):
    """The same robot, its poses told from the world and from the left arm's base."""
    seen = RobotModel(replace(two_arms.robot, base="left/base"))
    base = np.eye(4)
    base[0, 3] = -0.3
    np.testing.assert_allclose(seen.base_pose(), base, atol=1e-12)
    np.testing.assert_allclose(base @ seen.tool_pose("right"), two_arms_at_home(two_arms, "right"), atol=1e-12)


def two_arms_at_home(robot: RobotModel, side: str) -> np.ndarray:
    robot.place(robot.configuration(robot.home_rad[None], np.ones((1, 2)))[0])
    return robot.tool_pose("left" if side == "left" else "right")


def test_joint_without_limits_has_infinite_ones():
    assert isinstance(TABLETOP_ARM.model, str)
    free = TABLETOP_ARM.model.replace('name="waist" axis="0 0 1" range="-3.14 3.14"', 'name="waist" axis="0 0 1"')
    robot = RobotModel(replace(TABLETOP_ARM, model=free))
    assert robot.low_rad[0] == -np.inf
    assert np.isfinite(robot.low_rad[1:]).all()
