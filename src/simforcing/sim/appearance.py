"""What a camera's robot looks like: log odds of robot against everything else by colour, and by place in the picture.

Learnt under fitted silhouettes, for one photo of which no median picture is known, so without the change that finds the
camera. Colour and place are not independent: place counts half.
"""

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8
from scipy.ndimage import gaussian_filter, map_coordinates

from simforcing.types.calibration import Appearance

NUM_BINS = 8  # of each colour channel
GRID = (12, 16)  # rows and columns of the map of places
COLOUR_BLUR, LARGEST_ODDS = 0.6, 3.0  # bins; log odds
PLACE_BLUR = 1 / 24  # of the height
LEAST_SHARE = 0.01  # a place where the robot was never seen is not impossible
PLACE_WEIGHT = 0.5
SMOOTHING = 0.7 / 64  # of the height: single pixels are noise
NUM_THRESHOLDS = 30
DECIMALS = 3  # as stored


def learn_appearance(frames: UInt8[np.ndarray, "f h w 3"], robot: Bool[np.ndarray, "f h w"]) -> Appearance:
    """Histograms under silhouettes of the same frames, and the threshold that fits these best.

    Raises:
        ValueError: no pixel of robot, or of anything else.
    """
    if not robot.any() or robot.all():
        raise ValueError(f"{len(frames)} frames hold {'no' if not robot.any() else 'nothing but the'} robot")
    key = _cells(frames)
    colour = np.log(_share(key[robot]) / _share(key[~robot])).clip(-LARGEST_ODDS, LARGEST_ODDS)
    height, width = robot.shape[1:]
    share = gaussian_filter(robot.mean(axis=0), PLACE_BLUR * height)
    rows, columns = ((np.arange(n) + 0.5) * size / n - 0.5 for n, size in zip(GRID, (height, width), strict=True))
    share = _sampled(share, rows, columns).clip(LEAST_SHARE, 1 - LEAST_SHARE)
    place = np.log(share / (1 - share))
    known = Appearance(
        colour=tuple(np.round(colour, DECIMALS).tolist()),
        place=tuple(tuple(row) for row in np.round(place, DECIMALS).tolist()),
        threshold=0.0,
    )
    odds = np.stack([robot_odds(known, frame) for frame in frames])
    thresholds = np.round(np.quantile(odds, np.linspace(0.3, 0.995, NUM_THRESHOLDS)), DECIMALS)
    best = max(thresholds.tolist(), key=lambda one: _iou(odds > one, robot))
    return Appearance(colour=known.colour, place=known.place, threshold=best)


def robot_odds(appearance: Appearance, image: UInt8[np.ndarray, "h w 3"]) -> Float[np.ndarray, "h w"]:
    """Log odds of every pixel, smoothed; of a picture of any size through the same camera."""
    height, width = image.shape[:2]
    colour = np.array(appearance.colour)[_cells(image, round(len(appearance.colour) ** (1 / 3)))]
    place = np.array(appearance.place)
    rows, columns = (
        (np.arange(size) + 0.5) * n / size - 0.5 for n, size in zip(place.shape, (height, width), strict=True)
    )
    return gaussian_filter(colour, SMOOTHING * height) + PLACE_WEIGHT * _sampled(place, rows, columns)


def recognise(appearance: Appearance, image: UInt8[np.ndarray, "h w 3"]) -> Bool[np.ndarray, "h w"]:
    """Where the odds are above the threshold."""
    return robot_odds(appearance, image) > appearance.threshold


def _cells(pixels: UInt8[np.ndarray, "*shape 3"], num_bins: int = NUM_BINS) -> Int[np.ndarray, "*shape"]:
    level = pixels.astype(np.int64) * num_bins // 256
    return (level[..., 0] * num_bins + level[..., 1]) * num_bins + level[..., 2]


def _share(cells: Int[np.ndarray, " n"]) -> Float[np.ndarray, " c"]:
    """How often each colour is seen; never 0, and shared with its neighbours."""
    counts = np.bincount(cells, minlength=NUM_BINS**3).reshape(NUM_BINS, NUM_BINS, NUM_BINS)
    near = gaussian_filter(counts.astype(np.float64), COLOUR_BLUR).ravel()
    return (near + 1) / (near.sum() + near.size)


def _sampled(
    values: Float[np.ndarray, "h w"], rows: Float[np.ndarray, " r"], columns: Float[np.ndarray, " c"]
) -> Float[np.ndarray, "r c"]:
    """Linear between the pixels, held beyond the outermost."""
    at = np.meshgrid(rows, columns, indexing="ij")
    return map_coordinates(values, at, order=1, mode="nearest")


def _iou(found: Bool[np.ndarray, "f h w"], robot: Bool[np.ndarray, "f h w"]) -> float:
    return float((found & robot).sum() / max(1, (found | robot).sum()))
