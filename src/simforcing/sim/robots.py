"""Robots by name: descriptions of the ones that come with the package, and where their model files are looked for.

Model files are third-party and never shipped: they are found in a path that the user gives, in the folder named by the
environment variable SIMFORCING_ROBOTS, or where packages that carry them keep them. docs/robots.md adds a robot.
"""

import importlib.util
import os
import runpy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from simforcing.sim.robot import Arm, Gripper, Quaternion, Robot, described
from simforcing.sim.tabletop_arm import TABLETOP_ARM
from simforcing.types.layouts import Side

ROBOTS_FOLDER_VARIABLE = "SIMFORCING_ROBOTS"
MENAGERIE_LINE = (
    f"git clone https://github.com/google-deepmind/mujoco_menagerie, then give its folder as the path or in"
    f" {ROBOTS_FOLDER_VARIABLE}"
)
HALF_SQRT_2, COS_22_5, SIN_22_5 = 0.7071067811865476, 0.9238795325112867, 0.3826834323650898
# Quarter and eighth turns, wxyz.
TURN_Y_MINUS_90: Quaternion = (HALF_SQRT_2, 0.0, -HALF_SQRT_2, 0.0)
TURN_Z_45: Quaternion = (COS_22_5, 0.0, 0.0, SIN_22_5)
PANDA_JOINTS = tuple(f"joint{i}" for i in range(1, 8))
PANDA_HOME_RAD = (0.0, -0.6283, 0.0, -2.5133, 0.0, 1.885, 0.0)  # near where DROID's episodes start
VIPER_JOINTS = ("waist", "shoulder", "elbow", "forearm_roll", "wrist_angle", "wrist_rotate")


@dataclass(frozen=True, kw_only=True)
class ModelFile:
    """Where a robot's MJCF file may lie.

    Args:
        name: file name.
        folder: its folder in MuJoCo Menagerie and in the folder named by SIMFORCING_ROBOTS.
        how: how to get it, in words, for the message where it is missing.
        package: an installable package that carries it, and the file inside the package.
    """

    name: str
    folder: str
    how: str = MENAGERIE_LINE
    package: tuple[str, str] | None = None

    def find(self, path: Path | None) -> Path:
        """The file: at `path` (itself, or a folder that holds it) where given, else in the usual places.

        Raises ValueError saying where it was looked for and how to get it.
        """
        places = self._at(path) if path is not None else self._usual()
        for place in places:
            if place.is_file():
                return place
        seen = ", ".join(str(place) for place in places)
        raise ValueError(f"no model file {self.name} (looked at {seen}); get it: {self.how}")

    def _at(self, path: Path) -> list[Path]:
        return [path / self.name, path / self.folder / self.name] if path.is_dir() else [path]

    def _usual(self) -> list[Path]:
        roots = [os.environ.get(ROBOTS_FOLDER_VARIABLE)]
        # robot_descriptions keeps its Menagerie there; importing its modules would start a download.
        cache = os.environ.get("ROBOT_DESCRIPTIONS_CACHE", "~/.cache/robot_descriptions")
        roots.append(str(Path(cache).expanduser() / "mujoco_menagerie"))
        places = [Path(root) / self.folder / self.name for root in roots if root]
        if self.package is not None:
            spec = importlib.util.find_spec(self.package[0])  # finds, and does not import
            if spec is not None and spec.origin is not None:
                places.append(Path(spec.origin).parent / self.package[1])
        return places


def _tabletop_arm(path: Path | None) -> Robot:
    if path is not None:
        raise ValueError(f"robot tabletop_arm: it is built in and takes no path, found {path}")
    return TABLETOP_ARM


def _widowx_250s(path: Path | None) -> Robot:
    """Its end-effector frame, as BridgeData records it, has x along the fingers' approach turned onto -z."""
    file = ModelFile(name="wx250s.xml", folder="trossen_wx250s")
    return Robot(
        name="widowx_250s",
        model=partial(file.find, path),
        arms=(
            Arm(
                joints=VIPER_JOINTS,
                home_rad=(0.0, -0.27, 0.38, 0.0, 1.2, 0.0),  # near where BridgeData's episodes start
                site="wx250s/gripper_link",
                tool_position_m=(0.093575, 0.0, 0.0),
                tool_quaternion=TURN_Y_MINUS_90,
                gripper=Gripper(joints=("left_finger", "right_finger"), closed=(0.015, -0.015), opened=(0.037, -0.037)),
            ),
        ),
        base="wx250s/base_link",
        layouts=("bridge", "bridge_state", "bridge_lerobot_state", "bridge_scaled", "bridge_delta_axis_angle"),
    )


def _robotiq_2f85() -> Gripper:
    """Positions at which the pads are parallel and the couplings closed, solved at both ends of the stroke.

    In between each joint is within 2 mrad of linear. Closed: the pads touch, at 0.788 of the drivers' 0.8 rad.
    """
    closed = {"driver": 0.788, "coupler": 0.0211, "spring_link": 0.7987, "follower": -0.7987}
    joints = tuple(f"{side}_{part}_joint" for side in ("right", "left") for part in closed)
    return Gripper(joints=joints, closed=tuple(closed.values()) * 2, opened=(0.0,) * len(joints))


def _panda_robotiq_2f85(path: Path | None) -> Robot:
    """The model of the package gym-hil; DROID records the flange, 45 degrees about z from the site.

    DROID mounts the gripper an eighth of a turn from where that model has it: of the four turns that look alike in no
    picture, only this one lies on the recorded ones, and it raises silhouettes' overlap (0.56 to 0.64 in one episode).
    """
    file = ModelFile(
        name="panda.xml",
        folder="panda_robotiq_2f85",
        how="pip install --no-deps gym-hil, or give the path of such a model",
        package=("gym_hil", "assets/panda.xml"),
    )
    return Robot(
        name="panda_robotiq_2f85",
        model=partial(file.find, path),
        arms=(
            Arm(
                joints=PANDA_JOINTS,
                home_rad=PANDA_HOME_RAD,
                site="attachment_site",
                tool_quaternion=TURN_Z_45,
                gripper=_robotiq_2f85(),
            ),
        ),
        base="link0",
        turned=(("base_mount", TURN_Z_45),),
        layouts=("droid", "droid_joint"),
    )


def _panda_hand(path: Path | None) -> Robot:
    """Menagerie's Panda; the end effector is the flange, as in DROID."""
    file = ModelFile(name="panda.xml", folder="franka_emika_panda")
    return Robot(
        name="panda_hand",
        model=partial(file.find, path),
        arms=(
            Arm(
                joints=PANDA_JOINTS,
                home_rad=PANDA_HOME_RAD,
                site="hand",
                tool_quaternion=TURN_Z_45,
                gripper=Gripper(joints=("finger_joint1", "finger_joint2"), closed=(0.0, 0.0), opened=(0.04, 0.04)),
            ),
        ),
        base="link0",
        layouts=("droid", "droid_joint"),
    )


def _aloha_arm(side: Side) -> Arm:
    fingers = (f"{side}/left_finger", f"{side}/right_finger")
    return Arm(
        side=side,
        joints=tuple(f"{side}/{joint}" for joint in VIPER_JOINTS),
        home_rad=(0.0, -0.96, 1.16, 0.0, -0.3, 0.0),
        site=f"{side}/gripper",
        gripper=Gripper(joints=fingers, closed=(0.002, 0.002), opened=(0.037, 0.037)),
    )


def _aloha(path: Path | None) -> Robot:
    """Menagerie's ALOHA 2; base frame: the world's, on the table between the arms."""
    file = ModelFile(name="aloha.xml", folder="aloha")
    return Robot(
        name="aloha",
        model=partial(file.find, path),
        arms=(_aloha_arm("left"), _aloha_arm("right")),
        layouts=("aloha",),
    )


ROBOTS: dict[str, Callable[[Path | None], Robot]] = {
    "tabletop_arm": _tabletop_arm,
    "widowx_250s": _widowx_250s,
    "panda_robotiq_2f85": _panda_robotiq_2f85,
    "panda_hand": _panda_hand,
    "aloha": _aloha,
}


def robot_named(name: str, path: Path | None = None) -> Robot:
    """A robot's description.

    Args:
        name: one of `ROBOTS`, or the name of the robot that a Python file describes.
        path: its MJCF file, or a folder that holds it (such as a checkout of MuJoCo Menagerie); or a Python file that
            describes the robot as `ROBOT`. None: the model is looked for in the usual places when it is loaded.

    Raises ValueError: unknown name, with the choices; a Python file that does not describe that robot.
    """
    # Only a path that the user gave is ever run: names may come from a data set.
    if path is not None and path.suffix == ".py":
        return _described_in(path, name)
    if name not in ROBOTS:
        raise ValueError(
            f"unknown robot {name!r}; choices: {', '.join(ROBOTS)}, or a robot of your own, described in a Python file"
            " that is given as its path"
        )
    return ROBOTS[name](path)


def _described_in(path: Path, name: str) -> Robot:
    try:
        robot = runpy.run_path(str(path)).get("ROBOT")
    except BaseException as error:  # whatever it raises, also to end the program, is a fault of the file
        raise ValueError(f"robot file {path}: {described(error)}") from error
    if not isinstance(robot, Robot):
        raise ValueError(f"robot file {path}: expected a Robot named ROBOT, found {robot!r:.80}")
    if robot.name != name:
        raise ValueError(f"robot file {path}: describes robot {robot.name}, not {name}")
    return robot
