"""Contours of rendered silhouettes against pictures: where along its normal the true outline of the robot lies.

For a contour point with normal n (outwards) and log odds L(d) of robot against background at distance d along it,

    log p(outline at s) = sum_{d <= s} L(d) - sum_{d > s} L(d),

whose mean and variance give one weighted equation n . du = mean for the camera's motion (region-based tracking; the
odds come from histograms of change and colour inside and outside of the current silhouettes).
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.ndimage import binary_dilation, gaussian_filter, map_coordinates

from simforcing.sim.observation import NUM_CHANGE_BINS, NUM_KEYS, Observation, mostly_inside
from simforcing.types import Camera

NEAR_PX = 8  # background is learnt so near to the silhouettes: what the outline must be told from
SURE = 0.9  # coverage of pixels that histograms are learnt from
PRIOR_COUNT = 20.0  # pixels: how much the change alone counts against rarely seen colours
LARGEST_ODDS = 3.0
STEP_PX = 0.5
TEMPERING = 0.5  # neighbouring pixels are not independent
DEVIATION_PX = 0.5  # of an outline that is seen perfectly


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """The robot in some frames: coverage 0 .. 1 and depth (m, 0 = nothing)."""

    coverage: Float[np.ndarray, "f h w"]
    depth_m: Float[np.ndarray, "f h w"]


@dataclass(frozen=True, kw_only=True)
class Matches:
    """Contour points and where the true outline is seen.

    Args:
        position_px: column and row. normal: unit, outwards. depth_m: of the robot there.
        offset_px, variance: mean and variance of the outline's place along the normal.
    """

    position_px: Float[np.ndarray, "n 2"]
    normal: Float[np.ndarray, "n 2"]
    depth_m: Float[np.ndarray, " n"]
    offset_px: Float[np.ndarray, " n"]
    variance: Float[np.ndarray, " n"]

    def __len__(self) -> int:
        return len(self.offset_px)


def log_odds(rendered: Rendered, observation: Observation) -> Float[np.ndarray, "f h w"]:
    """Of robot against background for every pixel, by histograms under the rendered silhouettes.

    Pixels that the robot covers most of an episode have histograms of their own: there change means its absence.
    """
    coverage = rendered.coverage
    usual = mostly_inside(coverage >= 0.5, observation.episode)
    key = observation.key * 2 + usual
    near = np.array([binary_dilation(inside, iterations=NEAR_PX) for inside in coverage >= 0.5], bool)
    robot = _histogram(key[coverage > SURE], 2)
    ground = _histogram(key[(coverage < 1 - SURE) & near], 2)
    odds = np.log(smoothed(robot) / smoothed(ground))
    return np.clip(odds, -LARGEST_ODDS, LARGEST_ODDS).reshape(-1)[key].astype(np.float32)


def match(rendered: Rendered, odds: Float[np.ndarray, "f h w"], *, reach_px: float) -> Matches:
    """Every contour point that lies at least `reach_px` inside of the picture, with the outline seen around it."""
    frame, position, normal, depth = _contour(rendered)
    distance = np.arange(-reach_px, reach_px + STEP_PX / 2, STEP_PX)
    column = position[:, :1] + distance * normal[:, :1]
    row = position[:, 1:] + distance * normal[:, 1:]
    height, width = odds.shape[1:]
    ends = (column[:, [0, -1]], row[:, [0, -1]])
    kept = ((ends[0] > 0) & (ends[0] < width - 1) & (ends[1] > 0) & (ends[1] < height - 1)).all(axis=1)
    at = [np.repeat(frame[kept, None], len(distance), axis=1), row[kept], column[kept]]
    along = map_coordinates(odds, at, order=1)
    inside = (np.cumsum(along, axis=1) - along / 2) * STEP_PX  # half of the step at s lies beyond it
    fit = TEMPERING * 2 * inside  # less a constant
    weight = np.exp(fit - fit.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    offset = np.einsum("nd,d->n", weight, distance)  # a matrix product would depend on how many threads it uses
    variance = (weight * (distance - offset[:, None]) ** 2).sum(axis=1) + DEVIATION_PX**2
    return Matches(
        position_px=position[kept], normal=normal[kept], depth_m=depth[kept], offset_px=offset, variance=variance
    )


def camera_jacobian(matches: Matches, camera: Camera) -> Float[np.ndarray, "n 7"]:
    """Change of each contour point along its normal (px), per rad and m of the camera in its own frame, and per unit of
    its log focal length."""
    assert camera.intrinsics is not None
    focal = np.diag(camera.intrinsics)[:2]
    from_centre = matches.position_px - camera.intrinsics[:2, 2]
    z = matches.depth_m[:, None]
    x, y = (from_centre / focal * z).T
    zero = np.zeros_like(x)
    depth = z[:, 0]
    # A point p of the camera's frame moves by -(turn x p) - shift.
    motion = np.stack(
        [
            np.stack([zero, depth, -y], axis=1),
            np.stack([-depth, zero, x], axis=1),
            np.stack([y, -x, zero], axis=1),
            np.stack([zero - 1, zero, zero], axis=1),
            np.stack([zero, zero - 1, zero], axis=1),
            np.stack([zero, zero, zero - 1], axis=1),
        ],
        axis=2,
    )
    image = (focal[None, :, None] * motion[:, :2] - from_centre[:, :, None] * motion[:, 2:]) / z[:, :, None]
    along = np.einsum("nc,ncp->np", matches.normal, image)
    return np.concatenate([along, (matches.normal * from_centre).sum(axis=1, keepdims=True)], axis=1)


def _histogram(keys: Int[np.ndarray, " n"], num_cases: int) -> Float[np.ndarray, "d k s"]:
    counts = np.bincount(keys, minlength=NUM_KEYS * num_cases).astype(np.float64)
    return counts.reshape(NUM_CHANGE_BINS, -1, num_cases)


def smoothed(counts: Float[np.ndarray, "d k s"]) -> Float[np.ndarray, "d k s"]:
    """Probabilities; a colour that was hardly seen counts as its change does over all colours."""
    change = counts.sum(axis=1, keepdims=True) + 1
    change = change / change.sum(axis=0, keepdims=True) / counts.shape[1]
    return (counts + PRIOR_COUNT * change) / (counts.sum(axis=(0, 1), keepdims=True) + PRIOR_COUNT)


def _contour(rendered: Rendered) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Frame, position (column, row), outward normal, depth where coverage crosses one half between two pixels."""
    coverage, depth = rendered.coverage, rendered.depth_m
    smooth = gaussian_filter(coverage, (0, 0.8, 0.8))
    slope_row: np.ndarray = np.gradient(smooth, axis=1)
    slope_column: np.ndarray = np.gradient(smooth, axis=2)
    parts = []
    for axis in (1, 2):
        first = [slice(None)] * 3
        second = [slice(None)] * 3
        first[axis], second[axis] = slice(None, -1), slice(1, None)
        a, b = coverage[tuple(first)], coverage[tuple(second)]
        at = np.nonzero((a >= 0.5) != (b >= 0.5))
        beyond = tuple(index + (i == axis) for i, index in enumerate(at))
        share = (0.5 - a[at]) / (b[at] - a[at])
        inside = tuple(np.where(a[at] >= 0.5, near, far) for near, far in zip(at, beyond, strict=True))
        position = [at[2] + share * (axis == 2), at[1] + share * (axis == 1)]
        slopes = [slope_column[at] + slope_column[beyond], slope_row[at] + slope_row[beyond]]
        parts.append(np.stack([at[0], *position, *slopes, depth[inside]], axis=1))
    frame, column, row, across, down, near = np.concatenate(parts).T
    length = np.hypot(across, down)
    kept = length > 0.1  # thinner than a pixel: no direction
    normal = -np.stack([across, down], axis=1)[kept] / length[kept, None]
    return frame[kept].astype(np.int64), np.stack([column, row], axis=1)[kept], normal, near[kept]


def free_pixels(silhouettes: Bool[np.ndarray, "f h w"], observation: Observation) -> Bool[np.ndarray, "f h w"]:
    """Pixels where the robot, if it is there, stands before what is usually seen."""
    if observation.masked:
        return np.ones(silhouettes.shape, bool)
    return ~mostly_inside(silhouettes, observation.episode)
