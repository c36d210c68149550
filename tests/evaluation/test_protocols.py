"""Protocols: what counts, what is refused, and what each choice changes."""

from dataclasses import replace

import numpy as np
import pytest

from simforcing.evaluation.frames import psnr, ssim, to_grey
from simforcing.evaluation.protocols import PROTOCOLS, ROUNDING_PSNR_DB, Protocol, protocol_named, score_clip


def videos(shape: tuple[int, ...], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A drifting ramp and a disturbed copy."""
    rng = np.random.default_rng(seed)
    f, h, w, _ = shape
    rows, columns = np.mgrid[:h, :w]
    truth = np.stack([(rows * 2 + columns + 3 * i)[..., None] * np.array([1, 0.7, 0.4]) % 200 for i in range(f)])
    predicted = np.clip(truth + rng.normal(0, 8, shape), 0, 255)
    return truth.astype(np.uint8), predicted.astype(np.uint8)


def test_the_given_frame_counts_only_where_the_protocol_says_so() -> None:
    truth, predicted = videos((5, 32, 32, 3))
    without = score_clip(truth, predicted, Protocol(name="a"))
    included = score_clip(truth, predicted, Protocol(name="b", include_given=True))
    np.testing.assert_array_equal(without.psnr, included.psnr[1:])
    np.testing.assert_allclose(included.psnr, psnr(truth, predicted))
    assert len(without.ssim) == 4


def test_an_exact_copy_counts_as_much_as_rounding_to_eight_bits() -> None:
    truth, _ = videos((3, 32, 32, 3))
    scores = score_clip(truth, truth, Protocol(name="a"))
    np.testing.assert_array_equal(scores.psnr, ROUNDING_PSNR_DB)
    rounding = np.random.default_rng(0).uniform(-0.5, 0.5, 10**6) / 255
    assert pytest.approx(-10 * np.log10(np.square(rounding).mean()), abs=0.02) == ROUNDING_PSNR_DB


def test_still_frames_do_not_count_in_the_moving_region() -> None:
    truth, predicted = videos((4, 32, 32, 3))
    truth[1] = truth[0]
    truth[2:, 10:14, 10:14] = 255
    scores = score_clip(truth, predicted, Protocol(name="a"))
    assert np.isnan(scores.moving_psnr).tolist() == [True, False, False]
    assert scores.mean("moving_psnr") == pytest.approx(scores.moving_psnr[1:].mean())


def test_a_clip_without_motion_has_no_moving_score() -> None:
    truth, predicted = videos((3, 32, 32, 3))
    truth[:] = truth[0]
    assert np.isnan(score_clip(truth, predicted, Protocol(name="a")).mean("moving_psnr"))


def test_grey_scores_are_those_of_the_grey_frames() -> None:
    truth, predicted = videos((3, 32, 32, 3))
    scores = score_clip(truth, predicted, Protocol(name="a", colour="grey"))
    np.testing.assert_allclose(scores.psnr, psnr(to_grey(truth), to_grey(predicted))[1:])
    np.testing.assert_allclose(scores.ssim, ssim(to_grey(truth), to_grey(predicted))[1:])


def test_the_halved_form_is_the_plain_one_on_small_frames_and_milder_on_large_noisy_ones() -> None:
    halved, plain = Protocol(name="a", ssim_form="gaussian_halved"), Protocol(name="b")
    small = videos((2, 48, 64, 3))
    np.testing.assert_allclose(score_clip(*small, halved).ssim, score_clip(*small, plain).ssim, rtol=1e-12)
    large = videos((2, 480, 640, 3))
    assert score_clip(*large, halved).ssim[0] > score_clip(*large, plain).ssim[0] + 0.05


def test_re_encoding_changes_scores_a_little() -> None:
    truth, predicted = videos((4, 64, 64, 3))
    plain = score_clip(truth, predicted, Protocol(name="a")).psnr
    coded = score_clip(truth, predicted, Protocol(name="b", reencode_fps=4.0)).psnr
    assert 0 < np.abs(coded - plain).max() < 6


def test_published_protocols_are_what_they_are_documented_as() -> None:
    assert {"simforcing", "irasim-short", "dreamdojo", "tabletop", "predicted-frames"} <= set(PROTOCOLS)
    paper, irasim, dojo = (protocol_named(name) for name in ("simforcing", "irasim-short", "dreamdojo"))
    assert (paper.num_frames, paper.size, paper.include_given, paper.colour) == (21, (224, 320), True, "rgb")
    assert (irasim.num_frames, irasim.size, irasim.include_given, irasim.reencode_fps) == (16, (256, 320), False, 4.0)
    assert (dojo.num_frames, dojo.size, dojo.include_given, dojo.ssim_form) == (49, (480, 640), True, "gaussian_halved")


def test_a_clip_of_another_length_or_size_is_refused_with_both_numbers() -> None:
    truth, predicted = videos((5, 32, 32, 3))
    with pytest.raises(ValueError, match="scores 17 frames, the clip has 5"):
        score_clip(truth, predicted, protocol_named("tabletop"))
    sized = replace(protocol_named("tabletop"), num_frames=5)
    with pytest.raises(ValueError, match="scores 64x64 px, the clip has 32x32"):
        score_clip(truth, predicted, sized)


def test_an_unknown_protocol_lists_the_choices() -> None:
    with pytest.raises(ValueError, match="unknown protocol 'fvd'; choices: tabletop"):
        protocol_named("fvd")
