"""Knobs of the table top's real-like domain: what a real recording has and the clean simulator does not.

Each is independent of the others and off by default; without any the episodes are the plain ones, bit for bit.
The command line shows these fields as options, so nothing heavy is imported here.
"""

from dataclasses import dataclass
from typing import Literal, get_args

Appearance = Literal["none", "light", "full"]
Coverage = Literal["full", "half"]
MAX_LAG = 5


@dataclass(frozen=True, kw_only=True)
class RealLike:
    """What differs from the plain table top. Truth about each is stored with every set.

    Args:
        appearance: looks of robot, table, room and light, and camera noise: none, light (mild), full (with clutter).
        contact: objects are pushed and grasped; without, only reach and move tasks, and no object is ever touched.
        actuator_lag: control steps by which commands reach the servos late.
        stiction_rad: dead band of the arm's joints, as friction that holds them that far from their command.
        frame_lag: frame i shows the state of row i - lag.
        camera_error_px: mean distance by which the declared camera misplaces the robot in the frames.
        declare_camera: the set says which camera it was seen by; without, only the truth file knows.
        shared_camera: one camera for a whole set and its counterfactuals, drawn from the seed, instead of one each.
        coverage: half keeps tasks and objects of demonstrations on the robot's left; held-out ones see all.
    """

    appearance: Appearance = "none"
    contact: bool = True
    actuator_lag: int = 0
    stiction_rad: float = 0.0
    frame_lag: int = 0
    camera_error_px: float = 0.0
    declare_camera: bool = True
    shared_camera: bool = False
    coverage: Coverage = "full"

    def __post_init__(self) -> None:
        for name, choices in (("appearance", get_args(Appearance)), ("coverage", get_args(Coverage))):
            if getattr(self, name) not in choices:
                raise ValueError(f"unknown {name} {getattr(self, name)!r}; choices: {', '.join(choices)}")
        for name in ("actuator_lag", "frame_lag"):
            if not 0 <= getattr(self, name) <= MAX_LAG:
                raise ValueError(f"{name} {getattr(self, name)}: from 0 to {MAX_LAG} steps")
        if not 0.0 <= self.stiction_rad <= 0.1:
            raise ValueError(f"stiction_rad {self.stiction_rad}: from 0 to 0.1 rad")
        if not 0.0 <= self.camera_error_px < float("inf"):
            raise ValueError(f"camera_error_px {self.camera_error_px}: a number of pixels, not negative")
