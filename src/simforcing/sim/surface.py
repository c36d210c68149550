"""Points of a robot's visible shapes and their silhouettes, for searches that try thousands of cameras.

A silhouette of points is coarse but costs microseconds where a rendering costs milliseconds; fine fits use renderings.
"""

# MuJoCo ships no stubs:
# pyright: reportAttributeAccessIssue=false, reportInvalidTypeForm=false

import mujoco
import numpy as np
from jaxtyping import Bool, Float

from simforcing.sim.model import RobotModel
from simforcing.sim.shapes import mesh_of, visible_geoms
from simforcing.types import Camera

NEAREST_M = 0.05


class SurfacePoints:
    """Points fixed to a robot's visible geoms, spread evenly over their surface.

    Args:
        robot: the robot.
        num_points: about how many in all; every geom has at least 8.
    """

    def __init__(self, robot: RobotModel, *, num_points: int = 1500) -> None:
        self._robot, model = robot, robot.model
        geoms = visible_geoms(model)
        if not geoms:
            raise ValueError(f"robot {robot.robot.name}: its model has no visible shape")
        areas = np.array([_area(model, geom) for geom in geoms])
        counts = np.maximum(8, np.round(num_points * areas / areas.sum())).astype(int).tolist()
        rng = np.random.default_rng(0)
        self._local = np.concatenate([_sample(model, g, n, rng) for g, n in zip(geoms, counts, strict=True)])
        self._geom = np.repeat(geoms, counts)

    def place(self, qpos: Float[np.ndarray, "f q"]) -> Float[np.ndarray, "f n 3"]:
        """The points in the base frame (m), float32, for every configuration."""
        placed = np.empty((len(qpos), len(self._local), 3), np.float32)
        data = self._robot.data
        for i, row in enumerate(qpos):
            self._robot.place(row)
            rotation = data.geom_xmat[self._geom].reshape(-1, 3, 3)
            world = np.einsum("nij,nj->ni", rotation, self._local) + data.geom_xpos[self._geom]
            base = self._robot.base_pose()
            placed[i] = (world - base[:3, 3]) @ base[:3, :3]
        return placed


def point_silhouettes(points: Float[np.ndarray, "f n 3"], camera: Camera) -> Bool[np.ndarray, "f h w"]:
    """Pixels that at least one point falls into; parts that are nearer than 5 cm or behind the camera are not seen."""
    assert camera.pose is not None
    assert camera.intrinsics is not None
    height, width = camera.size
    rotation = camera.pose[:3, :3].astype(np.float32)
    seen = (points - camera.pose[:3, 3].astype(np.float32)) @ rotation
    depth = np.maximum(seen[..., 2], 1e-6)
    (focal_x, _, centre_x), (_, focal_y, centre_y) = camera.intrinsics[:2].astype(np.float32)
    column = np.floor(seen[..., 0] * focal_x / depth + (centre_x + 0.5)).astype(np.int64)
    row = np.floor(seen[..., 1] * focal_y / depth + (centre_y + 0.5)).astype(np.int64)
    inside = (seen[..., 2] > NEAREST_M) & (column >= 0) & (column < width) & (row >= 0) & (row < height)
    frame = np.broadcast_to(np.arange(len(points))[:, None], inside.shape)
    silhouettes = np.zeros((len(points), height, width), bool)
    silhouettes[frame[inside], row[inside], column[inside]] = True
    return silhouettes


def _area(model: mujoco.MjModel, geom: int) -> float:
    """Of the surface of a mesh, of the bounding box of any other shape."""
    if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_MESH:
        return float(_triangle_areas(*_triangles(model, geom)).sum())
    x, y, z = 2 * model.geom_aabb[geom][3:]
    return float(2 * (x * y + y * z + z * x))


def _triangles(model: mujoco.MjModel, geom: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The three corners of every triangle."""
    points, faces = mesh_of(model, geom)
    return points[faces[:, 0]], points[faces[:, 1]], points[faces[:, 2]]


def _triangle_areas(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return np.linalg.norm(np.cross(b - a, c - a), axis=1) / 2


def _sample(model: mujoco.MjModel, geom: int, count: int, rng: np.random.Generator) -> Float[np.ndarray, "n 3"]:
    """Points in the geom's frame: on a mesh's surface; inside the other shapes, whose silhouette is the same."""
    if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_MESH:
        a, b, c = _triangles(model, geom)
        areas = _triangle_areas(a, b, c)
        chosen = rng.choice(len(a), count, p=areas / areas.sum())
        u, v = np.sqrt(rng.random((count, 1))), rng.random((count, 1))
        return (1 - u) * a[chosen] + u * (1 - v) * b[chosen] + u * v * c[chosen]
    centre, half = model.geom_aabb[geom][:3], model.geom_aabb[geom][3:]
    kept = np.empty((0, 3))
    while len(kept) < count:
        unit = rng.uniform(-1, 1, (4 * count, 3))
        kept = np.concatenate([kept, unit[_inside(int(model.geom_type[geom]), unit, half)]])
    return centre + kept[:count] * half


def _inside(kind: int, unit: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Which points of the bounding box (its half sides as units) lie inside a shape."""
    types = mujoco.mjtGeom
    if kind in (types.mjGEOM_SPHERE, types.mjGEOM_ELLIPSOID):
        return (unit**2).sum(axis=1) <= 1
    across = (unit[:, :2] ** 2).sum(axis=1)
    if kind == types.mjGEOM_CYLINDER:
        return across <= 1
    if kind == types.mjGEOM_CAPSULE:
        along = np.maximum(np.abs(unit[:, 2]) * half[2] - (half[2] - half[0]), 0) / half[0]
        return across + along**2 <= 1
    return np.ones(len(unit), bool)
