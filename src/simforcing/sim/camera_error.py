"""A declared camera that is wrong by a known amount: moved and turned until a robot's points miss by so many pixels."""

import numpy as np
from jaxtyping import Float
from scipy.optimize import root_scalar
from scipy.spatial.transform import Rotation

from simforcing.types import Camera

# A centimetre and a degree move a point at half a metre by about as much.
STEP_RAD, STEP_M = np.deg2rad(1.0), 0.01
LARGEST = 64.0  # such steps; no image is still about the robot beyond


def displaced_camera(
    camera: Camera, points_m: Float[np.ndarray, "n 3"], error_px: float, rng: np.random.Generator
) -> Camera:
    """The camera turned and moved in a random direction of both.

    Args:
        points_m: in the base frame, in view: the mean distance between their two projections is `error_px`.
    """
    turn, shift = STEP_RAD * rng.standard_normal(3), STEP_M * rng.standard_normal(3)
    if error_px == 0:
        return camera
    assert camera.pose is not None
    pose, seen = camera.pose, camera.project(points_m)

    def moved(scale: float) -> Camera:
        change = np.eye(4)
        change[:3, :3], change[:3, 3] = Rotation.from_rotvec(scale * turn).as_matrix(), scale * shift
        return Camera(size=camera.size, intrinsics=camera.intrinsics, pose=pose @ change)

    def excess_px(scale: float) -> float:
        return float(np.linalg.norm(moved(scale).project(points_m) - seen, axis=1).mean()) - error_px

    scale = 1.0
    while excess_px(scale) < 0:
        scale *= 2.0
        if scale > LARGEST:
            raise ValueError(
                f"camera_error_px {error_px}: too large for this camera; at most a few per cent of a frame"
            )
    return moved(root_scalar(excess_px, bracket=(0.0, scale), xtol=1e-6).root)
