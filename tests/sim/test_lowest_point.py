"""The lowest point of a robot is that of its shapes, whatever kind they are and however they are turned."""

from dataclasses import replace

import numpy as np
import pytest

from simforcing.sim.kinematics import Kinematics
from simforcing.sim.lowest_point import LowestPoint
from simforcing.sim.model import RobotModel
from simforcing.sim.robot import Arm, Robot
from simforcing.sim.tabletop_arm import TABLETOP_ARM


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ("sphere", "0.03"),
        ("capsule", "0.02 0.05"),
        ("cylinder", "0.03 0.05"),
        ("ellipsoid", "0.02 0.03 0.06"),
        ("box", "0.02 0.03 0.05"),
    ],
)
def test_lowest_point_of_a_turned_shape_is_that_of_points_on_it(shape: str, size: str, rng: np.random.Generator):
    text = f"""<mujoco><worldbody><geom size="1 1 1" type="box" pos="0 0 -5"/><body>
      <joint name="turn" axis="1 2 3"/><geom type="{shape}" size="{size}" pos="0.1 -0.2 0.3" euler="20 40 60"/>
    </body></worldbody></mujoco>"""
    arm = Arm(joints=("turn",), home_rad=(0.0,), site="world")
    robot = RobotModel(Robot(name="shape", model=text, arms=(arm,)))
    half = np.array([float(number) for number in size.split()])
    for angle in rng.uniform(-3, 3, 5):
        qpos = robot.configuration(np.array([[angle]]), np.ones((1, 1)))
        found = LowestPoint(robot).heights_m(qpos)[0]
        local = surface(shape, half, rng)
        lowest = (local @ robot.data.geom_xmat[0].reshape(3, 3).T + robot.data.geom_xpos[0])[:, 2].min()
        assert found <= lowest + 1e-9
        assert found > lowest - 1e-3


def surface(shape: str, half: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Many points of a shape about the origin, among them its corners and rims."""
    unit = rng.normal(size=(100_000, 3))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    if shape == "sphere":
        return half[0] * unit
    if shape == "capsule":
        return half[0] * unit + np.sign(unit[:, 2:]) * np.array([0, 0, half[1]])
    if shape == "cylinder":
        rim = unit[:, :2] / np.linalg.norm(unit[:, :2], axis=1, keepdims=True)
        return np.concatenate([half[0] * rim, half[1] * np.sign(unit[:, 2:])], axis=1)
    return half * (unit if shape == "ellipsoid" else np.sign(unit))


def test_lowest_point_of_meshes_is_that_of_all_their_vertices(widowx: RobotModel):
    height_m = LowestPoint(widowx).heights_m(widowx.configuration(widowx.home_rad[None], np.ones((1, 1))))[0]
    model, data, points = widowx.model, widowx.data, []
    for geom in range(model.ngeom):
        mesh = model.geom_dataid[geom]
        if mesh >= 0 and model.body_weldid[model.geom_bodyid[geom]] != 0:
            first, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
            vertices = model.mesh_vert[first : first + count]
            points.append(vertices @ data.geom_xmat[geom].reshape(3, 3).T + data.geom_xpos[geom])
    np.testing.assert_allclose(height_m, np.concatenate(points)[:, 2].min(), atol=1e-6)


def test_lowest_point_of_the_tabletop_arm_is_its_finger_tips():
    """Fingers end 13 mm beyond the tool's point, and the gripper points straight down."""
    low_rad = Kinematics(TABLETOP_ARM).reach(np.array([0.28, 0.0, 0.06, 0.0, 0.0, 0.0]))
    robot = RobotModel(TABLETOP_ARM)
    qpos = robot.configuration(low_rad[None], np.ones((1, 1)))
    assert abs(LowestPoint(robot).heights_m(qpos)[0] - (0.06 - 0.013)) < 2e-4


def test_height_counts_from_the_base_frame():
    raised = TABLETOP_ARM.model
    assert isinstance(raised, str)
    raised = raised.replace('<body name="base"', '<body name="base" pos="0 0 0.7"')
    robot = RobotModel(replace(TABLETOP_ARM, model=raised, base="base"))
    plain = RobotModel(TABLETOP_ARM)
    heights = [LowestPoint(r).heights_m(r.configuration(r.home_rad[None], np.ones((1, 1))))[0] for r in (robot, plain)]
    np.testing.assert_allclose(*heights, atol=1e-12)
