"""What a robot's model looks like: its visible shapes as triangles, and where they are in each configuration."""

# MuJoCo ships no stubs:
# pyright: reportAttributeAccessIssue=false, reportInvalidTypeForm=false

from dataclasses import dataclass

import mujoco
import numpy as np
from jaxtyping import Float, Int, Num

from simforcing.sim.model import RobotModel

SHOWN_GROUPS = 3  # MuJoCo shows geoms of groups 0 to 2 unless told otherwise; 3 holds collision shapes by custom
SIDES = 16  # of round shapes


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A geom: triangles in its own frame (m) and its colour (red, green, blue, opacity, 0 .. 1)."""

    geom: int
    name: str
    points_m: Float[np.ndarray, "p 3"]
    triangles: Int[np.ndarray, "t 3"]
    colour: Float[np.ndarray, "4"]


def robot_shapes(robot: RobotModel) -> list[Shape]:
    """Every visible geom of the robot."""
    model, found = robot.model, []
    for geom in visible_geoms(model):
        solid = _triangles(model, geom)
        if solid is not None:
            name = model.geom(geom).name or f"{model.body(model.geom_bodyid[geom]).name}_{geom}"
            found.append(
                Shape(geom=geom, name=name, points_m=solid[0], triangles=solid[1], colour=_colour(model, geom))
            )
    return found


def visible_geoms(model: mujoco.MjModel) -> list[int]:
    """Geoms that a rendering shows: of the shown groups, and not fully transparent."""
    return [i for i in range(model.ngeom) if model.geom_group[i] < SHOWN_GROUPS and _colour(model, i)[3] > 0]


def mesh_of(model: mujoco.MjModel, geom: int) -> tuple[Num[np.ndarray, "p 3"], Int[np.ndarray, "t 3"]]:
    """Points (m, in the geom's frame) and triangles of a geom that is a mesh, as the model stores them."""
    mesh = model.geom_dataid[geom]
    point, num_points = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
    face, num_faces = model.mesh_faceadr[mesh], model.mesh_facenum[mesh]
    return model.mesh_vert[point : point + num_points], model.mesh_face[face : face + num_faces]


def shape_poses(robot: RobotModel, shapes: list[Shape]) -> Float[np.ndarray, "n 4 4"]:
    """Where the shapes are in the robot's base frame, in the configuration last placed."""
    poses = np.tile(np.eye(4), (len(shapes), 1, 1))
    ids = [shape.geom for shape in shapes]
    poses[:, :3, :3], poses[:, :3, 3] = robot.data.geom_xmat[ids].reshape(-1, 3, 3), robot.data.geom_xpos[ids]
    return np.linalg.inv(robot.base_pose()) @ poses


def _colour(model: mujoco.MjModel, geom: int) -> np.ndarray:
    material = model.geom_matid[geom]
    return np.array(model.mat_rgba[material] if material >= 0 else model.geom_rgba[geom], np.float64)


def _triangles(model: mujoco.MjModel, geom: int) -> tuple[np.ndarray, np.ndarray] | None:
    kind, size = model.geom_type[geom], model.geom_size[geom]
    shape = mujoco.mjtGeom
    if kind == shape.mjGEOM_MESH:
        points, triangles = mesh_of(model, geom)
        return points.astype(np.float64), triangles.astype(np.int64)
    if kind == shape.mjGEOM_BOX:
        corners = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], np.float64)
        faces = [(0, 1, 3), (0, 3, 2), (4, 6, 7), (4, 7, 5), (0, 4, 5), (0, 5, 1)]
        faces += [(2, 3, 7), (2, 7, 6), (0, 2, 6), (0, 6, 4), (1, 5, 7), (1, 7, 3)]
        return corners * size, np.array(faces)
    if kind == shape.mjGEOM_SPHERE:
        return _turned([(size[0] * np.sin(a), size[0] * np.cos(a)) for a in np.linspace(0, np.pi, SIDES // 2 + 1)])
    if kind == shape.mjGEOM_CYLINDER:
        return _turned([(0.0, size[1]), (size[0], size[1]), (size[0], -size[1]), (0.0, -size[1])])
    if kind == shape.mjGEOM_CAPSULE:
        angles = np.linspace(0, np.pi / 2, SIDES // 4 + 1)
        top = [(size[0] * np.sin(a), size[1] + size[0] * np.cos(a)) for a in angles]
        return _turned(top + [(radius, -height) for radius, height in reversed(top)])
    return None


def _turned(outline: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    """A surface of revolution about z from (radius, height) pairs."""
    angles = np.arange(SIDES) * 2 * np.pi / SIDES
    rings = [np.stack([r * np.cos(angles), r * np.sin(angles), np.full(SIDES, z)], axis=1) for r, z in outline]
    triangles = []
    for ring in range(len(outline) - 1):
        for side in range(SIDES):
            a, b = ring * SIDES + side, ring * SIDES + (side + 1) % SIDES
            triangles += [(a, a + SIDES, b), (b, a + SIDES, b + SIDES)]
    return np.concatenate(rings), np.array(triangles)
