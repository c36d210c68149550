"""A robot's MuJoCo model, alone in the world: loaded, checked against its description, and driven by joint positions.

Floors, lights and sky of the file are removed: what is rendered is the robot, under the same light everywhere.
"""

# MuJoCo ships no stubs:
# pyright: reportAttributeAccessIssue=false, reportInvalidTypeForm=false

from dataclasses import dataclass

import mujoco
import numpy as np
from jaxtyping import Float

from simforcing.sim.robot import Arm, Quaternion, Robot
from simforcing.types.layouts import Side

CYLINDER_SLICES = 14  # of primitive shapes, as rendered: enough at video sizes


@dataclass(frozen=True, kw_only=True)
class _ArmIndex:
    """Where an arm lies in the model's vectors."""

    arm: Arm
    joints: np.ndarray
    dofs: np.ndarray
    fingers: np.ndarray
    is_site: bool
    frame: int


class RobotModel:
    """A loaded robot and one state of it (`data`): home with open grippers, until `place` changes it.

    Raises ValueError where the model cannot be read, or lacks a joint, site or body that the description names.
    """

    def __init__(self, robot: Robot) -> None:
        self.robot = robot
        self.model = _compile(robot)
        self.data = mujoco.MjData(self.model)
        self._arms = {arm.side: self._index(arm) for arm in robot.arms}
        self.joint_columns = np.concatenate([index.joints for index in self._arms.values()])
        ranges = self.model.jnt_range[[self.model.joint(name).id for name in robot.joints]]
        limited = self.model.jnt_limited[[self.model.joint(name).id for name in robot.joints]].astype(bool)
        self.low_rad = np.where(limited, ranges[:, 0], -np.inf)
        self.high_rad = np.where(limited, ranges[:, 1], np.inf)
        self._base = 0 if robot.base is None else self._named("body", robot.base)
        self.place(self.configuration(self.home_rad[None], np.ones((1, len(robot.arms))))[0])

    @property
    def num_joints(self) -> int:
        """Arm joints of all arms."""
        return len(self.joint_columns)

    @property
    def home_rad(self) -> Float[np.ndarray, " j"]:
        """The home pose of all arms."""
        return np.concatenate([arm.home_rad for arm in self.robot.arms])

    def arm_columns(self, side: Side) -> np.ndarray:
        """Which of `joint_columns` (and so which columns of `joint_rad` arrays) belong to an arm."""
        return np.flatnonzero(np.isin(self.joint_columns, self._arms[side].joints))

    def arm_dofs(self, side: Side) -> np.ndarray:
        """An arm's columns of MuJoCo's velocity vector and Jacobians."""
        return self._arms[side].dofs

    def frame(self, side: Side) -> tuple[str, int]:
        """("site" or "body", id) of the frame that carries an arm's end effector."""
        index = self._arms[side]
        return "site" if index.is_site else "body", index.frame

    def configuration(
        self, joint_rad: Float[np.ndarray, "f j"], openness: Float[np.ndarray, "f n"]
    ) -> Float[np.ndarray, "f q"]:
        """The model's full position vectors.

        Args:
            joint_rad: positions of all arm joints, arm by arm.
            openness: of every arm's gripper, arm by arm, 0 closed .. 1 open; ignored for a bare arm.
        """
        qpos = np.tile(self.model.qpos0, (len(joint_rad), 1))
        qpos[:, self.joint_columns] = joint_rad
        for column, index in enumerate(self._arms.values()):
            if index.arm.gripper is not None:
                qpos[:, index.fingers] = index.arm.gripper.positions(openness[:, column])
        return qpos

    def place(self, qpos: Float[np.ndarray, " q"]) -> None:
        """Set the state and bring everything that is rendered or measured up to date."""
        self.data.qpos[:] = qpos
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_comPos(self.model, self.data)
        mujoco.mj_camlight(self.model, self.data)

    def tool_pose(self, side: Side) -> Float[np.ndarray, "4 4"]:
        """The end-effector frame in the base frame, in the state last placed: p_base = pose @ p_tool."""
        return np.linalg.inv(self.base_pose()) @ self.frame_pose(side) @ tool_in_frame(self._arms[side].arm)

    def frame_pose(self, side: Side) -> Float[np.ndarray, "4 4"]:
        """The carrying site or body in the world."""
        index = self._arms[side]
        if index.is_site:
            return _pose(self.data.site_xpos[index.frame], self.data.site_xmat[index.frame])
        return _pose(self.data.xpos[index.frame], self.data.xmat[index.frame])

    def base_pose(self) -> Float[np.ndarray, "4 4"]:
        """The base frame in the world."""
        return _pose(self.data.xpos[self._base], self.data.xmat[self._base])

    def _index(self, arm: Arm) -> _ArmIndex:
        joints = [self._named("joint", name) for name in arm.joints]
        for joint, name in zip(joints, arm.joints, strict=True):
            if self.model.jnt_type[joint] != mujoco.mjtJoint.mjJNT_HINGE:
                raise ValueError(f"robot {self.robot.name}: joint {name!r} is no hinge")
        fingers = () if arm.gripper is None else [self._named("joint", name) for name in arm.gripper.joints]
        is_site = mujoco.mj_name2id(self.model, mujoco.mjtObj.mjOBJ_SITE, arm.site) >= 0
        return _ArmIndex(
            arm=arm,
            joints=self.model.jnt_qposadr[joints],
            dofs=self.model.jnt_dofadr[joints],
            fingers=self.model.jnt_qposadr[list(fingers)],
            is_site=is_site,
            frame=self._named("site" if is_site else "body", arm.site),
        )

    def _named(self, kind: str, name: str) -> int:
        id_ = mujoco.mj_name2id(self.model, getattr(mujoco.mjtObj, f"mjOBJ_{kind.upper()}"), name)
        if id_ < 0:
            count = {"joint": self.model.njnt, "body": self.model.nbody, "site": self.model.nsite}[kind]
            known = ", ".join(filter(None, (getattr(self.model, kind)(i).name for i in range(count))))
            raise ValueError(f"robot {self.robot.name}: its model has no {kind} {name!r}; it has: {known or 'none'}")
        return id_


def tool_in_frame(arm: Arm) -> Float[np.ndarray, "4 4"]:
    """The end-effector frame in the frame of the arm's site."""
    matrix = np.empty(9)
    mujoco.mju_quat2Mat(matrix, np.array(arm.tool_quaternion) / np.linalg.norm(arm.tool_quaternion))
    return _pose(np.array(arm.tool_position_m), matrix)


def _pose(position: np.ndarray, matrix: np.ndarray) -> Float[np.ndarray, "4 4"]:
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = matrix.reshape(3, 3), position
    return pose


def _compile(robot: Robot) -> mujoco.MjModel:
    path = robot.model_path()
    try:
        spec = mujoco.MjSpec.from_string(robot.model) if path is None else mujoco.MjSpec.from_file(str(path))
        _strip(spec)
        for name, turn in robot.turned:
            _turn(spec, name, turn)
        return spec.compile()
    except ValueError as error:
        raise ValueError(f"robot {robot.name}: {' '.join(str(error).split())}") from error


def _turn(spec: mujoco.MjSpec, name: str, turn: Quaternion) -> None:
    body = spec.body(name)
    if body is None:
        known = ", ".join(body.name for body in spec.bodies if body.name)
        raise ValueError(f"its model has no body {name!r} to turn; it has: {known}")
    mounted = np.array(body.quat, np.float64)
    mujoco.mju_mulQuat(mounted, mounted / np.linalg.norm(mounted), np.array(turn))
    body.quat = mounted


def _strip(spec: mujoco.MjSpec) -> None:
    """Leave the robot alone, lit by one fixed light and the camera's own, without costly rendering."""
    for geom in list(spec.worldbody.geoms):
        spec.delete(geom)
    for light in list(spec.lights):
        spec.delete(light)
    for texture in list(spec.textures):
        if texture.type == mujoco.mjtTexture.mjTEXTURE_SKYBOX:
            spec.delete(texture)
    light = spec.worldbody.add_light(type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL, dir=[-0.4, 0.3, -1.0])
    light.castshadow, light.diffuse, light.ambient, light.specular = False, [0.5] * 3, [0.35] * 3, [0.1] * 3
    visual = spec.visual
    visual.headlight.diffuse, visual.headlight.ambient, visual.headlight.specular = [0.3] * 3, [0.1] * 3, [0.0] * 3
    visual.quality.shadowsize, visual.quality.offsamples, visual.quality.numslices = 0, 0, CYLINDER_SLICES
