"""What a perturbed variant's actions and states are, in the layouts of the recording that it came from.

States hold the tool's own pose. Commands move as the tool does: an absolute target, and the target that increments add
up to, are moved by the deviation of the frame that they lead to; increments are then taken again. Grippers are kept.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import Rotation

from simforcing.sim.perturb import Variant
from simforcing.sim.recording import part_name
from simforcing.sim.replay import Layouts, Replay, by_arm
from simforcing.sim.robot import Arm, Robot
from simforcing.types import Layout
from simforcing.types.conversions import StartState, convert_actions
from simforcing.types.layouts import Kind, absolute_layout

Move = Callable[[Arm, dict[str, np.ndarray]], None]  # changes parts of one arm in place


def variant_tables(
    robot: Robot,
    layouts: Layouts,
    tables: dict[str, np.ndarray],
    motions: tuple[Replay, Variant],
    poses: tuple[Float[np.ndarray, "f n 4 4"], Float[np.ndarray, "f n 4 4"]],
) -> dict[str, np.ndarray]:
    """Action, state and joint tables of a variant, as far as its parent has them.

    Where the variant moves as its parent does, the numbers are the parent's own.

    Args:
        tables: the parent's, one row per frame.
        motions, poses: of the parent and of the variant: configurations and every arm's tool.

    Raises ValueError where the robot does not know the tool frame of a layout.
    """
    parent, variant = motions
    if np.array_equal(parent.joint_rad, variant.joint_rad):
        return {name: tables[name] for name in ("action", "state", "joint") if name in tables}
    arms = robot.arms
    paths = dict(zip((arm.side for arm in arms), by_arm(robot, variant.joint_rad), strict=True))
    changes = dict(zip((arm.side for arm in arms), by_arm(robot, variant.joint_rad - parent.joint_rad), strict=True))
    deviations = {arm.side: deviation for arm, deviation in zip(arms, variant.deviations, strict=True)}
    tools = {arm.side: poses[1][:, k] for k, arm in enumerate(arms)}

    def measured(arm: Arm, parts: dict[str, np.ndarray]) -> None:
        tool = tools[arm.side]
        quaternion = Rotation.from_matrix(tool[:, :3, :3]).as_quat(scalar_first=True)
        new: dict[Kind, np.ndarray] = {
            "translation": tool[:, :3, 3],
            "rotation": quaternion,
            "joint": paths[arm.side],
        }
        parts |= {name: value for kind, value in new.items() if (name := part_name(arm, kind)) in parts}

    def commanded(arm: Arm, parts: dict[str, np.ndarray]) -> None:
        after = np.minimum(np.arange(len(tools[arm.side])) + 1, len(tools[arm.side]) - 1)
        deviation, joint = deviations[arm.side], changes[arm.side][after]
        turn = Rotation.from_quat(deviation.rotation_wxyz[after], scalar_first=True)
        kinds: tuple[Kind, ...] = ("translation", "rotation", "joint")
        for kind in kinds:
            name = part_name(arm, kind)
            if name not in parts:
                continue
            if kind == "rotation":
                moved = turn * Rotation.from_quat(parts[name], scalar_first=True)
                parts[name] = moved.as_quat(scalar_first=True)
            else:
                parts[name] = parts[name] + (joint if kind == "joint" else deviation.translation_m[after])

    out = {}
    for name, layout, move in (
        ("action", layouts.action, commanded),
        ("state", layouts.state, measured),
        ("joint", layouts.joint, measured),
    ):
        if name in tables and layout is not None:
            _require_known(robot, layout)
            start = _start(robot, layout, parent, poses[0])
            out[name] = _moved(tables[name], layout, start, robot, move)
    return out


def _moved(
    values: Float[np.ndarray, "f a"], layout: Layout, start: StartState, robot: Robot, move: Move
) -> Float[np.ndarray, "f a"]:
    """A table moved in its absolute form, and written in its own; grippers and unused numbers are the parent's."""
    absolute = absolute_layout(layout)
    targets = convert_actions(values, layout, absolute, start=start)
    parts = {name: targets[:, columns] for name, columns in absolute.slices.items()}
    for arm in robot.arms:
        move(arm, parts)
    for name, columns in absolute.slices.items():
        targets[:, columns] = parts[name]
    out = np.array(values)
    written = convert_actions(targets, absolute, layout, start=start)
    for name, columns in layout.slices.items():
        if layout.part(name).kind != "gripper":
            out[:, columns] = written[:, columns]
    return out.astype(np.float32)


def _start(robot: Robot, layout: Layout, parent: Replay, poses: Float[np.ndarray, "f n 4 4"]) -> StartState:
    """The parent's first frame in the absolute form of a layout: what increments are chained from."""
    absolute = absolute_layout(layout)
    values = np.zeros(absolute.dim)
    joints = by_arm(robot, parent.joint_rad)
    for k, arm in enumerate(robot.arms):
        rotation = Rotation.from_matrix(poses[0, k, :3, :3])
        known: dict[Kind, np.ndarray] = {
            "translation": poses[0, k, :3, 3],
            "rotation": rotation.as_quat(scalar_first=True),
            "joint": joints[k][0],
            "gripper": parent.openness[:1, k],
        }
        for kind, value in known.items():
            columns = absolute.slices.get(part_name(arm, kind))
            if columns is not None:
                values[columns] = value
    return StartState(values=values, layout=absolute)


def _require_known(robot: Robot, layout: Layout) -> None:
    kinds = {layout.part(name).kind for name in layout.slices}
    if kinds & {"translation", "rotation"} and layout.name not in robot.layouts:
        raise ValueError(
            f"variants: robot {robot.name} does not know the tool frame of layout {layout.name}; it knows:"
            f" {', '.join(robot.layouts) or 'none'}"
        )
