"""Forward and inverse kinematics of one arm of a robot; a pose is xyz (m) and extrinsic xyz Euler (rad) of its tool.

The inverse repeats mink's quadratic program, solved by daqp: the tool's error and, lightly, the change of posture are
least under the joint limits. Poses are in the robot's base frame, as data sets record them.
"""

# MuJoCo ships no stubs:
# pyright: reportAttributeAccessIssue=false, reportInvalidTypeForm=false

from typing import Protocol, runtime_checkable

import mink
import mujoco
import numpy as np
from jaxtyping import Float

from simforcing.sim.model import RobotModel, tool_in_frame
from simforcing.sim.robot import Robot
from simforcing.types.layouts import Side

POSITION_TOLERANCE_M = 1e-4
ROTATION_TOLERANCE_RAD = 1e-3
# Where a pose cannot be reached, 1 cm counts like 0.1 rad; the posture only breaks ties (a seventh joint).
POSITION_COST, ROTATION_COST, POSTURE_COST = 1.0, 0.1, 1e-4
LEVENBERG_DAMPING = 1e-3
MAX_STEP_RAD = 0.5
NUM_RESTARTS = 20


def quaternion_from_euler(euler_rad: Float[np.ndarray, "3"]) -> Float[np.ndarray, "4"]:
    """Extrinsic x, y, z angles -> quaternion wxyz: R = Rz(yaw) Ry(pitch) Rx(roll)."""
    quaternion = np.empty(4)
    mujoco.mju_euler2Quat(quaternion, np.asarray(euler_rad, np.float64), "XYZ")
    return quaternion


def euler_from_matrix(matrix: Float[np.ndarray, "3 3"]) -> Float[np.ndarray, "3"]:
    """The inverse, with pitch in [-pi/2, pi/2]; at +-pi/2 roll is taken as 0."""
    pitch = np.arcsin(np.clip(-matrix[2, 0], -1.0, 1.0))
    if abs(matrix[2, 0]) > 1.0 - 1e-9:
        return np.array([0.0, pitch, np.arctan2(-matrix[0, 1], matrix[1, 1])])
    return np.array([np.arctan2(matrix[2, 1], matrix[2, 2]), pitch, np.arctan2(matrix[1, 0], matrix[0, 0])])


def site_pose(data: mujoco.MjData, site: int) -> Float[np.ndarray, "6"]:
    """xyz and Euler angles of a site in the world frame, after mj_kinematics."""
    return np.concatenate([data.site_xpos[site], euler_from_matrix(data.site_xmat[site].reshape(3, 3))])


@runtime_checkable
class Inverse(Protocol):
    """Inverse kinematics of one arm."""

    def inverse(self, pose: Float[np.ndarray, "6"], start_rad: Float[np.ndarray, " j"]) -> Float[np.ndarray, " j"]:
        """Joint angles that reach a pose, near `start_rad`."""
        ...


def follow(
    solver: Inverse, poses: Float[np.ndarray, "k 6"], start_rad: Float[np.ndarray, " j"]
) -> Float[np.ndarray, "k j"]:
    """Joint angles along a sequence of poses, each solved from the one before."""
    path = np.empty((len(poses), len(start_rad)))
    for i, pose in enumerate(poses):
        path[i] = start_rad = solver.inverse(pose, start_rad)
    return path


class Kinematics:
    """Kinematics of one arm, in a state of its own: scenes, and the state of a loaded robot, are never touched.

    Args:
        robot: a description, or its loaded model.
        side: which arm; None: the only one, or the first.
        position_tolerance_m, rotation_tolerance_rad: where the inverse stops.
        num_iterations: or where it stops at the latest.
    """

    def __init__(
        self,
        robot: Robot | RobotModel,
        side: Side | None = None,
        *,
        position_tolerance_m: float = POSITION_TOLERANCE_M,
        rotation_tolerance_rad: float = ROTATION_TOLERANCE_RAD,
        num_iterations: int = 60,
    ) -> None:
        loaded = robot if isinstance(robot, RobotModel) else RobotModel(robot)
        self.robot = loaded.robot
        self.arm = self.robot.arms[0] if side is None else self.robot.arm(side)
        self._tolerance = np.repeat([position_tolerance_m, rotation_tolerance_rad], 3)
        self._num_iterations = num_iterations
        columns = loaded.arm_columns(self.arm.side)
        self._columns = loaded.joint_columns[columns]
        self.low_rad, self.high_rad = loaded.low_rad[columns], loaded.high_rad[columns]
        self._rest = loaded.configuration(loaded.home_rad[None], np.ones((1, len(self.robot.arms))))[0]
        self._configuration = mink.Configuration(loaded.model, q=self._rest)
        self._frame = (self.arm.site, loaded.frame(self.arm.side)[0])
        self._task = mink.FrameTask(
            *self._frame, position_cost=POSITION_COST, orientation_cost=ROTATION_COST, lm_damping=LEVENBERG_DAMPING
        )
        self._posture = mink.PostureTask(loaded.model, cost=POSTURE_COST)
        self._limits = [mink.ConfigurationLimit(loaded.model)]
        self._base = mink.SE3.from_matrix(loaded.base_pose())
        self._tool = mink.SE3.from_matrix(tool_in_frame(self.arm))

    def forward(self, joint_rad: Float[np.ndarray, " j"]) -> Float[np.ndarray, "6"]:
        """Joint angles -> tool pose in the base frame."""
        self._place(joint_rad)
        frame = self._configuration.get_transform_frame_to_world(*self._frame)
        pose = (self._base.inverse() @ frame @ self._tool).as_matrix()
        return np.concatenate([pose[:3, 3], euler_from_matrix(pose[:3, :3])])

    def inverse(self, pose: Float[np.ndarray, "6"], start_rad: Float[np.ndarray, " j"]) -> Float[np.ndarray, " j"]:
        """Joint angles within the limits that reach `pose` as well as possible, near `start_rad`.

        An unreachable pose gives the nearest one found: compare `forward` of the answer where it matters. A start that
        is within tolerance already is returned as it is.
        """
        self._aim(pose)
        self._place(start_rad)
        if self._is_there():
            return np.array(start_rad)
        self._place(np.clip(start_rad, self.low_rad, self.high_rad))
        self._posture.set_target(self._configuration.q)
        for _ in range(self._num_iterations):
            if self._is_there():
                break
            velocity = mink.solve_ik(
                self._configuration, [self._task, self._posture], 1.0, solver="daqp", limits=self._limits
            )
            # Limits are a box: a shortened step stays inside.
            shorter = MAX_STEP_RAD / max(MAX_STEP_RAD, float(np.abs(velocity).max()))
            self._configuration.integrate_inplace(velocity * shorter, 1.0)
        return self._configuration.q[self._columns]

    def reach(self, pose: Float[np.ndarray, "6"]) -> Float[np.ndarray, " j"]:
        """The inverse without a start: from home, then from random postures (always the same) until one arrives."""
        rng = np.random.default_rng(0)
        low, high = np.maximum(self.low_rad, -np.pi), np.minimum(self.high_rad, np.pi)
        start, best, least = np.array(self.arm.home_rad), None, np.inf
        for _ in range(NUM_RESTARTS):
            found = self.inverse(pose, start)
            if self._is_there():
                return found
            error = float(np.linalg.norm(self._task.compute_error(self._configuration) * self._task.cost))
            if best is None or error < least:
                best, least = found, error
            start = rng.uniform(low, high)
        assert best is not None
        return best

    def _place(self, joint_rad: np.ndarray) -> None:
        qpos = self._rest.copy()
        qpos[self._columns] = joint_rad
        self._configuration.update(qpos)

    def _aim(self, pose: np.ndarray) -> None:
        rotation = mink.SO3(quaternion_from_euler(pose[3:]))
        tool = mink.SE3.from_rotation_and_translation(rotation, pose[:3])
        self._task.set_target(self._base @ tool @ self._tool.inverse())

    def _is_there(self) -> bool:
        return bool((np.abs(self._task.compute_error(self._configuration)) < self._tolerance).all())
