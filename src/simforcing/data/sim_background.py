"""How a stored simulation looks, as meta/simulation.json declares it: its background, size, robot and camera."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from simforcing.data.backgrounds import BackgroundKind
from simforcing.data.lerobot import episode_names
from simforcing.data.pair_fields import background_path, require_fields, simulation_record
from simforcing.data.pair_streams import PICTURED
from simforcing.data.picture_files import read_picture
from simforcing.data.resize import resize_frames
from simforcing.types import Camera, EpisodeSet, Resize, from_json
from simforcing.types.cameras import camera_from_json, camera_to_json


def background_reader(
    root: Path, resize: Resize, size: tuple[int, int]
) -> Callable[[str], UInt8[np.ndarray, "h w 3"]] | None:
    """Episode name -> its background, resized as its frames are; None where the set has no record of a simulation.

    Args:
        size: stored (height, width) of the simulation's frames.

    Raises:
        ValueError: a damaged record; when called, a picture that cannot be read.
    """
    record = simulation_record(Path(root))
    if record is None:
        return None
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
    try:
        return read_picture(background_path(declared, root, index))
    except ValueError as error:
        raise ValueError(f"the background of episode {name}: {error}") from None


@dataclass(frozen=True, kw_only=True)
class SimulationLook:
    """What must be known to make another picture like those of a set's simulation.

    Args:
        robot: as `simforcing simulate` names it.
        size: (height, width) in which it was rendered.
        background: its kind.
        colour: of a plain background; None: pictures, another one in every episode.
        cameras: of each simulated view, in that size; None where not all episodes share one.
    """

    robot: str
    size: tuple[int, int]
    background: BackgroundKind
    colour: tuple[int, int, int] | None
    cameras: tuple[Camera | None, ...]


def simulation_look(data: EpisodeSet, views: Sequence[str]) -> SimulationLook | None:
    """How the simulation in these views of a set looks; None where the set has no record of one.

    Raises:
        ValueError: a damaged record.
    """
    record = simulation_record(Path(data.root)) if views else None
    if record is None:
        return None
    require_fields(record, {"robot": str, "size": list}, Path(data.root))
    declared = record["background"]
    return SimulationLook(
        robot=record["robot"],
        size=(record["size"][0], record["size"][1]),
        background=declared["kind"],
        colour=None if declared["kind"] in PICTURED else tuple(declared["value"]),
        cameras=tuple(_shared_camera(data, view) for view in views),
    )


def _shared_camera(data: EpisodeSet, name: str) -> Camera | None:
    cameras = {view.camera for episode in data.episodes for view in episode.views if view.name == name}
    return cameras.pop() if len(cameras) == 1 else None


def look_to_json(look: SimulationLook) -> dict[str, Any]:
    """As a bundle keeps it."""
    cameras = [None if camera is None else camera_to_json(camera) for camera in look.cameras]
    colour = None if look.colour is None else list(look.colour)
    return {**vars(look), "size": list(look.size), "colour": colour, "cameras": cameras}


def look_from_json(value: Any, where: str) -> SimulationLook:
    """The inverse. ValueError names the place, the field and what was expected."""
    cameras = value.get("cameras") if isinstance(value, dict) else None
    if not isinstance(cameras, list):
        raise ValueError(f"{where}: expected an object with a list of cameras, found {value!r:.80}")
    known = [None if one is None else camera_from_json(one, f"{where}.cameras[{i}]") for i, one in enumerate(cameras)]
    return replace(from_json(SimulationLook, {**value, "cameras": []}, where), cameras=tuple(known))
