"""The tabletop arm: six joints with the proportions of a WidowX 250s, a two-finger gripper, primitive shapes only.

A description and its MJCF fragments; scenes put it on a table, `kinematics` solves for its joints.
"""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

Number = TypeVar("Number", float, np.ndarray)


@dataclass(frozen=True, kw_only=True)
class Robot:
    """What the rest of the simulator must know about an arm.

    Args:
        joints: names of the arm's hinge joints, base to wrist.
        low_rad, high_rad: their limits.
        home_rad: a pose with the gripper pointing down in the middle of the workspace; inverse kinematics starts there.
        fingers: names of the two slide joints.
        finger_closed_m, finger_open_m: their travel from the middle.
        site: end-effector frame between the finger tips. Its z axis points against the approach direction, so that
            roll = pitch = yaw = 0 is a gripper that points straight down with the fingers opening along the base's y.
    """

    name: str
    joints: tuple[str, ...]
    low_rad: tuple[float, ...]
    high_rad: tuple[float, ...]
    home_rad: tuple[float, ...]
    fingers: tuple[str, str]
    finger_closed_m: float
    finger_open_m: float
    site: str

    def finger_from_gripper(self, gripper: Number) -> Number:
        """Gripper fraction (0 closed .. 1 open) -> travel of each finger in m."""
        return self.finger_closed_m + gripper * (self.finger_open_m - self.finger_closed_m)

    def gripper_from_finger(self, finger_m: Number) -> Number:
        """The inverse; a finger pressed beyond its stop reads slightly outside 0 .. 1."""
        return (finger_m - self.finger_closed_m) / (self.finger_open_m - self.finger_closed_m)


TABLETOP_ARM = Robot(
    name="tabletop_arm",
    joints=("waist", "shoulder", "elbow", "forearm_roll", "wrist_angle", "wrist_rotate"),
    low_rad=(-3.14, -1.88, -2.15, -3.14, -1.75, -3.14),
    high_rad=(3.14, 1.99, 1.61, 3.14, 2.15, 3.14),
    home_rad=(0.0, -0.15, 0.35, 0.0, 1.37, 0.0),
    fingers=("left_finger", "right_finger"),
    finger_closed_m=0.001,
    finger_open_m=0.038,
    site="end_effector",
)


def _hinge(robot: Robot, index: int, axis: str) -> str:
    low, high = robot.low_rad[index], robot.high_rad[index]
    return f'<joint name="{robot.joints[index]}" axis="{axis}" range="{low} {high}" class="arm"/>'


def _finger(robot: Robot, index: int, side: int) -> str:
    name = robot.fingers[index]
    return f"""
    <body name="{name}" pos="0.075 0 0" gravcomp="1">
      <joint name="{name}" type="slide" axis="0 {side} 0" range="0 0.039" class="finger"/>
      <geom type="box" size="0.012 0.006 0.013" pos="0.002 {side * 0.012} 0" class="hand" material="joint" mass="0.01"/>
      <geom type="box" size="0.028 0.005 0.009" pos="0.038 {side * 0.005} 0" class="finger_pad" mass="0.02"/>
    </body>"""


def arm_body(robot: Robot) -> str:
    """MJCF of the arm, its base at the origin of the parent body."""
    return f"""
<body name="base" gravcomp="1">
  <geom type="box" size="0.085 0.07 0.012" pos="-0.01 0 0.012" class="link" material="joint"/>
  <geom type="cylinder" size="0.05 0.03" pos="0 0 0.045" class="link" material="link"/>
  <body name="shoulder_link" pos="0 0 0.075" gravcomp="1">
    {_hinge(robot, 0, "0 0 1")}
    <geom type="cylinder" size="0.043 0.016" pos="0 0 0.012" class="link" material="joint"/>
    <geom type="box" size="0.03 0.042 0.026" pos="0 0 0.034" class="link" material="link"/>
    <body name="upper_arm" pos="0 0 0.0365" gravcomp="1">
      {_hinge(robot, 1, "0 1 0")}
      <geom type="cylinder" size="0.031" fromto="0 -0.05 0 0 0.05 0" class="link" material="joint"/>
      <geom type="capsule" size="0.026" fromto="0.003 0 0.02 0.036 0 0.235" class="link" material="link"/>
      <body name="forearm" pos="0.05 0 0.25" gravcomp="1">
        {_hinge(robot, 2, "0 1 0")}
        <geom type="cylinder" size="0.03" fromto="0 -0.044 0 0 0.044 0" class="link" material="joint"/>
        <geom type="capsule" size="0.023" fromto="0 0 0 0.14 0 0" class="link" material="link"/>
        <body name="lower_forearm" pos="0.16 0 0" gravcomp="1">
          {_hinge(robot, 3, "1 0 0")}
          <geom type="cylinder" size="0.025" fromto="-0.008 0 0 0.012 0 0" class="link" material="joint"/>
          <geom type="capsule" size="0.021" fromto="0.01 0 0 0.075 0 0" class="link" material="link"/>
          <body name="wrist" pos="0.09 0 0" gravcomp="1">
            {_hinge(robot, 4, "0 1 0")}
            <geom type="cylinder" size="0.024" fromto="0 -0.034 0 0 0.034 0" class="link" material="joint"/>
            <geom type="capsule" size="0.02" fromto="0 0 0 0.04 0 0" class="link" material="link"/>
            <body name="hand" pos="0.055 0 0" gravcomp="1">
              {_hinge(robot, 5, "1 0 0")}
              <geom type="cylinder" size="0.026" fromto="0 0 0 0.02 0 0" class="link" material="joint"/>
              <geom type="box" size="0.02 0.05 0.018" pos="0.045 0 0" class="hand" material="hand" mass="0.15"/>
              <site name="{robot.site}" pos="0.128 0 0" quat="0.70710678 0 -0.70710678 0"/>
              {_finger(robot, 0, 1)}
              {_finger(robot, 1, -1)}
            </body>
          </body>
        </body>
      </body>
    </body>
  </body>
</body>"""


# Stiff position servos with gravity compensated: the measured pose trails the command by a few millimetres, as real
# hobby servos do, without the droop that would make the command meaningless.
ARM_DEFAULTS = """
<default>
  <default class="arm">
    <joint type="hinge" damping="2" armature="0.05"/>
    <position kp="350" kv="14" forcerange="-40 40"/>
  </default>
  <default class="finger">
    <joint damping="4" armature="0.05"/>
    <position kp="900" kv="20" forcerange="-12 12"/>
  </default>
  <default class="link"><geom contype="0" conaffinity="0" density="600"/></default>
  <default class="hand"><geom condim="3" friction="0.6 0.01 0.001"/></default>
  <default class="finger_pad">
    <geom condim="4" friction="2.0 0.05 0.001" material="hand" priority="1"/>
  </default>
</default>"""


def arm_actuators(robot: Robot) -> str:
    """MJCF actuators: joints in order, then the two fingers; their controls are joint positions."""
    arm = "".join(f'<position class="arm" joint="{joint}"/>' for joint in robot.joints)
    fingers = "".join(f'<position class="finger" joint="{joint}"/>' for joint in robot.fingers)
    return f"<actuator>{arm}{fingers}</actuator>"


def arm_contacts(robot: Robot) -> str:
    """The finger pads meet by their joint limits, not by contact."""
    left, right = robot.fingers
    return f'<contact><exclude body1="{left}" body2="{right}"/></contact>'


ARM_MATERIALS = """
<material name="link" rgba="0.92 0.91 0.88 1" specular="0.2" shininess="0.3"/>
<material name="joint" rgba="0.17 0.19 0.23 1" specular="0.3" shininess="0.4"/>
<material name="hand" rgba="0.95 0.5 0.12 1" specular="0.2" shininess="0.3"/>"""


def arm_mjcf(robot: Robot) -> str:
    """The arm alone, for kinematics."""
    return (
        f'<mujoco model="{robot.name}"><compiler autolimits="true" angle="radian"/>{ARM_DEFAULTS}'
        f"<asset>{ARM_MATERIALS}</asset><worldbody>{arm_body(robot)}</worldbody>"
        f"{arm_contacts(robot)}{arm_actuators(robot)}</mujoco>"
    )
