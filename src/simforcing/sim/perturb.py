"""Perturbed variants of a replay (method, section 2): same start, same gripper, other increments of the tool's motion.

With dp_i and r_i the parent's steps (m; rotation vector, base frame), a variant moves by

    dp'_i = scale dp_i + bias / k + noise_i,   r'_i = scale r_i + bias / k + noise_i

over the k steps of the rollout, for which bias and scale are drawn once, and its joints are the parent's plus what
inverse kinematics finds for the accumulated deviation.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import Rotation

from simforcing.sim.amplitudes import Amplitudes
from simforcing.sim.kinematics import Kinematics, euler_from_matrix
from simforcing.sim.lowest_point import LowestPoint
from simforcing.sim.model import RobotModel
from simforcing.sim.replay import AT_LIMIT_RAD, Replay, by_arm, solver_of, tool_error

Box = tuple[tuple[float, float, float], tuple[float, float, float]]
STREAM = 20  # of random numbers: no other use of a seed shares it
REACHED_M, REACHED_RAD = 1e-3, 0.01  # a variant's tool is where its increments lead, to less than a pixel
STRIDE = 16  # of frames that are looked at first: most that reach below the table do so for many frames
MAX_JUMP_RAD = 0.25  # more than the parent's own step: inverse kinematics changed its branch


@dataclass(frozen=True, kw_only=True)
class PerturbConfig(Amplitudes):
    """Amplitudes, and what a variant may not do.

    Args:
        workspace_m: lowest and highest corner of a box in the base frame that the tool must not leave; None: what the
            arm reaches.
        table_height_m: height of the table's top in the base frame; None: as the robot declares it, if it does.
        max_draws: proposals per variant before it is given up: where not even one in five is possible the amplitudes
            are too large, and more draws would cost minutes in long episodes.
    """

    workspace_m: Box | None = None
    table_height_m: float | None = None
    max_draws: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_draws < 1:
            raise ValueError(f"max_draws {self.max_draws}: must be at least 1")
        if self.workspace_m is not None and not (np.array(self.workspace_m[0]) < self.workspace_m[1]).all():
            raise ValueError(f"workspace_m {self.workspace_m}: expected a lowest and a highest corner")
        if self.table_height_m is not None and not np.isfinite(self.table_height_m):
            raise ValueError(f"table_height_m {self.table_height_m}: expected a height in metres")


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """The random numbers of one rollout of one arm: biases are those of the whole rollout, row i of the noise belongs
    to the step from frame i to i + 1.
    """

    translation_bias_m: Float[np.ndarray, "3"]
    translation_scale: float
    translation_noise_m: Float[np.ndarray, "k 3"]
    rotation_bias_rad: Float[np.ndarray, "3"]
    rotation_scale: float
    rotation_noise_rad: Float[np.ndarray, "k 3"]


@dataclass(frozen=True, kw_only=True)
class Deviation:
    """How one arm's tool left its parent's way: p' = p + translation, R' = rotation R, frame by frame, frame 0 not."""

    translation_m: Float[np.ndarray, "f 3"]
    rotation_wxyz: Float[np.ndarray, "f 4"]

    def applied(self, poses: Float[np.ndarray, "f 6"]) -> Float[np.ndarray, "f 6"]:
        """The parent's tool poses, deviated."""
        rotations = Rotation.from_quat(self.rotation_wxyz, scalar_first=True) * Rotation.from_euler("xyz", poses[:, 3:])
        euler_rad = np.array([euler_from_matrix(matrix) for matrix in rotations.as_matrix()])
        return np.concatenate([poses[:, :3] + self.translation_m, euler_rad], axis=1)


@dataclass(frozen=True, kw_only=True)
class Variant:
    """An accepted variant.

    Args:
        qpos, joint_rad, openness: as in `Replay`; openness is the parent's.
        deviations: of each arm's tool.
        rejected: how many proposals were refused before, by reason.
    """

    qpos: Float[np.ndarray, "f q"]
    joint_rad: Float[np.ndarray, "f j"]
    openness: Float[np.ndarray, "f n"]
    deviations: tuple[Deviation, ...]
    rejected: dict[str, int]


def propose(config: PerturbConfig, rng: np.random.Generator, num_steps: int) -> Proposal:
    """Draw one rollout's bias, scale and noise."""
    return Proposal(
        translation_bias_m=config.translation_bias_m * rng.uniform(-1.0, 1.0, 3),
        translation_scale=float(1.0 + config.translation_scale * rng.uniform(-1.0, 1.0)),
        translation_noise_m=config.translation_noise_m * rng.standard_normal((num_steps, 3)),
        rotation_bias_rad=config.rotation_bias_rad * rng.uniform(-1.0, 1.0, 3),
        rotation_scale=float(1.0 + config.rotation_scale * rng.uniform(-1.0, 1.0)),
        rotation_noise_rad=config.rotation_noise_rad * rng.standard_normal((num_steps, 3)),
    )


def accumulate(proposal: Proposal, poses: Float[np.ndarray, "f 6"]) -> Deviation:
    """What a proposal adds up to along a parent's tool poses."""
    steps = np.diff(poses[:, :3], axis=0)
    num_steps = max(1, len(steps))
    bias_m, bias_rad = proposal.translation_bias_m / num_steps, proposal.rotation_bias_rad / num_steps
    added = (proposal.translation_scale - 1.0) * steps + bias_m + proposal.translation_noise_m
    rotations = Rotation.from_euler("xyz", poses[:, 3:])
    turns = (rotations[1:] * rotations[:-1].inv()).as_rotvec()
    turned = Rotation.from_rotvec(proposal.rotation_scale * turns + bias_rad + proposal.rotation_noise_rad)
    current, deviation = rotations[0], [Rotation.identity()]
    for i in range(len(steps)):
        current = turned[i] * current
        deviation.append(current * rotations[i + 1].inv())
    return Deviation(
        translation_m=np.concatenate([np.zeros((1, 3)), np.cumsum(added, axis=0)]),
        rotation_wxyz=Rotation.concatenate(deviation).as_quat(canonical=True, scalar_first=True),
    )


class NoVariantError(ValueError):
    """None of the proposals was possible; `rejected` counts them by reason."""

    def __init__(self, message: str, rejected: dict[str, int]) -> None:
        super().__init__(message)
        self.rejected = rejected


class Perturber:
    """Draws variants of replays of one robot.

    A proposal is rejected where a tool cannot follow with joints inside their limits ("joint limits"), cannot follow
    otherwise ("reach"), leaves the workspace box where one is declared ("workspace"), or any moving part of the robot
    gets below the table's top where that is known ("table"); and where the caller refuses it. What the parent itself
    exceeds is allowed as far as the parent goes.
    """

    def __init__(self, robot: RobotModel, config: PerturbConfig) -> None:
        self.robot, self.config = robot, config
        self._solvers = [solver_of(robot, arm) for arm in robot.robot.arms]
        declared_m = robot.robot.table_height_m
        self._table_m = declared_m if config.table_height_m is None else config.table_height_m
        self._lowest = None if self._table_m is None else LowestPoint(robot)

    def variant(
        self,
        parent: Replay,
        *,
        seed: int,
        episode: int,
        draw: int,
        fault: Callable[[Variant], str | None] = lambda variant: None,
    ) -> Variant:
        """Variant number `draw` of an episode: a function of the parent, the settings, and these three numbers.

        With all amplitudes 0 it equals its parent bit for bit.

        Args:
            fault: a further reason, in a word, why a proposal is rejected.

        Raises NoVariantError, a ValueError, where none of `max_draws` proposals is accepted, with the reasons counted.
        """
        rng = np.random.default_rng([seed, STREAM, episode, draw])
        parents = by_arm(self.robot.robot, parent.joint_rad)
        poses = [
            np.array([solver.forward(row) for row in path]) for solver, path in zip(self._solvers, parents, strict=True)
        ]
        floor_m = self._floor_m(parent.qpos)
        rejected: Counter[str] = Counter()
        for _ in range(self.config.max_draws):
            deviations = tuple(accumulate(propose(self.config, rng, len(tool) - 1), tool) for tool in poses)
            found = self._carry_out(parents, poses, deviations)
            if isinstance(found, str):
                rejected[found] += 1
                continue
            variant = Variant(
                qpos=self.robot.configuration(found, parent.openness),
                joint_rad=found,
                openness=parent.openness,
                deviations=deviations,
                rejected=dict(rejected),
            )
            reason = fault(variant) if self._is_above(variant.qpos, floor_m) else "table"
            if reason is None:
                return variant
            rejected[reason] += 1
        counts = ", ".join(f"{reason} {count}" for reason, count in rejected.items())
        message = f"none of {self.config.max_draws} proposals of variant {draw} is possible: {counts}"
        raise NoVariantError(message, dict(rejected))

    def _carry_out(
        self, parents: list[np.ndarray], poses: list[np.ndarray], deviations: tuple[Deviation, ...]
    ) -> Float[np.ndarray, "f j"] | str:
        """Joints of all arms, or why they are not possible."""
        paths = []
        for solver, parent, pose, deviation in zip(self._solvers, parents, poses, deviations, strict=True):
            wanted = deviation.applied(pose)
            if self._leaves_workspace(wanted, pose):
                return "workspace"
            path = _follow(solver, parent, wanted)
            if isinstance(path, str):
                return path
            paths.append(path)
        return np.concatenate(paths, axis=1)

    def _leaves_workspace(self, wanted: Float[np.ndarray, "f 6"], parent: Float[np.ndarray, "f 6"]) -> bool:
        if self.config.workspace_m is None:
            return False
        low = np.minimum(self.config.workspace_m[0], parent[:, :3].min(axis=0))
        high = np.maximum(self.config.workspace_m[1], parent[:, :3].max(axis=0))
        return bool(((wanted[:, :3] < low) | (wanted[:, :3] > high)).any())

    def _is_above(self, qpos: Float[np.ndarray, "f q"], floor_m: float) -> bool:
        lowest = self._lowest
        return lowest is None or all((lowest.heights_m(qpos[i::STRIDE]) >= floor_m).all() for i in range(STRIDE))

    def _floor_m(self, parent: Float[np.ndarray, "f q"]) -> float:
        if self._table_m is None or self._lowest is None:
            return -np.inf
        return min(self._table_m, float(self._lowest.heights_m(parent).min()))


def _follow(
    solver: Kinematics, parent: Float[np.ndarray, "f j"], poses: Float[np.ndarray, "f 6"]
) -> Float[np.ndarray, "f j"] | str:
    """The parent's joints plus a correction, each solved from the one before; why not where a pose is not reached."""
    path, correction = np.empty_like(parent), np.zeros(parent.shape[1])
    for i, pose in enumerate(poses):
        path[i] = solver.inverse(pose, parent[i] + correction)
        error_m, error_rad = tool_error(solver, path[i : i + 1], pose[None])[0]
        change = path[i] - parent[i] - correction
        if error_m > REACHED_M or error_rad > REACHED_RAD or np.abs(change).max() > MAX_JUMP_RAD:
            margin = np.minimum(path[i] - solver.low_rad, solver.high_rad - path[i])
            return "joint limits" if margin.min() < AT_LIMIT_RAD else "reach"
        correction = path[i] - parent[i]
    return path
