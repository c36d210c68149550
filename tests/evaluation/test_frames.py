"""Laws of the frame metrics, and parity with scikit-image."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from simforcing.evaluation.frames import halve_to_256, masked_psnr, moving_region, psnr, ssim, to_grey


def pair(shape: tuple[int, ...], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 256, shape, dtype=np.uint8)
    return truth, np.clip(truth + rng.normal(0, 25, shape), 0, 255).astype(np.uint8)


@pytest.mark.parametrize("shape", [(3, 64, 64, 3), (2, 33, 47, 3), (2, 40, 24, 1), (1, 11, 12, 3)])
def test_ssim_equals_scikit_image(shape: tuple[int, ...]) -> None:
    truth, predicted = pair(shape)
    expected = [
        structural_similarity(
            a / 255,
            b / 255,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
            data_range=1,
            channel_axis=-1,
        )
        for a, b in zip(truth, predicted, strict=True)
    ]
    np.testing.assert_allclose(ssim(truth, predicted), expected, atol=1e-6)  # measured: 2e-16


def test_psnr_equals_scikit_image() -> None:
    truth, predicted = pair((4, 30, 20, 3))
    expected = [peak_signal_noise_ratio(a, b, data_range=255) for a, b in zip(truth, predicted, strict=True)]
    np.testing.assert_allclose(psnr(truth, predicted), expected, atol=1e-6)  # measured: 0


def test_equal_frames_are_perfect() -> None:
    truth, _ = pair((2, 16, 16, 3))
    assert np.isposinf(psnr(truth, truth)).all()
    np.testing.assert_allclose(ssim(truth, truth), 1.0, atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(step=st.integers(1, 255))
def test_a_constant_error_has_the_decibels_of_its_square(step: int) -> None:
    dark = np.zeros((1, 12, 12, 3), np.uint8)
    np.testing.assert_allclose(psnr(dark, np.full_like(dark, step)), 20 * np.log10(255 / step), rtol=1e-12)


def test_ssim_and_psnr_do_not_know_which_frame_is_true() -> None:
    truth, predicted = pair((2, 24, 24, 3))
    np.testing.assert_allclose(ssim(truth, predicted), ssim(predicted, truth), rtol=1e-12)
    np.testing.assert_array_equal(psnr(truth, predicted), psnr(predicted, truth))


def test_ssim_refuses_frames_smaller_than_its_window() -> None:
    with pytest.raises(ValueError, match="at least 11x11 px, found 10x20"):
        ssim(*pair((1, 10, 20, 3)))


def test_moving_region_of_a_moving_square_is_both_places_grown_by_two_pixels() -> None:
    frames = np.full((3, 40, 40, 3), 50, np.uint8)
    frames[0, 10:14, 10:14, 1] = 200
    frames[1, 10:14, 10:14, 1] = 200
    frames[2, 25:29, 30:34, 1] = 200
    expected = np.zeros((3, 40, 40), bool)
    expected[2, 8:16, 8:16] = True
    expected[2, 23:31, 28:36] = True
    np.testing.assert_array_equal(moving_region(frames), expected)


@pytest.mark.parametrize(("step", "moves"), [(10, False), (11, True), (-10, False), (-11, True)])
def test_moving_region_begins_above_ten_levels_in_any_channel(step: int, moves: bool) -> None:
    frames = np.full((2, 12, 12, 3), 100, np.uint8)
    frames[1, 6, 6, 2] = 100 + step
    assert moving_region(frames)[1].sum() == (25 if moves else 0)


def test_masked_psnr_is_psnr_where_the_region_is_everything_and_missing_where_it_is_empty() -> None:
    truth, predicted = pair((2, 16, 16, 3))
    region = np.ones((2, 16, 16), bool)
    region[1] = False
    decibels = masked_psnr(truth, predicted, region)
    np.testing.assert_allclose(decibels[0], psnr(truth, predicted)[0], rtol=1e-12)
    assert np.isnan(decibels[1])


def test_masked_psnr_ignores_what_lies_outside_its_region() -> None:
    truth, predicted = pair((1, 16, 16, 3))
    region = np.zeros((1, 16, 16), bool)
    region[:, 4:9, 3:7] = True
    spoiled = np.where(region[..., None], predicted, 255 - predicted)
    np.testing.assert_array_equal(masked_psnr(truth, predicted, region), masked_psnr(truth, spoiled, region))


def test_metrics_refuse_frames_of_different_shapes() -> None:
    small, large = np.zeros((2, 16, 16, 3), np.uint8), np.zeros((2, 16, 18, 3), np.uint8)
    with pytest.raises((ValueError, TypeError)):  # the shape checker may see it first
        psnr(small, large)


def test_grey_of_grey_is_itself() -> None:
    grey = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1).repeat(3, axis=-1)
    np.testing.assert_array_equal(to_grey(grey), grey[..., :1])


def test_halving_averages_blocks_and_leaves_small_frames_alone() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (1, 512, 600, 3), dtype=np.uint8)
    halved = halve_to_256(frames)
    assert halved.shape == (1, 256, 300, 3)
    np.testing.assert_allclose(halved[0, 0, 0], frames[0, :2, :2].mean(axis=(0, 1)) / 255, rtol=1e-12)
    assert halve_to_256(frames[:, :64, :64]).shape == (1, 64, 64, 3)
