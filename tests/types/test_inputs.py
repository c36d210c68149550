"""Networks read rotations that never jump, bound to the stored layout."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from simforcing.types import LAYOUTS, NetworkInput, Normaliser, layout_named
from simforcing.types.inputs import continuous

DROID = layout_named("droid")


def poses(roll: np.ndarray) -> np.ndarray:
    out = np.zeros((len(roll), 7))
    out[:, :3] = np.linspace(0.2, 0.5, len(roll))[:, None]
    out[:, 3] = (roll + np.pi) % (2 * np.pi) - np.pi  # stored as a reader finds it: within +-pi
    return out


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
    rewritten = NetworkInput.fit(stored, DROID).rewrite(stored)
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
