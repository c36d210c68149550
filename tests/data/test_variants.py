"""What a variant's commands and states are, in every kind of layout: laws against composing poses by hand."""

from dataclasses import replace

import numpy as np
import pytest
from jaxtyping import Float
from scipy.spatial.transform import Rotation

from simforcing.data.variants import variant_tables
from simforcing.sim.model import RobotModel
from simforcing.sim.perturb import PerturbConfig, Perturber, Variant
from simforcing.sim.replay import Layouts, Replay
from simforcing.sim.tabletop_arm import TABLETOP_ARM
from simforcing.types import LAYOUTS, Layout, Part
from simforcing.types.conversions import StartState, convert_actions
from simforcing.types.layouts import absolute_layout

NUM_FRAMES = 8
KNOWN = ("tabletop", "bridge", "bridge_state", "bridge_delta_axis_angle", "in_hand")
IN_HAND = Layout(
    name="in_hand",
    parts=(
        Part(kind="translation", size=3, mode="delta", frame="end_effector", unit="m", scale=20.0),
        Part(kind="rotation", size=3, mode="delta", frame="end_effector", unit="rad", rotation="axis_angle"),
        Part(kind="gripper", size=1, unit="fraction", gripper="open_-1_closed_1"),
    ),
)
JOINTS = Layout(
    name="joints",
    parts=(
        Part(kind="joint", size=6, frame="joint", unit="rad"),
        Part(kind="gripper", size=1, unit="fraction", gripper="closed_0_open_1"),
    ),
)


@pytest.fixture(scope="module")
def robot() -> RobotModel:
    return RobotModel(replace(TABLETOP_ARM, layouts=KNOWN, table_height_m=None))


def poses_of(robot: RobotModel, qpos: Float[np.ndarray, "f q"]) -> Float[np.ndarray, "f 1 4 4"]:
    found = []
    for row in qpos:
        robot.place(row)
        found.append(robot.tool_pose("single")[None])
    return np.array(found)


@pytest.fixture(scope="module")
def parent(robot: RobotModel) -> Replay:
    rng = np.random.default_rng(0)
    joint_rad = robot.home_rad + np.cumsum(rng.uniform(-0.05, 0.05, (NUM_FRAMES, 6)), axis=0)
    openness = rng.uniform(0, 1, (NUM_FRAMES, 1))
    nothing = np.zeros(NUM_FRAMES)
    return Replay(
        qpos=robot.configuration(joint_rad, openness),
        joint_rad=joint_rad,
        openness=openness,
        source="joints",
        position_error_m=nothing,
        rotation_error_rad=nothing,
    )


@pytest.fixture(scope="module")
def variant(robot: RobotModel, parent: Replay) -> Variant:
    return Perturber(robot, PerturbConfig()).variant(parent, seed=0, episode=0, draw=0)


def absolute(layout: Layout, poses: np.ndarray, motion: Replay | Variant) -> np.ndarray:
    """A motion's states in the absolute form of a layout."""
    columns = {
        "translation": poses[:, 0, :3, 3],
        "rotation": Rotation.from_matrix(poses[:, 0, :3, :3]).as_quat(canonical=True, scalar_first=True),
        "joint": motion.joint_rad,
        "gripper": motion.openness,
    }
    return np.concatenate([columns[name] for name in absolute_layout(layout).slices], axis=1)


def commands(layout: Layout, poses: np.ndarray, motion: Replay | Variant) -> np.ndarray:
    """Perfect commands for a motion: action i leads to frame i + 1, the last one stays."""
    states = absolute(layout, poses, motion)
    targets = np.concatenate([states[1:], states[-1:]])
    start = StartState(values=states[0], layout=absolute_layout(layout))
    return convert_actions(targets, absolute_layout(layout), layout, start=start)


def angle(a: np.ndarray, b: np.ndarray, layout: Layout) -> float:
    """Largest difference between two tables of absolute values, a quaternion's sign aside."""
    columns = layout.slices.get("rotation")
    if columns is not None:
        signs = np.sign((a[:, columns] * b[:, columns]).sum(axis=1, keepdims=True))
        b = b.copy()
        b[:, columns] *= signs
    return float(np.abs(a - b).max())


@pytest.mark.parametrize(
    "layout",
    [LAYOUTS["tabletop"], LAYOUTS["bridge"], LAYOUTS["bridge_delta_axis_angle"], IN_HAND, JOINTS],
    ids=lambda layout: layout.name,
)
def test_perfect_commands_of_the_parent_become_perfect_commands_of_the_variant(
    robot: RobotModel, parent: Replay, variant: Variant, layout: Layout
) -> None:
    """Checked where they lead to, in float32: chained increments and absolute targets alike."""
    poses = poses_of(robot, parent.qpos), poses_of(robot, variant.qpos)
    before = commands(layout, poses[0], parent).astype(np.float32)
    tables = variant_tables(robot.robot, Layouts(action=layout), {"action": before}, (parent, variant), poses)
    target = absolute_layout(layout)
    start = StartState(values=absolute(layout, poses[0], parent)[0], layout=target)
    led_to = convert_actions(tables["action"].astype(np.float64), layout, target, start=start)
    states = absolute(layout, poses[1], variant)
    expected = np.concatenate([states[1:], states[-1:]])
    if layout.name == "bridge_delta_axis_angle":
        expected[:, -1] = expected[:, -1] > 0.5  # its gripper is commanded to its ends only
    assert angle(led_to, expected, target) < 1e-3
    assert angle(led_to, convert_actions(before.astype(np.float64), layout, target, start=start), target) > 1e-3
    gripper = layout.slices["gripper"]
    np.testing.assert_array_equal(tables["action"][:, gripper], before[:, gripper])


def test_states_and_joints_are_those_of_the_variant(robot: RobotModel, parent: Replay, variant: Variant) -> None:
    poses = poses_of(robot, parent.qpos), poses_of(robot, variant.qpos)
    layouts = Layouts(action=LAYOUTS["bridge"], state=LAYOUTS["bridge_state"], joint=JOINTS)
    before = {
        "action": commands(LAYOUTS["bridge"], poses[0], parent).astype(np.float32),
        "state": convert_actions(
            absolute(LAYOUTS["bridge_state"], poses[0], parent),
            absolute_layout(LAYOUTS["bridge_state"]),
            LAYOUTS["bridge_state"],
        ).astype(np.float32),
        "joint": np.concatenate([parent.joint_rad, parent.openness], axis=1).astype(np.float32),
    }
    after = variant_tables(robot.robot, layouts, before, (parent, variant), poses)
    np.testing.assert_allclose(after["joint"][:, :6], variant.joint_rad, atol=1e-6)
    np.testing.assert_allclose(after["state"][:, :3], poses[1][:, 0, :3, 3], atol=1e-6)
    turned = Rotation.from_euler("xyz", after["state"][:, 3:6]) * Rotation.from_matrix(poses[1][:, 0, :3, :3]).inv()
    assert turned.magnitude().max() < 1e-5
    for name in ("state", "joint"):
        np.testing.assert_array_equal(after[name][:, 6], before[name][:, 6])


def test_where_the_variant_moves_like_its_parent_its_numbers_are_the_parents_own(
    robot: RobotModel, parent: Replay, variant: Variant, rng: np.random.Generator
) -> None:
    still = replace(variant, joint_rad=parent.joint_rad, qpos=parent.qpos)
    tables = {"action": rng.normal(size=(NUM_FRAMES, 7)).astype(np.float32), "sim_track": np.ones(3)}
    poses = poses_of(robot, parent.qpos)
    after = variant_tables(robot.robot, Layouts(action=LAYOUTS["bridge"]), tables, (parent, still), (poses, poses))
    assert after.keys() == {"action"}
    assert after["action"] is tables["action"]


def test_a_layout_whose_tool_frame_the_robot_does_not_know_is_refused(
    robot: RobotModel, parent: Replay, variant: Variant
) -> None:
    poses = poses_of(robot, parent.qpos)
    with pytest.raises(
        ValueError, match="tabletop_arm does not know the tool frame of layout droid; it knows: tabletop"
    ):
        variant_tables(
            robot.robot,
            Layouts(action=LAYOUTS["droid"]),
            {"action": np.zeros((NUM_FRAMES, 7), np.float32)},
            (parent, variant),
            (poses, poses),
        )
