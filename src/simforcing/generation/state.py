"""The robot's state at the frames that commands lead to: what a rollout reports, and its next window starts from.

It is where the commands aim. The measured state of a real robot follows them with a lag, and stops at obstacles.
"""

import warnings
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import Rotation

from simforcing.types import DataSpec, Layout
from simforcing.types.conversions import StartState, convert_actions
from simforcing.types.layouts import Part, Side, absolute_layout
from simforcing.types.rotations import write_rotations

if TYPE_CHECKING:
    from simforcing.sim.kinematics import Kinematics

SIDES: tuple[Side, ...] = ("single", "left", "right")


def carry_state(
    state: Float[np.ndarray, " s"] | None, action: Float[np.ndarray, "k a"], spec: DataSpec, num_frames: int
) -> Float[np.ndarray, "f s"] | None:
    """The state at frames 1 .. num_frames - 1, float32, in the stored layout; None where there is none.

    Args:
        state: at frame 0.
        action: commands of the layout `spec.action.layout`, evenly spaced over the frames.

    Raises:
        ValueError: a state or commands of another width.
    """
    if state is None or spec.state is None:
        return None
    return carrier_of(spec)(state, action, num_frames)


def carrier_of(spec: DataSpec) -> "StateCarrier":
    """What carries the states of this model's data, made once; it warns then of parts that it can only hold."""
    if spec.state is None:
        raise ValueError("this model reads no state, so none is carried")
    return _made_once(spec.action.layout, spec.state.layout, spec.robot)


@lru_cache(maxsize=8)
def _made_once(action: Layout, state: Layout, robot: str | None) -> "StateCarrier":
    carrier = StateCarrier(action, state, robot)
    if carrier.held:
        reasons = "; ".join(f"{name}: {why}" for name, why in carrier.held.items())
        warnings.warn(f"state {state.name} is carried without what no command drives ({reasons})", stacklevel=4)
    return carrier


@dataclass(frozen=True, kw_only=True)
class _Bridge:
    """Kinematics of an arm that is commanded in one form and measured in the other, pose or joints.

    Args:
        reads: form of the commands that go in, absolute, in m and rad.
        gives: form of what comes out, likewise.
        is_forward: joints to pose.
    """

    solver: "Kinematics"
    reads: Layout
    gives: Layout
    is_forward: bool


class StateCarrier:
    """Where commands of one layout lead states of another.

    A part that both have takes the target in force: the last one whose interval has begun. Increments are added up
    exactly from the start. Between joints and the tool's pose stands the robot's kinematics, where it is known.

    Args:
        action, state: layouts as stored.
        robot: name of a known robot; None: parts that need kinematics are held.
    """

    def __init__(self, action: Layout, state: Layout, robot: str | None = None) -> None:
        self.action, self.state = _without_rates(action), _without_rates(state)
        self._bridges: list[_Bridge] = []
        reasons: dict[str, str] = {}
        for side in SIDES:
            self._add_bridge(side, robot, reasons)
        for name in state.slices:
            if name in action.slices and (why := self._why_not(self.state.only([name]))):
                reasons[name] = why
        self.driven = tuple(name for name in state.slices if name in action.slices and name not in reasons)
        self.solved = tuple(
            name
            for name in state.slices
            if name not in action.slices and any(name in bridge.gives.slices for bridge in self._bridges)
        )
        moved = (*self.driven, *self.solved)
        self.held: dict[str, str] = {
            name: reasons.get(name, "no command moves it") for name in state.slices if name not in moved
        }

    def __call__(
        self, state: Float[np.ndarray, " s"], action: Float[np.ndarray, "k a"], num_frames: int
    ) -> Float[np.ndarray, "f s"]:
        """The state at frames 1 .. num_frames - 1. ValueError where a width is not the layout's."""
        if state.shape != (self.state.dim,) or action.shape[1] != self.action.dim:
            raise ValueError(
                f"a state of {state.size} numbers and commands of {action.shape[1]}; layouts {self.state.name} and"
                f" {self.action.name} have {self.state.dim} and {self.action.dim}"
            )
        after = np.repeat(np.asarray(state, np.float64)[None], len(action), axis=0)
        start = self._start(state)
        if self.driven:
            after[:, self.state.columns(self.driven)] = self._aims(action, self.state.only(self.driven), start)
        for bridge in self._bridges:
            own = self.state.only([name for name in bridge.gives.slices if name in self.solved])
            if own.parts:
                path = self._solve(bridge, self._aims(action, bridge.reads, start), start)
                columns = bridge.gives.columns([*own.slices])
                given = bridge.gives.only([*own.slices])
                after[:, self.state.columns([*own.slices])] = convert_actions(path[:, columns], given, own)
        rows = -(-np.arange(1, num_frames) * len(action) // (num_frames - 1)) - 1
        return after[rows].astype(np.float32)

    def _start(self, state: Float[np.ndarray, " s"]) -> StartState:
        """The state, with the tool's pose beside it where only joints are measured."""
        values, layout = np.asarray(state, np.float64), self.state
        for bridge in self._bridges:
            if not bridge.is_forward and not set(bridge.reads.slices) & set(layout.slices):
                pose = bridge.solver.forward(self._joint_rad(bridge, values))
                values, layout = np.append(values, pose), replace(layout, parts=(*layout.parts, *bridge.reads.parts))
        return StartState(values=values, layout=layout)

    def _joint_rad(self, bridge: _Bridge, values: Float[np.ndarray, " s"]) -> Float[np.ndarray, " j"]:
        name = next(iter(bridge.gives.slices))
        return values[self.state.slices[name]] / self.state.part(name).scale

    def _aims(self, action: Float[np.ndarray, "k a"], wanted: Layout, start: StartState) -> Float[np.ndarray, "k n"]:
        """Where each command aims, in parts of this form; a translation is turned by the rotation beside it."""
        needed = [*wanted.slices]
        needed += [name.replace("translation", "rotation") for name in needed if name.endswith("translation")]
        source = self.action.only(needed)
        beside = absolute_layout(source.only([name for name in source.slices if name not in wanted.slices]))
        target = replace(wanted, parts=(*wanted.parts, *beside.parts))
        return convert_actions(action[:, self.action.columns(needed)], source, target, start=start)[:, : wanted.dim]

    def _solve(self, bridge: _Bridge, aims: Float[np.ndarray, "k n"], start: StartState) -> Float[np.ndarray, "k m"]:
        """Joints -> poses, or poses -> joints, each solved from the one before."""
        if bridge.is_forward:
            return np.stack([bridge.solver.forward(row) for row in aims])
        from simforcing.sim.kinematics import follow

        return follow(bridge.solver, aims, self._joint_rad(bridge, start.values))

    def _add_bridge(self, side: Side, robot: str | None, reasons: dict[str, str]) -> None:
        """Kinematics for an arm that is commanded in another form than it is measured in, or why there is none."""
        prefix = "" if side == "single" else f"{side}_"
        pose, joint = {f"{prefix}translation", f"{prefix}rotation"}, f"{prefix}joint"
        told, known = set(self.action.slices), set(self.state.slices)
        is_forward = joint in told and not pose & told and bool(pose & known)
        if not is_forward and not (pose <= told and joint in known - told):
            return
        part = self.action.part(joint) if is_forward else self.state.part(joint)
        posed = self.state if is_forward else self.action
        try:
            solver = _solver(robot, side, posed.name, part.size)
            joints = Layout(name="joint", parts=(replace(part, mode="absolute", scale=1.0),))
            reads, gives = (joints, _pose(side)) if is_forward else (_pose(side), joints)
            self._bridges.append(_Bridge(solver=solver, reads=reads, gives=gives, is_forward=is_forward))
            if why := self._why_not(reads):
                self._bridges.pop()
                raise ValueError(why)
        except (ImportError, ValueError) as error:
            reasons.update(dict.fromkeys(pose if is_forward else (joint,), str(error)))

    def _why_not(self, wanted: Layout) -> str | None:
        """Why these parts do not follow from the commands; None where they do."""
        try:
            self._aims(still_row(self.action)[None], wanted, self._start(still_row(self.state)))
        except ValueError as error:
            return str(error)
        return None


def still_row(layout: Layout, targets: Float[np.ndarray, " a"] | None = None) -> Float[np.ndarray, " a"]:
    """The command that moves nothing further: targets again, and increments of nothing.

    Args:
        layout: of commands, as stored.
        targets: a command whose absolute parts are kept; None: they are zeros, with rotations that do not turn.
    """
    row = np.zeros(layout.dim) if targets is None else np.array(targets)
    for name, columns in layout.slices.items():
        part = layout.part(name)
        if targets is None or part.mode == "delta":
            still = 0.0 if part.rotation is None else write_rotations(Rotation.identity(1), part.rotation)[0]
            row[columns] = still * part.scale
    return row


def rest_row(state: Float[np.ndarray, " s"] | None, spec: DataSpec) -> Float[np.ndarray, " a"]:
    """The command that asks the robot to stay in this state; None: it is not known.

    Raises:
        ValueError: a target that the state does not hold, as of joints where it holds the tool's pose.
    """
    layout, targets = spec.action.layout, still_row(spec.action.layout)
    action = _without_rates(layout)
    own = Layout(name="none", parts=())
    if state is not None and spec.state is not None:
        own = _without_rates(spec.state.layout)
    for name, columns in action.slices.items():
        if action.part(name).mode == "delta":
            continue
        if name not in own.slices:
            raise ValueError(
                f"where to stay is not known: commands of layout {layout.name} set {name}, and the state holds"
                f" {', '.join(own.slices) or 'nothing'}"
            )
        there = np.asarray(state, np.float64)[None, own.columns([name])]
        targets[columns] = convert_actions(there, own.only([name]), action.only([name]))[0]
    return still_row(layout, targets)


def _without_rates(layout: Layout) -> Layout:
    """Times are known here from frames, so that two tables of unlike rates can be joined."""
    return replace(layout, parts=tuple(replace(part, rate_hz=None) for part in layout.parts))


def _solver(robot: str | None, side: Side, layout: str, num_joints: int) -> "Kinematics":
    """Kinematics of an arm whose tool is the one of a layout. ImportError or ValueError in one line."""
    if robot is None:
        raise ValueError("needs kinematics, and the data set names no robot")
    try:
        from simforcing.sim.kinematics import Kinematics
        from simforcing.sim.robots import robot_named
    except ImportError as error:
        raise ImportError(f"needs kinematics: no module {error.name}; pip install 'simforcing[sim]'") from None
    known = robot_named(robot)
    arm = known.arm(side)
    if layout not in known.layouts or len(arm.joints) != num_joints:
        raise ValueError(
            f"needs kinematics: robot {robot} with {len(arm.joints)} joints per arm knows the tool of layouts"
            f" {', '.join(known.layouts) or 'none'}, not of {layout} with {num_joints}"
        )
    return Kinematics(known, side)


def _pose(side: Side) -> Layout:
    """A tool's pose as kinematics gives it: m, extrinsic Euler angles in rad."""
    translation = Part(kind="translation", size=3, side=side)
    rotation = Part(kind="rotation", size=3, side=side, unit="rad", rotation="euler_xyz")
    return Layout(name="pose", parts=(translation, rotation))
