"""Normalisers: the formulas of (docs/paper-to-code.md), clamping, constants, and the layout they are bound to."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from simforcing.types import LAYOUTS, Normaliser, from_json, to_json

LAYOUT = LAYOUTS["language_table"]
tables = arrays(np.float64, (12, 2), elements=st.floats(-100, 100))


@pytest.mark.parametrize("kind", ["min_max", "quantile", "mean_std"])
@given(values=tables)
def test_denormalise_undoes_normalise_wherever_nothing_was_clamped(kind: str, values: np.ndarray) -> None:
    normaliser = Normaliser.fit(values, LAYOUT, kind)
    normalised = normaliser.normalise(values)
    free = np.abs(normalised) < 5
    scale = np.broadcast_to(np.abs(normaliser.scale) + np.abs(normaliser.offset), values.shape)
    np.testing.assert_array_less(np.abs(normaliser.denormalise(normalised) - values)[free], (1e-5 * scale + 1e-6)[free])


@given(values=tables)
def test_min_max_sends_the_extremes_to_plus_and_minus_one(values: np.ndarray) -> None:
    normalised = Normaliser.fit(values, LAYOUT).normalise(values)
    moving = np.ptp(values, axis=0) >= 1e-4
    np.testing.assert_allclose(normalised.min(axis=0)[moving], -1, atol=1e-5)
    np.testing.assert_allclose(normalised.max(axis=0)[moving], 1, atol=1e-5)


def test_a_constant_dimension_is_shifted_to_zero_and_not_scaled() -> None:
    values = np.stack([np.full(5, 3.0), np.arange(5.0)], axis=1)
    normaliser = Normaliser.fit(values, LAYOUT)
    np.testing.assert_allclose(normaliser.normalise(values)[:, 0], 0)
    np.testing.assert_allclose(normaliser.normalise(values + 0.5)[:, 0], 0.5)


def test_mean_std_and_quantile_follow_their_formulas() -> None:
    values = np.random.default_rng(0).normal(size=(500, 2))
    standard = Normaliser.fit(values, LAYOUT, "mean_std").normalise(values)
    np.testing.assert_allclose(standard.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(standard.std(axis=0), 1, atol=1e-6)
    low, high = np.quantile(values, [0.01, 0.99], axis=0)
    ends = Normaliser.fit(values, LAYOUT, "quantile").normalise(np.stack([low, high]))
    np.testing.assert_allclose(ends, [[-1, -1], [1, 1]], atol=1e-6)


def test_outliers_are_clamped_to_five() -> None:
    normaliser = Normaliser.fit(np.array([[0.0, 0.0], [1.0, 1.0]]), LAYOUT)
    np.testing.assert_array_equal(normaliser.normalise(np.array([[1e6, -1e6]])), [[5, -5]])


def test_the_layout_travels_with_the_numbers_through_json() -> None:
    normaliser = Normaliser.fit(np.array([[0.0, 0.0], [1.0, 3.0]]), LAYOUT)
    again = from_json(Normaliser, to_json(normaliser))
    assert again == normaliser
    assert again.layout == LAYOUT


def test_another_width_nan_and_an_unknown_kind_are_refused() -> None:
    values = np.zeros((3, 2))
    with pytest.raises(ValueError, match="3 numbers per step, but layout language_table has 2"):
        Normaliser.fit(values, LAYOUT).normalise(np.zeros((1, 3)))
    with pytest.raises(ValueError, match="do not fit layout"):
        Normaliser.fit(np.zeros((3, 7)), LAYOUT)
    with pytest.raises(ValueError, match="NaN"):
        Normaliser.fit(np.full((3, 2), np.nan), LAYOUT)
    with pytest.raises(ValueError, match="must be finite, scale not 0"):
        Normaliser(kind="min_max", layout=LAYOUT, offset=(0.0, 0.0), scale=(1.0, 0.0))
