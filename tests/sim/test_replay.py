"""Replay: joints are exact, states are reached, actions lead from a start, and what does not fit is refused by name."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simforcing.data.open import open_dataset
from simforcing.sim.kinematics import Kinematics
from simforcing.sim.model import RobotModel
from simforcing.sim.replay import Layouts, TrackingLimits, replay
from simforcing.sim.tabletop_arm import TABLETOP_ARM
from simforcing.types import LAYOUTS, Episode, EpisodeSet, Layout, Part
from simforcing.types.layouts import Side

POSES = Layouts(action=LAYOUTS["tabletop"], state=LAYOUTS["tabletop"])
FPS = 5.0
NUM_FRAMES = 12


@pytest.fixture(scope="module")
def robot() -> RobotModel:
    return RobotModel(TABLETOP_ARM)


@pytest.fixture(scope="module")
def motion(robot: RobotModel) -> np.ndarray:
    """Joints along a smooth motion about home."""
    phase = np.linspace(0, 1, NUM_FRAMES)[:, None]
    return robot.home_rad + 0.3 * np.sin(phase * np.arange(1, 7)) * np.array([1, 1, -1, 1, -1, 1])


@pytest.fixture(scope="module")
def states(motion: np.ndarray) -> np.ndarray:
    kinematics = Kinematics(TABLETOP_ARM)
    openness = np.linspace(1, 0, NUM_FRAMES)
    return np.array([[*kinematics.forward(row), o] for row, o in zip(motion, openness, strict=True)])


def episode_of(*, action: np.ndarray | None = None, state: np.ndarray | None = None, rate_hz: float = FPS) -> Episode:
    rows = np.zeros((0, 7)) if action is None else action
    return Episode(
        name="e7",
        task="",
        fps=FPS,
        num_frames=NUM_FRAMES,
        views=(),
        action=rows,
        action_time_s=np.arange(len(rows)) / rate_hz,
        state=state,
        state_time_s=None if state is None else np.arange(len(state)) / rate_hz,
    )


def test_states_are_reached(robot: RobotModel, states: np.ndarray, motion: np.ndarray):
    found = replay(robot, episode_of(state=states), POSES)
    assert found.source == "states"
    assert found.position_error_m.max() < 1e-5
    assert found.rotation_error_rad.max() < 1e-4
    np.testing.assert_allclose(found.joint_rad, motion, atol=1e-3)  # six joints: near home the way is unique
    np.testing.assert_allclose(found.openness[:, 0], states[:, 6])


def test_action_i_leads_to_frame_i_plus_1(robot: RobotModel, states: np.ndarray):
    actions = states[1:]
    found = replay(robot, episode_of(action=actions), POSES)
    assert found.source == "actions"
    reached = np.array([Kinematics(TABLETOP_ARM).forward(row) for row in found.joint_rad])
    np.testing.assert_allclose(reached[1:, :3], actions[:, :3], atol=1e-5)
    np.testing.assert_allclose(reached[0, :3], actions[0, :3], atol=1e-5)  # the start is not known


def test_absolute_actions_start_where_they_are_told(robot: RobotModel, states: np.ndarray, motion: np.ndarray):
    found = replay(robot, episode_of(action=states[1:]), POSES, start_rad=motion[0])
    np.testing.assert_allclose(found.joint_rad, motion, atol=1e-3)


@pytest.mark.parametrize("is_start_given", [True, False])
def test_increments_are_added_up_from_the_start_or_from_home(
    robot: RobotModel, states: np.ndarray, motion: np.ndarray, *, is_start_given: bool
):
    known = replace(TABLETOP_ARM, layouts=("tabletop", "bridge"))
    model = RobotModel(known)
    steps = np.diff(states, axis=0)
    steps[:, 3:6] = 0.0  # a fixed orientation, so that increments of angles are no matter of convention
    steps[:, 6] = states[1:, 6]
    start = motion[0] if is_start_given else None
    found = replay(model, episode_of(action=steps), Layouts(action=LAYOUTS["bridge"]), start_rad=start)
    kinematics = Kinematics(TABLETOP_ARM)
    first = kinematics.forward(model.home_rad if start is None else start)
    reached = np.array([kinematics.forward(row) for row in found.joint_rad])
    np.testing.assert_allclose(reached[:, :3] - reached[0, :3], states[:, :3] - states[0, :3], atol=1e-5)
    np.testing.assert_allclose(reached[0], first, atol=1e-4)


def test_rows_of_another_rate_are_interpolated(robot: RobotModel, states: np.ndarray):
    """A state table of half the rate: its rows are met exactly, frames between lie between."""
    found = replay(robot, episode_of(state=states[::2], rate_hz=FPS / 2), POSES)
    reached = np.array([Kinematics(TABLETOP_ARM).forward(row) for row in found.joint_rad])
    np.testing.assert_allclose(reached[::2, :3], states[::2, :3], atol=1e-5)
    np.testing.assert_allclose(reached[1:-1:2, :3], (states[:-2:2, :3] + states[2::2, :3]) / 2, atol=1e-5)


def test_joints_are_taken_as_recorded_and_checked_against_the_states(panda: RobotModel, shared_data: Path):
    data = open_dataset(shared_data / "droid")
    episode = data.episodes[0]
    found = replay(panda, episode, Layouts.of(data))
    assert found.source == "joints"
    assert episode.joint is not None
    np.testing.assert_array_equal(found.joint_rad, episode.joint[: episode.num_frames, :7].astype(np.float64))
    assert 0 < found.position_error_m.max() < 1e-6
    assert found.rotation_error_rad.max() < 1e-4
    wrong = replace(episode, joint=episode.joint + np.array([0.1] + 7 * [0.0]))
    with pytest.raises(ValueError, match=f"episode {episode.name}: frame 0: .* m off, limit 0.01 m"):
        replay(panda, wrong, Layouts.of(data))


@pytest.mark.parametrize("folder", ["droid", "droid_raw"])
def test_panda_states_alone_are_reached(folder: str, panda: RobotModel, shared_data: Path):
    data = open_dataset(shared_data / folder)
    for episode in data.episodes:
        found = replay(panda, episode, replace(Layouts.of(data), joint=None))
        assert found.source == "states"
        assert found.position_error_m.max() < 1e-5
        assert found.rotation_error_rad.max() < 1e-4


def test_widowx_reaches_every_state_of_bridge(widowx: RobotModel, bridge: EpisodeSet):
    for episode in bridge.episodes:
        found = replay(widowx, episode, Layouts.of(bridge))
        assert found.source == "states"
        assert found.position_error_m.max() < 1e-5
        assert found.rotation_error_rad.max() < 1e-4


def test_bridge_recordings_of_actions_alone_are_replayed_or_refused_with_a_reason(
    widowx: RobotModel, shared_data: Path
):
    """From home, whatever the true start was: most stay in reach, and what does not names its frame."""
    data = open_dataset(shared_data / "bridge_mp4")
    refused = {}
    for episode in data.episodes:
        try:
            assert replay(widowx, episode, Layouts.of(data)).source == "actions"
        except ValueError as error:
            refused[episode.name] = str(error)
    assert len(refused) < len(data.episodes) / 2
    for name, reason in refused.items():
        assert re.match(rf"episode {name}: frame \d+: robot widowx_250s replayed from actions is", reason)


def test_widowx_refuses_states_of_another_robot(widowx: RobotModel, shared_data: Path):
    data = open_dataset(shared_data / "droid")
    with pytest.raises(ValueError, match=r"layout droid.*it knows: bridge"):
        replay(widowx, data.episodes[0], replace(Layouts.of(data), joint=None))
    with pytest.raises(ValueError, match="7 joints per arm, the robot's single arm 6: waist"):
        replay(widowx, data.episodes[0], Layouts.of(data))


@pytest.fixture(scope="module")
def bridge(shared_data: Path) -> EpisodeSet:
    return open_dataset(shared_data / "bridge_rlds" / "1.0.0")


def test_unreachable_states_are_refused_naming_frame_error_and_limit(robot: RobotModel, states: np.ndarray):
    far = states.copy()
    far[5:, 0] += 1.0
    with pytest.raises(
        ValueError, match=r"episode e7: frame 5: .*from states is 0\.\d+ m off, limit 0\.01 m \(7 of 12"
    ):
        replay(robot, episode_of(state=far), POSES)


def test_looser_limits_accept_what_they_cover(robot: RobotModel, states: np.ndarray):
    far = states.copy()
    far[5:, 0] += 1.0
    found = replay(robot, episode_of(state=far), POSES, TrackingLimits(position_m=2.0, rotation_rad=4.0))
    assert found.position_error_m.max() > 0.5
    assert "from states: tool off by at most" in found.summary


def test_joints_outside_their_limits_are_refused_by_name(panda: RobotModel, shared_data: Path):
    data = open_dataset(shared_data / "droid")
    episode = data.episodes[0]
    assert episode.joint is not None
    bent = episode.joint.copy()
    bent[3, 3] = 0.5
    with pytest.raises(ValueError, match=f"episode {episode.name}: frame 3: joint joint4 at 0.500 rad lies outside"):
        replay(panda, replace(episode, joint=bent), Layouts.of(data))


def test_nothing_that_leads_to_joints_is_one_clear_line(robot: RobotModel):
    with pytest.raises(ValueError, match=r"episode e7: nothing leads to the joints.*joint \(6\).*language_table"):
        replay(robot, episode_of(action=np.zeros((12, 2))), Layouts(action=LAYOUTS["language_table"]))


def test_missing_numbers_are_refused_naming_the_row(robot: RobotModel, states: np.ndarray):
    valid = np.ones(states.shape, bool)
    valid[4, 1] = False
    with pytest.raises(ValueError, match="episode e7: states: translation of row 4 is missing"):
        replay(robot, replace(episode_of(state=states), state_valid=valid), POSES)


JOINTS = (Part(kind="joint", size=6, frame="joint", unit="rad"),)


def test_joints_without_gripper_take_it_from_the_actions_and_are_not_judged_by_them(
    robot: RobotModel, states: np.ndarray, motion: np.ndarray
):
    """Commands lead the motion by centimetres; that is no error of a replay from joints."""
    ahead = states.copy()
    ahead[:, :3] += 0.05
    layouts = Layouts(action=LAYOUTS["tabletop"], state=Layout(name="joints_only", parts=JOINTS))
    found = replay(robot, episode_of(action=ahead, state=motion), layouts)
    np.testing.assert_array_equal(found.joint_rad, motion)
    np.testing.assert_allclose(found.openness[1:, 0], ahead[:-1, 6])
    assert found.position_error_m.max() == 0


def test_joints_and_poses_in_one_state_are_checked_against_each_other(
    robot: RobotModel, states: np.ndarray, motion: np.ndarray
):
    layout = Layout(name="tabletop", parts=(*JOINTS, *LAYOUTS["tabletop"].parts))
    rows = np.concatenate([motion, states], axis=1)
    assert replay(robot, episode_of(state=rows), Layouts(state=layout)).position_error_m.max() < 1e-9
    rows[4, 6] += 0.03
    with pytest.raises(ValueError, match=r"frame 4: robot tabletop_arm replayed from joints is 0\.03 m off"):
        replay(robot, episode_of(state=rows), Layouts(state=layout))


def test_joints_beside_poses_of_an_unlisted_layout_are_refused_and_joints_alone_are_not(
    robot: RobotModel, states: np.ndarray, motion: np.ndarray
):
    unlisted = RobotModel(replace(TABLETOP_ARM, layouts=()))
    both = replace(episode_of(state=states), joint=motion)
    layouts = Layouts(state=LAYOUTS["tabletop"], joint=Layout(name="joints_only", parts=JOINTS))
    assert replay(robot, both, layouts).source == "joints"
    with pytest.raises(ValueError, match=r"layout tabletop; it knows: none; .*list the layout in the field layouts"):
        replay(unlisted, both, layouts)
    alone = replay(unlisted, replace(both, state=None), layouts)
    np.testing.assert_array_equal(alone.joint_rad, motion)
    assert alone.summary == "from joints: no recorded tool to check it by"


def test_two_arms_are_replayed_from_joints_of_the_aloha_layout(two_arms: RobotModel):
    rng = np.random.default_rng(0)
    joint_rad = two_arms.home_rad + rng.uniform(-0.2, 0.2, (NUM_FRAMES, 12))
    openness = rng.uniform(0, 1, (NUM_FRAMES, 2))
    rows = np.concatenate([joint_rad[:, :6], openness[:, :1], joint_rad[:, 6:], openness[:, 1:]], axis=1)
    found = replay(two_arms, episode_of(state=rows), Layouts(state=LAYOUTS["aloha"]))
    assert found.source == "joints"
    np.testing.assert_array_equal(found.joint_rad, joint_rad)
    np.testing.assert_array_equal(found.openness, openness)
    for side, columns in (("left", slice(0, 6)), ("right", slice(6, 12))):
        names = [f"{side}/{joint}" for joint in TABLETOP_ARM.arms[0].joints]
        addresses = [two_arms.model.joint(name).qposadr[0] for name in names]
        np.testing.assert_array_equal(found.qpos[:, addresses], joint_rad[:, columns])


def test_two_arms_reach_poses_of_both_tools(two_arms: RobotModel):
    sides: tuple[Side, Side] = ("left", "right")
    one = LAYOUTS["tabletop"].parts
    layout = Layout(name="two_poses", parts=tuple(replace(part, side=side) for side in sides for part in one))
    rng = np.random.default_rng(0)
    motion = two_arms.home_rad + np.cumsum(rng.uniform(-0.05, 0.05, (NUM_FRAMES, 12)), axis=0)
    tools = [Kinematics(two_arms, side) for side in sides]
    rows = np.array([[*tools[0].forward(row[:6]), 0.2, *tools[1].forward(row[6:]), 0.9] for row in motion])
    found = replay(two_arms, episode_of(state=rows), Layouts(state=layout))
    assert found.source == "states"
    assert found.position_error_m.max() < 1e-5
    np.testing.assert_allclose(found.joint_rad, motion, atol=2e-3)
    np.testing.assert_allclose(found.openness[0], [0.2, 0.9])


def test_joint_of_an_unreachable_state_that_stands_at_its_limit_is_named(robot: RobotModel, motion: np.ndarray):
    """The tool turned farther about the wrist than that joint goes: a state outside the limits, seen as a pose."""
    beyond = motion.copy()
    beyond[6:, 4] = robot.high_rad[4] + 0.4
    kinematics = Kinematics(TABLETOP_ARM)
    states = np.array([[*kinematics.forward(row), 1.0] for row in beyond])
    with pytest.raises(ValueError, match=r"frame 6: .* off, limit .*joints at their limits: .*wrist_angle"):
        replay(robot, episode_of(state=states), POSES)


def test_joints_a_whole_turn_off_are_the_same_posture(two_arms: RobotModel):
    rows = np.zeros((NUM_FRAMES, 14))
    rows[:, 5] = 0.1 + 2 * np.pi
    found = replay(two_arms, episode_of(state=rows), Layouts(state=LAYOUTS["aloha"]))
    np.testing.assert_allclose(found.joint_rad[:, 5], 0.1, atol=1e-12)


def test_same_episode_same_bits(robot: RobotModel, states: np.ndarray):
    first, second = (replay(robot, episode_of(state=states), POSES) for _ in range(2))
    assert first.qpos.tobytes() == second.qpos.tobytes()
