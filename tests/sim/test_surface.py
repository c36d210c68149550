"""Points of a robot: they move with its parts, lie on its shapes, and their silhouettes are those of renderings."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.ndimage import binary_dilation
from scipy.spatial.transform import Rotation

from simforcing.sim.calibrate import Group
from simforcing.sim.model import RobotModel
from simforcing.sim.render import Renderer
from simforcing.sim.robot import Arm, Robot
from simforcing.sim.surface import NEAREST_M, SurfacePoints, point_silhouettes
from simforcing.sim.tabletop_arm import TABLETOP_ARM
from simforcing.types import Camera
from simforcing.types.cameras import pinhole_intrinsics

AHEAD = Camera(size=(40, 60), intrinsics=np.array([[50.0, 0, 29], [0, 40.0, 20], [0, 0, 1]]), pose=np.eye(4))


def configuration(robot: RobotModel, joint_rad: np.ndarray) -> np.ndarray:
    return robot.configuration(joint_rad[None], np.ones((1, len(robot.robot.arms))))


def one_shape(geom: str) -> RobotModel:
    """A hinge that carries one geom half a metre in front of the origin's camera."""
    model = f"""<mujoco><worldbody><body pos="0 0 0.6"><joint name="turn" axis="1 2 3"/><geom {geom}/>
      <site name="tool"/></body></worldbody></mujoco>"""
    arm = Arm(joints=("turn",), home_rad=(0.4,), site="tool")
    return RobotModel(Robot(name="one shape", model=model, arms=(arm,)))


def test_points_stay_fixed_to_their_parts():
    """When only the waist turns, every point turns with it about the base's axis, or is of the base and stays."""
    robot = RobotModel(TABLETOP_ARM)
    turned_rad = robot.home_rad.copy()
    turned_rad[0] += 0.7
    points = SurfacePoints(robot, num_points=500)
    before = points.place(configuration(robot, robot.home_rad))[0]
    after = points.place(configuration(robot, turned_rad))[0]
    turned = before @ Rotation.from_rotvec([0, 0, 0.7]).as_matrix().T
    stays = np.abs(after - before).max(axis=1) < 1e-6
    turns = np.abs(after - turned).max(axis=1) < 1e-6
    assert (stays | turns).all()
    assert turns.sum() > 300
    assert stays.sum() >= 8


def test_points_are_the_same_every_time():
    robot = RobotModel(TABLETOP_ARM)
    qpos = configuration(robot, robot.home_rad)
    first, second = (SurfacePoints(robot, num_points=200).place(qpos) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    "geom",
    [
        'type="sphere" size="0.1"',
        'type="capsule" size="0.04 0.12"',
        'type="cylinder" size="0.06 0.1"',
        'type="box" size="0.05 0.1 0.02"',
        'type="ellipsoid" size="0.05 0.1 0.14"',
    ],
)
def test_every_shapes_silhouette_is_that_of_its_rendering(geom: str):
    robot = one_shape(geom)
    near = Camera(size=(80, 120), intrinsics=np.array([[120.0, 0, 59], [0, 100.0, 40], [0, 0, 1]]), pose=np.eye(4))
    assert overlap(robot, configuration(robot, robot.home_rad), near, num_points=30_000) > 0.9


def test_silhouettes_overlap_renderings_of_an_arm_at_many_poses(filmed: Group, filmed_camera: Camera):
    robot = RobotModel(TABLETOP_ARM)
    qpos = filmed.qpos[0][::9]
    small = replace(filmed_camera, size=(32, 32), intrinsics=pinhole_intrinsics((32, 32), fovy_rad=np.deg2rad(40)))
    assert overlap(robot, qpos, small, num_points=6000) > 0.85


def test_silhouettes_of_meshes_overlap_renderings(widowx: RobotModel):
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = [[-1, 0, 0], [0, 0, -1], [0, -1, 0]], [0.2, 0.9, 0.25]  # from the side
    camera = Camera(size=(40, 60), intrinsics=AHEAD.intrinsics, pose=pose)
    assert (
        overlap(widowx, configuration(widowx, widowx.home_rad), camera, num_points=8000) > 0.7
    )  # of a thin arm, edges are much


def overlap(robot: RobotModel, qpos: np.ndarray, camera: Camera, *, num_points: int) -> float:
    """IoU of points with renderings; no point may lie more than a pixel outside."""
    silhouettes = point_silhouettes(SurfacePoints(robot, num_points=num_points).place(qpos), camera)
    renderer = Renderer(robot.model, size=camera.size)
    masks = []
    for row in qpos:
        robot.place(row)
        masks.append(renderer.picture(robot.data, camera).coverage >= 0.5)
    renderer.close()
    rendered = np.array(masks)
    near = np.array([binary_dilation(mask, np.ones((3, 3))) for mask in rendered])
    assert not (silhouettes & ~near).any()
    return (silhouettes & rendered).sum() / (silhouettes | rendered).sum()


def test_a_point_is_seen_in_the_pixel_that_it_projects_to(rng: np.random.Generator):
    points = np.concatenate([rng.uniform(-0.3, 0.3, (200, 2)), rng.uniform(0.4, 1, (200, 1))], axis=1)
    column, row = np.round(AHEAD.project(points)).astype(int).T
    inside = (column >= 0) & (column < 60) & (row >= 0) & (row < 40)
    assert 50 < inside.sum() < 200
    expected = np.zeros((40, 60), bool)
    expected[row[inside], column[inside]] = True
    np.testing.assert_array_equal(point_silhouettes(points[None].astype(np.float32), AHEAD)[0], expected)


@pytest.mark.parametrize(("depth_m", "seen"), [(NEAREST_M + 0.001, True), (NEAREST_M - 0.001, False), (-0.5, False)])
def test_nothing_nearer_than_5_cm_or_behind_is_seen(depth_m: float, seen: bool):
    assert NEAREST_M == 0.05
    assert point_silhouettes(np.array([[[0, 0, depth_m]]], np.float32), AHEAD).any() == seen


def test_frames_do_not_mix():
    points = np.array([[[0, 0, 1.0]], [[0.1, 0, 1.0]], [[5.0, 0, 1.0]]], np.float32)
    silhouettes = point_silhouettes(points, AHEAD)
    assert silhouettes.sum(axis=(1, 2)).tolist() == [1, 1, 0]
    assert silhouettes[0, 20, 29]
    assert silhouettes[1, 20, 34]


@pytest.mark.parametrize("geom", ['size="0.1" rgba="1 0 0 0"', 'size="0.1" group="3"'])
def test_a_model_that_nobody_can_see_is_refused_by_name(geom: str):
    with pytest.raises(ValueError, match="robot one shape: its model has no visible shape"):
        SurfacePoints(one_shape(geom))
