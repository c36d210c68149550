"""Replay of a recorded demonstration: one configuration of the robot for each video frame, and how well it tracks.

Preferred are recorded joints (exact), then end-effector states (inverse kinematics), then actions alone, which lead
from a start. A replay that is too far from what was recorded is refused: never a plausible-looking wrong motion.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import Rotation

from simforcing.sim.kinematics import Kinematics, follow
from simforcing.sim.model import RobotModel
from simforcing.sim.recording import (
    POSE,
    Recording,
    part_name,
    read_commanded,
    read_measured,
)
from simforcing.sim.robot import Arm, Robot
from simforcing.types import Episode, EpisodeSet, Layout
from simforcing.types.layouts import Kind, absolute_layout

Source = Literal["joints", "states", "actions"]
AT_LIMIT_RAD = 1e-3
POSITION_TOLERANCE_M, ROTATION_TOLERANCE_RAD = 1e-6, 1e-5  # of inverse kinematics, far below any limit


@dataclass(frozen=True, kw_only=True)
class Layouts:
    """What an episode's numbers mean."""

    action: Layout | None = None
    state: Layout | None = None
    joint: Layout | None = None

    @classmethod
    def of(cls, data: EpisodeSet) -> "Layouts":
        """Those that a data set declares."""
        return cls(action=data.action_layout, state=data.state_layout, joint=data.joint_layout)


@dataclass(frozen=True, kw_only=True)
class TrackingLimits:
    """Beyond what a replay is refused.

    Args:
        position_m, rotation_rad: distance of the replayed tool from the recorded (or commanded) one. Exact models track
            real recordings to micrometres, so the defaults, half a finger's width and 3 degrees, only let pass what
            is hardly seen in a video; a wrong robot, tool frame or layout lies far outside.
        joint_rad: how far recorded joints may lie outside the model's limits (encoders and models differ slightly).
    """

    position_m: float = 0.01
    rotation_rad: float = 0.05
    joint_rad: float = 0.05

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value >= 0:
                raise ValueError(f"tracking limit {name} {value}: must not be negative")


@dataclass(frozen=True, kw_only=True)
class Replay:
    """A robot's motion, one row per video frame.

    Args:
        qpos: the model's full position vectors.
        joint_rad: of all arms, arm by arm.
        openness: of each arm's gripper, 0 closed .. 1 open.
        source: what it was replayed from.
        position_error_m, rotation_error_rad: of the tool against the recorded states (for actions: the commands), of
            the worse arm; 0 where only joints were recorded, which nothing can check.
    """

    qpos: Float[np.ndarray, "f q"]
    joint_rad: Float[np.ndarray, "f j"]
    openness: Float[np.ndarray, "f n"]
    source: Source
    position_error_m: Float[np.ndarray, " f"]
    rotation_error_rad: Float[np.ndarray, " f"]

    @property
    def summary(self) -> str:
        """Source, largest and mean errors, in one line."""
        position_mm, rotation = 1000 * self.position_error_m, self.rotation_error_rad
        if not (position_mm.any() or rotation.any()):
            return f"from {self.source}: no recorded tool to check it by"
        return (
            f"from {self.source}: tool off by at most {position_mm.max():.2g} mm (mean {position_mm.mean():.2g})"
            f" and {rotation.max():.2g} rad (mean {rotation.mean():.2g})"
        )


def replay(
    robot: RobotModel,
    episode: Episode,
    layouts: Layouts,
    limits: TrackingLimits = TrackingLimits(),
    *,
    start_rad: Float[np.ndarray, " j"] | None = None,
) -> Replay:
    """Find a configuration of the robot for each frame of an episode.

    Where nothing tells the gripper it is taken as open.

    Args:
        start_rad: joints of all arms before the first action, for episodes with actions alone. None: home where actions
            are increments, the first target where they are absolute; a calibration may fit it.

    Raises:
        ValueError: naming episode, frame and numbers: nothing recorded leads to the robot's joints, a layout does not
            fit the robot, joints lie outside their limits, or the tool is farther off than the limits allow.
    """
    arms = robot.robot.arms
    frame_time_s = np.arange(episode.num_frames) / episode.fps
    source, table, tables = _tables(robot, episode, layouts, start_rad)
    solvers = [solver_of(robot, arm) for arm in arms]
    if table.has(arms, "joint"):
        joint_rad = _within_turns(robot, np.concatenate([table.joints(arm, frame_time_s) for arm in arms], axis=1))
        _check_joints(robot, episode, joint_rad, limits)
        reference = _measured_tool(robot.robot, tables)
    else:
        starts = [None] * len(arms) if start_rad is None or source == "states" else by_arm(robot.robot, start_rad)
        paths = [
            _follow(solver, table.poses(solver.arm, frame_time_s), start)
            for solver, start in zip(solvers, starts, strict=True)
        ]
        joint_rad, reference = np.concatenate(paths, axis=1), table
    error = np.zeros((episode.num_frames, 2))
    if reference is not None:
        for solver, path in zip(solvers, by_arm(robot.robot, joint_rad), strict=True):
            error = np.maximum(error, tool_error(solver, path, reference.poses(solver.arm, frame_time_s)))
    _check_tracking(robot, episode, (source, joint_rad), error, limits)
    openness = np.stack([_openness(arm, tables, frame_time_s) for arm in arms], axis=1)
    return Replay(
        qpos=robot.configuration(joint_rad, openness),
        joint_rad=joint_rad,
        openness=openness,
        source=source,
        position_error_m=error[:, 0],
        rotation_error_rad=error[:, 1],
    )


def tool_error(
    solver: Kinematics, joint_rad: Float[np.ndarray, "f j"], poses: Float[np.ndarray, "f 6"]
) -> Float[np.ndarray, "f 2"]:
    """Distance (m) and angle (rad) between the tool in given joints and wanted poses."""
    found = np.array([solver.forward(row) for row in joint_rad])
    turned = Rotation.from_euler("xyz", found[:, 3:]) * Rotation.from_euler("xyz", poses[:, 3:]).inv()
    return np.stack([np.linalg.norm(found[:, :3] - poses[:, :3], axis=1), turned.magnitude()], axis=1)


def _tables(
    robot: RobotModel, episode: Episode, layouts: Layouts, start_rad: Float[np.ndarray, " j"] | None
) -> tuple[Source, Recording, list[Recording]]:
    """What to replay from, and every table that tells something; actions only where something is missing without."""
    tables = _measured(episode, layouts)
    chosen = _choose(robot.robot, tables)
    if chosen is None or not any(table.has(robot.robot.arms, "gripper") for table in tables):
        commanded = _commanded(robot, episode, layouts, start_rad)
        tables += [] if commanded is None else [commanded]
    source, table = chosen or _choose_commanded(robot.robot, episode, layouts, tables)
    return source, table, tables


def _measured(episode: Episode, layouts: Layouts) -> list[Recording]:
    """Joints, then states, as far as they are recorded and declared."""
    tables = []
    if episode.state_time_s is not None:
        time_s = np.asarray(episode.state_time_s, np.float64)
        if episode.joint is not None and layouts.joint is not None:
            tables.append(read_measured(f"episode {episode.name}: joints", episode.joint, layouts.joint, time_s))
        if episode.state is not None and layouts.state is not None:
            tables.append(
                read_measured(
                    f"episode {episode.name}: states", episode.state, layouts.state, time_s, episode.state_valid
                )
            )
    return tables


def _choose(robot: Robot, measured: list[Recording]) -> tuple[Source, Recording] | None:
    """Joints of all arms before poses; None where nothing was measured. ValueError for poses of an unknown frame."""
    for table in measured:
        if table.has(robot.arms, "joint"):
            return "joints", table
    for table in measured:
        if table.has(robot.arms, *POSE):
            _require_known(robot, table.what, table.layout)
            return "states", table
    return None


def _choose_commanded(
    robot: Robot, episode: Episode, layouts: Layouts, tables: list[Recording]
) -> tuple[Source, Recording]:
    """The table of the actions, the last one. Raises ValueError where there is none."""
    arms = ", ".join(f"{part_name(arm, 'joint')} ({len(arm.joints)})" for arm in robot.arms)
    table = tables[-1] if tables else None
    if table is None or not (table.has(robot.arms, "joint") or table.has(robot.arms, *POSE)):
        found = ", ".join(
            f"{what} of layout {layout.name} ({', '.join(layout.slices)})"
            for what, layout in (("joints", layouts.joint), ("states", layouts.state), ("actions", layouts.action))
            if layout is not None
        )
        raise ValueError(
            f"episode {episode.name}: nothing leads to the joints of robot {robot.name}: it needs {arms}, or"
            f" translation and rotation of the tool, and the set declares {found or 'no layout'}"
        )
    if not table.has(robot.arms, "joint"):
        _require_known(robot, table.what, table.layout)
    return "actions", table


def _measured_tool(robot: Robot, tables: list[Recording]) -> Recording | None:
    """What measured where the tools were; None where no table tells.

    Raises ValueError where only poses of an unknown frame do: joints that nothing checks would pass with any robot.
    """
    telling = [table for table in tables if not table.is_commanded and table.has(robot.arms, *POSE)]
    for table in telling:
        if table.layout.name in robot.layouts:
            return table
    for table in telling:
        _require_known(robot, table.what, table.layout)
    return None


def _require_known(robot: Robot, what: str, layout: Layout) -> None:
    if layout.name not in robot.layouts:
        raise ValueError(
            f"{what}: robot {robot.name} does not know the tool frame of layout {layout.name}; it knows:"
            f" {', '.join(robot.layouts) or 'none'}; if its tool is the one recorded, list the layout in the field"
            " layouts of its description"
        )


def _commanded(
    robot: RobotModel, episode: Episode, layouts: Layouts, start_rad: Float[np.ndarray, " j"] | None
) -> Recording | None:
    """The actions as states that they lead to; None where they tell nothing of the robot's arms."""
    layout, arms = layouts.action, robot.robot.arms
    sizes = {} if layout is None else {name: layout.part(name).size for name in layout.slices}
    has_pose = all(sizes.get(part_name(arm, "translation")) == 3 for arm in arms)
    if (
        layout is None
        or not len(episode.action)
        or not (has_pose or all(part_name(arm, "joint") in sizes for arm in arms))
    ):
        return None
    absolute = absolute_layout(layout)
    start = np.zeros(absolute.dim)
    known_rad = robot.home_rad if start_rad is None else start_rad
    for arm, joint_rad in zip(arms, by_arm(robot.robot, known_rad), strict=True):
        pose = solver_of(robot, arm).forward(joint_rad)
        quaternion = Rotation.from_euler("xyz", pose[3:]).as_quat(scalar_first=True)
        parts: dict[Kind, np.ndarray] = {
            "joint": joint_rad,
            "translation": pose[:3],
            "rotation": quaternion,
            "gripper": np.ones(1),
        }
        for kind, value in parts.items():
            columns = absolute.slices.get(part_name(arm, kind))
            if columns is not None:
                start[columns] = value
    time_s = np.asarray(episode.action_time_s, np.float64)
    return read_commanded(
        f"episode {episode.name}: actions", episode.action, layout, time_s, start, is_start_known=start_rad is not None
    )


def by_arm(robot: Robot, joint_rad: Float[np.ndarray, "*f j"]) -> list[np.ndarray]:
    """Joints of all arms -> those of each arm, in the description's order."""
    ends = np.cumsum([len(arm.joints) for arm in robot.arms])
    return np.split(joint_rad, ends[:-1], axis=-1)


def solver_of(robot: RobotModel, arm: Arm) -> Kinematics:
    """Kinematics of one arm, precise enough for replay."""
    return Kinematics(
        robot,
        arm.side,
        position_tolerance_m=POSITION_TOLERANCE_M,
        rotation_tolerance_rad=ROTATION_TOLERANCE_RAD,
    )


def _follow(
    solver: Kinematics, poses: Float[np.ndarray, "f 6"], start_rad: Float[np.ndarray, " j"] | None
) -> Float[np.ndarray, "f j"]:
    return follow(solver, poses, solver.reach(poses[0]) if start_rad is None else start_rad)


def _openness(arm: Arm, tables: list[Recording], frame_time_s: Float[np.ndarray, " f"]) -> Float[np.ndarray, " f"]:
    for table in tables:
        openness = table.openness(arm, frame_time_s)
        if openness is not None:
            return openness
    return np.ones(len(frame_time_s))


def _within_turns(robot: RobotModel, joint_rad: Float[np.ndarray, "f j"]) -> Float[np.ndarray, "f j"]:
    """Joints recorded a whole turn outside their limits, brought inside; all others are untouched."""
    outside = (joint_rad < robot.low_rad) | (joint_rad > robot.high_rad)
    turned = joint_rad - 2 * np.pi * np.round(
        (joint_rad - np.clip(joint_rad, robot.low_rad, robot.high_rad)) / np.pi / 2
    )
    return np.where(outside, turned, joint_rad)


def _check_joints(
    robot: RobotModel, episode: Episode, joint_rad: Float[np.ndarray, "f j"], limits: TrackingLimits
) -> None:
    excess = np.maximum(robot.low_rad - joint_rad, joint_rad - robot.high_rad)
    if not excess.max() > limits.joint_rad:
        return
    frame, joint = np.unravel_index(int(excess.argmax()), excess.shape)
    raise ValueError(
        f"episode {episode.name}: frame {frame}: joint {robot.robot.joints[joint]} at {joint_rad[frame, joint]:.3f} rad"
        f" lies outside the limits {robot.low_rad[joint]:.3f} .. {robot.high_rad[joint]:.3f} rad of robot"
        f" {robot.robot.name} by more than {limits.joint_rad} rad"
    )


def _check_tracking(
    robot: RobotModel,
    episode: Episode,
    found: tuple[Source, Float[np.ndarray, "f j"]],
    error: Float[np.ndarray, "f 2"],
    limits: TrackingLimits,
) -> None:
    source, joint_rad = found
    for column, limit, unit in ((0, limits.position_m, "m"), (1, limits.rotation_rad, "rad")):
        beyond = ~(error[:, column] <= limit)
        if not beyond.any():
            continue
        frame = int(beyond.argmax())
        margin = np.minimum(joint_rad[frame] - robot.low_rad, robot.high_rad - joint_rad[frame])
        stopped = [name for name, left in zip(robot.robot.joints, margin, strict=True) if left < AT_LIMIT_RAD]
        at_limits = f"joints at their limits: {', '.join(stopped)}; " if stopped else ""
        raise ValueError(
            f"episode {episode.name}: frame {frame}: robot {robot.robot.name} replayed from {source} is"
            f" {error[frame, column]:.3g} {unit} off, limit {limit} {unit}"
            f" ({at_limits}{int(beyond.sum())} of {len(error)} frames beyond it,"
            f" at most {error[:, column].max():.3g} {unit})"
        )
