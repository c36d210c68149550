"""Networks read rotations that never jump, bound to the stored layout."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from simforcing.types import LAYOUTS, Layout, NetworkInput, Normaliser, Part, layout_named
from simforcing.types.conversions import StartState, convert_actions
from simforcing.types.inputs import Commands, continuous, network_layout

DROID = layout_named("droid")


def poses(roll: np.ndarray) -> np.ndarray:
    out = np.zeros((len(roll), 7))
    out[:, :3] = np.linspace(0.2, 0.5, len(roll))[:, None]
    out[:, 3] = (roll + np.pi) % (2 * np.pi) - np.pi  # stored as a reader finds it: within +-pi
    return out


def everywhere(values: np.ndarray, start: StartState | None = None) -> Commands:
    return Commands(values, np.ones(values.shape, bool), start)


def test_a_smooth_turn_through_pi_is_read_as_a_smooth_turn():
    roll = np.linspace(2.8, 3.5, 50)
    stored = poses(roll)
    assert np.abs(np.diff(stored[:, 3])).max() > 6
    read, _ = NetworkInput.fit(stored, DROID).read(stored, np.ones(stored.shape, bool))
    assert np.abs(np.diff(read, axis=0)).max() < 0.2


def test_the_network_s_form_says_the_same_pose():
    rng = np.random.default_rng(0)
    stored = np.concatenate([rng.uniform(-1, 1, (30, 3)), rng.uniform(-1.5, 1.5, (30, 3)), rng.random((30, 1))], axis=1)
    form = continuous(DROID)
    rewritten = NetworkInput.fit(stored, DROID).rewrite(everywhere(stored))
    first_columns = Rotation.from_euler("xyz", stored[:, 3:6]).as_matrix()[:, :, :2]
    matrix = rewritten[:, form.slices["rotation"]].reshape(30, 2, 3).transpose(0, 2, 1)
    np.testing.assert_allclose(matrix, first_columns, atol=1e-12)
    np.testing.assert_allclose(rewritten[:, form.slices["translation"]], stored[:, :3])


@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_every_layout_has_a_form_without_absolute_angles_or_unused_numbers(name: str):
    form = continuous(layout_named(name))
    for part in form.parts:
        assert part.kind != "unused"
        assert part.kind != "rotation" or part.mode == "delta" or part.rotation == "matrix_6d"
    assert continuous(form) == form


def test_a_rotation_with_a_missing_number_means_nothing():
    stored = poses(np.linspace(0, 1, 10))
    valid = np.ones(stored.shape, bool)
    valid[:, 4] = False
    read, known = NetworkInput.fit(stored, DROID).read(stored, valid)
    columns = continuous(DROID).slices["rotation"]
    assert not known[:, columns].any()
    assert np.abs(read[:, columns]).max() == 0
    assert known[:, continuous(DROID).slices["translation"]].all()


def test_a_normaliser_of_another_layout_is_refused():
    reader = NetworkInput.fit(poses(np.linspace(0, 1, 10)), DROID)
    other = Normaliser.fit(np.random.default_rng(0).random((9, 7)), layout_named("bridge"))
    with pytest.raises(ValueError, match="does not belong to layout droid"):
        replace(reader, normaliser=other)


IN_HAND = Layout(
    name="in_hand",
    parts=(
        Part(kind="translation", size=3, mode="delta", frame="end_effector", unit="m", scale=20.0),
        Part(kind="rotation", size=3, mode="delta", frame="end_effector", unit="rad", rotation="axis_angle"),
        Part(kind="unused", size=1, unit="fraction"),
        Part(kind="gripper", size=1, unit="fraction", gripper="closed_-1_open_1", discrete=True, low=-1.0, high=1.0),
    ),
)
STATES = dict.fromkeys(("bridge", "bridge_scaled", "libero", "in_hand"), "bridge_state") | {"droid": "droid"}


def layout_of(name: str) -> Layout:
    return IN_HAND if name == "in_hand" else layout_named(name)


def commands_of(name: str, rng: np.random.Generator) -> Commands:
    """Some commands of a layout with the state that they start from."""
    layout, state = layout_of(name), layout_named(STATES[name])
    size = 0.05 if name != "droid" else 1.0
    columns = [part.scale * size * rng.uniform(-1, 1, (12, part.size)) for part in layout.parts]
    for part, column in zip(layout.parts, columns, strict=True):
        if part.kind == "gripper":
            column[:] = rng.integers(0, 2, column.shape) * (part.high - part.low) + part.low
    start = StartState(values=np.array([0.3, -0.1, 0.2, 0.4, -0.3, 0.9, 1.0]), layout=state)
    return everywhere(np.concatenate(columns, axis=1), start)


@pytest.mark.parametrize("name", STATES)
def test_increments_and_absolute_targets_are_the_same_commands(name: str, rng: np.random.Generator):
    layout, commands = layout_of(name), commands_of(name, rng)
    assert commands.start is not None
    forms = {form: network_layout(layout, form) for form in ("delta", "absolute")}
    written = {form: NetworkInput.fit_windows([commands], layout, "min_max", form).rewrite(commands) for form in forms}
    for form, other in (("delta", "absolute"), ("absolute", "delta")):
        again = convert_actions(written[form], forms[form], forms[other], start=commands.start)
        np.testing.assert_allclose(again, written[other], atol=1e-9)
    back = convert_actions(written["absolute"], forms["absolute"], layout, start=commands.start)
    for part, columns in layout.slices.items():
        atol = 1e-9 * layout.part(part).scale
        np.testing.assert_allclose(back[:, columns], commands.values[:, columns], atol=atol)


def test_absolute_targets_are_the_poses_that_increments_lead_to(rng: np.random.Generator):
    layout, commands = layout_named("bridge"), commands_of("bridge", rng)
    assert commands.start is not None
    reader = NetworkInput.fit_windows([commands], layout, "min_max", "absolute")
    form, found = reader.normaliser.layout, reader.rewrite(commands)
    position, turn = commands.start.values[:3], Rotation.from_euler("xyz", commands.start.values[3:6])
    for row, step in zip(found, commands.values, strict=True):
        position, turn = position + step[:3], Rotation.from_euler("xyz", step[3:6]) * turn
        np.testing.assert_allclose(row[form.slices["translation"]], position, atol=1e-12)
        first_columns = turn.as_matrix()[:, :2].T.ravel()
        np.testing.assert_allclose(row[form.slices["rotation"]], first_columns, atol=1e-12)


def test_the_first_increment_leads_from_the_measured_state_to_the_first_target():
    stored = poses(np.linspace(0, 0.5, 6))
    start = StartState(values=stored[0] - np.array([0.02, 0, 0, 0.1, 0, 0, 0]), layout=DROID)
    found = NetworkInput.fit_windows([everywhere(stored, start)], DROID, "min_max", "delta").rewrite(
        everywhere(stored, start)
    )
    np.testing.assert_allclose(found[0, :6], [0.02, 0, 0, 0.1, 0, 0], atol=1e-12)
    np.testing.assert_allclose(found[1:, :3], np.diff(stored[:, :3], axis=0), atol=1e-12)


@pytest.mark.parametrize("form", ["delta", "absolute"])
@pytest.mark.parametrize("name", ["bridge", "droid"])
def test_normalisers_cover_the_windows_that_they_were_fitted_on(form: str, name: str, rng: np.random.Generator):
    windows = [commands_of(name, rng) for _ in range(5)]
    reader = NetworkInput.fit_windows(windows, layout_named(name), "min_max", form)
    read = np.concatenate([reader.read(*window)[0] for window in windows])
    assert np.abs(read).max() <= 1 + 1e-6
    assert reader.normaliser.layout == network_layout(layout_named(name), form)


def test_without_a_state_to_start_from_both_sides_are_named(rng: np.random.Generator):
    commands = commands_of("bridge", rng)
    assert commands.start is not None
    message = "layout bridge cannot be converted to bridge as absolute targets.*"
    with pytest.raises(ValueError, match=message + "none was given"):
        NetworkInput.fit_windows([commands._replace(start=None)], layout_named("bridge"), "min_max", "absolute")
    unmeasured = replace(commands.start, valid=np.zeros(7, bool))
    with pytest.raises(ValueError, match=message + "bridge_state, was not measured"):
        NetworkInput.fit_windows([commands._replace(start=unmeasured)], layout_named("bridge"), "min_max", "absolute")
    joints = StartState(values=np.zeros(8), layout=layout_named("droid_joint"))
    with pytest.raises(ValueError, match=message + "droid_joint has no such part"):
        NetworkInput.fit_windows([commands._replace(start=joints)], layout_named("bridge"), "min_max", "absolute")


def test_a_chain_with_a_missing_step_means_nothing_and_other_parts_stay(rng: np.random.Generator):
    commands = commands_of("bridge", rng)
    reader = NetworkInput.fit_windows([commands], layout_named("bridge"), "min_max", "absolute")
    valid = commands.valid.copy()
    valid[4, 1] = valid[7, 5] = False
    read, known = reader.read(commands.values, valid, commands.start)
    slices = reader.normaliser.layout.slices
    assert known[:, slices["translation"]].all(axis=0).tolist() == [True, False, True]
    assert not known[:, slices["rotation"]].any()
    assert known[:, slices["gripper"]].all()
    assert not read[~known].any()
    whole, _ = reader.read(*commands)
    np.testing.assert_array_equal(read[known], whole[known])


def test_dropped_increments_are_the_zero_normalised_vector(rng: np.random.Generator):
    for name, form in (("bridge", "stored"), ("bridge", "delta"), ("droid", "delta")):
        commands = commands_of(name, rng)
        reader = NetworkInput.fit_windows([commands], layout_named(name), "min_max", form)
        assert reader.stay(*commands) is None


@pytest.mark.parametrize(("name", "form"), [("droid", "stored"), ("droid", "absolute"), ("bridge", "absolute")])
def test_dropped_absolute_targets_stay_at_the_start_pose(name: str, form: str, rng: np.random.Generator):
    commands = commands_of(name, rng)
    assert commands.start is not None
    reader = NetworkInput.fit_windows([commands], layout_named(name), "mean_std", form)
    layout, stay = reader.normaliser.layout, reader.stay(*commands)
    assert stay is not None
    assert np.unique(stay, axis=0).shape[0] == 1
    pose = reader.normaliser.denormalise(stay)[0]
    turn = Rotation.from_euler("xyz", commands.start.values[3:6]).as_matrix()
    np.testing.assert_allclose(pose[layout.slices["translation"]], commands.start.values[:3], atol=1e-6)
    np.testing.assert_allclose(pose[layout.slices["rotation"]], turn[:, :2].T.ravel(), atol=1e-6)
    first, _ = reader.read(*commands)
    np.testing.assert_array_equal(stay[0, layout.slices["gripper"]], first[0, layout.slices["gripper"]])


def test_without_a_state_dropped_targets_stay_at_the_first_one(rng: np.random.Generator):
    commands = commands_of("droid", rng)._replace(start=None)
    reader = NetworkInput.fit_windows([commands], DROID)
    stay, (read, _) = reader.stay(*commands), reader.read(*commands)
    assert stay is not None
    np.testing.assert_array_equal(stay, np.repeat(read[:1], len(read), axis=0))


def test_a_form_and_the_normaliser_of_another_form_are_refused(rng: np.random.Generator):
    reader = NetworkInput.fit_windows([commands_of("bridge", rng)], layout_named("bridge"), "min_max", "absolute")
    with pytest.raises(ValueError, match="does not belong to layout bridge in form delta"):
        replace(reader, form="delta")
