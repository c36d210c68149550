"""The studio renders what a fresh renderer renders, and says where the tool is seen."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from simforcing.sim.render import Renderer
from simforcing.sim.shapes import robot_shapes, shape_poses
from simforcing.sim.studio import Studio, close_studios, seen_at, shown_rows, studio_of
from simforcing.sim.tabletop_arm import TABLETOP_ARM
from simforcing.types import Camera
from simforcing.types.cameras import pinhole_intrinsics, pose_from

SIZE = (48, 64)


def camera() -> Camera:
    """In front of the arm, looking back at it."""
    back = np.array([1.0, -0.3, 0.4])
    back /= np.linalg.norm(back)
    right = np.cross([0, 0, 1.0], back)
    right /= np.linalg.norm(right)
    pose = np.eye(4)
    pose[:3, :3] = np.stack([right, np.cross(back, right), back], axis=1)
    pose[:3, 3] = np.array([0.15, 0.0, 0.2]) + 1.1 * back
    return Camera(size=SIZE, intrinsics=pinhole_intrinsics(SIZE, fovy_rad=0.8), pose=pose_from(pose, "mujoco"))


@pytest.fixture(scope="module")
def studio():
    yield studio_of("tabletop_arm", None, SIZE)
    close_studios()


def motion(studio: Studio, num_frames: int = 4) -> np.ndarray:
    joint_rad = studio.robot.home_rad + 0.1 * np.arange(num_frames)[:, None]
    return studio.robot.configuration(joint_rad, np.linspace(0, 1, num_frames)[:, None])


def test_pictures_equal_those_of_a_fresh_renderer_and_equal_rows_are_drawn_once(studio: Studio) -> None:
    qpos = motion(studio)[[0, 0, 1, 2, 2, 3]]
    pictures = list(studio.pictures(qpos, camera()))
    assert pictures[0] is pictures[1]
    assert pictures[3] is pictures[4]
    fresh = Renderer(studio.robot.model, size=SIZE)
    for row, picture in zip(qpos, pictures, strict=True):
        studio.robot.place(row)
        expected = fresh.picture(studio.robot.data, camera())
        np.testing.assert_array_equal(picture.colour, expected.colour)
        np.testing.assert_array_equal(picture.depth_m, expected.depth_m)
    fresh.close()


def test_a_process_keeps_one_studio_and_replaces_it_for_another_size(studio: Studio) -> None:
    assert studio_of("tabletop_arm", None, SIZE) is studio
    assert len(robot_shapes(studio.robot)) > 10


def test_a_process_that_leaves_its_studio_open_ends_in_silence() -> None:
    """As the processes of a pool do: the studio is closed while OpenGL can still be called."""
    program = f"from simforcing.sim.studio import studio_of; studio_of('tabletop_arm', None, {SIZE})"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("lag", [-2, 0, 1, 3])
def test_frame_i_shows_row_i_minus_lag_held_at_both_ends(lag: int) -> None:
    assert shown_rows(6, lag).tolist() == [min(max(i - lag, 0), 5) for i in range(6)]


def test_the_tool_is_seen_where_the_camera_projects_it_and_on_the_robot(studio: Studio) -> None:
    qpos = motion(studio)
    poses = studio.tool_poses(qpos)
    pixels, valid = seen_at(poses, camera())
    assert valid.all()
    for i, picture in enumerate(studio.pictures(qpos, camera())):
        column, row = np.round(pixels[i, 0]).astype(int)
        assert picture.coverage[max(row - 3, 0) : row + 4, max(column - 3, 0) : column + 4].max() > 0
    np.testing.assert_allclose(pixels[:, 0], camera().project(poses[:, 0, :3, 3]))


def test_a_tool_behind_the_camera_or_outside_the_image_is_not_valid_and_never_nan(studio: Studio) -> None:
    poses = np.tile(np.eye(4), (3, 1, 1, 1))
    pose = camera().pose
    assert pose is not None
    for row, point in enumerate(([0, 0, -1.0], [0, 0, 0.0], [5.0, 0, 1.0])):
        poses[row, 0, :3, 3] = (pose @ [*point, 1.0])[:3]
    pixels, valid = seen_at(poses, camera())
    assert not valid.any()
    assert np.isfinite(pixels).all()
    assert (pixels[:2] == 0).all()


def test_shapes_cover_what_is_rendered(studio: Studio) -> None:
    """Their points, projected, lie on the rendered robot (to a pixel), and nearly every edge pixel has some near it."""
    view = camera()
    row = motion(studio)[2]
    (picture,) = studio.pictures(row[None], view)
    shapes = robot_shapes(studio.robot)
    points = [
        (pose @ np.c_[shape.points_m, np.ones(len(shape.points_m))].T).T[:, :3]
        for shape, pose in zip(shapes, shape_poses(studio.robot, shapes), strict=True)
    ]
    pixels = np.round(view.project(np.concatenate(points))).astype(int)
    inside = (pixels >= 1).all(axis=1) & (pixels < np.array(SIZE[::-1]) - 1).all(axis=1)
    near = np.array([picture.coverage[y - 1 : y + 2, x - 1 : x + 2].max() > 0 for x, y in pixels[inside]])
    assert near.mean() > 0.97
    low, high = pixels[inside].min(axis=0), pixels[inside].max(axis=0)
    rows, columns = np.nonzero(picture.mask)
    assert abs(columns.min() - low[0]) <= 2
    assert abs(columns.max() - high[0]) <= 2
    assert abs(rows.max() - high[1]) <= 2
    assert abs(rows.min() - low[1]) <= 2


def test_a_camera_is_given_in_the_base_frame_wherever_the_base_stands(studio: Studio) -> None:
    body = TABLETOP_ARM.model
    assert isinstance(body, str)
    moved = body.replace('<body name="base"', '<body name="base" pos="0.3 -0.2 0.1" euler="0 0 0.5"', 1)
    other = Studio(replace(TABLETOP_ARM, model=moved, base="base"), SIZE)
    row = motion(studio)[1]
    (here,), (there,) = studio.pictures(row[None], camera()), other.pictures(row[None], camera())
    assert (here.mask == there.mask).mean() > 0.999
    np.testing.assert_allclose(other.tool_poses(row[None]), studio.tool_poses(row[None]), atol=1e-9)
    other.close()
