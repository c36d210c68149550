"""What a calibration found: per group of episodes that share a camera, the camera, the lag, and how well each fits.

A JSON file beside the data; `simulate` reads it. Nothing here fits anything: see `sim.calibrate`.
"""

import math
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from simforcing.types.cameras import Camera, camera_from_json, camera_to_json
from simforcing.types.config import from_json, to_json
from simforcing.types.files import read_json, write_json
from simforcing.types.version import package_version


@dataclass(frozen=True, kw_only=True)
class EpisodeFit:
    """One episode under its group's camera.

    Args:
        iou: intersection over union of the rendered robot with the observed silhouettes; None where none was seen.
        iou_low, iou_high: 95 % interval over the episode's frames.
        lag: the lag that fits this episode alone best.
        accepted: whether `simulate` uses it.
        reason: why not, in one line; empty where accepted.
        fitted_frames: numbers of its frames that the camera was fitted to; what is measured on others is held out.
    """

    name: str
    accepted: bool
    iou: float | None = None
    iou_low: float | None = None
    iou_high: float | None = None
    lag: int | None = None
    reason: str = ""
    fitted_frames: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Appearance:
    """How a camera's robot is told from everything else in one picture (`sim.appearance`): log odds of robot.

    Args:
        colour: of each cell of equally many bins of red, green and blue, blue running fastest.
        place: of each cell of a grid over the picture, row by row.
        threshold: above it a pixel is taken for robot.
    """

    colour: tuple[float, ...]
    place: tuple[tuple[float, ...], ...]
    threshold: float


@dataclass(frozen=True, kw_only=True)
class GroupFit:
    """Episodes that share a camera.

    Args:
        camera: in the robot's base frame, for the stored image size; None where no camera fits.
        lag: frame i shows the measured state of row i - lag.
        position_deviation_m, rotation_deviation_rad: standard deviation of the camera's pose by the fit's covariance.
        focal_deviation: relative standard deviation of the focal length; 0 where it was given.
        appearance: of the robot through this camera, learnt under the fitted silhouettes; None: not learnt.
    """

    name: str
    camera: Camera | None
    lag: int
    episodes: tuple[EpisodeFit, ...]
    position_deviation_m: float | None = None
    rotation_deviation_rad: float | None = None
    focal_deviation: float | None = None
    appearance: Appearance | None = None


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A calibrated view of a data set.

    Args:
        data, fingerprint: the set and its state when it was calibrated.
        settings: every option of the fit, as given.
        left_out: episode name -> why it could not be fitted or judged at all.
    """

    data: str
    fingerprint: str
    view: str
    robot: str
    groups: tuple[GroupFit, ...]
    seed: int
    settings: dict[str, Any]
    version: str = ""
    left_out: dict[str, str] = field(default_factory=dict)

    def group_of(self, episode: str) -> GroupFit | None:
        """The group that holds an episode."""
        return next((group for group in self.groups if any(fit.name == episode for fit in group.episodes)), None)


def write_calibration(path: Path, calibration: Calibration) -> None:
    """Write it as JSON, atomically."""
    groups = [
        {
            **{key: value for key, value in vars(group).items() if key not in ("camera", "episodes", "appearance")},
            "appearance": None if group.appearance is None else to_json(group.appearance),
            "camera": None if group.camera is None else camera_to_json(group.camera),
            "episodes": [to_json(fit) for fit in group.episodes],
        }
        for group in calibration.groups
    ]
    write_json(path, {**vars(calibration), "version": package_version(), "groups": groups})


def read_calibration(path: Path) -> Calibration:
    """Read it back; options come as JSON has them (a tuple as a list).

    Raises ValueError naming the file, the field and what was expected, also where the fields contradict each other.
    """
    value = read_json(path)
    if not isinstance(value, dict) or not isinstance(value.get("groups"), list):
        raise ValueError(f"{path}: no calibration, expected an object with a list of groups")
    where = f"{path}: calibration"
    groups = tuple(_group(group, f"{where}.groups[{i}]") for i, group in enumerate(value["groups"]))
    calibration = replace(from_json(Calibration, {**value, "groups": []}, where), groups=groups)
    names = [fit.name for group in groups for fit in group.episodes]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"{where}: episode {repeated!r} is in it more than once")
    return calibration


def _group(value: Any, where: str) -> GroupFit:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected a GroupFit object, found {value!r:.80}")
    camera = None if value.get("camera") is None else camera_from_json(value["camera"], f"{where}.camera")
    group = replace(from_json(GroupFit, {**value, "camera": None}, where), camera=camera)
    complete = camera is not None and camera.intrinsics is not None and camera.pose is not None
    for fit in group.episodes:
        _check_finite(fit, f"{where}: episode {fit.name}")
        if fit.accepted and not complete:
            raise ValueError(f"{where}: episode {fit.name} is accepted, but the group has no complete camera")
    _check_finite(group, where)
    if group.appearance is not None:
        _check_appearance(group.appearance, f"{where}.appearance")
    return group


def _check_appearance(appearance: Appearance, where: str) -> None:
    if not appearance.colour or round(len(appearance.colour) ** (1 / 3)) ** 3 != len(appearance.colour):
        raise ValueError(f"{where}: {len(appearance.colour)} colours, expected as many as a cube of bins has")
    if not appearance.place or len({len(row) for row in appearance.place} | {0}) != 2:
        raise ValueError(f"{where}: expected rows of places of one length, at least one each")
    if not all(map(math.isfinite, (*appearance.colour, *chain(*appearance.place), appearance.threshold))):
        raise ValueError(f"{where}: expected finite numbers")


def _check_finite(fit: GroupFit | EpisodeFit, where: str) -> None:
    for name, number in vars(fit).items():
        if isinstance(number, float) and not math.isfinite(number):
            raise ValueError(f"{where}: {name} is {number}, expected a finite number")
