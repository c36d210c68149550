"""What a rendered robot is put on: white, neutral grey, the episode's mean image, or its clean plate.

The plate is the median of what each pixel shows while the robot does not cover it; pixels that are always covered take
the nearest known one. Why not white: docs/simulate.md.
"""

from collections.abc import Iterable
from typing import Literal

import numpy as np
from jaxtyping import Bool, UInt8
from scipy.ndimage import binary_dilation, distance_transform_edt

BackgroundKind = Literal["white", "grey", "mean", "plate"]
GREY, WHITE = 128, 255
PLATE_FRAMES = 64  # of an episode, evenly spread: a median of more changes little
MARGIN_PX = 2  # a rendered outline is off by about this much


def plain(kind: BackgroundKind, size: tuple[int, int]) -> UInt8[np.ndarray, "h w 3"]:
    """White or grey."""
    return np.full((*size, 3), {"white": WHITE, "grey": GREY}[kind], np.uint8)


def mean_image(frames: Iterable[UInt8[np.ndarray, "h w 3"]]) -> UInt8[np.ndarray, "h w 3"]:
    """The mean of all frames, exact in integers. Raises ValueError for no frames."""
    total, count = None, 0
    for frame in frames:
        total = frame.astype(np.int64) if total is None else total + frame
        count += 1
    if total is None:
        raise ValueError("a mean of no frames")
    return ((total + count // 2) // count).astype(np.uint8)


def plate_rows(num_frames: int) -> list[int]:
    """Which frames make a plate."""
    return sorted({round(row) for row in np.linspace(0, num_frames - 1, min(PLATE_FRAMES, num_frames))})


def clean_plate(frames: UInt8[np.ndarray, "f h w 3"], covered: Bool[np.ndarray, "f h w"]) -> UInt8[np.ndarray, "h w 3"]:
    """The scene without the robot.

    Args:
        covered: where the rendered robot is; it is widened by a margin.
    """
    free = ~np.array([binary_dilation(mask, iterations=MARGIN_PX) for mask in covered], bool)
    count = free.sum(axis=0)
    if not count.any():
        return np.full_like(frames[0], GREY)
    values = np.sort(np.where(free[..., None], frames.astype(np.int16), np.int16(256)), axis=0)  # covered ones last
    ranks = (np.maximum(count - 1, 0) // 2, np.minimum(count // 2, len(values) - 1))
    low, high = (np.take_along_axis(values, rank[None, ..., None], axis=0)[0] for rank in ranks)
    nearest = np.asarray(distance_transform_edt(count == 0, return_distances=False, return_indices=True))
    return ((low + high + 1) // 2)[nearest[0], nearest[1]].astype(np.uint8)
