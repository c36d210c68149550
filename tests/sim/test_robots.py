"""Robots by name: their tool frames equal what data sets recorded, and what is missing is said in one line."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.spatial.transform import Rotation

from simforcing.sim import robots
from simforcing.sim.kinematics import Kinematics
from simforcing.sim.model import RobotModel
from simforcing.sim.provenance import provenance_of
from simforcing.sim.robots import ROBOTS, robot_named


def test_unknown_robot_lists_the_choices():
    with pytest.raises(ValueError, match=r"unknown robot 'panda'; choices: .*panda_robotiq_2f85"):
        robot_named("panda")


@pytest.mark.parametrize("name", sorted(set(ROBOTS) - {"tabletop_arm"}))
def test_missing_model_file_is_one_line_that_says_how_to_get_it(name: str, tmp_path: Path):
    for path in (tmp_path, tmp_path / "absent.xml"):
        with pytest.raises(ValueError, match=f"^robot {name}: no model file .*get it: ") as error:
            RobotModel(robot_named(name, path))
        assert str(path) in str(error.value)
        assert "\n" not in str(error.value)


def test_builtin_robot_takes_no_path(tmp_path: Path):
    with pytest.raises(ValueError, match="takes no path"):
        robot_named("tabletop_arm", tmp_path)


def test_model_is_found_in_the_folder_of_the_environment_variable(
    widowx: RobotModel, shared_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(robots.ROBOTS_FOLDER_VARIABLE, str(shared_dir / "robots"))
    assert RobotModel(robot_named("widowx_250s")).num_joints == widowx.num_joints


def test_model_is_found_at_a_file_its_folder_or_the_folder_above(shared_dir: Path, widowx: RobotModel):
    folder = shared_dir / "robots" / "trossen_wx250s"
    for path in (folder / "wx250s.xml", folder, folder.parent):
        model = robot_named("widowx_250s", path).model
        assert callable(model)
        assert model() == folder / "wx250s.xml"


def test_model_of_a_package_is_found_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "gym_hil" / "assets" / "panda.xml"
    file.parent.mkdir(parents=True)
    file.write_text("<mujoco/>")
    (tmp_path / "gym_hil" / "__init__.py").write_text("raise ImportError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv(robots.ROBOTS_FOLDER_VARIABLE, raising=False)
    model = robot_named("panda_robotiq_2f85").model
    assert callable(model)
    assert model() == file


def test_model_is_found_where_robot_descriptions_keeps_menagerie_after_the_users_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for root in ("cache/mujoco_menagerie", "own"):
        (tmp_path / root / "aloha").mkdir(parents=True)
        (tmp_path / root / "aloha" / "aloha.xml").write_text("<mujoco/>")
    monkeypatch.setenv("ROBOT_DESCRIPTIONS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(robots.ROBOTS_FOLDER_VARIABLE, raising=False)
    model = robot_named("aloha").model
    assert callable(model)
    assert model() == tmp_path / "cache" / "mujoco_menagerie" / "aloha" / "aloha.xml"
    monkeypatch.setenv(robots.ROBOTS_FOLDER_VARIABLE, str(tmp_path / "own"))
    assert model() == tmp_path / "own" / "aloha" / "aloha.xml"


def test_aloha_drives_a_model_with_its_names(two_arms: RobotModel, tmp_path: Path):
    """Our two-armed model under ALOHA's names: both arms and all four fingers are found and moved."""
    assert isinstance(two_arms.robot.model, str)
    (tmp_path / "aloha.xml").write_text(two_arms.robot.model.replace("/end_effector", "/gripper"))
    aloha = RobotModel(robot_named("aloha", tmp_path))
    rng = np.random.default_rng(0)
    joint_rad = rng.uniform(-0.3, 0.3, (1, 12))
    qpos = aloha.configuration(joint_rad, np.array([[0.0, 1.0]]))[0]
    assert qpos[aloha.model.joint("left/waist").qposadr[0]] == joint_rad[0, 0]
    assert qpos[aloha.model.joint("right/wrist_rotate").qposadr[0]] == joint_rad[0, 11]
    assert qpos[aloha.model.joint("left/right_finger").qposadr[0]] == 0.002
    assert qpos[aloha.model.joint("right/left_finger").qposadr[0]] == 0.037


def test_widowx_tool_frame_is_bridges(widowx: RobotModel):
    """R_gripper_link = euler(rpy) @ [[0,0,1],[0,1,0],[-1,0,0]], the point 93.575 mm along its x."""
    rng = np.random.default_rng(0)
    for joint_rad in rng.uniform(np.maximum(widowx.low_rad, -1.5), np.minimum(widowx.high_rad, 1.5), (20, 6)):
        widowx.place(widowx.configuration(joint_rad[None], np.ones((1, 1)))[0])
        tool, frame = widowx.tool_pose("single"), widowx.frame_pose("single")
        turn = np.array([[0.0, 0, 1], [0, 1, 0], [-1, 0, 0]])
        np.testing.assert_allclose(tool[:3, :3] @ turn, frame[:3, :3], atol=1e-9)
        np.testing.assert_allclose(tool[:3, 3], frame[:3, 3] + 0.093575 * frame[:3, 0], atol=1e-9)


def test_panda_tool_pose_from_recorded_joints_is_the_recorded_state(panda: RobotModel, shared_data: Path):
    files = sorted((shared_data / "droid" / "annotation").rglob("*.json"))
    if not files:
        pytest.skip("no DROID annotations")
    for file in files:
        record = json.loads(file.read_text())
        joints, states = np.array(record["joints"]), np.array(record["states"])
        for joint_rad, state in zip(joints[::10, :7], states[::10], strict=True):
            panda.place(panda.configuration(joint_rad[None], np.ones((1, 1)))[0])
            pose = panda.tool_pose("single")
            np.testing.assert_allclose(pose[:3, 3], state[:3], atol=1e-6)
            difference = Rotation.from_matrix(pose[:3, :3]) * Rotation.from_euler("xyz", state[3:6]).inv()
            assert difference.magnitude() < 1e-4


def test_fingers_of_the_2f85_close_to_touching_and_stay_parallel(panda: RobotModel):
    """Measured as the rendered pads: gap 85 mm open, none closed, and couplings that hold together in between."""
    model, data = panda.model, panda.data
    for openness in np.linspace(0, 1, 11):
        panda.place(panda.configuration(panda.home_rad[None], np.array([[openness]]))[0])
        pads = [model.geom(f"{side}_pad1").id for side in ("left", "right")]
        across = data.geom_xmat[pads[0]].reshape(3, 3)[:, 1]
        inner = [
            data.geom_xpos[pad] - model.geom_size[pad][1] * data.geom_xmat[pad].reshape(3, 3)[:, 1] for pad in pads
        ]
        gap_m = abs((inner[1] - inner[0]) @ across)
        assert abs(gap_m - 0.085 * openness) < 0.004
        assert data.geom_xmat[pads[1]].reshape(3, 3)[:, 1] @ across < -0.9999
        for i in range(2):  # the two closed loops: follower and coupler meet
            bodies = model.eq_obj1id[i], model.eq_obj2id[i]
            anchors = model.eq_data[i][:3], model.eq_data[i][3:6]
            ends = [data.xpos[b] + data.xmat[b].reshape(3, 3) @ a for b, a in zip(bodies, anchors, strict=True)]
            assert np.linalg.norm(ends[1] - ends[0]) < 0.0003


@pytest.mark.parametrize("robot", ["widowx", "panda"])
def test_home_is_within_limits_and_above_the_table(robot: str, request: pytest.FixtureRequest):
    model: RobotModel = request.getfixturevalue(robot)
    assert (model.home_rad > model.low_rad).all()
    assert (model.home_rad < model.high_rad).all()
    model.place(model.configuration(model.home_rad[None], np.ones((1, 1)))[0])
    assert 0.1 < model.tool_pose("single")[2, 3] < 0.6


PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def documented(project_root: Path, tmp_path: Path) -> Path:
    """The description in docs/robots.md, as a file."""
    path = tmp_path / "my_arm.py"
    path.write_text(PYTHON.findall((project_root / "docs" / "robots.md").read_text())[0])
    return path


def test_described_robot_of_the_document_reaches_about_its_workspace(documented: Path):
    robot = RobotModel(robot_named("my_arm", documented))
    kinematics, rng = Kinematics(robot), np.random.default_rng(0)
    for _ in range(20):
        pose = kinematics.forward(robot.home_rad + rng.uniform(-0.4, 0.4, 6))
        np.testing.assert_allclose(kinematics.forward(kinematics.reach(pose))[:3], pose[:3], atol=2e-4)
    robot.place(robot.configuration(robot.home_rad[None], np.ones((1, 1)))[0])
    assert robot.tool_pose("single")[2, 2] < -0.99  # home points down


def test_the_documents_program_shows_the_gripper_closed_and_open(documented: Path, project_root: Path):
    program = PYTHON.findall((project_root / "docs" / "robots.md").read_text())[1]
    done = subprocess.run([sys.executable, "-c", program], cwd=documented.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    closed, opened = (np.asarray(Image.open(documented.parent / f"{name}.png")) for name in ("closed", "open"))
    assert (closed != 200).any(axis=2).mean() > 0.02
    assert 20 < (closed != opened).any(axis=2).sum() < 4000


OTHER_MODEL = """
import sys
from dataclasses import replace
from simforcing.sim.tabletop_arm import TABLETOP_ARM
ROBOT = replace(TABLETOP_ARM, name="my_arm", model={model})
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import absent_module", "ModuleNotFoundError: No module named 'absent_module'"),
        ("ROBOT = 3", "expected a Robot named ROBOT, found 3"),
        ("x = 1", "expected a Robot named ROBOT, found None"),
        ("from simforcing.sim.tabletop_arm import TABLETOP_ARM as ROBOT", "describes robot tabletop_arm, not my_arm"),
        ("import sys; sys.exit(0)", "my_arm.py: SystemExit: 0"),
        ("raise KeyboardInterrupt", "my_arm.py: KeyboardInterrupt"),
    ],
)
def test_file_that_describes_no_such_robot_is_one_line(text: str, said: str, tmp_path: Path):
    path = tmp_path / "my_arm.py"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(said)) as error:
        robot_named("my_arm", path)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=r"^robot file .*absent\.py: FileNotFoundError"):
        robot_named("my_arm", tmp_path / "absent.py")


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("lambda: 1 / 0", "robot my_arm: its model function: ZeroDivisionError: division by zero"),
        ("lambda: 5", "robot my_arm: its model function: TypeError: "),
        ("lambda: sys.exit(0)", "robot my_arm: its model function: SystemExit: 0"),
        ("lambda: absent_name", "robot my_arm: its model function: NameError: "),
    ],
)
def test_a_model_function_that_fails_is_one_line(model: str, said: str, tmp_path: Path):
    path = tmp_path / "my_arm.py"
    path.write_text(OTHER_MODEL.format(model=model))
    robot = robot_named("my_arm", path)
    for read in (RobotModel, provenance_of):
        with pytest.raises(ValueError, match=f"^{re.escape(said)}") as error:
            read(robot)
        assert "\n" not in str(error.value)


def test_a_model_that_is_neither_text_nor_function_is_one_line(tmp_path: Path):
    path = tmp_path / "my_arm.py"
    path.write_text(OTHER_MODEL.format(model="5"))  # in a process without checks of types, as users have it
    program = f"""
from pathlib import Path
from simforcing.sim.robots import robot_named
try:
    robot_named("my_arm", Path({str(path)!r}))
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    said = "robot my_arm: model 5; expected MJCF text, or a function that finds the file"
    assert done.stdout == f"robot file {path}: ValueError: {said}\n", done.stderr
