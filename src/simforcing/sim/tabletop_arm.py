"""The tabletop arm: six joints with the proportions of a WidowX 250s, a two-finger gripper, primitive shapes only.

Its description and its MJCF fragments; scenes put it on a table.
"""

from simforcing.sim.robot import Arm, Gripper, Robot

# End-effector frame between the finger tips. Its z axis points against the approach direction, so that
# roll = pitch = yaw = 0 is a gripper that points straight down with the fingers opening along the base's y.
SITE = "end_effector"
FINGERS = ("left_finger", "right_finger")
RANGES_RAD: dict[str, tuple[float, float]] = {
    "waist": (-3.14, 3.14),
    "shoulder": (-1.88, 1.99),
    "elbow": (-2.15, 1.61),
    "forearm_roll": (-3.14, 3.14),
    "wrist_angle": (-1.75, 2.15),
    "wrist_rotate": (-3.14, 3.14),
}


def _hinge(joint: str, axis: str) -> str:
    low, high = RANGES_RAD[joint]
    return f'<joint name="{joint}" axis="{axis}" range="{low} {high}" class="arm"/>'


def _finger(name: str, side: int) -> str:
    return f"""
    <body name="{name}" pos="0.075 0 0" gravcomp="1">
      <joint name="{name}" type="slide" axis="0 {side} 0" range="0 0.039" class="finger"/>
      <geom type="box" size="0.012 0.006 0.013" pos="0.002 {side * 0.012} 0" class="hand" material="joint" mass="0.01"/>
      <geom type="box" size="0.028 0.005 0.009" pos="0.038 {side * 0.005} 0" class="finger_pad" mass="0.02"/>
    </body>"""


BODY = f"""
<body name="base" gravcomp="1">
  <geom type="box" size="0.085 0.07 0.012" pos="-0.01 0 0.012" class="link" material="joint"/>
  <geom type="cylinder" size="0.05 0.03" pos="0 0 0.045" class="link" material="link"/>
  <body name="shoulder_link" pos="0 0 0.075" gravcomp="1">
    {_hinge("waist", "0 0 1")}
    <geom type="cylinder" size="0.043 0.016" pos="0 0 0.012" class="link" material="joint"/>
    <geom type="box" size="0.03 0.042 0.026" pos="0 0 0.034" class="link" material="link"/>
    <body name="upper_arm" pos="0 0 0.0365" gravcomp="1">
      {_hinge("shoulder", "0 1 0")}
      <geom type="cylinder" size="0.031" fromto="0 -0.05 0 0 0.05 0" class="link" material="joint"/>
      <geom type="capsule" size="0.026" fromto="0.003 0 0.02 0.036 0 0.235" class="link" material="link"/>
      <body name="forearm" pos="0.05 0 0.25" gravcomp="1">
        {_hinge("elbow", "0 1 0")}
        <geom type="cylinder" size="0.03" fromto="0 -0.044 0 0 0.044 0" class="link" material="joint"/>
        <geom type="capsule" size="0.023" fromto="0 0 0 0.14 0 0" class="link" material="link"/>
        <body name="lower_forearm" pos="0.16 0 0" gravcomp="1">
          {_hinge("forearm_roll", "1 0 0")}
          <geom type="cylinder" size="0.025" fromto="-0.008 0 0 0.012 0 0" class="link" material="joint"/>
          <geom type="capsule" size="0.021" fromto="0.01 0 0 0.075 0 0" class="link" material="link"/>
          <body name="wrist" pos="0.09 0 0" gravcomp="1">
            {_hinge("wrist_angle", "0 1 0")}
            <geom type="cylinder" size="0.024" fromto="0 -0.034 0 0 0.034 0" class="link" material="joint"/>
            <geom type="capsule" size="0.02" fromto="0 0 0 0.04 0 0" class="link" material="link"/>
            <body name="hand" pos="0.055 0 0" gravcomp="1">
              {_hinge("wrist_rotate", "1 0 0")}
              <geom type="cylinder" size="0.026" fromto="0 0 0 0.02 0 0" class="link" material="joint"/>
              <geom type="box" size="0.02 0.05 0.018" pos="0.045 0 0" class="hand" material="hand" mass="0.15"/>
              <site name="{SITE}" pos="0.128 0 0" quat="0.70710678 0 -0.70710678 0"/>
              {_finger(FINGERS[0], 1)}
              {_finger(FINGERS[1], -1)}
            </body>
          </body>
        </body>
      </body>
    </body>
  </body>
</body>"""


# Stiff position servos with gravity compensated: the measured pose trails the command by a few millimetres, as real
# hobby servos do, without the droop that would make the command meaningless.
DEFAULTS = """
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


# Joints in order, then the two fingers; controls are joint positions.
ACTUATORS = (
    "<actuator>"
    + "".join(f'<position class="arm" joint="{joint}"/>' for joint in RANGES_RAD)
    + "".join(f'<position class="finger" joint="{finger}"/>' for finger in FINGERS)
    + "</actuator>"
)
# The finger pads meet by their joint limits, not by contact.
CONTACTS = f'<contact><exclude body1="{FINGERS[0]}" body2="{FINGERS[1]}"/></contact>'

COLOURS = {"link": (0.92, 0.91, 0.88), "joint": (0.17, 0.19, 0.23), "hand": (0.95, 0.5, 0.12)}
SPECULAR = {"link": (0.2, 0.3), "joint": (0.3, 0.4), "hand": (0.2, 0.3)}  # and shininess


def materials(texture: str | None = None) -> str:
    """The arm's materials, with a texture of that name over their colours where given."""
    return "".join(
        f'<material name="{name}" rgba="{" ".join(map(str, colour))} 1" specular="{SPECULAR[name][0]}"'
        f' shininess="{SPECULAR[name][1]}"' + (f' texture="{texture}"/>' if texture else "/>")
        for name, colour in COLOURS.items()
    )


TABLETOP_ARM = Robot(
    name="tabletop_arm",
    model=(
        f'<mujoco model="tabletop_arm"><compiler autolimits="true" angle="radian"/>{DEFAULTS}'
        f"<asset>{materials()}</asset><worldbody>{BODY}</worldbody>{CONTACTS}{ACTUATORS}</mujoco>"
    ),
    arms=(
        Arm(
            joints=tuple(RANGES_RAD),
            home_rad=(0.0, -0.15, 0.35, 0.0, 1.37, 0.0),
            site=SITE,
            gripper=Gripper(joints=FINGERS, closed=(0.001, 0.001), opened=(0.038, 0.038)),
        ),
    ),
    layouts=("tabletop",),
    table_height_m=0.0,
)
