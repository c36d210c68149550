"""Robots as typed descriptions: which joints, gripper and end-effector frame a MuJoCo model has, and how to read them.

A description names parts of a model and never holds one; `model.load` reads the model and checks the names. The robots
that come with the package are in `robots`; docs/robots.md shows how to add one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from jaxtyping import Float

from simforcing.types.layouts import Side

Number = TypeVar("Number", float, np.ndarray)
Vector = tuple[float, float, float]
Quaternion = tuple[float, float, float, float]


@dataclass(frozen=True, kw_only=True)
class Gripper:
    """Joints that open and close together, each linear in openness (0 closed .. 1 open).

    Args:
        joints: names of the joints that are moved, driven and coupled ones alike.
        closed, opened: their positions at both ends (m or rad).
    """

    joints: tuple[str, ...]
    closed: tuple[float, ...]
    opened: tuple[float, ...]

    def __post_init__(self) -> None:
        if not len(self.joints) == len(self.closed) == len(self.opened) > 0:
            raise ValueError(
                f"gripper with {len(self.joints)} joints, {len(self.closed)} closed and {len(self.opened)} open"
                " positions; one of each per joint"
            )
        if self.closed[0] == self.opened[0]:
            raise ValueError(f"gripper joint {self.joints[0]} does not move: closed and open at {self.closed[0]}")

    def positions(self, openness: Float[np.ndarray, "*f"] | float) -> Float[np.ndarray, "*f j"]:
        """Openness -> joint positions (m or rad)."""
        closed, opened = np.array(self.closed), np.array(self.opened)
        return closed + np.asarray(openness)[..., None] * (opened - closed)

    def openness(self, positions: Float[np.ndarray, "*f j"]) -> Float[np.ndarray, "*f"] | np.floating:
        """The inverse, read from the first joint; a finger pressed beyond its stop is slightly outside 0 .. 1."""
        return (positions[..., 0] - self.closed[0]) / (self.opened[0] - self.closed[0])


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One arm of a robot.

    Args:
        joints: names of its hinge joints, base to wrist, in the order in which data sets record them.
        home_rad: a usual pose in the middle of the workspace; inverse kinematics falls back to it.
        site: the site (or, where the model has no such site, the body) that carries the end effector.
        tool_position_m, tool_quaternion: the recorded end-effector frame in the site's frame (wxyz).
        gripper: how openness moves the fingers; None for a bare arm.
        side: which arm of a layout it is; one-armed robots have a single one.
    """

    joints: tuple[str, ...]
    home_rad: tuple[float, ...]
    site: str
    tool_position_m: Vector = (0.0, 0.0, 0.0)
    tool_quaternion: Quaternion = (1.0, 0.0, 0.0, 0.0)
    gripper: Gripper | None = None
    side: Side = "single"

    def __post_init__(self) -> None:
        if len(self.home_rad) != len(self.joints) or not self.joints:
            raise ValueError(f"arm {self.side}: {len(self.joints)} joints, home pose of {len(self.home_rad)}")


@dataclass(frozen=True, kw_only=True)
class Robot:
    """A robot: a MuJoCo model and what its parts mean.

    Args:
        name: as data sets declare it (`robot` in meta/simforcing.json).
        model: MJCF text, or a function that finds the file (an installed package, a path that the user gave) and raises
            ValueError, saying how to get it, where there is none.
        arms: one, or a left and a right one.
        base: the body whose frame is the base frame of states, actions and cameras; None: the world's.
        layouts: action and state layouts whose poses are those of the end-effector frames above.
        turned: bodies that are mounted otherwise than in the model file, with the turn in their own frame (wxyz).
        table_height_m: height of the table's top in the base frame where the robot stands on one; None: not known.
    """

    name: str
    model: str | Callable[[], Path]
    arms: tuple[Arm, ...]
    base: str | None = None
    layouts: tuple[str, ...] = ()
    turned: tuple[tuple[str, Quaternion], ...] = ()
    table_height_m: float | None = None

    def __post_init__(self) -> None:
        sides = [arm.side for arm in self.arms]
        if sorted(sides) not in (["single"], ["left", "right"], ["left"], ["right"]):
            raise ValueError(f"robot {self.name}: arms on sides {sides}; one arm, or a left and a right one")
        if not isinstance(self.model, str) and not callable(self.model):
            raise ValueError(
                f"robot {self.name}: model {self.model!r:.80}; expected MJCF text, or a function that finds the file"
            )
        if isinstance(self.layouts, str):
            raise ValueError(f"robot {self.name}: layouts {self.layouts!r}; expected a tuple of names")

    def model_path(self) -> Path | None:
        """The model's file; None where the description holds its text.

        Raises:
            ValueError: naming the robot: it is not found, or the function that finds it fails in whatever way.
        """
        if isinstance(self.model, str):
            return None
        try:
            return Path(self.model())
        except ValueError as error:
            raise ValueError(f"robot {self.name}: {' '.join(str(error).split())}") from error
        except (Exception, SystemExit) as error:  # anybody's code
            raise ValueError(f"robot {self.name}: its model function: {described(error)}") from error

    @property
    def joints(self) -> tuple[str, ...]:
        """Names of all arm joints, arm by arm."""
        return tuple(joint for arm in self.arms for joint in arm.joints)

    def arm(self, side: Side) -> Arm:
        """The arm of a layout's side; ValueError lists the choices."""
        for arm in self.arms:
            if arm.side == side:
                return arm
        raise ValueError(f"robot {self.name}: no {side} arm; arms: {', '.join(arm.side for arm in self.arms)}")


def described(error: BaseException) -> str:
    """An error of a robot's own code in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
