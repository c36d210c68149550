"""Scripted tasks: a scene and a start become waypoints, waypoints become one commanded pose per control step.

A command is 7 numbers in the base frame: end-effector xyz (m), extrinsic xyz Euler (rad), gripper 0 closed .. 1 open.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from simforcing.sim.scene import Scene, SceneObject

TaskKind = Literal["reach", "move", "push", "pick", "miss"]
Command = Float[np.ndarray, "7"]

DIRECTIONS: dict[str, tuple[float, float]] = {
    "forward": (1.0, 0.0),
    "back": (-1.0, 0.0),
    "to the left": (0.0, 1.0),
    "to the right": (0.0, -1.0),
}
APPROACH_HEIGHT_M = 0.115
CARRY_HEIGHT_M = (0.12, 0.22)
TURN_M_PER_RAD = 0.06  # a turn of the wrist takes as long as this much travel


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """Where the end-effector is sent: polar about the base, height above the table, tilt of the gripper.

    Args:
        radius_m, azimuth_rad, height_m: reachable region for free targets.
        left_only: free targets at azimuths above 0 alone.
        tilt_rad: pitch about the base's y axis turned with the arm; negative points the gripper outwards.
        roll_rad, wrist_rad: half ranges of roll and of the turn of the wrist against the arm's azimuth.
    """

    radius_m: tuple[float, float] = (0.2, 0.38)
    azimuth_rad: float = 0.95
    height_m: tuple[float, float] = (0.04, 0.26)
    tilt_rad: tuple[float, float] = (-0.6, 0.15)
    roll_rad: float = 0.25
    wrist_rad: float = 0.9
    left_only: bool = False

    def draw(self, rng: np.random.Generator, gripper: float | None = None) -> Command:
        """A random command; the gripper is fully open or closed where none is given."""
        radius, height = rng.uniform(*self.radius_m), rng.uniform(*self.height_m)
        azimuth = rng.uniform(0.0 if self.left_only else -self.azimuth_rad, self.azimuth_rad)
        # A gripper held high can only tilt outwards: the wrist joint ends there.
        tilt = rng.uniform(self.tilt_rad[0], self.tilt_rad[1] - 2.0 * max(0.0, height - 0.12))
        roll, turn = rng.uniform(-self.roll_rad, self.roll_rad), rng.uniform(-self.wrist_rad, self.wrist_rad)
        opening = float(rng.random() < 0.5) if gripper is None else gripper
        place = (radius * np.cos(azimuth), radius * np.sin(azimuth), height)
        return np.array([*place, roll, tilt, azimuth + turn, opening])


@dataclass(frozen=True, kw_only=True)
class Waypoint:
    """A command to arrive at after `num_steps` control steps."""

    command: Command
    num_steps: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A scripted attempt: the instruction and the commands, action i leading from frame i to frame i + 1."""

    kind: TaskKind
    task: str
    target: int | None
    commands: Float[np.ndarray, "k 7"]


def interpolate(start: Command, waypoints: Sequence[Waypoint], num_steps: int) -> Float[np.ndarray, "k 7"]:
    """Commands for `num_steps` steps: smooth starts and stops between waypoints, the last one held."""
    commands, here = [], start
    for waypoint in waypoints:
        u = np.arange(1, waypoint.num_steps + 1)[:, None] / waypoint.num_steps
        # Half linear, half smoothstep: slows down at waypoints but never stands still for long.
        blend = 0.5 * u + 0.5 * u * u * (3 - 2 * u)
        commands.append(here + blend * (waypoint.command - here))
        here = waypoint.command
    held = np.repeat(here[None], max(0, num_steps - sum(len(c) for c in commands)), axis=0)
    return np.concatenate([*commands, held])[:num_steps]


@dataclass(frozen=True, kw_only=True)
class Planner:
    """Turns a task in a scene into a plan of `num_steps` commands.

    Args:
        workspace: where free targets lie.
        pace_m: mean travel of the gripper per control step between waypoints.
        lowest_m: height that reaching for an object never goes below.
    """

    workspace: Workspace
    num_steps: int
    pace_m: float = 0.055
    lowest_m: float = 0.0

    def plan(
        self, kind: TaskKind, scene: Scene, start: Command, rng: np.random.Generator, *, target: int | None = None
    ) -> Plan:
        """A plan of the given kind for object number `target` (random where None).

        reach: the gripper goes to the object and then about the workspace; move: only the latter; push: it moves the
        object along one axis; pick: it closes around the object, lifts and carries it; miss: it closes beside it.
        """
        index = int(rng.integers(len(scene.objects))) if target is None else target
        item, others = scene.objects[index], [other for other in scene.objects if other is not scene.objects[index]]
        if kind == "reach":
            task, waypoints = f"reach the {item.phrase}", [self._travel(start, self._over(item, rng), rng)]
        elif kind == "push":
            task, waypoints = self._push(item, start, rng)
        elif kind in ("pick", "miss"):
            place = np.array(item.position_m) if kind == "pick" else _beside(item, others, rng)
            task, waypoints = f"pick up the {item.phrase}", self._pick(item, place, start, rng)
        else:
            return self.move(self.workspace.draw(rng), start, rng)
        waypoints = self._fill(waypoints, rng, holding=kind == "pick")
        return Plan(kind=kind, task=task, target=index, commands=interpolate(start, waypoints, self.num_steps))

    def move(self, goal: Command, start: Command, rng: np.random.Generator) -> Plan:
        """Go straight to `goal`, then on about the workspace."""
        side, level = "left" if goal[1] > 0 else "right", "high" if goal[2] > 0.15 else "low"
        waypoints = self._fill([self._travel(start, goal, rng)], rng)
        commands = interpolate(start, waypoints, self.num_steps)
        return Plan(kind="move", task=f"move {level} to the {side}", target=None, commands=commands)

    def _fill(self, waypoints: list[Waypoint], rng: np.random.Generator, *, holding: bool = False) -> list[Waypoint]:
        """Moves about the workspace until all steps are used; what is held is mostly kept in hand."""
        here, left = waypoints[-1].command, self.num_steps - sum(w.num_steps for w in waypoints)
        while left > 0:
            gripper = 0.0 if holding and rng.random() < 0.8 else None
            waypoints = [*waypoints, self._travel(here, self.workspace.draw(rng, gripper), rng)]
            here, left = waypoints[-1].command, left - waypoints[-1].num_steps
        return waypoints

    def _travel(self, here: Command, command: Command, rng: np.random.Generator) -> Waypoint:
        turned = float(np.abs(command[3:6] - here[3:6]).max())
        distance = float(np.linalg.norm(command[:3] - here[:3])) + TURN_M_PER_RAD * turned
        return Waypoint(command=command, num_steps=max(2, round(distance / (self.pace_m * rng.uniform(0.7, 1.15)))))

    def _over(self, item: SceneObject, rng: np.random.Generator) -> Command:
        (x, y), over = item.position_m, self.workspace.draw(rng)
        over[:3] = x, y, max(self.lowest_m, 2 * item.half_size_m[2] + rng.uniform(0.02, 0.05))
        over[5] = np.arctan2(y, x) + rng.uniform(-0.8, 0.8)
        return over

    def _push(self, item: SceneObject, start: Command, rng: np.random.Generator) -> tuple[str, list[Waypoint]]:
        name = str(rng.choice(_open_directions(item)))
        direction, centre = np.array(DIRECTIONS[name]), np.array(item.position_m)
        behind = centre - direction * (item.half_size_m[0] * 1.4 + 0.035)
        beyond = centre + direction * rng.uniform(0.06, 0.12)
        # The hand is broad across the fingers' opening: the broad side leads, so that the object is not passed by.
        yaw = _nearest_turn(np.arctan2(direction[1], direction[0]), np.arctan2(centre[1], centre[0]), np.pi)
        low = max(0.02, item.half_size_m[2] * 0.8)
        path = ((behind, 0.1), (behind, low), (beyond, low), (beyond - 0.05 * direction, low))
        above, at, through, back = (np.array([*place, z, 0, 0, yaw, 0.0]) for place, z in path)
        pace = 0.55 * self.pace_m * rng.uniform(0.8, 1.3)
        return f"push the {item.phrase} {name}", [
            self._travel(start, above, rng),
            Waypoint(command=at, num_steps=3),
            Waypoint(command=through, num_steps=max(3, round(float(np.linalg.norm(beyond - behind)) / pace))),
            Waypoint(command=back, num_steps=2),
        ]

    def _pick(
        self, item: SceneObject, place: Float[np.ndarray, "2"], start: Command, rng: np.random.Generator
    ) -> list[Waypoint]:
        grasp = _grasp(item, place, rng)
        above, closed, lifted, carry = grasp.copy(), grasp.copy(), grasp.copy(), self.workspace.draw(rng, 0.0)
        closed[6], lifted[6] = 0.0, 0.0
        above[2] = lifted[2] = APPROACH_HEIGHT_M
        carry[2] = rng.uniform(*CARRY_HEIGHT_M)
        return [
            self._travel(start, above, rng),
            Waypoint(command=grasp, num_steps=int(rng.integers(2, 4))),
            Waypoint(command=closed, num_steps=2),
            Waypoint(command=lifted, num_steps=int(rng.integers(2, 4))),
            self._travel(lifted, carry, rng),
        ]


def _open_directions(item: SceneObject) -> list[str]:
    """Directions in which both ends of the push can be reached."""
    centre = np.array(item.position_m)
    names = []
    for name, direction in DIRECTIONS.items():
        ends = centre + np.outer((-0.08, 0.12), direction)
        radii, azimuths = np.linalg.norm(ends, axis=1), np.arctan2(ends[:, 1], ends[:, 0])
        if radii.min() > 0.17 and radii.max() < 0.42 and np.abs(azimuths).max() < 1.2:
            names.append(name)
    return names or ["forward"]


def _beside(item: SceneObject, others: list[SceneObject], rng: np.random.Generator) -> Float[np.ndarray, "2"]:
    """A place next to the object where closing the gripper holds nothing, neither this object nor another."""
    centre = np.array(item.position_m)
    across = np.arctan2(centre[1], centre[0]) + np.pi / 2
    offset = rng.uniform(0.085, 0.1) * np.array([np.cos(across), np.sin(across)])
    places = [centre + sign * offset for sign in rng.permutation([-1.0, 1.0])]
    return max(places, key=lambda place: min([1.0, *(np.linalg.norm(place - o.position_m) for o in others)]))


def _grasp(item: SceneObject, place: Float[np.ndarray, "2"], rng: np.random.Generator) -> Command:
    azimuth = np.arctan2(place[1], place[0])
    yaw = azimuth + rng.uniform(-0.6, 0.6)
    if item.shape == "box":
        yaw = _nearest_turn(item.yaw_rad, azimuth, np.pi / 2)
    return np.array([*place, max(0.016, item.half_size_m[2] - 0.004), 0.0, 0.0, yaw, 1.0])


def _nearest_turn(angle: float, reference: float, period: float) -> float:
    """The angle equal to `angle` modulo `period` that lies nearest to `reference`."""
    return float(reference + (angle - reference + period / 2) % period - period / 2)
