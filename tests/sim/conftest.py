"""Robot models beside the project (tests that need one skip with the reason where it is absent), and a filmed arm."""

from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest

from simforcing.sim.calibrate import Group
from simforcing.sim.model import RobotModel
from simforcing.sim.real_like import RealLike
from simforcing.sim.robot import Arm, Robot
from simforcing.sim.robots import robot_named
from simforcing.sim.tabletop import SimulatedEpisode, TabletopConfig
from simforcing.sim.tabletop_arm import TABLETOP_ARM
from simforcing.types import Camera
from simforcing.types.layouts import Side

LAGS = (0, 1, 2)


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


@pytest.fixture(scope="session")
def filmed_episodes() -> tuple[SimulatedEpisode, ...]:
    """Three real-like episodes of the table top, seen by one camera with a lag of 1, with masks of the robot."""
    real = RealLike(appearance="full", frame_lag=1, shared_camera=True)
    simulator = TabletopConfig(num_frames=21, real=real, truth=True).build()
    episodes = tuple(simulator.episode(seed=4, index=index) for index in range(3))
    simulator.close()
    return episodes


@pytest.fixture(scope="session")
def filmed(filmed_episodes: tuple[SimulatedEpisode, ...]) -> Group:
    """Those episodes as a group to fit, with the true field of view and no start."""
    robot, episodes = RobotModel(TABLETOP_ARM), filmed_episodes
    rows = np.arange(len(episodes[0].frames))
    qpos = [robot.configuration(e.joint_rad.astype(float), e.state[:, 6:].astype(float)) for e in episodes]
    return Group(
        name="filmed",
        episodes=tuple(f"episode {i}" for i in range(len(episodes))),
        robot=TABLETOP_ARM,
        frames=np.concatenate([e.frames for e in episodes]),
        episode=np.repeat(np.arange(len(episodes)), len(rows)),
        number=np.tile(rows, len(episodes)),
        lags=LAGS,
        qpos=np.stack([np.concatenate([q[np.maximum(0, rows - lag)] for q in qpos]) for lag in LAGS]),
        template=replace(episodes[0].camera, pose=None),
    )


@pytest.fixture(scope="session")
def filmed_camera(filmed_episodes: tuple[SimulatedEpisode, ...]) -> Camera:
    """The camera that they were truly seen by; the true lag is 1."""
    return filmed_episodes[0].camera


@pytest.fixture(scope="session")
def filmed_masks(filmed_episodes: tuple[SimulatedEpisode, ...]) -> np.ndarray:
    """Where the robot is truly seen in their frames."""
    return np.concatenate([e.mask for e in filmed_episodes if e.mask is not None])
