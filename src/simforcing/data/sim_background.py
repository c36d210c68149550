"""The background that a stored simulation stands on, as meta/simulation.json declares it: a colour, or pictures."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from simforcing.data.lerobot import episode_names
from simforcing.data.pair_fields import background_path, require_background
from simforcing.data.pair_streams import PICTURED, RECORD_NAME
from simforcing.data.resize import resize_frames
from simforcing.types import Resize
from simforcing.types.files import read_json


def background_reader(
    root: Path, resize: Resize, size: tuple[int, int]
) -> Callable[[str], UInt8[np.ndarray, "h w 3"]] | None:
    """Episode name -> its background, resized as its frames are; None where the set has no record of a simulation.

    Args:
        size: stored (height, width) of the simulation's frames.

    Raises:
        ValueError: a damaged record; when called, a picture that cannot be read.
    """
    path = Path(root) / "meta" / RECORD_NAME
    if not path.is_file():
        return None
    record = read_json(path)
    if not isinstance(record, dict):
        raise ValueError(f"{path}: expected an object, found {type(record).__name__}")
    require_background(record, Path(root))
    declared = record["background"]
    if declared["kind"] not in PICTURED:
        colour = resize_frames(np.full((1, *size, 3), declared["value"], np.uint8), resize)[0]
        return lambda name: colour
    names = episode_names(root)

    def read(name: str) -> UInt8[np.ndarray, "h w 3"]:
        return resize_frames(background_picture(declared, Path(root), names.index(name), name)[None], resize)[0]

    return read


def background_picture(declared: dict[str, Any], root: Path, index: int, name: str) -> UInt8[np.ndarray, "h w 3"]:
    """The stored picture of one episode. ValueError, naming file and episode, where it cannot be read."""
    path = background_path(declared, root, index)
    try:
        return np.asarray(Image.open(path).convert("RGB"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path}: the background of episode {name} cannot be read ({error})") from None
