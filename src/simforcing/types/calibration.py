"""What a calibration found: per group of episodes that share a camera, the camera, the lag, and how well each fits.

A JSON file beside the data; `simulate` reads it. Nothing here fits anything: see `sim.calibrate`.
"""

from dataclasses import dataclass
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
    """

    name: str
    accepted: bool
    iou: float | None = None
    iou_low: float | None = None
    iou_high: float | None = None
    lag: int | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class GroupFit:
    """Episodes that share a camera.

    Args:
        camera: in the robot's base frame, for the stored image size; None where no camera fits.
        lag: frame i shows the measured state of row i - lag.
        position_deviation_m, rotation_deviation_rad: standard deviation of the camera's pose by the fit's covariance.
        focal_deviation: relative standard deviation of the focal length; 0 where it was given.
    """

    name: str
    camera: Camera | None
    lag: int
    episodes: tuple[EpisodeFit, ...]
    position_deviation_m: float | None = None
    rotation_deviation_rad: float | None = None
    focal_deviation: float | None = None


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A calibrated view of a data set.

    Args:
        data, fingerprint: the set and its state when it was calibrated.
        settings: every option of the fit, as given.
    """

    data: str
    fingerprint: str
    view: str
    robot: str
    groups: tuple[GroupFit, ...]
    seed: int
    settings: dict[str, Any]
    version: str = ""

    def group_of(self, episode: str) -> GroupFit | None:
        """The group that holds an episode."""
        return next((group for group in self.groups if any(fit.name == episode for fit in group.episodes)), None)


def write_calibration(path: Path, calibration: Calibration) -> None:
    """Write it as JSON, atomically."""
    groups = [
        {
            **{key: value for key, value in vars(group).items() if key not in ("camera", "episodes")},
            "camera": None if group.camera is None else camera_to_json(group.camera),
            "episodes": [to_json(fit) for fit in group.episodes],
        }
        for group in calibration.groups
    ]
    write_json(path, {**vars(calibration), "version": package_version(), "groups": groups})


def read_calibration(path: Path) -> Calibration:
    """Read it back. Raises ValueError naming the file, the field and what was expected."""
    value = read_json(path)
    if not isinstance(value, dict) or not isinstance(value.get("groups"), list):
        raise ValueError(f"{path}: no calibration, expected an object with a list of groups")
    groups = []
    for i, group in enumerate(value["groups"]):
        where = f"{path}: groups[{i}]"
        if not isinstance(group, dict) or not isinstance(group.get("episodes"), list):
            raise ValueError(f"{where}: expected an object with a list of episodes")
        camera = None if group.get("camera") is None else camera_from_json(group["camera"], f"{where}.camera")
        fits = tuple(from_json(EpisodeFit, fit, f"{where}.episodes[{k}]") for k, fit in enumerate(group["episodes"]))
        rest = {key: item for key, item in group.items() if key not in ("camera", "episodes")}
        try:
            groups.append(GroupFit(camera=camera, episodes=fits, **rest))
        except TypeError as error:
            raise ValueError(f"{where}: {error}") from error
    try:
        return Calibration(**{**value, "groups": tuple(groups)})
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from error
