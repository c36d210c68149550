"""A model's fingerprint: the same wherever its files lie, another one with every change that could be seen."""

import shutil
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest

from simforcing.sim.model import RobotModel
from simforcing.sim.provenance import model_fingerprint, provenance_of
from simforcing.sim.robot import Arm, Robot
from simforcing.sim.tabletop_arm import TABLETOP_ARM

MESH = "v 0 0 0\nv 0.1 0 0\nv 0 0.1 0\nv 0 0 {height}\nf 1 3 2\nf 1 2 4\nf 2 3 4\nf 3 1 4\n"
MJCF = """<mujoco><asset><mesh file="part.obj"/></asset><worldbody><body><joint name="turn"/>
  <geom type="mesh" mesh="part" rgba="{colour} 0 0 1"/><site name="tool"/></body></worldbody></mujoco>"""


def described(folder: Path, *, height: float = 0.1, colour: float = 1) -> Robot:
    folder.mkdir()
    (folder / "part.obj").write_text(MESH.format(height=height))
    (folder / "robot.xml").write_text(MJCF.format(colour=colour))
    arm = Arm(joints=("turn",), home_rad=(0.0,), site="tool")
    return Robot(name="one mesh", model=lambda: folder / "robot.xml", arms=(arm,))


def test_a_models_files_may_lie_anywhere_but_not_change(tmp_path: Path):
    here = provenance_of(described(tmp_path / "here"))
    there = provenance_of(described(tmp_path / "quite_somewhere_else"))
    assert here.decisive == there.decisive
    assert here.model_path == str(tmp_path / "here" / "robot.xml")
    assert here.mujoco == mujoco.__version__
    assert here.gl
    changed = (described(tmp_path / "higher", height=0.11), described(tmp_path / "darker", colour=0.5))
    assert len({here.model, *(provenance_of(robot).model for robot in changed)}) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"turned": (("upper_arm", (0.0, 0.0, 0.0, 1.0)),)},
        {"table_height_m": 0.01},
        {"arms": (replace(TABLETOP_ARM.arms[0], tool_position_m=(0.0, 0.0, 0.1)),)},
    ],
)
def test_the_description_counts(change: dict):
    changed = {key: value for key, value in change.items() if key != "turned"}
    if "turned" in change:
        body = RobotModel(TABLETOP_ARM).model.body(2).name
        changed["turned"] = ((body, change["turned"][0][1]),)
    assert model_fingerprint(RobotModel(replace(TABLETOP_ARM, **changed))) != model_fingerprint(
        RobotModel(TABLETOP_ARM)
    )


@pytest.mark.parametrize("array", ["geom_size", "light_diffuse", "jnt_range", "geom_rgba"])
def test_every_array_counts_and_so_do_visual_settings(array: str):
    before = model_fingerprint(RobotModel(TABLETOP_ARM))
    robot = RobotModel(TABLETOP_ARM)
    assert model_fingerprint(robot) == before
    values: np.ndarray = getattr(robot.model, array)
    values[0] += 0.01
    assert model_fingerprint(robot) != before
    robot = RobotModel(TABLETOP_ARM)
    robot.model.vis.headlight.diffuse[0] += 0.1
    assert model_fingerprint(robot) != before


def test_two_readings_of_a_real_model_agree(widowx: RobotModel, tmp_path: Path, shared_dir: Path):
    from simforcing.sim.robots import robot_named

    copy = tmp_path / "copy"
    shutil.copytree(shared_dir / "robots" / "trossen_wx250s", copy)
    assert model_fingerprint(RobotModel(robot_named("widowx_250s", copy))) == model_fingerprint(
        RobotModel(widowx.robot)
    )
