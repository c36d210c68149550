"""Robot models beside the project: none is shipped, so tests that need one skip with the reason where it is absent."""

from dataclasses import replace
from pathlib import Path

import mujoco
import pytest

from simforcing.sim.model import RobotModel
from simforcing.sim.robot import Arm, Robot
from simforcing.sim.robots import robot_named
from simforcing.sim.tabletop_arm import TABLETOP_ARM
from simforcing.types.layouts import Side


@pytest.fixture(scope="session")
def widowx(shared_dir: Path) -> RobotModel:
    path = shared_dir / "robots"
    if not (path / "trossen_wx250s" / "wx250s.xml").is_file():
        pytest.skip(f"no WidowX 250s model in {path}")
    return RobotModel(robot_named("widowx_250s", path))


@pytest.fixture(scope="session")
def panda() -> RobotModel:
    """A Panda with a Robotiq 2F-85: from the package gym-hil, or the folder named by SIMFORCING_ROBOTS."""
    try:
        return RobotModel(robot_named("panda_robotiq_2f85"))
    except ValueError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def two_arms() -> RobotModel:
    """Two tabletop arms that face each other, named and laid out as ALOHA's: left/... and right/..."""
    assert isinstance(TABLETOP_ARM.model, str)
    parent = mujoco.MjSpec()
    turned = {"left": ([-0.3, 0, 0], [1, 0, 0, 0]), "right": ([0.3, 0, 0], [0, 0, 0, 1])}
    for side, (position, quaternion) in turned.items():
        frame = parent.worldbody.add_frame(pos=position, quat=quaternion)
        parent.attach(mujoco.MjSpec.from_string(TABLETOP_ARM.model), prefix=f"{side}/", frame=frame)
    parent.compile()
    sides: tuple[Side, Side] = ("left", "right")
    robot = Robot(
        name="two_arms", model=parent.to_xml(), arms=tuple(_arm(side) for side in sides), layouts=("aloha", "two_poses")
    )
    return RobotModel(robot)


def _arm(side: Side) -> Arm:
    (arm,) = TABLETOP_ARM.arms
    assert arm.gripper is not None
    return replace(
        arm,
        side=side,
        joints=tuple(f"{side}/{joint}" for joint in arm.joints),
        site=f"{side}/{arm.site}",
        gripper=replace(arm.gripper, joints=tuple(f"{side}/{joint}" for joint in arm.gripper.joints)),
    )
