"""The tabletop scene: one compiled MuJoCo model, and a frozen description of how an episode varies it in place.

Everything random about an episode's looks and objects is drawn into a `Scene`; `apply` writes it into the model.
"""

# MuJoCo ships no stubs:
# pyright: reportAttributeAccessIssue=false, reportInvalidTypeForm=false

from dataclasses import dataclass, replace
from typing import Literal

import mujoco
import numpy as np
from jaxtyping import Float

from simforcing.sim import tabletop_arm as arm
from simforcing.sim.look import (
    ROOM_PX,
    TABLE_CENTRE_M,
    TABLE_PX,
    TABLE_YAW_RAD,
    Look,
    apply_look,
    look_assets,
    look_bodies,
    write_texture,
)
from simforcing.sim.textures import smooth_texture
from simforcing.types import Camera

Shape = Literal["box", "cylinder"]
Colour = tuple[float, float, float]
Range = tuple[float, float]

OBJECT_COLOURS: dict[str, Colour] = {
    "red": (0.86, 0.13, 0.13),
    "green": (0.15, 0.66, 0.25),
    "blue": (0.12, 0.32, 0.88),
    "yellow": (0.97, 0.82, 0.12),
    "purple": (0.55, 0.2, 0.72),
    "pink": (0.96, 0.45, 0.68),
}
SHAPE_NOUNS: dict[Shape, str] = {"box": "block", "cylinder": "cylinder"}
TABLE_COLOURS: tuple[Colour, ...] = ((0.62, 0.46, 0.33), (0.45, 0.53, 0.56), (0.67, 0.6, 0.5), (0.42, 0.5, 0.42))
WALL_COLOURS: tuple[Colour, ...] = ((0.68, 0.76, 0.84), (0.8, 0.78, 0.72), (0.7, 0.78, 0.72), (0.74, 0.72, 0.8))
TEXTURE_PX = 64  # of the plain table
PLAIN_ROOM_PX = 16
FAR_AWAY_M = -5.0


@dataclass(frozen=True, kw_only=True)
class SceneObject:
    """A free body on the table: its shape, colour, half extents (x, y, z; radius twice for a cylinder) and pose."""

    shape: Shape
    colour: str
    half_size_m: tuple[float, float, float]
    position_m: tuple[float, float]
    yaw_rad: float
    mass_kg: float

    @property
    def phrase(self) -> str:
        """As an instruction names it: "red block"."""
        return f"{self.colour} {SHAPE_NOUNS[self.shape]}"


@dataclass(frozen=True, kw_only=True)
class Scene:
    """All that differs between two episodes before the robot moves.

    Args:
        contact: objects can be touched; without, they stand still and the arm would pass through them.
        look: real-like looks, in place of the plain light, table and wall; needs a model compiled for them.
    """

    objects: tuple[SceneObject, ...]
    camera_position_m: tuple[float, float, float]
    camera_target_m: tuple[float, float, float]
    camera_fovy_deg: float
    light_direction: tuple[float, float, float]
    light_strength: float
    ambient_strength: float
    table_colour: Colour
    wall_colour: Colour
    table_contrast: float
    texture_seed: int
    contact: bool = True
    look: Look | None = None

    def with_camera_of(self, other: "Scene") -> "Scene":
        """The same scene seen by another one's camera."""
        return replace(
            self,
            camera_position_m=other.camera_position_m,
            camera_target_m=other.camera_target_m,
            camera_fovy_deg=other.camera_fovy_deg,
        )


@dataclass(frozen=True, kw_only=True)
class SceneConfig:
    """How much episodes vary. The defaults are learnable by a tiny model at 64x64; wider ones make a harder data set.

    Args:
        num_objects: fewest and most objects on the table.
        half_size_m: objects' half width; half_height_m: half height.
        radius_m, azimuth_rad: where objects may lie, in polar coordinates about the base.
        left_only: at azimuths above 0 alone.
        camera_jitter_m, target_jitter_m: standard deviation of the camera's position and of the point it looks at.
        light_jitter: spread of the light's direction and strength (0: always the same).
        colour_jitter: standard deviation of table and wall colours about their palette.
        table_contrast: contrast of the table's smooth texture, lowest and highest.
    """

    num_objects: tuple[int, int] = (1, 2)
    half_size_m: Range = (0.021, 0.027)
    half_height_m: Range = (0.022, 0.034)
    radius_m: Range = (0.22, 0.36)
    azimuth_rad: float = 0.8
    left_only: bool = False
    separation_m: float = 0.11
    camera_position_m: tuple[float, float, float] = (0.64, -0.53, 0.52)
    camera_target_m: tuple[float, float, float] = (0.17, 0.0, 0.145)
    camera_fovy_deg: float = 40.0
    camera_jitter_m: float = 0.008
    target_jitter_m: float = 0.004
    light_jitter: float = 0.2
    colour_jitter: float = 0.03
    table_contrast: Range = (0.03, 0.12)

    def __post_init__(self) -> None:
        low, high = self.num_objects
        if not 1 <= low <= high <= len(OBJECT_COLOURS):
            raise ValueError(f"num_objects {self.num_objects}: needs 1 <= low <= high <= {len(OBJECT_COLOURS)}")
        for name in ("half_size_m", "half_height_m", "radius_m", "table_contrast"):
            low, high = getattr(self, name)
            if not 0 <= low <= high:
                raise ValueError(f"{name} {(low, high)}: needs 0 <= low <= high")

    def draw(self, rng: np.random.Generator) -> Scene:
        """A scene; the same generator state gives the same scene."""
        objects = self._draw_objects(rng)
        jitter = self.light_jitter
        return Scene(
            objects=objects,
            camera_position_m=_around(rng, self.camera_position_m, self.camera_jitter_m),
            camera_target_m=_around(rng, self.camera_target_m, self.target_jitter_m),
            camera_fovy_deg=self.camera_fovy_deg,
            light_direction=_around(rng, (-0.45, 0.35, -1.0), jitter),
            light_strength=float(0.55 * (1 + jitter * rng.uniform(-1, 1))),
            ambient_strength=float(0.4 * (1 + jitter * rng.uniform(-1, 1))),
            table_colour=_around(rng, TABLE_COLOURS[rng.integers(len(TABLE_COLOURS))], self.colour_jitter),
            wall_colour=_around(rng, WALL_COLOURS[rng.integers(len(WALL_COLOURS))], self.colour_jitter),
            table_contrast=float(rng.uniform(*self.table_contrast)),
            texture_seed=int(rng.integers(2**31)),
        )

    def _draw_objects(self, rng: np.random.Generator) -> tuple[SceneObject, ...]:
        num_objects = int(rng.integers(self.num_objects[0], self.num_objects[1] + 1))
        colours = rng.permutation(list(OBJECT_COLOURS))[:num_objects]
        placed: list[np.ndarray] = []
        objects = []
        for colour in colours:
            placed.append(self._free_place(rng, placed))
            shape: Shape = "box" if rng.random() < 0.5 else "cylinder"
            half, height = float(rng.uniform(*self.half_size_m)), float(rng.uniform(*self.half_height_m))
            objects.append(
                SceneObject(
                    shape=shape,
                    colour=str(colour),
                    half_size_m=(half, half, height),
                    position_m=(float(placed[-1][0]), float(placed[-1][1])),
                    yaw_rad=float(rng.uniform(-np.pi, np.pi)),
                    mass_kg=float(rng.uniform(0.03, 0.06)),
                )
            )
        return tuple(objects)

    def _free_place(self, rng: np.random.Generator, placed: list[np.ndarray]) -> np.ndarray:
        place = np.zeros(2)
        for _ in range(100):
            radius = rng.uniform(*self.radius_m)
            azimuth = rng.uniform(0.0 if self.left_only else -self.azimuth_rad, self.azimuth_rad)
            place = radius * np.array([np.cos(azimuth), np.sin(azimuth)])
            if all(np.linalg.norm(place - other) >= self.separation_m for other in placed):
                return place
        raise ValueError(f"{len(placed) + 1} objects do not fit at separation_m {self.separation_m}; lower it")


def _around(
    rng: np.random.Generator, centre: tuple[float, float, float], deviation: float
) -> tuple[float, float, float]:
    x, y, z = np.asarray(centre) + deviation * np.clip(rng.standard_normal(3), -2, 2)
    return float(x), float(y), float(z)


def compile_tabletop(*, num_slots: int, timestep_s: float, with_look: bool = False) -> mujoco.MjModel:
    """The arm on its table with `num_slots` free bodies; `with_look`: prepared for scenes that have one.

    The integrator is `implicit`: with `implicitfast` 1 in 150 episodes blew up where a servo squeezed a light object.
    """
    slots = "".join(
        f'<body name="object_{i}" pos="{i} 0 {FAR_AWAY_M}"><freejoint name="object_{i}"/>'
        f'<geom name="object_{i}" type="box" size="0.02 0.02 0.02" mass="0.05" condim="4" friction="0.7 0.02 0.001"'
        f' material="object_{i}"/></body>'
        for i in range(num_slots)
    )
    table_px, room_px = (TABLE_PX, ROOM_PX) if with_look else (TEXTURE_PX, PLAIN_ROOM_PX)
    materials = "".join(
        f'<material name="object_{i}" specular="0.25" shininess="0.4" rgba="1 0 0 1"'
        + (f' texture="object_{i}"/>' if with_look else "/>")
        for i in range(num_slots)
    )
    x, y = TABLE_CENTRE_M
    return mujoco.MjModel.from_xml_string(f"""
<mujoco model="tabletop">
  <compiler autolimits="true" angle="radian"/>
  <option timestep="{timestep_s}" integrator="implicit" cone="elliptic" impratio="10"/>
  <statistic extent="1" center="0.2 0 0.1"/>
  <visual>
    <quality shadowsize="0" offsamples="0" numslices="14" numstacks="5" numquads="1"/>
    <map znear="0.05" zfar="12"/>
  </visual>
  {arm.DEFAULTS}
  <asset>
    {arm.materials("worn" if with_look else None)}{materials}{look_assets(num_slots) if with_look else ""}
    <texture name="table" type="2d" builtin="flat" rgb1="1 1 1" width="{table_px}" height="{table_px}"/>
    <texture name="sky" type="skybox" builtin="gradient" rgb1="1 1 1" rgb2="1 1 1" width="{room_px}"
      height="{6 * room_px}"/>
    <material name="table" texture="table" specular="0" reflectance="0"/>
  </asset>
  <worldbody>
    <light name="key" type="directional" pos="0 0 2" dir="0 0 -1" castshadow="false" specular="0.3 0.3 0.3"/>
    <camera name="view" pos="1 0 1" quat="1 0 0 0"/>
    <geom name="table" type="box" size="1 0.44 0.02" pos="{x} {y} -0.02" euler="0 0 {TABLE_YAW_RAD}"
      material="table" condim="3" friction="0.7"/>
    {arm.BODY}{slots}{look_bodies() if with_look else ""}
  </worldbody>
  {arm.CONTACTS}{arm.ACTUATORS}
</mujoco>""")


def apply(scene: Scene, model: mujoco.MjModel) -> None:
    """Write a scene into a compiled model in place. Raises ValueError where the model has too few slots.

    Positions of objects are state: see `place_objects`. The renderer must be told to reload its textures.
    """
    _check_slots(scene, model)
    _apply_view(scene, model)
    if scene.look is None:
        _apply_textures(scene, model)
    else:
        apply_look(scene.look, model)
    for i in range(_num_slots(model)):
        geom, body = model.geom(f"object_{i}").id, model.body(f"object_{i}").id
        used = i < len(scene.objects)
        touched = used and scene.contact
        model.geom_contype[geom] = model.geom_conaffinity[geom] = int(touched)
        model.body_gravcomp[body] = 0.0 if touched else 1.0
        if used:
            _apply_object(scene.objects[i], model, geom, body)


def place_objects(scene: Scene, model: mujoco.MjModel, data: mujoco.MjData) -> None:
    """Put the scene's objects on the table, unused slots out of sight."""
    _check_slots(scene, model)
    for i in range(_num_slots(model)):
        start = model.joint(f"object_{i}").qposadr[0]
        pose = np.array([float(i), 0.0, FAR_AWAY_M, 1.0, 0.0, 0.0, 0.0])
        if i < len(scene.objects):
            item = scene.objects[i]
            pose[:3] = *item.position_m, item.half_size_m[2]
            pose[3], pose[6] = np.cos(item.yaw_rad / 2), np.sin(item.yaw_rad / 2)
        data.qpos[start : start + 7] = pose


def _num_slots(model: mujoco.MjModel) -> int:
    return int(np.sum(model.jnt_type == mujoco.mjtJoint.mjJNT_FREE))


def _check_slots(scene: Scene, model: mujoco.MjModel) -> None:
    if len(scene.objects) > _num_slots(model):
        raise ValueError(f"scene has {len(scene.objects)} objects, the model was compiled for {_num_slots(model)}")


def _apply_object(item: SceneObject, model: mujoco.MjModel, geom: int, body: int) -> None:
    x, y, z = item.half_size_m
    if item.shape == "box":
        model.geom_type[geom], model.geom_size[geom] = mujoco.mjtGeom.mjGEOM_BOX, (x, y, z)
        inertia = np.array([y * y + z * z, x * x + z * z, x * x + y * y]) * item.mass_kg / 3
        bound = float(np.sqrt(x * x + y * y + z * z))
    else:
        model.geom_type[geom], model.geom_size[geom] = mujoco.mjtGeom.mjGEOM_CYLINDER, (x, z, 0)
        across = item.mass_kg * (3 * x * x + 4 * z * z) / 12
        inertia = np.array([across, across, item.mass_kg * x * x / 2])
        bound = float(np.hypot(x, z))
    model.geom_rbound[geom] = bound
    model.geom_aabb[geom] = (0, 0, 0, x, y, z)
    model.bvh_aabb[model.body_bvhadr[body]] = (0, 0, 0, x, y, z)
    model.body_mass[body], model.body_inertia[body] = item.mass_kg, inertia
    model.mat_rgba[model.geom_matid[geom]] = (*OBJECT_COLOURS[item.colour], 1.0)


def _apply_view(scene: Scene, model: mujoco.MjModel) -> None:
    camera, light = model.camera("view").id, model.light("key").id
    model.cam_pos[camera] = scene.camera_position_m
    model.cam_quat[camera] = look_at(np.array(scene.camera_position_m), np.array(scene.camera_target_m))
    model.cam_fovy[camera] = scene.camera_fovy_deg
    direction = np.array(scene.light_direction)
    model.light_dir[light] = direction / np.linalg.norm(direction)
    model.light_diffuse[light] = scene.light_strength
    model.light_ambient[light] = scene.ambient_strength
    model.vis.headlight.ambient[:] = 0.0
    model.vis.headlight.diffuse[:] = 0.3
    model.vis.headlight.specular[:] = 0.0


def look_at(position: Float[np.ndarray, "3"], target: Float[np.ndarray, "3"]) -> Float[np.ndarray, "4"]:
    """Quaternion wxyz of a camera (MuJoCo: x right, y up, looking along -z) that sees `target`, horizon level."""
    back = (position - target) / np.linalg.norm(position - target)
    right = np.cross([0.0, 0.0, 1.0], back)
    right /= np.linalg.norm(right)
    quaternion = np.empty(4)
    mujoco.mju_mat2Quat(quaternion, np.stack([right, np.cross(back, right), back], axis=1).ravel())
    return quaternion


def pinhole(scene: Scene, size_px: int) -> Camera:
    """The camera that a scene is rendered with, in OpenCV's axes; the world's frame is the arm's base."""
    columns = np.empty(9)
    position = np.array(scene.camera_position_m)
    mujoco.mju_quat2Mat(columns, look_at(position, np.array(scene.camera_target_m)))
    right, up, back = columns.reshape(3, 3).T
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = np.stack([right, -up, -back], axis=1), position
    focal_px = size_px / 2 / np.tan(np.deg2rad(scene.camera_fovy_deg) / 2)
    centre_px = (size_px - 1) / 2
    intrinsics = np.array([[focal_px, 0.0, centre_px], [0.0, focal_px, centre_px], [0.0, 0.0, 1.0]])
    return Camera(size=(size_px, size_px), intrinsics=intrinsics, pose=pose)


def _apply_textures(scene: Scene, model: mujoco.MjModel) -> None:
    rng = np.random.default_rng(scene.texture_seed)
    colour = np.array(scene.table_colour)
    write_texture(model, "table", smooth_texture(rng, colour, scene.table_contrast, TEXTURE_PX))
    wall = np.broadcast_to(np.array(scene.wall_colour) * 255, (6 * PLAIN_ROOM_PX, PLAIN_ROOM_PX, 3))
    write_texture(model, "sky", np.clip(wall, 0, 255).astype(np.uint8))
