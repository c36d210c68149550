"""How far down a robot reaches: the lowest point of its moving shapes, exactly, without contact computations."""

# MuJoCo ships no stubs:
# pyright: reportAttributeAccessIssue=false, reportInvalidTypeForm=false

import mujoco
import numpy as np
from jaxtyping import Float
from scipy.spatial import ConvexHull, QhullError

from simforcing.sim.model import RobotModel


class LowestPoint:
    """Of all geoms that a joint moves; the base, which stands on the table, does not count."""

    def __init__(self, robot: RobotModel) -> None:
        self._robot, model = robot, robot.model
        moving = [i for i in range(model.ngeom) if model.body_weldid[model.geom_bodyid[i]] != 0]
        meshes = [i for i in moving if model.geom_type[i] == mujoco.mjtGeom.mjGEOM_MESH]
        bodies = sorted({int(model.geom_bodyid[i]) for i in meshes})
        self._corners = {body: _corners(model, [i for i in meshes if model.geom_bodyid[i] == body]) for body in bodies}
        self._shapes = [i for i in moving if i not in meshes]

    def heights_m(self, qpos: Float[np.ndarray, "f q"]) -> Float[np.ndarray, " f"]:
        """Height of the lowest point in the base frame, in every configuration; infinite where nothing moves."""
        return np.array([self._height(row) for row in qpos])

    def _height(self, qpos: Float[np.ndarray, " q"]) -> float:
        self._robot.place(qpos)
        data, model, base = self._robot.data, self._robot.model, self._robot.base_pose()
        lowest = np.inf
        for body, corners in self._corners.items():
            centre = (data.xpos[body] - base[:3, 3]) @ base[:3, 2]
            lowest = min(lowest, float(centre + (corners @ (data.xmat[body].reshape(3, 3).T @ base[:3, 2])).min()))
        for geom in self._shapes:
            centre = (data.geom_xpos[geom] - base[:3, 3]) @ base[:3, 2]
            up = data.geom_xmat[geom].reshape(3, 3).T @ base[:3, 2]
            lowest = min(lowest, float(centre - _depth(model, geom, up)))
        return lowest


def _corners(model: mujoco.MjModel, meshes: list[int]) -> Float[np.ndarray, "n 3"]:
    """Corners of the convex hull of a body's meshes, in the body's frame."""
    points, matrix = [], np.empty(9)
    for geom in meshes:
        first, count = (int(part[model.geom_dataid[geom]]) for part in (model.mesh_vertadr, model.mesh_vertnum))
        mujoco.mju_quat2Mat(matrix, model.geom_quat[geom])
        points.append(model.mesh_vert[first : first + count] @ matrix.reshape(3, 3).T + model.geom_pos[geom])
    corners = np.concatenate(points)
    try:
        return corners[ConvexHull(corners).vertices]
    except QhullError:  # a flat mesh has no hull
        return corners


def _depth(model: mujoco.MjModel, geom: int, up: np.ndarray) -> float:
    """How far a primitive shape reaches from its centre against `up` (a unit vector of its frame)."""
    types, size = mujoco.mjtGeom, model.geom_size[geom]
    kind = model.geom_type[geom]
    if kind == types.mjGEOM_SPHERE:
        return float(size[0])
    if kind == types.mjGEOM_CAPSULE:
        return float(abs(up[2]) * size[1] + size[0])
    if kind == types.mjGEOM_CYLINDER:
        return float(abs(up[2]) * size[1] + np.hypot(up[0], up[1]) * size[0])
    if kind == types.mjGEOM_ELLIPSOID:
        return float(np.linalg.norm(up * size))
    return float(np.abs(up) @ size)
