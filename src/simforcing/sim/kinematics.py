"""Forward and inverse kinematics of an arm by damped least squares; a pose is xyz (m) and extrinsic xyz Euler (rad).

With e = (p - p_hat, log(R R_hat^T)): dq = J^T (J J^T + damping^2 I)^-1 e, clipped to the joint limits.
"""

# MuJoCo ships no stubs:
# pyright: reportAttributeAccessIssue=false, reportInvalidTypeForm=false

import mujoco
import numpy as np
from jaxtyping import Float

from simforcing.sim.model import RobotModel
from simforcing.sim.robot import Robot

POSITION_TOLERANCE_M = 1e-4
ROTATION_TOLERANCE_RAD = 1e-3


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


class Kinematics:
    """Kinematics of one arm, on a model of the arm alone: scenes and their state are never touched."""

    def __init__(self, robot: Robot, *, num_iterations: int = 60, damping: float = 0.02) -> None:
        self.robot = robot
        self._num_iterations = num_iterations
        self._damping = damping
        loaded = RobotModel(robot)
        self._model, self._data = loaded.model, loaded.data
        self._site = self._model.site(robot.arms[0].site).id
        self._columns = loaded.joint_columns
        self._low, self._high = loaded.low_rad, loaded.high_rad

    def forward(self, joint_rad: Float[np.ndarray, " j"]) -> Float[np.ndarray, "6"]:
        """Joint angles -> end-effector pose in the base frame."""
        self._place(joint_rad)
        return site_pose(self._data, self._site)

    def inverse(self, pose: Float[np.ndarray, "6"], start_rad: Float[np.ndarray, " j"]) -> Float[np.ndarray, " j"]:
        """Joint angles within the limits that reach `pose` as well as possible, near `start_rad`.

        An unreachable pose gives the nearest one found: compare `forward` of the answer where it matters.
        """
        quaternion = quaternion_from_euler(pose[3:])
        joint_rad = np.clip(start_rad, self._low, self._high)
        damping = self._damping**2 * np.eye(6)
        for _ in range(self._num_iterations):
            self._place(joint_rad)
            error = self._error(pose[:3], quaternion)
            if np.abs(error[:3]).max() < POSITION_TOLERANCE_M and np.abs(error[3:]).max() < ROTATION_TOLERANCE_RAD:
                break
            jacobian = self._jacobian()
            change = jacobian.T @ np.linalg.solve(jacobian @ jacobian.T + damping, error)
            joint_rad = np.clip(joint_rad + np.clip(change, -0.4, 0.4), self._low, self._high)
        return joint_rad

    def follow(self, poses: Float[np.ndarray, "k 6"], start_rad: Float[np.ndarray, " j"]) -> Float[np.ndarray, "k j"]:
        """Joint angles along a sequence of poses, each solved from the one before."""
        path = []
        for pose in poses:
            start_rad = self.inverse(pose, start_rad)
            path.append(start_rad)
        return np.array(path).reshape(len(poses), len(self._columns))

    def _place(self, joint_rad: np.ndarray) -> None:
        self._data.qpos[self._columns] = joint_rad
        mujoco.mj_kinematics(self._model, self._data)

    def _error(self, position: np.ndarray, quaternion: np.ndarray) -> np.ndarray:
        current, difference, rotation = np.empty(4), np.empty(4), np.empty(3)
        mujoco.mju_mat2Quat(current, self._data.site_xmat[self._site])
        mujoco.mju_negQuat(current, current)
        mujoco.mju_mulQuat(difference, quaternion, current)
        mujoco.mju_quat2Vel(rotation, difference, 1.0)
        return np.concatenate([position - self._data.site_xpos[self._site], rotation])

    def _jacobian(self) -> np.ndarray:
        jacobian = np.empty((6, self._model.nv))
        mujoco.mj_comPos(self._model, self._data)
        mujoco.mj_jacSite(self._model, self._data, jacobian[:3], jacobian[3:], self._site)
        return jacobian[:, self._columns]
