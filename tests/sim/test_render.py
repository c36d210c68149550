"""Rendering: averaging, and a clear line where OpenGL is missing."""

import os
import subprocess
import sys
from dataclasses import replace

import mujoco
import numpy as np
import pytest

from simforcing.sim.model import RobotModel
from simforcing.sim.render import GL_INSTALL_LINE, Renderer, _shrink
from simforcing.sim.tabletop_arm import TABLETOP_ARM
from simforcing.types import Camera


def test_supersampled_pixels_are_averaged_with_rounding():
    pixels = np.random.default_rng(0).integers(0, 256, (8, 12, 3), dtype=np.uint8)
    mean = pixels.reshape(4, 2, 6, 2, 3).mean(axis=(1, 3))
    assert np.abs(_shrink(pixels, 2) - mean).max() <= 0.5
    np.testing.assert_array_equal(_shrink(pixels, 1), pixels)


def test_depth_of_any_pinhole_equals_the_distance_along_each_pixels_ray():
    """Focal lengths that differ and an off-centre axis, as a squashed and cropped image has."""
    robot = RobotModel(TABLETOP_ARM)
    robot.place(robot.configuration(robot.home_rad[None], np.array([[1.0]]))[0])
    intrinsics = np.array([[130.0, 0, 40.5], [0, 95.0, 25.0], [0, 0, 1]])
    pose = np.eye(4)
    pose[:3, :3] = np.array([[-1.0, 0, 0], [0, 0, -1.0], [0, -1.0, 0]])  # from +y, looking along -y, z up
    pose[:3, 3] = [0.1, 0.9, 0.2]
    camera = Camera(size=(64, 96), intrinsics=intrinsics, pose=pose)
    renderer = Renderer(robot.model, size=(64, 96), supersample=1)
    picture = renderer.picture(robot.data, camera)
    renderer.close()
    rows, columns = np.nonzero(picture.mask)
    assert len(rows) > 300
    errors = []
    for row, column in zip(rows, columns, strict=True):
        ray = np.linalg.solve(intrinsics, [column, row, 1.0])
        length = np.linalg.norm(ray)
        hit = mujoco.mj_ray(
            robot.model, robot.data, pose[:3, 3], pose[:3, :3] @ ray / length, None, 1, -1, np.zeros(1, np.int32)
        )
        errors.append(abs(hit / length - picture.depth_m[row, column]))
    assert np.median(errors) < 0.001  # cylinders are rendered with 14 sides
    assert np.quantile(errors, 0.95) < 0.01


@pytest.mark.skipif(sys.platform != "linux", reason="the EGL vendor folder is a Linux matter")
def test_missing_opengl_is_one_clear_line_with_the_install_command(tmp_path):
    program = (
        "from simforcing.sim.tabletop import TabletopConfig\n"
        "try:\n    TabletopConfig().build()\n"
        "except RuntimeError as error:\n    print(error)\n"
    )
    environment = os.environ | {"__EGL_VENDOR_LIBRARY_DIRS": str(tmp_path), "MUJOCO_GL": "egl"}
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    assert GL_INSTALL_LINE in result.stdout
    assert len(result.stdout.strip().splitlines()) == 1


def test_a_picture_is_empty_outside_its_box_and_lies_on_any_background() -> None:
    """Only the box is read and composited; the rest must be as if everything had been."""
    robot = RobotModel(TABLETOP_ARM)
    robot.place(robot.configuration(robot.home_rad[None], np.array([[1.0]]))[0])
    size, pose = (48, 64), np.eye(4)
    pose[:3, :3] = np.array([[-1.0, 0, 0], [0, 0, -1.0], [0, -1.0, 0]])
    pose[:3, 3] = [0.1, 0.9, 0.2]
    seen = Camera(size=size, intrinsics=np.array([[60.0, 0, 32], [0, 60, 24], [0, 0, 1]]), pose=pose)
    away = replace(seen, pose=pose @ np.diag([-1.0, 1, -1, 1]))
    background = np.random.default_rng(0).integers(0, 256, (*size, 3)).astype(np.uint8)
    renderer = Renderer(robot.model, size=size)
    pictures = [renderer.picture(robot.data, camera) for camera in (seen, away)]
    renderer.close()
    for picture in pictures:
        outside = np.ones(size, bool)
        outside[picture.box] = False
        assert not picture.coverage[outside].any()
        assert not picture.colour[outside].any()
        assert not picture.depth_m[outside].any()
        whole = picture.colour + (1.0 - picture.coverage[..., None]) * background + 0.5
        np.testing.assert_array_equal(picture.over(background), whole.astype(np.uint8))
    assert pictures[0].coverage[pictures[0].box].mean() > 0.1
    assert pictures[1].coverage.max() == 0


def test_every_shape_of_a_large_model_is_drawn() -> None:
    """The last of 900 is the only one in view."""
    hidden = '<geom type="sphere" size="0.01" pos="0 0 -1"/>' * 899
    model = mujoco.MjModel.from_xml_string(
        f'<mujoco><worldbody>{hidden}<geom type="sphere" size="0.2" pos="0 0 1"/></worldbody></mujoco>'
    )
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    intrinsics = np.array([[30.0, 0, 15.5], [0, 30, 15.5], [0, 0, 1]])
    renderer = Renderer(model, size=(32, 32))
    picture = renderer.picture(data, Camera(size=(32, 32), intrinsics=intrinsics, pose=np.eye(4)))
    renderer.close()
    assert picture.coverage[16, 16] == 1
