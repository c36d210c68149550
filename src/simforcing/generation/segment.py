"""Where the robot is in a photo: one Protocol, and the ways to it that a word of the command line can name.

The simulator's own mask needs more than a photo (robot, camera, joints): see `sim_start`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, UInt8
from PIL import Image

from simforcing.data.picture_files import read_picture
from simforcing.data.windows import MASK_LEVEL
from simforcing.generation.robot_mask import require_robot
from simforcing.generation.sam3 import Sam3Options
from simforcing.types.calibration import Appearance, Calibration, GroupFit, read_calibration

CHOICES = {  # how each is written -> what it is
    "sam3:FOLDER_OR_HUB_ID[@WORDS | @X,Y;X,Y...]": "SAM 3, by words or points in pixels",
    "mask:FILE": "a picture, white where the robot is",
    "appearance:CALIBRATION.json[@GROUP_OR_EPISODE]": "the colours that `simforcing calibrate` learnt",
}


@runtime_checkable
class Segmenter(Protocol):
    """Finds the robot in one picture."""

    def __call__(self, image: UInt8[np.ndarray, "h w 3"]) -> Bool[np.ndarray, "h w"]:
        """True where the robot is. ValueError, in one line, where none is found or the answer cannot be used."""
        ...


@dataclass(frozen=True, kw_only=True)
class MaskFile:
    """A mask that somebody made: a picture of the photo's size, white where the robot is."""

    path: Path

    def build(self) -> "MaskFileSegmenter":
        """Read it, turned as the photo is by its EXIF tag. ValueError where it is no picture."""
        levels = np.asarray(Image.fromarray(read_picture(self.path)).convert("L"))
        return MaskFileSegmenter(levels, str(self.path))


class MaskFileSegmenter:
    """The same mask for the one picture that it was made for."""

    def __init__(self, levels: UInt8[np.ndarray, "h w"], where: str) -> None:
        self._levels, self._where = levels, where

    def __call__(self, image: UInt8[np.ndarray, "h w 3"]) -> Bool[np.ndarray, "h w"]:
        """The mask; ValueError where the picture is of another size, or the mask is empty or full."""
        (height, width), (rows, columns) = image.shape[:2], self._levels.shape
        if (height, width) != (rows, columns):
            raise ValueError(f"{self._where}: a mask of {rows}x{columns} pixels for a picture of {height}x{width}")
        brightest = int(self._levels.max())
        found_by = f"{self._where} (robot is above level {MASK_LEVEL}, its brightest pixel is {brightest})"
        return require_robot(self._levels > MASK_LEVEL, found_by)


@dataclass(frozen=True, kw_only=True)
class AppearanceFile:
    """Colours and places of a calibrated camera's robot.

    Args:
        path: file of `simforcing calibrate`.
        group: name of a group of episodes in it, or of one of its episodes; needed where several were calibrated.
    """

    path: Path
    group: str | None = None

    def build(self) -> "AppearanceSegmenter":
        """Read it. ValueError where the file, the group or its model of appearance is missing."""
        calibration = read_calibration(self.path)
        if all(group.appearance is None for group in calibration.groups):
            raise ValueError(
                f"{self.path}: no group has a model of the robot's appearance; run `simforcing calibrate` again"
            )
        group = group_named(calibration, self.path, self.group, lambda one: one.appearance is not None)
        assert group.appearance is not None
        return AppearanceSegmenter(group.appearance, f"the appearance of group {group.name} of {self.path}")


def group_named(
    calibration: Calibration, path: Path, name: str | None, is_usable: Callable[[GroupFit], bool]
) -> GroupFit:
    """A group by its name or that of one of its episodes; None: the only usable one.

    Raises:
        ValueError: no such usable group, or several and no name; the choices are listed.
    """
    known = {group.name: group for group in calibration.groups if is_usable(group)}
    if name is None and len(known) == 1:
        return next(iter(known.values()))
    choices = f"groups: {', '.join(known) or 'none'}"
    if name is None:
        raise ValueError(f"{path}: name one of its {len(known)} cameras, as {path}@GROUP_OR_EPISODE; {choices}")
    of_episode = calibration.group_of(name)
    found = known.get(name if of_episode is None else of_episode.name)
    if found is None:
        raise ValueError(f"{path}: no fitted camera for {name!r}; {choices}")
    return found


class AppearanceSegmenter:
    """Pixels whose colour and place are a robot's (`sim.appearance`). It knows neither outlines nor depth."""

    def __init__(self, appearance: Appearance, found_by: str = "its appearance") -> None:
        self._appearance, self._found_by = appearance, found_by

    def __call__(self, image: UInt8[np.ndarray, "h w 3"]) -> Bool[np.ndarray, "h w"]:
        """Where the odds are above the learnt threshold."""
        from simforcing.sim.appearance import recognise

        return require_robot(recognise(self._appearance, image), self._found_by)


SegmenterConfig = Sam3Options | MaskFile | AppearanceFile


def segmenter_named(word: str) -> SegmenterConfig:
    """A segmenter's options from one word, such as `mask:robot.png`; `build()` makes it.

    Raises:
        ValueError: another word; the choices are listed.
    """
    kind, _, rest = word.partition(":")
    if rest and kind == "mask":
        return MaskFile(path=Path(rest))
    if rest and kind == "sam3":
        return _sam3(rest)
    if rest and kind == "appearance":
        path, _, group = rest.partition("@")
        return AppearanceFile(path=Path(path), group=group or None)
    choices = "; ".join(f"{written} ({what})" for written, what in CHOICES.items())
    raise ValueError(f"unknown segmenter {word!r}; choices: {choices}")


def _sam3(rest: str) -> Sam3Options:
    path, _, prompt = rest.partition("@")
    if not prompt:
        return Sam3Options(path=path)
    if not prompt[0].isdigit():
        return Sam3Options(path=path, prompt=prompt)
    try:
        points = tuple(tuple(float(number) for number in point.split(",")) for point in prompt.split(";"))
        return Sam3Options(path=path, points_px=tuple((x, y) for x, y in points))
    except ValueError:
        raise ValueError(f"sam3 points {prompt!r}: expected X,Y;X,Y;... in pixels of the picture") from None
