"""Carried states: what commands mean for the state, as laws and against what real robots measured."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from simforcing.data.open import open_dataset
from simforcing.data.spec import fit_spec
from simforcing.data.windows import WindowSpec, read_clip, window_starts
from simforcing.generation.state import StateCarrier, carry_state, rest_row, still_row
from simforcing.types import LAYOUTS, DataSpec, EpisodeSet, Layout, NetworkInput, Resize, layout_named
from simforcing.types.conversions import StartState, convert_actions
from simforcing.types.layouts import Part, delta_layout

K = 8


def poses(rng: np.random.Generator, count: int = K) -> np.ndarray:
    """Random poses with grippers in layout bridge_state, in the ranges that it writes."""
    return np.concatenate(
        [rng.uniform(-0.5, 0.5, (count, 3)), rng.uniform(-1.4, 1.4, (count, 3)), rng.uniform(0, 1, (count, 1))], axis=1
    )


def layout_of(*parts: Part) -> Layout:
    return Layout(name="made", parts=parts)


def read_by(layout: Layout) -> NetworkInput:
    rows = np.stack([still_row(layout), still_row(layout) + 1])
    return NetworkInput.fit(rows, layout)


def test_absolute_commands_are_the_state_of_the_next_frame(rng: np.random.Generator):
    action = poses(rng)
    carrier = StateCarrier(layout_named("tabletop"), layout_named("bridge_state"))
    np.testing.assert_allclose(carrier(poses(rng)[0], action, K + 1), action, atol=1e-6)
    assert carrier.held == {}


@pytest.mark.parametrize("frame", ["base", "end_effector"])
@pytest.mark.parametrize("rotation", ["euler_xyz", "axis_angle", "quaternion_xyzw", "matrix_6d"])
def test_increments_lead_where_the_same_commands_written_absolute_do(frame, rotation, rng: np.random.Generator):
    state, absolute = layout_named("bridge_state"), layout_named("tabletop")
    start, action = poses(rng)[0], poses(rng)
    size = {"quaternion_xyzw": 4, "matrix_6d": 6}.get(rotation, 3)
    delta = layout_of(
        Part(kind="gripper", size=1, unit="fraction", gripper="open_-1_closed_1"),
        Part(kind="rotation", size=size, mode="delta", frame=frame, unit="rad", rotation=rotation, scale=3.0),
        Part(kind="translation", size=3, mode="delta", frame=frame, scale=20.0),
    )
    steps = convert_actions(action, absolute, delta, start=StartState(values=start, layout=state))
    carried = StateCarrier(delta, state)(start, steps, K + 1)
    np.testing.assert_allclose(carried, action, atol=1e-6)


@pytest.mark.parametrize("name", ["bridge", "bridge_scaled", "bridge_delta_axis_angle", "libero"])
def test_increments_of_nothing_hold_the_state(name: str, rng: np.random.Generator):
    start = poses(rng)[0]
    carrier = StateCarrier(layout_named(name), layout_named("bridge_state"))
    still = np.repeat(still_row(layout_named(name))[None], K, axis=0)
    np.testing.assert_allclose(carrier(start, still, K + 1)[:, :6], np.repeat(start[None, :6], K, axis=0), atol=1e-6)


def test_increments_in_two_chunks_equal_those_in_one(rng: np.random.Generator):
    start, carrier = poses(rng)[0], StateCarrier(layout_named("bridge"), layout_named("bridge_state"))
    action = rng.uniform(-0.1, 0.1, (K, 7))
    whole = carrier(start, action, K + 1)
    first = carrier(start, action[:3], 4)
    np.testing.assert_allclose(carrier(first[-1], action[3:], K - 2), whole[3:], atol=1e-6)


@pytest.mark.parametrize(
    ("num_actions", "num_frames", "rows"),
    [(4, 5, [0, 1, 2, 3]), (8, 5, [1, 3, 5, 7]), (2, 5, [0, 0, 1, 1]), (3, 5, [0, 1, 2, 2]), (1, 2, [0])],
)
def test_a_frame_takes_the_target_in_force_before_it(num_actions: int, num_frames: int, rows: list[int], rng):
    action = poses(rng, num_actions)
    carried = StateCarrier(layout_named("tabletop"), layout_named("tabletop"))(poses(rng)[0], action, num_frames)
    np.testing.assert_allclose(carried, action[rows], atol=1e-6)


def test_the_gripper_is_carried_in_the_states_own_sense(rng: np.random.Generator):
    action = poses(rng)  # closed 0, open 1
    carried = StateCarrier(layout_named("bridge"), layout_named("droid"))(
        still_row(layout_named("droid")), action, K + 1
    )
    np.testing.assert_allclose(carried[:, 6], 1 - action[:, 6], atol=1e-6)


@pytest.mark.parametrize("name", ["tabletop", "bridge", "bridge_delta_axis_angle", "droid"])
def test_the_command_to_stay_holds_the_state(name: str, square_spec: DataSpec, rng: np.random.Generator):
    layout = layout_named(name)
    spec, start = replace(square_spec, action=read_by(layout)), poses(rng)[0]
    start[6] = 1.0
    stay = np.repeat(rest_row(start, spec)[None], 2, axis=0)
    np.testing.assert_allclose(carry_state(start, stay, spec, 3), np.repeat(start[None], 2, axis=0), atol=1e-6)


def test_a_target_that_the_state_does_not_hold_has_no_command_to_stay(square_spec: DataSpec):
    joints = replace(square_spec, action=read_by(layout_named("tabletop_joint")))
    with pytest.raises(ValueError, match="layout tabletop_joint set joint, and the state holds translation, rotation"):
        rest_row(np.zeros(7), joints)
    with pytest.raises(ValueError, match="set translation, and the state holds nothing"):
        rest_row(np.zeros(0), replace(square_spec, state=None))


def test_what_moves_nothing_further_repeats_targets_and_adds_nothing_to_any_part(rng: np.random.Generator):
    layout = layout_of(
        Part(kind="translation", size=3, mode="delta"),
        Part(kind="rotation", size=4, mode="delta", unit="rad", rotation="quaternion_wxyz", scale=2.0),
        Part(kind="unused", size=1),
        Part(kind="gripper", size=1, mode="delta", unit="fraction", gripper="closed_0_open_1"),
        Part(kind="joint", size=2, unit="rad", frame="joint"),
    )
    last = rng.uniform(0.1, 1.0, 11).astype(np.float32)
    still = still_row(layout, last)
    np.testing.assert_array_equal(still, [0, 0, 0, 2, 0, 0, 0, last[7], 0, *last[9:]])
    assert still.dtype == np.float32
    np.testing.assert_array_equal(still_row(layout), [0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0])


def test_padding_and_what_no_command_moves_stay_as_they_were(rng: np.random.Generator):
    state = layout_of(
        *layout_named("bridge_lerobot_state").parts, Part(kind="joint", size=6, unit="rad", frame="joint")
    )
    start = rng.uniform(-0.5, 0.5, state.dim)
    carrier = StateCarrier(layout_named("bridge"), state)
    carried = carrier(start, rng.uniform(-0.1, 0.1, (K, 7)), K + 1)
    still = [6, *range(8, 14)]
    np.testing.assert_allclose(carried[:, still], np.repeat(start[None, still], K, axis=0), atol=1e-7)
    assert list(carrier.held) == ["joint"]
    assert "names no robot" in carrier.held["joint"]


def test_joint_commands_move_the_tool_by_forward_kinematics_and_its_poses_the_joints_by_the_inverse(
    rng: np.random.Generator,
):
    pytest.importorskip("mink")
    joints, pose = layout_named("tabletop_joint"), layout_named("tabletop")
    from simforcing.sim.kinematics import Kinematics
    from simforcing.sim.tabletop_arm import TABLETOP_ARM

    home_rad = np.array(TABLETOP_ARM.arms[0].home_rad)
    action = np.concatenate([home_rad + np.linspace(0, 0.3, K)[:, None], rng.uniform(0, 1, (K, 1))], axis=1)
    forward = StateCarrier(joints, pose, "tabletop_arm")
    tool = forward(still_row(pose), action, K + 1)
    solver = Kinematics(TABLETOP_ARM)
    expected = np.stack([solver.forward(row[:6]) for row in action])
    np.testing.assert_allclose(tool[:, :6], expected, atol=1e-6)
    np.testing.assert_allclose(tool[:, 6], action[:, 6], atol=1e-6)
    inverse = StateCarrier(pose, joints, "tabletop_arm")
    found = inverse(np.append(home_rad, 0.5), tool, K + 1)
    np.testing.assert_allclose(found, action, atol=2e-3)
    assert forward.solved == ("translation", "rotation")
    assert inverse.solved == ("joint",)
    assert not forward.held
    assert not inverse.held


def test_increments_of_the_tool_move_measured_joints_from_where_the_tool_was():
    pytest.importorskip("mink")
    from simforcing.sim.kinematics import Kinematics
    from simforcing.sim.tabletop_arm import TABLETOP_ARM

    delta = replace(delta_layout(layout_named("tabletop")), name="tabletop")
    step = np.zeros((2, 7))
    step[:, 2] = 0.01
    start = np.append(TABLETOP_ARM.arms[0].home_rad, 0.0)
    joints = StateCarrier(delta, layout_named("tabletop_joint"), "tabletop_arm")(start, step, 3)
    solver = Kinematics(TABLETOP_ARM)
    tool = np.stack([solver.forward(row[:6].astype(np.float64)) for row in (start, *joints)])
    np.testing.assert_allclose(np.diff(tool, axis=0)[:, :3], step[:, :3], atol=3e-4)


def test_an_unknown_tool_frame_is_held_and_said_so():
    pytest.importorskip("mink")
    carrier = StateCarrier(layout_named("droid_joint"), layout_named("droid"), "tabletop_arm")
    assert list(carrier.held) == ["translation", "rotation"]
    assert "not of droid with 7" in carrier.held["rotation"]
    assert carrier.driven == ("gripper",)


def test_what_is_held_is_said_once(square_spec: DataSpec, recwarn: pytest.WarningsRecorder):
    state = layout_of(*layout_named("tabletop").parts, Part(kind="joint", size=9, unit="rad", frame="joint"))
    spec = replace(square_spec, state=read_by(state))
    for _ in range(2):
        carry_state(still_row(state), poses(np.random.default_rng(0), 2), spec, 3)
    said = [str(warning.message) for warning in recwarn]
    assert len(said) == 1, said
    assert "joint" in said[0]


def test_without_a_state_none_is_carried(square_spec: DataSpec, rng: np.random.Generator):
    assert carry_state(None, poses(rng, 2), square_spec, 3) is None
    assert carry_state(np.zeros(7), poses(rng, 2), replace(square_spec, state=None), 3) is None


def test_another_width_is_refused_with_both_sides(rng: np.random.Generator):
    carrier = StateCarrier(layout_named("bridge"), layout_named("bridge_state"))
    with pytest.raises(ValueError, match=r"a state of 6 numbers .* bridge have 7 and 7"):
        carrier(np.zeros(6), poses(rng), K + 1)


@pytest.fixture
def square_spec() -> DataSpec:
    return DataSpec(
        views=("front",),
        num_frames=3,
        fps=5.0,
        num_actions=2,
        resize=Resize(height=8, width=8),
        action=read_by(layout_named("tabletop")),
        state=read_by(layout_named("tabletop")),
        robot=None,
        fingerprint="made",
    )


def errors(data: EpisodeSet, num_frames: int, max_windows: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """(tool's distance in m, in degrees) of carried against measured states, "window frame"; and if nothing moved."""
    view = data.episodes[0].views[0].name
    window = WindowSpec(num_frames=num_frames, views=(view,), resize=Resize(height=8, width=8), with_frames=False)
    spec = fit_spec(data, list(data.episodes), window=window)
    assert spec.state is not None
    starts = [(episode, at) for episode in data.episodes for at in window_starts(episode, window, num_frames)]
    carried, still = [], []
    for episode, at in starts[:max_windows]:
        clip = read_clip(episode, at, window, spec.action.layout.dim, spec.stored_state_dim)
        assert episode.state is not None
        found = carry_state(clip.state, clip.action, spec, num_frames)
        measured = np.asarray(episode.state[at + 1 : at + num_frames], np.float64)
        carried.append(_distance(found, measured))
        still.append(_distance(np.repeat(clip.state[None], num_frames - 1, axis=0), measured))
    return np.array(carried), np.array(still)


def _distance(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    turn = Rotation.from_euler("xyz", one[:, 3:6]).inv() * Rotation.from_euler("xyz", other[:, 3:6])
    return np.stack([np.linalg.norm(one[:, :3] - other[:, :3], axis=1), np.degrees(turn.magnitude())], axis=1)


@pytest.mark.parametrize("name", ["bridge_rlds", "droid"])
def test_carried_states_of_real_robots_are_nearer_to_the_measured_ones_than_no_motion(shared_data: Path, name: str):
    if not (shared_data / name).is_dir():
        pytest.skip(f"no {shared_data / name}")
    carried, still = errors(open_dataset(shared_data / name), 9)
    print(f"{name}: {len(carried)} windows of 9 frames; carried, held still: mean error per frame in m, degrees")
    print(np.round(np.concatenate([carried.mean(0), still.mean(0)], axis=1), 4))
    assert (carried.mean(axis=(0, 1)) < 0.7 * still.mean(axis=(0, 1))).all()


def test_layouts_that_are_declared_are_carried_without_a_robot_where_state_and_command_are_alike():
    for layout in LAYOUTS.values():
        if all(part.mode == "absolute" for part in layout.parts):
            assert StateCarrier(layout, layout).held == {}
