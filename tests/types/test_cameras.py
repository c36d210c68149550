"""Cameras: conventions that convert exactly, a squash that is a resize, and projection as OpenGL does it."""

from typing import get_args

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from simforcing.types import Camera
from simforcing.types.cameras import (
    AxisConvention,
    camera_axes,
    camera_from_json,
    camera_to_json,
    pinhole_intrinsics,
    pose_from,
    pose_to,
    read_start,
    resized_intrinsics,
)

CONVENTIONS: tuple[AxisConvention, ...] = get_args(AxisConvention)


def random_pose(rng: np.random.Generator) -> np.ndarray:
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = Rotation.random(random_state=rng).as_matrix(), rng.normal(size=3)
    return pose


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_axes_are_a_rotation_and_poses_round_trip_bit_for_bit(convention: AxisConvention, rng: np.random.Generator):
    axes = camera_axes(convention)
    np.testing.assert_array_equal(axes @ axes.T, np.eye(4))
    assert np.linalg.det(axes) == 1.0
    for _ in range(5):
        pose = random_pose(rng)
        np.testing.assert_array_equal(pose_to(pose_from(pose, convention), convention), pose)
        np.testing.assert_array_equal(pose_from(pose, convention)[:3, 3], pose[:3, 3])


@pytest.mark.parametrize(
    ("convention", "right", "down", "ahead"),
    [
        ("opencv", (1, 0, 0), (0, 1, 0), (0, 0, 1)),
        ("mujoco", (1, 0, 0), (0, -1, 0), (0, 0, -1)),
        ("sapien", (0, -1, 0), (0, 0, -1), (1, 0, 0)),
    ],
)
def test_each_convention_names_right_down_and_ahead(
    convention: AxisConvention, right: tuple[int, ...], down: tuple[int, ...], ahead: tuple[int, ...]
):
    """A camera at the origin whose own axes are the base's: where it looks, and what is up, in its convention."""
    pose = pose_from(np.eye(4), convention)
    np.testing.assert_array_equal(pose[:3, :3], np.stack([right, down, ahead], axis=1))


def test_sapien_to_mujoco_is_y_left_z_up_x_ahead(rng: np.random.Generator):
    """MuJoCo's camera axes are the columns -y, z, -x of SAPIEN's frame."""
    pose = random_pose(rng)
    x, y, z = pose[:3, :3].T
    converted = pose_to(pose_from(pose, "sapien"), "mujoco")
    np.testing.assert_allclose(converted[:3, :3], np.stack([-y, z, -x], axis=1), atol=1e-15)


def test_unknown_convention_lists_the_choices():
    with pytest.raises(ValueError, match="unknown camera axes 'opengl'; choices: opencv, mujoco, sapien"):
        camera_axes("opengl")


def test_projection_of_a_mujoco_camera_is_opengls(rng: np.random.Generator):
    """Clip coordinates by the vertical field of view, rows from the top, pixel centres at integers."""
    size, fovy = (48, 64), 0.8
    pose = random_pose(rng)
    camera = Camera(size=size, intrinsics=pinhole_intrinsics(size, fovy_rad=fovy), pose=pose_from(pose, "mujoco"))
    seen = np.array([0.3, -0.2, -1.0]) + rng.uniform(-0.3, 0.3, (20, 3))  # in front of it: -z
    x, y = seen[:, 0] / -seen[:, 2] / np.tan(fovy / 2) / (64 / 48), seen[:, 1] / -seen[:, 2] / np.tan(fovy / 2)
    expected = np.stack([(x + 1) / 2 * 64 - 0.5, (1 - y) / 2 * 48 - 0.5], axis=1)
    np.testing.assert_allclose(camera.project(seen @ pose[:3, :3].T + pose[:3, 3]), expected, atol=1e-9)


def test_vertical_field_of_view_reaches_from_edge_to_edge():
    intrinsics = pinhole_intrinsics((480, 640), fovy_rad=np.deg2rad(42.1))
    half = np.tan(np.deg2rad(42.1) / 2)
    for direction, row in ((-half, -0.5), (half, 479.5)):
        np.testing.assert_allclose((intrinsics @ [0.0, direction, 1.0])[1], row)
    np.testing.assert_allclose(intrinsics[0, 0], 623.588, rtol=1e-3)  # BridgeData's focal length goes with that angle
    assert intrinsics[0, 0] == intrinsics[1, 1]


@pytest.mark.parametrize("stored", [(64, 64), (192, 320), (480, 640), (100, 30)])
def test_squash_is_the_resize_of_the_picture_as_taken(stored: tuple[int, int], rng: np.random.Generator):
    taken = (480, 640)
    squashed = pinhole_intrinsics(taken, fovy_rad=0.7, stored=stored)
    np.testing.assert_allclose(
        squashed, resized_intrinsics(pinhole_intrinsics(taken, fovy_rad=0.7), taken, stored), rtol=1e-12
    )
    points = rng.uniform(-0.2, 0.2, (10, 3)) + np.array([0, 0, 1])
    before = Camera(size=taken, intrinsics=pinhole_intrinsics(taken, fovy_rad=0.7), pose=np.eye(4)).project(points)
    after = Camera(size=stored, intrinsics=squashed, pose=np.eye(4)).project(points)
    scale = np.array([stored[1] / 640, stored[0] / 480])
    np.testing.assert_allclose(after + 0.5, (before + 0.5) * scale)  # edges stay edges
    is_square = stored[0] * 640 == stored[1] * 480
    assert (abs(squashed[0, 0] / squashed[1, 1] - 1) < 1e-12) == is_square


def test_resizes_in_two_steps_equal_one(rng: np.random.Generator):
    intrinsics = np.array([[100.0, 0, 20], [0, 90, 31], [0, 0, 1]])
    twice = resized_intrinsics(resized_intrinsics(intrinsics, (60, 80), (33, 21)), (33, 21), (64, 96))
    np.testing.assert_allclose(twice, resized_intrinsics(intrinsics, (60, 80), (64, 96)))


def test_camera_round_trips_through_json_bit_for_bit(rng: np.random.Generator):
    camera = Camera(size=(64, 96), intrinsics=pinhole_intrinsics((64, 96), fovy_rad=0.7), pose=random_pose(rng))
    assert camera_from_json(camera_to_json(camera), "file") == camera
    assert camera_from_json({"size": [4, 6]}, "file") == Camera(size=(4, 6))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "file: expected a camera object"),
        ({"size": [4]}, "file.size: expected"),
        ({"size": [4, 6], "fov": 1}, "no field 'fov'; fields: size, intrinsics, pose"),
        ({"size": [4, 6], "pose": [[1]]}, "file.pose: expected 4 rows of 4 finite numbers"),
        (
            {"size": [4, 6], "pose": np.block([[np.eye(3), np.full((3, 1), -1e200)], [0, 0, 0, 1]]).tolist()},
            "file.pose: position .* m, more than 100 m from the robot's base",
        ),
        ({"size": [4, 6], "intrinsics": [[float("nan")] * 3] * 3}, "file.intrinsics: expected 3 rows of 3 finite"),
    ],
)
def test_bad_camera_names_the_field_and_what_was_expected(value: object, said: str):
    with pytest.raises(ValueError, match=said):
        camera_from_json(value, "file")


START = {
    "position_m": [0.0, -0.16, 0.336],
    "quaternion_wxyz": [0.909182, -0.0819809, 0.347277, 0.214629],
    "axes": "sapien",
    "size": [480, 640],
    "fovy_deg": 42.1,
}


def test_a_start_in_other_programs_words_is_the_same_camera():
    """A known camera of BridgeData, in SAPIEN's axes: position, rotation and focal length."""
    camera = read_start(START, "file")
    assert camera.pose is not None
    assert camera.intrinsics is not None
    w, x, y, z = START["quaternion_wxyz"]
    rotation = Rotation.from_quat([x, y, z, w]).as_matrix()
    np.testing.assert_allclose(pose_to(camera.pose, "sapien")[:3, :3], rotation, atol=1e-12)
    np.testing.assert_array_equal(camera.pose[:3, 3], START["position_m"])
    np.testing.assert_allclose(camera.intrinsics[0, 0], 623.588, rtol=1e-3)
    assert camera.size == (480, 640)


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_quaternions_of_any_length_in_any_axes_are_read(convention: AxisConvention, rng: np.random.Generator):
    pose = random_pose(rng)
    x, y, z, w = 3.0 * Rotation.from_matrix(pose_to(pose, convention)[:3, :3]).as_quat()
    value = {"position_m": pose[:3, 3].tolist(), "quaternion_wxyz": [w, x, y, z], "axes": convention, "size": [4, 6]}
    camera = read_start(value, "file")
    np.testing.assert_allclose(camera.pose, pose, atol=1e-12)
    assert camera.intrinsics is None


def test_a_start_may_be_a_camera_as_this_program_writes_it(rng: np.random.Generator):
    camera = Camera(size=(64, 96), intrinsics=pinhole_intrinsics((64, 96), fovy_rad=0.7), pose=random_pose(rng))
    assert read_start(camera_to_json(camera), "file") == camera


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"fov": 40}, "file: no field 'fov'; fields: axes, fovy_deg, position_m, quaternion_wxyz, size"),
        ({"position_m": [0, 1]}, r"file.position_m: expected 3 finite numbers, found \[0, 1\]"),
        ({"quaternion_wxyz": None}, "file.quaternion_wxyz: expected 4 finite numbers"),
        ({"quaternion_wxyz": [0, 0, 0, 0]}, "file.quaternion_wxyz: a quaternion of length 0 is no rotation"),
        ({"axes": "opengl"}, "unknown camera axes 'opengl'; choices: opencv, mujoco, sapien"),
        ({"size": [480]}, r"file.size: expected \[height, width\] in pixels"),
        ({"axes": ["opencv"]}, "unknown camera axes"),
        ({"fovy_deg": 200}, "file.fovy_deg: 200.0; must lie between 1 and 170"),
        ({"fovy_deg": "wide"}, "file.fovy_deg: expected 1 finite numbers"),
        ({"position_m": [0, 1e200, 0]}, "file.pose: position .* m, more than 100 m from the robot's base"),
        ({"position_m": [0, 1, float("nan")]}, "file.position_m: expected 3 finite numbers"),
    ],
)
def test_a_bad_start_names_the_field_and_what_was_expected(change: dict, said: str):
    with pytest.raises(ValueError, match=said):
        read_start(START | change, "file")
