"""Conversions between layouts: round trips as laws, SE(3) axioms, refusals that name both sides, real Bridge data."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from simforcing.data.rlds import read_rlds
from simforcing.types import LAYOUTS, Layout, Part
from simforcing.types.conversions import ActionSpace, StartState, convert_actions, on_side
from simforcing.types.layouts import ROTATION_SIZES
from simforcing.types.rotations import read_rotations, write_rotations

FORMS = list(ROTATION_SIZES)
SENSES = ["open_0_closed_1", "closed_0_open_1", "open_-1_closed_1", "closed_-1_open_1"]
seeds = st.integers(0, 2**32 - 1)


pose_forms = st.tuples(
    st.sampled_from([("absolute", "base"), ("delta", "base"), ("delta", "end_effector")]),
    st.sampled_from(FORMS),
    st.sampled_from(SENSES),
    st.floats(0.1, 50.0),
    st.permutations(range(3)),
)


def pose_layout(form: tuple) -> Layout:
    """One arm's pose and gripper, in any form."""
    (mode, frame), rotation, sense, scale, order = form
    shared = {"mode": mode, "frame": frame}
    rotation_scale = scale / 5 if rotation in ("axis_angle", "euler_xyz") else 1.0
    parts = (
        Part(kind="translation", size=3, scale=scale, **shared),
        Part(
            kind="rotation",
            size=ROTATION_SIZES[rotation],
            rotation=rotation,
            unit="rad",
            scale=rotation_scale,
            **shared,
        ),
        Part(kind="gripper", size=1, gripper=sense, unit="fraction"),
    )
    return Layout(name="drawn", parts=tuple(parts[i] for i in order))


def random_actions(layout: Layout, seed: int, num_actions: int = 6) -> np.ndarray:
    """Valid numbers of a pose layout, small enough that no Euler angle leaves its principal range."""
    rng = np.random.default_rng(seed)
    out = np.zeros((num_actions, layout.dim))
    for name, columns in layout.slices.items():
        part = layout.part(name)
        if part.rotation is not None:
            turns = Rotation.from_rotvec(rng.uniform(-0.8, 0.8, (num_actions, 3)))
            out[:, columns] = write_rotations(turns, part.rotation) * part.scale
        elif part.gripper is not None:
            low = -1.0 if "-1" in part.gripper else 0.0
            out[:, columns] = rng.uniform(low, 1.0, (num_actions, 1))
        else:
            out[:, columns] = rng.uniform(-0.3, 0.3, (num_actions, part.size)) * part.scale
    return out


def random_start(seed: int) -> StartState:
    values = random_actions(LAYOUTS["tabletop"], seed + 1, 1)[0]
    return StartState(values=values, layout=LAYOUTS["tabletop"])


@given(source_form=pose_forms, target_form=pose_forms, seed=seeds)
def test_a_conversion_and_back_is_the_identity(source_form: tuple, target_form: tuple, seed: int) -> None:
    source, target = pose_layout(source_form), pose_layout(target_form)
    actions, start = random_actions(source, seed), random_start(seed)
    there = convert_actions(actions, source, target, start=start)
    back = convert_actions(there, target, source, start=start)
    # Compared in a form without jumps: Euler angles may come back as another triple of the same rotation.
    canonical = Layout(name="canonical", parts=tuple(_in_6d(source.part(name)) for name in source.slices))
    before = convert_actions(actions, source, canonical, start=start)
    after = convert_actions(back, source, canonical, start=start)
    np.testing.assert_allclose(after, before, rtol=0, atol=1e-9 * max(1.0, np.abs(before).max()))


def _in_6d(part: Part) -> Part:
    if part.kind != "rotation":
        return part
    return replace(part, rotation="matrix_6d", size=6, scale=1.0)


@given(forms=st.tuples(pose_forms, pose_forms, pose_forms), seed=seeds)
def test_a_conversion_through_a_third_layout_is_the_direct_one(forms: tuple, seed: int) -> None:
    source, middle, target = map(pose_layout, forms)
    actions, start = random_actions(source, seed), random_start(seed)
    through = convert_actions(convert_actions(actions, source, middle, start=start), middle, target, start=start)
    direct = convert_actions(actions, source, target, start=start)
    canonical = Layout(name="canonical", parts=tuple(_in_6d(target.part(name)) for name in target.slices))
    np.testing.assert_allclose(
        convert_actions(through, target, canonical, start=start),
        convert_actions(direct, target, canonical, start=start),
        rtol=0,
        atol=1e-7,
    )


@pytest.mark.parametrize("frame", ["base", "end_effector"])
@given(seed=seeds)
def test_increments_compose_as_rigid_motions(frame: str, seed: int) -> None:
    """Base increments shift p and turn R from the left, end-effector increments act from the right."""
    layout = replace(
        LAYOUTS["bridge"],
        parts=tuple(replace(part, frame=frame) if part.kind != "gripper" else part for part in LAYOUTS["bridge"].parts),
    )
    actions, start = random_actions(layout, seed), random_start(seed)
    absolute = convert_actions(actions, layout, LAYOUTS["tabletop"], start=start)
    position, turn = start.values[:3], Rotation.from_euler("xyz", start.values[3:6])
    for action, reached in zip(actions, absolute, strict=True):
        step = Rotation.from_euler("xyz", action[3:6])
        if frame == "base":
            position, turn = position + action[:3], step * turn
        else:
            position, turn = position + turn.apply(action[:3]), turn * step
        np.testing.assert_allclose(reached[:3], position, atol=1e-9)
        difference = Rotation.from_euler("xyz", reached[3:6]).inv() * turn
        assert difference.magnitude() < 1e-9


@pytest.mark.parametrize("form", FORMS)
@given(seed=seeds)
def test_every_rotation_form_is_a_group_homomorphism(form: str, seed: int) -> None:
    """Identity, inverse and product survive being written and read."""
    a, b = Rotation.random(2, random_state=seed)
    for rotation in (a * b, a.inv(), a * a.inv()):
        again = read_rotations(write_rotations(Rotation.concatenate([rotation]), form), form)
        assert (again * rotation.inv()).magnitude().max() < 1e-7


def test_euler_angles_are_extrinsic_x_then_y_then_z() -> None:
    turn = read_rotations(np.array([[0.3, -0.4, 1.1]]), "euler_xyz").as_matrix()[0]
    expected = [Rotation.from_rotvec(angle * axis) for angle, axis in zip((0.3, -0.4, 1.1), np.eye(3), strict=True)]
    np.testing.assert_allclose(turn, (expected[2] * expected[1] * expected[0]).as_matrix(), atol=1e-12)


def test_gimbal_lock_still_reads_back_as_the_same_rotation() -> None:
    turn = Rotation.from_euler("xyz", [[0.3, np.pi / 2, -0.2]])
    again = read_rotations(write_rotations(turn, "euler_xyz"), "euler_xyz")
    assert (again * turn.inv()).magnitude().max() < 1e-6


def test_quaternions_differ_in_the_place_of_w_alone_and_keep_it_positive() -> None:
    turn = Rotation.from_quat([[0.1, 0.2, 0.3, -0.9]])
    wxyz, xyzw = write_rotations(turn, "quaternion_wxyz")[0], write_rotations(turn, "quaternion_xyzw")[0]
    assert wxyz[0] == xyzw[3] > 0
    np.testing.assert_array_equal(wxyz[1:], xyzw[:3])


@pytest.mark.parametrize(
    ("form", "values", "message"),
    [
        ("quaternion_wxyz", np.zeros((1, 4)), "quaternion of length 0"),
        ("matrix_6d", np.zeros((1, 6)), "first column has length 0"),
        ("matrix_6d", np.ones((1, 6)), "columns are parallel"),
        ("euler_xyz", np.zeros((1, 4)), "has 3 numbers, not 4"),
    ],
)
def test_numbers_that_are_no_rotation_are_refused(form: str, values: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_rotations(values, form)


def test_bridge_scales_and_gripper_senses_are_those_of_the_data() -> None:
    """0.05 m is stored as 1.75, 0.25 rad as 1.4, and an open gripper (1) as -1 in the scaled clips."""
    action = np.array([[0.05, 0.0, -0.05, 0.25, 0.0, -0.25, 1.0]])
    scaled = convert_actions(action, LAYOUTS["bridge"], LAYOUTS["bridge_scaled"])
    np.testing.assert_allclose(scaled, [[1.75, 0, -1.75, 1.4, 0, -1.4, -1, 0, 0, 0]], atol=1e-12)


def test_a_discrete_gripper_opens_above_one_half_and_never_lies_between() -> None:
    actions = np.zeros((4, 7))
    actions[:, 6] = [0.0, 0.49, 0.51, 1.0]
    written = convert_actions(actions, LAYOUTS["bridge"], LAYOUTS["bridge_delta_axis_angle"])
    np.testing.assert_array_equal(written[:, 6], [-1, -1, 1, 1])
    libero = convert_actions(actions, LAYOUTS["bridge"], LAYOUTS["libero"])
    np.testing.assert_array_equal(libero[:, 6], [1, 1, -1, -1])


def test_a_padded_state_drops_its_pad_and_gets_it_back_as_zero() -> None:
    state = np.arange(8.0)[None] / 10
    plain = convert_actions(state, LAYOUTS["bridge_lerobot_state"], LAYOUTS["bridge_state"])
    np.testing.assert_allclose(plain, state[:, [0, 1, 2, 3, 4, 5, 7]], atol=1e-12)
    assert convert_actions(plain, LAYOUTS["bridge_state"], LAYOUTS["bridge_lerobot_state"])[0, 6] == 0


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("droid", "droid_joint", "layout droid cannot be converted to droid_joint: part translation"),
        ("language_table", "bridge", "layout language_table cannot be converted to bridge: part translation: it has 2"),
        ("bridge", "tabletop", "bridge cannot be converted to tabletop: part translation: .* start state; none was"),
        ("aloha", "droid_joint", "part left_joint: layout droid_joint has no such part"),
    ],
)
def test_what_cannot_be_converted_names_both_layouts_and_the_part(source: str, target: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        convert_actions(np.zeros((2, LAYOUTS[source].dim)), LAYOUTS[source], LAYOUTS[target])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"frame": "world"}, "frame world to base"),
        ({"mode": "absolute", "frame": "end_effector"}, "has no meaning"),
        ({"rate_hz": 10.0}, "nothing is resampled"),
        ({"unit": "fraction"}, "unit fraction is not m"),
    ],
)
def test_frames_rates_and_units_that_no_layout_can_join_are_refused(change: dict, message: str) -> None:
    layout = LAYOUTS["bridge"]
    odd = Layout(name="odd", parts=(replace(layout.parts[0], **change), *layout.parts[1:]))
    with pytest.raises(ValueError, match=f"layout odd cannot be converted to bridge: part translation: .*{message}"):
        convert_actions(np.zeros((2, 7)), odd, layout, start=random_start(0))


def test_real_bridge_commands_go_where_the_measured_pose_goes_next(shared_data) -> None:
    """States, converted to increments in the base frame, correlate with the commands on every axis."""
    episodes = read_rlds(shared_data / "bridge_rlds").episodes
    commanded, measured = [], []
    for episode in episodes:
        assert episode.state is not None
        start = StartState(values=episode.state[0], layout=LAYOUTS["bridge_state"])
        steps = convert_actions(episode.state[1:], LAYOUTS["bridge_state"], LAYOUTS["bridge"], start=start)
        measured.append(steps[:, :6])
        commanded.append(episode.action[:-1, :6])
    for axis in range(6):
        pair = np.concatenate(commanded)[:, axis], np.concatenate(measured)[:, axis]
        assert np.corrcoef(*pair)[0, 1] > 0.6


class TestActionSpace:
    """Named parts of several embodiments side by side."""

    space = ActionSpace.of("all", [LAYOUTS["droid_joint"], LAYOUTS["aloha"], LAYOUTS["bridge"]])

    @pytest.mark.parametrize("name", ["droid_joint", "aloha", "bridge", "bridge_scaled"])
    def test_what_is_embedded_comes_back_and_the_rest_is_zero_and_not_valid(self, name: str) -> None:
        layout = LAYOUTS[name]
        used = [column for columns in layout.slices.values() for column in range(layout.dim)[columns]]
        actions = np.zeros((3, layout.dim))
        actions[:, used] = np.random.default_rng(0).uniform(0, 1, (3, len(used)))
        values, valid = self.space.embed(actions, layout)
        assert values.shape == valid.shape == (3, self.space.dim)
        assert (values[~valid] == 0).all()
        assert valid.sum(axis=1).tolist() == [len(used)] * 3
        np.testing.assert_allclose(self.space.extract(values, layout), actions, atol=1e-9)

    def test_a_bimanual_action_of_fourteen_numbers_fills_both_sides(self) -> None:
        """The 14-D fixture: left joints 0..5 and hand 6, right joints 7..12 and hand 13."""
        values, valid = self.space.embed(np.arange(14.0)[None], LAYOUTS["aloha"])
        slices = self.space.layout.slices
        np.testing.assert_allclose(values[0, slices["left_joint"]], np.arange(6.0))
        np.testing.assert_allclose(values[0, slices["right_joint"]], np.arange(7.0, 13.0))
        assert valid.sum() == 14
        assert not valid[0, slices["joint"]].any()

    def test_one_arm_can_stand_for_the_right_arm_of_two(self) -> None:
        one = Layout(
            name="one_arm",
            parts=(
                Part(kind="joint", size=6, frame="joint", unit="rad"),
                Part(kind="gripper", size=1, gripper="open_0_closed_1", unit="fraction"),
            ),
        )
        values, valid = self.space.embed(np.ones((1, 7)), on_side(one, "right"))
        slices = self.space.layout.slices
        assert valid[0, slices["right_joint"]].all()
        assert not valid[0, slices["left_joint"]].any()
        assert values[0, slices["right_gripper"]] == 0  # closed is 1 there and 0 in the space

    def test_a_narrower_arm_fills_the_first_joints(self) -> None:
        six = Layout(name="six", parts=(Part(kind="joint", size=6, frame="joint", unit="rad"),))
        _, valid = self.space.embed(np.ones((1, 6)), six)
        assert valid[0, self.space.layout.slices["joint"]].tolist() == [True] * 6 + [False]

    def test_a_part_that_the_space_lacks_is_refused(self) -> None:
        space = ActionSpace.of("arms", [LAYOUTS["aloha"]])
        with pytest.raises(ValueError, match="layout arms: no part 'translation'"):
            space.embed(np.zeros((1, 7)), LAYOUTS["bridge"])
