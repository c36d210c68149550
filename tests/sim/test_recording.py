"""Tables at other times than their rows: met exactly, interpolated the short way, held at the ends."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from simforcing.sim.recording import read_commanded, read_measured
from simforcing.sim.tabletop_arm import TABLETOP_ARM
from simforcing.types import LAYOUTS, Layout, Part
from simforcing.types.layouts import absolute_layout

(ARM,) = TABLETOP_ARM.arms
JOINTS = Layout(name="joints", parts=(Part(kind="joint", size=6, frame="joint", unit="rad"),))


def test_rows_at_the_wanted_times_are_met_bit_for_bit_and_the_ends_hold(rng: np.random.Generator):
    values = rng.normal(size=(5, 6))
    table = read_measured("t", values, JOINTS, np.arange(5) / 15)
    found = table.joints(ARM, np.array([-0.3, 0.0, 2 / 15 + 1e-9, 4 / 15, 9.0]))
    np.testing.assert_array_equal(found, values[[0, 0, 2, 4, 4]])


def test_joints_between_rows_are_linear(rng: np.random.Generator):
    values = rng.uniform(-1, 1, (5, 6))
    table = read_measured("t", values, JOINTS, np.arange(5.0))
    np.testing.assert_allclose(
        table.joints(ARM, np.array([0.25, 3.5])),
        [0.75 * values[0] + 0.25 * values[1], 0.5 * values[3] + 0.5 * values[4]],
    )


def test_a_joint_that_passes_half_a_turn_goes_the_short_way():
    values = np.zeros((2, 6))
    values[:, 3] = [3.1, -3.1]
    middle = read_measured("t", values, JOINTS, np.arange(2.0)).joints(ARM, np.array([0.5]))[0, 3]
    assert abs(np.cos(middle) + 1) < 1e-9


def test_rotations_between_rows_lie_on_the_geodesic():
    state = np.zeros((2, 7))
    state[:, 3:6] = [[0.2, -0.4, 3.0], [-0.3, 0.5, -3.0]]
    table = read_measured("t", state, LAYOUTS["tabletop"], np.arange(2.0))
    first, last = Rotation.from_euler("xyz", state[:, 3:6])
    middle = Rotation.from_euler("xyz", table.poses(ARM, np.array([0.5]))[0, 3:])
    whole = (last * first.inv()).magnitude()
    np.testing.assert_allclose([(middle * first.inv()).magnitude(), (last * middle.inv()).magnitude()], whole / 2)


@pytest.mark.parametrize(("layout", "closed"), [("droid", 1.0), ("tabletop", 0.0), ("bridge_state", 0.0)])
def test_openness_has_one_sense_and_ends_at_the_stops(layout: str, closed: float):
    state = np.zeros((3, 7))
    state[:, 6] = [closed, 0.5, (1 - closed) + 0.01 * (1 - 2 * closed)]
    openness = read_measured("t", state, LAYOUTS[layout], np.arange(3.0)).openness(ARM, np.arange(3.0))
    assert openness is not None
    np.testing.assert_allclose(openness, [0.0, 0.5, 1.0], atol=1e-12)


def test_commands_are_reached_one_step_later_at_their_own_rate():
    """Commands at 10 Hz from 0.3 s on: the first is reached at 0.4 s, the last one step after it was given."""
    steps = np.zeros((3, 7))
    steps[:, 0] = [0.01, 0.02, 0.03]
    start = np.array([0.5, 0.0, 0.2, 1.0, 0.0, 0.0, 0.0, 1.0])  # xyz, quaternion wxyz, openness
    table = read_commanded("t", steps, LAYOUTS["bridge"], 0.3 + np.arange(3) / 10, start, is_start_known=True)
    found = table.poses(ARM, np.array([0.3, 0.4, 0.45, 0.6]))[:, 0]
    np.testing.assert_allclose(found, [0.5, 0.51, 0.52, 0.56])


def test_scaled_increments_are_added_up_in_metres_and_radians():
    steps = np.zeros((2, 10))
    steps[:, 0], steps[:, 5] = 0.35, 0.56  # 1 cm and 0.1 rad
    start = np.array([0.3, 0.0, 0.2, 1.0, 0.0, 0.0, 0.0, 1.0])
    layout = LAYOUTS["bridge_scaled"]
    assert absolute_layout(layout).dim == len(start)
    table = read_commanded("t", steps, layout, np.arange(2) / 5, start, is_start_known=False)
    np.testing.assert_allclose(table.poses(ARM, np.array([0.4]))[0], [0.32, 0, 0.2, 0, 0, 0.2], atol=1e-12)
