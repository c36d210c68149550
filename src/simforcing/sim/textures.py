"""Procedural textures as arrays: every one is drawn from a generator, tiles, and survives a 64x64 picture."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, UInt8
from scipy import ndimage

Texture = UInt8[np.ndarray, "h w 3"]
Pattern = Float[np.ndarray, "h w"]
Drawing = Callable[[np.random.Generator, int], Pattern]


def shaded(colour: Float[np.ndarray, "3"], pattern: Pattern, contrast: float) -> Texture:
    """One colour, brighter and darker by `contrast` times a pattern of about -1 .. 1."""
    return np.clip(255 * colour * (1.0 + contrast * pattern)[..., None], 0, 255).astype(np.uint8)


def smooth_texture(rng: np.random.Generator, colour: Float[np.ndarray, "3"], contrast: float, size: int) -> Texture:
    """A tile of a few low-frequency waves in one colour: visible at 64x64 without aliasing."""
    axis = np.arange(size) * (2 * np.pi / size)
    y, x = np.meshgrid(axis, axis, indexing="ij")
    waves = sum(np.cos(rng.integers(-3, 4) * x + rng.integers(1, 4) * y + rng.uniform(0, 2 * np.pi)) for _ in range(4))
    shade = 1.0 + contrast * np.asarray(waves) / 2
    return np.clip(255 * colour * shade[..., None], 0, 255).astype(np.uint8)


def clouds(rng: np.random.Generator, size: int, cells: tuple[int, int], *, num_octaves: int = 3) -> Pattern:
    """Noise of several scales, from `cells` blobs along each side upwards; mean 0, standard deviation 1/2."""
    total = np.zeros((size, size))
    for octave in range(num_octaves):
        shape = (min(size, cells[0] << octave), min(size, cells[1] << octave))
        total += _enlarged(rng.standard_normal(shape), size) / 2**octave
    total -= total.mean()
    return 0.5 * total / max(float(total.std()), 1e-9)


def wood(rng: np.random.Generator, size: int) -> Pattern:
    """Long grain along columns, in planks of slightly different shade."""
    grain = clouds(rng, size, (16, 1)) + 0.5 * np.sin(
        2 * np.pi * (6 * _axis(size)[:, None] + clouds(rng, size, (2, 2), num_octaves=2))
    )
    num_planks = int(rng.integers(3, 7))
    plank = np.floor(_axis(size) * num_planks).astype(int)
    joints = np.abs(np.gradient(plank.astype(float))) > 0
    return grain * 0.6 + (rng.uniform(-0.5, 0.5, num_planks)[plank] - 1.0 * joints)[:, None]


def speckle(rng: np.random.Generator, size: int) -> Pattern:
    """Stone or laminate: fine grains over soft clouds."""
    return 0.7 * clouds(rng, size, (64, 48), num_octaves=2) + 0.6 * clouds(rng, size, (3, 3))


def cloth(rng: np.random.Generator, size: int) -> Pattern:
    """Checks with soft edges, as on a tablecloth."""
    y, x = np.meshgrid(*(np.sin(2 * np.pi * _axis(size) * rng.integers(5, 10)) for _ in range(2)), indexing="ij")
    return 0.5 * (np.tanh(4 * y) + np.tanh(4 * x)) + 0.3 * clouds(rng, size, (4, 4))


def stains(rng: np.random.Generator, size: int) -> Pattern:
    """A plain surface with a few darker places."""
    return 0.5 * clouds(rng, size, (3, 3)) - 0.8 * np.maximum(0.0, clouds(rng, size, (5, 5), num_octaves=2) - 0.7)


def stripes(rng: np.random.Generator, size: int) -> Pattern:
    """Bands around, as on packages."""
    return np.tile(np.sign(np.sin(2 * np.pi * (_axis(size) * rng.integers(1, 4) + rng.random())))[:, None], (1, size))


SURFACES: tuple[Drawing, ...] = (wood, speckle, cloth, stains)
LABELS: tuple[Drawing, ...] = (stains, stripes, speckle)


def room(
    rng: np.random.Generator, colour: Float[np.ndarray, "3"], size: int, num_things: int
) -> UInt8[np.ndarray, "s w 3"]:
    """A sky box's six faces (right, left, up, down, front, back), one below the other.

    Walls with dark and bright rectangles, as furniture, doors and posters out of focus, above a floor.
    """
    faces = []
    floor = colour * rng.uniform(0.35, 0.8)
    for _ in range(6):
        face = np.broadcast_to(colour, (size, size, 3)).copy()
        for _ in range(int(rng.integers(num_things // 2, num_things + 1))):
            low, extent = rng.integers(0, size, 2), rng.integers(size // 10, size // 2, 2)
            tone = colour * rng.uniform(0.3, 1.2)
            if rng.random() < 0.4:
                tone = rng.uniform(0.15, 0.8) * rng.uniform(0.7, 1.2, 3)
            face[low[0] : low[0] + extent[0], low[1] : low[1] + extent[1]] = tone
        faces.append(face)
    faces[3][:] = floor
    faces[3] *= 1.0 + 0.15 * clouds(rng, size, (6, 6))[..., None]
    soft = [ndimage.gaussian_filter(face, (size / 60, size / 60, 0)) for face in faces]
    return np.clip(255 * np.concatenate(soft), 0, 255).astype(np.uint8)


def _axis(size: int) -> Float[np.ndarray, " s"]:
    return np.arange(size) / size


def _enlarged(grid: np.ndarray, size: int) -> Pattern:
    """Bilinear, wrapped around, so that tiles fit."""
    rows, columns = (np.arange(size) * (side / size) for side in grid.shape)
    places = np.meshgrid(rows, columns, indexing="ij")
    return ndimage.map_coordinates(grid, places, order=1, mode="grid-wrap")
