"""Photos from files, as upright RGB pictures of the aspect that a model was trained on."""

from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps

from simforcing.data.resize import resize_frames
from simforcing.types import Resize
from simforcing.types.episodes import ResizePolicy

ASPECT_TOLERANCE = 0.02  # relative: a cut odd row, a side rounded to a multiple
MODES = ("RGB", "RGBA", "L", "LA", "P", "1")


def read_picture(path: Path) -> UInt8[np.ndarray, "h w 3"]:
    """One still picture, turned as its EXIF tag says.

    Raises:
        ValueError: a missing or damaged file, an animation, transparent pixels, or pixels of more than 8 bits.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path}: no such file, expected a picture")
    try:
        with Image.open(path) as opened:
            if getattr(opened, "n_frames", 1) > 1:
                raise ValueError(f"holds {opened.n_frames} frames; give one still picture")  # pyright: ignore[reportAttributeAccessIssue]
            if opened.mode not in MODES:
                raise ValueError(f"has pixels of mode {opened.mode}; expected 8 bits: {', '.join(MODES)}")
            upright = ImageOps.exif_transpose(opened)
            if upright.has_transparency_data and np.asarray(upright.convert("RGBA"))[..., 3].min() < 255:
                raise ValueError("has transparent pixels; put the picture on a background first")
            return np.asarray(upright.convert("RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path}: {' '.join(str(error).replace(str(path), 'the file').split())}") from None


def same_aspect(size: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether pictures of these (height, width) show the same when one is scaled to the other."""
    return abs(size[1] / size[0] * other[0] / other[1] - 1) <= ASPECT_TOLERANCE


def of_aspect(
    picture: UInt8[np.ndarray, "h w 3"], size: tuple[int, int], policy: ResizePolicy | None, where: str
) -> UInt8[np.ndarray, "h2 w2 3"]:
    """The picture as a camera of this aspect would hold it.

    Args:
        size: (height, width) of the frames that the model was trained on; a picture of their aspect stays as it is.
        policy: how another aspect is brought to theirs; None: it is refused.

    Raises:
        ValueError: another aspect and no policy; both are named.
    """
    height, width = picture.shape[:2]
    if same_aspect((height, width), size):
        return picture
    if policy is None:
        raise ValueError(
            f"{where}: a picture of {height}x{width} (aspect {width / height:.3g}); the model was trained on"
            f" {size[0]}x{size[1]} ({size[1] / size[0]:.3g}); choose --resize pad, crop or squash"
        )
    return resize_frames(picture[None], Resize(height=size[0], width=size[1], policy=policy))[0]
