"""Cameras: a distortion-free pinhole, its projection, other conventions, and its JSON form.

Axes are OpenCV's: x right, y down, z on. `camera_axes` says how other programs name the same directions.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float

AxisConvention = Literal["opencv", "mujoco", "sapien"]
MOST_DISTANCE_M = 100.0  # from the base: farther cameras, often of other units, see nothing and overflow in 32 bits
# Columns: x, y and z of each convention in OpenCV's axes. MuJoCo (and OpenGL): x right, y up, z back; SAPIEN (and
# SimplerEnv): x on, y left, z up.
_AXES: dict[str, tuple[tuple[float, ...], ...]] = {
    "opencv": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "mujoco": ((1, 0, 0), (0, -1, 0), (0, 0, -1)),
    "sapien": ((0, -1, 0), (0, 0, -1), (1, 0, 0)),
}


def camera_axes(convention: str) -> Float[np.ndarray, "4 4"]:
    """The frame of a convention in OpenCV's camera frame: pose_opencv = pose_convention @ inv(camera_axes(convention)).

    Raises ValueError listing the choices.
    """
    if convention not in _AXES:
        raise ValueError(f"unknown camera axes {convention!r}; choices: {', '.join(get_args(AxisConvention))}")
    axes = np.eye(4)
    axes[:3, :3] = _AXES[convention]
    return axes


def pose_from(pose: Float[np.ndarray, "4 4"], convention: AxisConvention) -> Float[np.ndarray, "4 4"]:
    """A camera's pose whose axes are those of another convention -> the same with OpenCV's axes."""
    return pose @ camera_axes(convention).T


def pose_to(pose: Float[np.ndarray, "4 4"], convention: AxisConvention) -> Float[np.ndarray, "4 4"]:
    """The inverse of `pose_from`."""
    return pose @ camera_axes(convention)


def pinhole_intrinsics(
    size: tuple[int, int], *, fovy_rad: float, stored: tuple[int, int] | None = None
) -> Float[np.ndarray, "3 3"]:
    """Intrinsics of a camera with square pixels and a centred axis, as seen in an image squashed to another size.

    Args:
        size: (height, width) of the picture that the camera took: only its aspect matters with `stored`.
        fovy_rad: vertical field of view.
        stored: (height, width) that the picture was resized to without keeping its aspect; None: as taken.
    """
    height, width = size
    stored_height, stored_width = stored or size
    focal = height / 2 / np.tan(fovy_rad / 2)
    return np.array(
        [
            [focal * stored_width / width, 0.0, (stored_width - 1) / 2],
            [0.0, focal * stored_height / height, (stored_height - 1) / 2],
            [0.0, 0.0, 1.0],
        ]
    )


def resized_intrinsics(
    intrinsics: Float[np.ndarray, "3 3"], size: tuple[int, int], stored: tuple[int, int]
) -> Float[np.ndarray, "3 3"]:
    """Intrinsics after an image of `size` was resized to `stored`, pixel centres at integers."""
    scale_y, scale_x = stored[0] / size[0], stored[1] / size[1]
    resize = np.array([[scale_x, 0, (scale_x - 1) / 2], [0, scale_y, (scale_y - 1) / 2], [0, 0, 1]])
    return resize @ intrinsics


@dataclass(frozen=True, kw_only=True, eq=False)
class Camera:
    """A distortion-free pinhole.

    Args:
        size: (height, width) in pixels of the image that the intrinsics refer to.
        intrinsics: in pixels; integer coordinates are pixel centres, (0, 0) is the centre of the top left one.
        pose: camera in the robot's base frame, p_base = pose @ p_camera, in metres.
    """

    size: tuple[int, int]
    intrinsics: Float[np.ndarray, "3 3"] | None = None
    pose: Float[np.ndarray, "4 4"] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Camera) and camera_to_json(self) == camera_to_json(other)

    def __hash__(self) -> int:
        return hash(str(camera_to_json(self)))

    def project(self, points: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 2"]:
        """Points of the base frame (m) -> image coordinates (column, row) in pixels.

        Raises ValueError where intrinsics or pose are not known.
        """
        if self.intrinsics is None or self.pose is None:
            raise ValueError("a camera without intrinsics or pose projects nothing")
        rotation, position = self.pose[:3, :3], self.pose[:3, 3]
        image = (points - position) @ rotation @ self.intrinsics.T
        return image[:, :2] / image[:, 2:]


def camera_to_json(camera: Camera) -> dict[str, Any]:
    """{"size": [h, w], "intrinsics": 3 rows or null, "pose": 4 rows or null}."""
    matrices = {"intrinsics": camera.intrinsics, "pose": camera.pose}
    return {"size": list(camera.size)} | {k: None if v is None else v.tolist() for k, v in matrices.items()}


def camera_from_json(value: Any, where: str) -> Camera:
    """The inverse of `camera_to_json`; ValueError names the place, the field and what was expected."""
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected a camera object, found {value!r:.80}")
    if unknown := set(value) - {"type", "size", "intrinsics", "pose"}:
        raise ValueError(f"{where}: a camera has no field {sorted(unknown)[0]!r}; fields: size, intrinsics, pose")
    size = value.get("size")
    if not isinstance(size, list) or len(size) != 2 or not all(type(side) is int and side > 0 for side in size):
        raise ValueError(f"{where}.size: expected [height, width] in pixels, found {size!r:.80}")
    camera = Camera(
        size=(size[0], size[1]),
        intrinsics=_matrix(value.get("intrinsics"), 3, f"{where}.intrinsics"),
        pose=_matrix(value.get("pose"), 4, f"{where}.pose"),
    )
    _check_pinhole(camera, where)
    return camera


def _check_pinhole(camera: Camera, where: str) -> None:
    """ValueError where the matrices are no pose, or no pinhole without skew."""
    if camera.intrinsics is not None:
        (focal_x, skew, _), (below, focal_y, _), last = camera.intrinsics
        if not (focal_x > 0 and focal_y > 0 and skew == below == 0 and last.tolist() == [0, 0, 1]):
            raise ValueError(
                f"{where}.intrinsics: expected [[fx, 0, cx], [0, fy, cy], [0, 0, 1]] with positive focal lengths,"
                f" found {camera.intrinsics.tolist()}"
            )
    if camera.pose is not None:
        rotation = camera.pose[:3, :3]
        is_rotation = np.abs(rotation @ rotation.T - np.eye(3)).max() < 1e-3 and np.linalg.det(rotation) > 0
        if not is_rotation or camera.pose[3].tolist() != [0, 0, 0, 1]:
            raise ValueError(
                f"{where}.pose: expected a rotation, a position and [0, 0, 0, 1], found {camera.pose.tolist()}"
            )
        if not np.abs(camera.pose[:3, 3]).max() <= MOST_DISTANCE_M:
            raise ValueError(
                f"{where}.pose: position {camera.pose[:3, 3].tolist()} m, more than {MOST_DISTANCE_M:g} m from the"
                " robot's base; poses are in metres"
            )


def read_start(value: Any, where: str) -> Camera:
    """A camera to start a fit from, in one of two forms: that of `camera_to_json`, or in words of other programs:

    {"position_m": [x, y, z], "quaternion_wxyz": [w, x, y, z], "axes": "opencv" | "mujoco" | "sapien", "size": [h, w],
    "fovy_deg": 42.1}; the field of view may be left out. Raises ValueError naming the place and the field.
    """
    if not isinstance(value, dict) or "position_m" not in value:
        return camera_from_json(value, where)
    fields = {"position_m", "quaternion_wxyz", "axes", "size", "fovy_deg"}
    if unknown := set(value) - fields:
        raise ValueError(f"{where}: no field {sorted(unknown)[0]!r}; fields: {', '.join(sorted(fields))}")
    size = camera_from_json({"size": value.get("size")}, where).size
    position = _numbers(value["position_m"], 3, f"{where}.position_m")
    w, x, y, z = _unit(
        _numbers(value.get("quaternion_wxyz"), 4, f"{where}.quaternion_wxyz"), f"{where}.quaternion_wxyz"
    )
    pose = np.eye(4)
    pose[:3, :3] = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    pose[:3, 3] = position
    intrinsics = None
    if "fovy_deg" in value:
        (fovy_deg,) = _numbers([value["fovy_deg"]], 1, f"{where}.fovy_deg")
        if not 1 < fovy_deg < 170:
            raise ValueError(f"{where}.fovy_deg: {fovy_deg}; must lie between 1 and 170")
        intrinsics = pinhole_intrinsics(size, fovy_rad=float(np.deg2rad(fovy_deg)))
    axes = camera_axes(str(value.get("axes", "opencv")))
    camera = Camera(size=size, intrinsics=intrinsics, pose=pose @ axes.T)
    _check_pinhole(camera, where)
    return camera


def _numbers(value: Any, count: int, where: str) -> Float[np.ndarray, " n"]:
    try:
        numbers = np.array(value, np.float64)
    except (ValueError, TypeError, OverflowError):
        numbers = np.empty(0)
    if numbers.shape != (count,) or not np.isfinite(numbers).all():
        raise ValueError(f"{where}: expected {count} finite numbers, found {value!r:.80}")
    return numbers


def _unit(numbers: Float[np.ndarray, " n"], where: str) -> Float[np.ndarray, " n"]:
    length = float(np.linalg.norm(numbers))
    if length < 1e-6:
        raise ValueError(f"{where}: a quaternion of length 0 is no rotation")
    return numbers / length


def _matrix(value: Any, side: int, where: str) -> Float[np.ndarray, "n n"] | None:
    if value is None:
        return None
    try:
        matrix = np.array(value, np.float64)
    except (ValueError, TypeError, OverflowError):
        matrix = np.empty(0)
    if matrix.shape != (side, side) or not np.isfinite(matrix).all():
        raise ValueError(f"{where}: expected {side} rows of {side} finite numbers, found {value!r:.80}")
    return matrix
