"""Looks of the real-like table top: drawn into a `Look`, written into a model that was compiled for it.

Clutter stands where the arm never goes and touches nothing; it may hide the robot, or be hidden by it.
"""

# MuJoCo ships no stubs:
# pyright: reportAttributeAccessIssue=false, reportInvalidTypeForm=false

from dataclasses import dataclass
from typing import Literal

import mujoco
import numpy as np
from jaxtyping import Float, UInt8

from simforcing.sim import textures
from simforcing.sim.sensor import Sensor
from simforcing.types import Camera

Colour = tuple[float, float, float]
ClutterShape = Literal["box", "cylinder", "ellipsoid"]
SHAPES: tuple[ClutterShape, ...] = ("box", "cylinder", "ellipsoid")
MAX_CLUTTER = 7
TABLE_PX, ROOM_PX, LABEL_PX = 256, 64, 32
FAR_AWAY_M = -5.0
TABLE_CENTRE_M, TABLE_YAW_RAD = (0.146, -0.165), 0.726
WORKSPACE_M, BASE_M = 0.46, 0.17  # radii about the base that clutter stays out of, before and behind it
# Table and wall colours of real rooms, and robots that have been used: links, joints, hand.
TABLES: tuple[Colour, ...] = (
    (0.55, 0.38, 0.24),
    (0.72, 0.57, 0.4),
    (0.36, 0.24, 0.16),
    (0.78, 0.76, 0.72),
    (0.5, 0.52, 0.54),
    (0.3, 0.36, 0.42),
    (0.45, 0.5, 0.36),
)
WALLS: tuple[Colour, ...] = (
    (0.75, 0.73, 0.68),
    (0.6, 0.66, 0.7),
    (0.78, 0.7, 0.6),
    (0.5, 0.53, 0.5),
    (0.85, 0.85, 0.83),
)
ROBOTS: dict[str, tuple[Colour, Colour, Colour]] = {
    "light": ((0.8, 0.78, 0.72), (0.22, 0.23, 0.25), (0.85, 0.46, 0.16)),
    "full": ((0.3, 0.31, 0.34), (0.12, 0.12, 0.13), (0.62, 0.38, 0.2)),
}


@dataclass(frozen=True, kw_only=True)
class Clutter:
    """A thing that is only seen: half extents as MuJoCo's sizes, standing on the table."""

    shape: ClutterShape
    half_size_m: tuple[float, float, float]
    position_m: tuple[float, float]
    yaw_rad: float
    colour: Colour


@dataclass(frozen=True, kw_only=True)
class Look:
    """What is seen of an episode beside the plain scene.

    Args:
        level: light or full.
        light_direction, light_colour, ambient, fill: of the key light, and strength of the light from everywhere and
            from the camera's side.
        seed: of textures and of the sensor's noise.
    """

    level: Literal["light", "full"]
    clutter: tuple[Clutter, ...]
    table_colour: Colour
    wall_colour: Colour
    light_direction: tuple[float, float, float]
    light_colour: Colour
    ambient: float
    fill: float
    sensor: Sensor
    seed: int

    def exposed(self, pictures: UInt8[np.ndarray, "f h w 3"], branch: int) -> UInt8[np.ndarray, "f h w 3"]:
        """Pictures of an episode as its sensor records them; the noise in frame 0 is the same in all branches."""
        first, later = np.random.default_rng([self.seed, 1]), np.random.default_rng([self.seed, 2, branch])
        return np.stack([self.sensor.expose(picture, later if i else first) for i, picture in enumerate(pictures)])


def draw_look(level: Literal["light", "full"], camera: Camera, rng: np.random.Generator) -> Look:
    """A look, with clutter where `camera` sees it; the same generator state gives the same."""
    full = level == "full"
    spread = 1.0 if full else 0.4
    num_clutter = int(rng.integers(3, MAX_CLUTTER + 1)) if full else 0
    places = _clutter_places(camera)
    warmth = spread * 0.12 * rng.uniform(-1, 1)
    strength = rng.uniform(0.35, 0.75) if full else rng.uniform(0.48, 0.62)
    return Look(
        level=level,
        clutter=_apart([_draw_clutter(places, rng) for _ in range(num_clutter if len(places) else 0)]),
        table_colour=_tinted(rng, TABLES[rng.integers(len(TABLES))]),
        wall_colour=_tinted(rng, WALLS[rng.integers(len(WALLS))]),
        light_direction=_triple(np.array([-0.3, 0.25, -1.0]) + spread * 0.6 * rng.uniform(-1, 1, 3) * [1, 1, 0.2]),
        light_colour=_triple(strength * np.array([1 + warmth, 1.0, 1 - warmth])),
        ambient=float(rng.uniform(0.25, 0.5) if full else rng.uniform(0.35, 0.42)),
        fill=float(rng.uniform(0.1, 0.35) if full else 0.3),
        sensor=_draw_sensor(rng, spread),
        seed=int(rng.integers(2**31)),
    )


def _draw_sensor(rng: np.random.Generator, spread: float) -> Sensor:
    exposure = 1 + spread * 0.15 * rng.uniform(-1, 1)
    return Sensor(
        gain=_triple(exposure * (1 + spread * 0.06 * rng.uniform(-1, 1, 3))),
        gamma=float(1 + spread * 0.15 * rng.uniform(-1, 1)),
        vignette=float(spread * rng.uniform(0.1, 0.3)),
        blur_px=float(0.25 + spread * rng.uniform(0.05, 0.3)),
        read_noise=float(spread * rng.uniform(1.0, 2.5)),
        shot_noise=float(spread * rng.uniform(1.0, 3.0)),
    )


def _clutter_places(camera: Camera) -> Float[np.ndarray, "n 2"]:
    """Places (m) on the table in view: beyond the workspace's edge, or beside and behind the base."""
    along, across = (axis.ravel() for axis in np.meshgrid(np.arange(-0.6, 0.61, 0.02), np.arange(-0.38, 0.39, 0.02)))
    cos, sin = np.cos(TABLE_YAW_RAD), np.sin(TABLE_YAW_RAD)
    places = np.array(TABLE_CENTRE_M) + np.stack([cos * along - sin * across, sin * along + cos * across], axis=1)
    radius, azimuth = np.linalg.norm(places, axis=1), np.arctan2(places[:, 1], places[:, 0])
    free = radius > np.where(np.abs(azimuth) < 1.5, WORKSPACE_M, BASE_M)
    share = (0.5 + camera.project(np.concatenate([places, np.full((len(places), 1), 0.03)], axis=1))) / camera.size[
        ::-1
    ]
    in_view = ((share > 0) & (share < 1)).all(axis=1)
    return places[free & in_view]


def _draw_clutter(places: Float[np.ndarray, "n 2"], rng: np.random.Generator) -> Clutter:
    place = places[rng.integers(len(places))] + rng.uniform(-0.01, 0.01, 2)
    half, shape = rng.uniform(0.012, 0.035, 2), SHAPES[rng.integers(len(SHAPES))]
    tallest = 0.04 if place[0] > 0 else 0.09
    grey = rng.uniform(0.15, 0.85)
    return Clutter(
        shape=shape,
        half_size_m=(
            float(half[0]),
            float(half[0] if shape == "cylinder" else half[1]),
            float(rng.uniform(0.02, tallest)),
        ),
        position_m=(float(place[0]), float(place[1])),
        yaw_rad=float(rng.uniform(-np.pi, np.pi)),
        colour=_triple(np.clip(grey + rng.uniform(0.05, 0.5) * rng.uniform(-1, 1, 3), 0.05, 0.95)),
    )


def _apart(items: list[Clutter]) -> tuple[Clutter, ...]:
    """Those that do not stand in an earlier one."""
    kept: list[Clutter] = []
    for item in items:
        if all(np.hypot(*np.subtract(item.position_m, other.position_m)) > 0.08 for other in kept):
            kept.append(item)
    return tuple(kept)


def _tinted(rng: np.random.Generator, colour: Colour) -> Colour:
    """Mostly brighter or darker, a little warmer or colder."""
    return _triple(
        np.clip(np.array(colour) * (1 + 0.12 * rng.standard_normal()) * rng.uniform(0.95, 1.05, 3), 0.05, 0.95)
    )


def _triple(values: np.ndarray) -> tuple[float, float, float]:
    x, y, z = values
    return float(x), float(y), float(z)


def look_assets(num_slots: int) -> str:
    """Cube textures of objects, clutter and robot; they darken the colours of their materials."""
    names = ["worn", *(f"object_{i}" for i in range(num_slots)), *(f"clutter_{i}" for i in range(MAX_CLUTTER))]
    maps = "".join(
        f'<texture name="{name}" type="cube" builtin="flat" rgb1="1 1 1" width="{LABEL_PX}" height="{LABEL_PX}"/>'
        for name in names
    )
    return maps + "".join(
        f'<material name="clutter_{i}" texture="clutter_{i}" specular="0.2" shininess="0.3"/>'
        for i in range(MAX_CLUTTER)
    )


def look_bodies() -> str:
    """A second light, and clutter out of sight."""
    return '<light name="fill" type="directional" dir="-0.6 0.5 -0.5" castshadow="false" specular="0 0 0"/>' + "".join(
        f'<geom name="clutter_{i}" type="box" size="0.02 0.02 0.02" pos="{i} 0 {FAR_AWAY_M}" material="clutter_{i}"'
        ' contype="0" conaffinity="0"/>'
        for i in range(MAX_CLUTTER)
    )


def apply_look(look: Look, model: mujoco.MjModel) -> None:
    """Write a look into a model compiled for it; the renderer must be told to reload its textures."""
    rng = np.random.default_rng(look.seed)
    full = look.level == "full"
    surface = textures.SURFACES[rng.integers(len(textures.SURFACES))] if full else textures.stains
    contrast = rng.uniform(0.15, 0.3) if full else 0.1
    colour = np.array(look.table_colour)
    write_texture(model, "table", textures.shaded(colour, surface(rng, TABLE_PX), contrast))
    write_texture(model, "sky", textures.room(rng, np.array(look.wall_colour), ROOM_PX, 8 if full else 2))
    write_texture(model, "worn", _label(rng, 0.25 if full else 0.1, (textures.stains,)))
    _apply_light(look, model)
    for name, rgb in zip(("link", "joint", "hand"), ROBOTS[look.level], strict=True):
        model.mat_rgba[model.material(name).id, :3] = rgb
    for i in range(model.ntex):
        if (name := model.texture(i).name).startswith("object_"):
            write_texture(model, name, _label(rng, 0.2 if full else 0.08))
    for i in range(MAX_CLUTTER):
        _apply_clutter(look.clutter[i] if i < len(look.clutter) else None, model, i, rng)


def write_texture(model: mujoco.MjModel, name: str, texture: textures.Texture) -> None:
    """Replace a texture's pixels; a cube's six faces lie one below the other."""
    start = int(model.tex_adr[model.texture(name).id])
    model.tex_data[start : start + texture.size] = texture.ravel()


def _label(
    rng: np.random.Generator, contrast: float, patterns: tuple[textures.Drawing, ...] = textures.LABELS
) -> textures.Texture:
    """Six equal faces, white darkened by one of the patterns."""
    pattern = patterns[rng.integers(len(patterns))](rng, LABEL_PX)
    face = textures.shaded(np.full(3, 1.0 - contrast), pattern, contrast)
    return np.tile(face, (6, 1, 1))


def _apply_light(look: Look, model: mujoco.MjModel) -> None:
    key, fill = model.light("key").id, model.light("fill").id
    direction = np.array(look.light_direction)
    model.light_dir[key] = direction / np.linalg.norm(direction)
    model.light_diffuse[key] = look.light_colour
    model.light_ambient[key] = look.ambient
    model.light_diffuse[fill] = look.fill
    model.light_ambient[fill] = 0.0
    model.vis.headlight.diffuse[:] = 0.1


def _apply_clutter(item: Clutter | None, model: mujoco.MjModel, index: int, rng: np.random.Generator) -> None:
    geom = model.geom(f"clutter_{index}").id
    if item is None:
        model.geom_pos[geom] = (index, 0.0, FAR_AWAY_M)
        return
    x, y, z = item.half_size_m
    model.geom_type[geom] = getattr(mujoco.mjtGeom, f"mjGEOM_{item.shape.upper()}")
    model.geom_size[geom] = (x, z, 0.0) if item.shape == "cylinder" else (x, y, z)
    model.geom_pos[geom] = (*item.position_m, z)
    model.geom_quat[geom] = (np.cos(item.yaw_rad / 2), 0.0, 0.0, np.sin(item.yaw_rad / 2))
    model.mat_rgba[model.geom_matid[geom], :3] = item.colour
    write_texture(model, f"clutter_{index}", _label(rng, 0.3))
