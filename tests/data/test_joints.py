"""Measured joints beside states: read from DROID recordings, kept by LeRobot sets, checked like states."""

import json
from pathlib import Path

import numpy as np
import pytest

from simforcing.data.convert import convert
from simforcing.data.folders import read_folder
from simforcing.data.lerobot import extra_columns, read_lerobot
from simforcing.data.lerobot_format import DECLARATION_PATH
from simforcing.data.lerobot_writer import LeRobotWriter
from simforcing.types import LAYOUTS


def test_droid_joints_are_read_beside_the_poses_and_the_robot_is_declared(shared_data: Path) -> None:
    found = read_folder(shared_data / "droid", cameras=("exterior_0",))
    assert found.robot == "panda_robotiq_2f85"
    assert found.joint_layout == LAYOUTS["droid_joint"]
    for episode in found.episodes:
        record = json.loads((shared_data / "droid" / "annotation" / f"{episode.name}.json").read_text())
        np.testing.assert_array_equal(episode.joint, np.array(record["joints"], np.float32))
        assert len(episode.joint) == len(episode.state)


def test_raw_droid_joints_are_every_third_row_with_the_gripper(shared_data: Path) -> None:
    found = read_folder(shared_data / "droid_raw", cameras=("exterior_0",))
    assert found.joint_layout == LAYOUTS["droid_joint"]
    for episode in found.episodes:
        record = json.loads((shared_data / "droid_raw" / "annotation" / f"{episode.name}.json").read_text())
        arm = np.array(record["observation.state.joint_position"], np.float32)[::3]
        np.testing.assert_array_equal(episode.joint[:, :7], arm)
        np.testing.assert_allclose(episode.joint[:, 7], episode.state[:, 6], atol=1e-6)


def test_where_joints_are_the_state_they_are_not_read_twice(shared_data: Path) -> None:
    found = read_folder(shared_data / "droid", layout="droid_joint", cameras=("exterior_0",))
    assert found.joint_layout is None
    assert all(episode.joint is None for episode in found.episodes)


def add(writer: LeRobotWriter, frames: np.ndarray, joint: np.ndarray | None) -> None:
    rows = np.zeros((8, 7), np.float32)
    writer.add(frames={"front": frames}, action=rows, state=rows, joint=joint)


@pytest.mark.parametrize("version", ["v3.0", "v2.1"])
def test_joints_are_written_read_and_kept_by_convert(tmp_path: Path, frames_of, version: str, rng) -> None:
    tabletop, layout = LAYOUTS["tabletop"], LAYOUTS["droid_joint"]
    joints = [rng.uniform(0, 1, (8, 8)).astype(np.float32) for _ in range(2)]
    options = {"action_layout": tabletop, "state_layout": tabletop, "joint_layout": layout, "version": version}
    with LeRobotWriter(tmp_path / "set", fps=5, views={"front": (24, 32)}, **options) as writer:
        for joint in joints:
            add(writer, frames_of(8), joint)
        with pytest.raises(ValueError, match="a joint is given exactly where the set declares a joint layout"):
            add(writer, frames_of(8), None)
    info = json.loads((tmp_path / "set/meta/info.json").read_text())
    assert info["features"]["observation.joint_position"]["names"][-1] == "gripper"
    after = convert(tmp_path / "set", tmp_path / "again", layout=None, version=version, report=lambda line: None)
    for opened in (read_lerobot(tmp_path / "set"), after):
        assert opened.joint_layout == layout
        assert extra_columns(opened.root) == []
        for episode, joint in zip(opened.episodes, joints, strict=True):
            np.testing.assert_array_equal(episode.joint, joint)


def test_joints_outside_their_range_or_of_another_length_reject_the_episode(tmp_path: Path, write_own) -> None:
    def change(index: int, record: dict) -> None:
        record["joints"] = np.full((12, 8), 0.5).tolist()
        if index == 0:
            record["joints"][3][2] = 90.0
        if index == 1:
            record["joints"] = record["joints"][:-1]

    root = write_own(tmp_path / "own", change=change)
    (root / "meta").mkdir()
    declaration = {"action_layout": "tabletop", "joint_layout": "droid_joint"}
    (root / DECLARATION_PATH).write_text(json.dumps(declaration))
    found = read_folder(root)
    assert [episode.joint.shape for episode in found.episodes] == [(12, 8)]
    assert [item.reason for item in found.rejected] == [
        "joint joint[2] of row 3 is 90, layout droid_joint declares -3.8 .. 3.8",
        "joint has 11 rows, state 12; they are measured together",
    ]


def test_a_declared_joint_layout_that_does_not_fit_the_column_is_refused(tmp_path: Path, frames_of) -> None:
    tabletop = LAYOUTS["tabletop"]
    with LeRobotWriter(
        tmp_path / "set", fps=5, views={"front": (24, 32)}, action_layout=tabletop, state_layout=tabletop
    ) as writer:
        add(writer, frames_of(8), None)
    path = tmp_path / "set" / DECLARATION_PATH
    path.write_text(json.dumps(json.loads(path.read_text()) | {"joint_layout": "droid_joint"}))
    with pytest.raises(ValueError, match=r"no feature observation\.joint_position, but a joint layout is declared"):
        read_lerobot(tmp_path / "set")
