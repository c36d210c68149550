"""The resize policies (pad, crop, squash), for pictures, for masks and depth, and for the camera that sees them."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Shaped, UInt8
from PIL import Image

from simforcing.types import Camera, Resize
from simforcing.types.cameras import resized_intrinsics


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where a scaled picture lands: scaled (height, width), rows and columns cut off before, and left free before."""

    scaled: tuple[int, int]
    cut: tuple[int, int]
    free: tuple[int, int]


def placement(size: tuple[int, int], resize: Resize) -> Placement:
    """squash: stretch; crop: cover, then cut the centre; pad: fit inside, free around."""
    height, width = size
    scaled = (resize.height, resize.width)
    if resize.policy != "squash" and size != scaled:
        ratios = (resize.height / height, resize.width / width)
        ratio = max(ratios) if resize.policy == "crop" else min(ratios)
        scaled = (max(1, round(height * ratio)), max(1, round(width * ratio)))
    surplus = (scaled[0] - resize.height, scaled[1] - resize.width)
    return Placement(
        scaled=scaled,
        cut=(max(surplus[0], 0) // 2, max(surplus[1], 0) // 2),
        free=(max(-surplus[0], 0) // 2, max(-surplus[1], 0) // 2),
    )


def resize_frames(frames: UInt8[np.ndarray, "f h w 3"], resize: Resize) -> UInt8[np.ndarray, "f h2 w2 3"]:
    """Bicubic, antialiased; black where the policy leaves free."""
    height, width = frames.shape[1:3]
    if (height, width) == (resize.height, resize.width):
        return frames
    where = placement((height, width), resize)
    return _place(np.stack([_resize_frame(frame, where.scaled) for frame in frames]), where, resize)


def resize_nearest(values: Shaped[np.ndarray, "f h w"], resize: Resize) -> Shaped[np.ndarray, "f h2 w2"]:
    """Every number from the pixel whose centre is nearest: masks stay masks, depths are never mixed; 0 where free."""
    height, width = values.shape[1:3]
    where = placement((height, width), resize)
    rows, columns = (
        ((np.arange(new) + 0.5) * old / new).astype(int) for old, new in zip((height, width), where.scaled, strict=True)
    )
    return _place(values[:, rows][:, :, columns], where, resize)


def resize_camera(camera: Camera, resize: Resize) -> Camera:
    """The camera of the resized frames: intrinsics scaled about the picture's edge, then moved; the pose stays."""
    size = (resize.height, resize.width)
    if camera.intrinsics is None or camera.size == size:
        return replace(camera, size=size)
    where = placement(camera.size, resize)
    moved = np.eye(3)
    moved[:2, 2] = where.free[1] - where.cut[1], where.free[0] - where.cut[0]
    return replace(
        camera, size=size, intrinsics=moved @ resized_intrinsics(camera.intrinsics, camera.size, where.scaled)
    )


def _place(values: Shaped[np.ndarray, "f h w ..."], where: Placement, resize: Resize) -> Shaped[np.ndarray, "f ..."]:
    """On a canvas of zeros of the target size, cutting what is larger."""
    top, left = where.cut
    kept = values[:, top : top + resize.height, left : left + resize.width]
    out = np.zeros((len(values), resize.height, resize.width, *values.shape[3:]), values.dtype)
    free_top, free_left = where.free
    out[:, free_top : free_top + kept.shape[1], free_left : free_left + kept.shape[2]] = kept
    return out


def _resize_frame(frame: UInt8[np.ndarray, "h w 3"], size: tuple[int, int]) -> UInt8[np.ndarray, "h2 w2 3"]:
    if frame.shape[:2] == size:
        return frame
    height, width = size
    return np.asarray(Image.fromarray(frame).resize((width, height), Image.Resampling.BICUBIC))
