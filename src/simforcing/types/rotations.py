"""Rotation forms to scipy rotations and back, in float64: the one place that knows how each form is written."""

import warnings

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import Rotation

from simforcing.types.layouts import ROTATION_SIZES, RotationForm


def read_rotations(values: Float[np.ndarray, "k r"], form: RotationForm) -> Rotation:
    """Stored numbers to rotations. Raises ValueError for a wrong width or a quaternion or 6-D pair without direction.

    euler_xyz: extrinsic x, then y, then z (rad); axis_angle: axis times angle (rad); quaternions are normalised;
    matrix_6d: the first two columns of the matrix, orthonormalised by Gram-Schmidt (arXiv 1812.07035).
    """
    if values.shape[-1] != ROTATION_SIZES[form]:
        raise ValueError(f"rotation form {form} has {ROTATION_SIZES[form]} numbers, not {values.shape[-1]}")
    x = np.asarray(values, np.float64)
    if form == "euler_xyz":
        return Rotation.from_euler("xyz", x)
    if form == "axis_angle":
        return Rotation.from_rotvec(x)
    if form == "matrix_6d":
        return Rotation.from_matrix(_orthonormal(x))
    if (np.linalg.norm(x, axis=-1) < 1e-9).any():
        raise ValueError(f"rotation form {form}: a quaternion of length 0 has no rotation")
    return Rotation.from_quat(x if form == "quaternion_xyzw" else np.roll(x, -1, axis=-1))


def write_rotations(rotations: Rotation, form: RotationForm) -> Float[np.ndarray, "k r"]:
    """Rotations to stored numbers: Euler y in [-pi/2, pi/2], angle in [0, pi], quaternions with w >= 0."""
    if form == "euler_xyz":
        with warnings.catch_warnings():  # at gimbal lock z is set to 0 and the rotation is still exact
            warnings.filterwarnings("ignore", message="Gimbal lock")
            return rotations.as_euler("xyz")
    if form == "axis_angle":
        return rotations.as_rotvec()
    if form == "matrix_6d":
        matrices = rotations.as_matrix()
        return np.concatenate([matrices[..., 0], matrices[..., 1]], axis=-1)
    xyzw = rotations.as_quat(canonical=True)
    return xyzw if form == "quaternion_xyzw" else np.roll(xyzw, 1, axis=-1)


def _orthonormal(columns: Float[np.ndarray, "k 6"]) -> Float[np.ndarray, "k 3 3"]:
    first, second = columns[..., :3], columns[..., 3:]
    first_length = np.linalg.norm(first, axis=-1, keepdims=True)
    if (first_length < 1e-9).any():
        raise ValueError("rotation form matrix_6d: the first column has length 0")
    first = first / first_length
    second = second - (first * second).sum(axis=-1, keepdims=True) * first
    second_length = np.linalg.norm(second, axis=-1, keepdims=True)
    if (second_length < 1e-9).any():
        raise ValueError("rotation form matrix_6d: the two columns are parallel")
    second = second / second_length
    return np.stack([first, second, np.cross(first, second)], axis=-1)
