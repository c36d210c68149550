"""Backgrounds: the mean is exact, and a plate shows the scene that a moving robot hides."""

import numpy as np
import pytest

from simforcing.data.backgrounds import GREY, MARGIN_PX, PLATE_FRAMES, clean_plate, mean_image, plain, plate_rows


def covered_scene(num_frames: int = 9) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A random scene, a block that crosses it, and where the block is."""
    scene = np.random.default_rng(0).integers(0, 256, (24, 40, 3), np.uint8)
    frames, covered = np.repeat(scene[None], num_frames, axis=0), np.zeros((num_frames, 24, 40), bool)
    for i in range(num_frames):
        covered[i, 8:16, 4 * i : 4 * i + 6] = True
        frames[i][covered[i]] = (200, 30, 30)
    return scene, frames, covered


def test_a_plate_is_the_scene_where_each_pixel_is_free_at_some_time() -> None:
    scene, frames, covered = covered_scene()
    np.testing.assert_array_equal(clean_plate(frames, covered), scene)


def test_what_is_always_covered_takes_the_nearest_free_pixel() -> None:
    scene, frames, covered = covered_scene()
    covered[:, 20:, 10] = True
    frames[:, 20:, 10] = 0
    plate = clean_plate(frames, covered)
    column = plate[23, 10]
    assert (column == scene[23, 10 - MARGIN_PX - 1]).all() or (column == scene[23, 10 + MARGIN_PX + 1]).all()
    assert (clean_plate(frames, np.ones_like(covered)) == GREY).all()


def test_a_plate_of_an_even_number_of_frames_is_the_rounded_middle() -> None:
    frames = np.zeros((4, 2, 2, 3), np.uint8)
    frames[:, 0, 0, 0] = (10, 20, 31, 200)
    assert clean_plate(frames, np.zeros((4, 2, 2), bool))[0, 0, 0] == 26


def test_the_mean_is_exact() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (301, 5, 7, 3), np.uint8)
    np.testing.assert_array_equal(mean_image(frames), np.floor(frames.mean(axis=0, dtype=np.float64) + 0.5))
    with pytest.raises(ValueError, match="no frames"):
        mean_image([])


def test_plates_read_a_bounded_number_of_frames() -> None:
    assert plate_rows(5) == [0, 1, 2, 3, 4]
    rows = plate_rows(10_000)
    assert len(rows) == PLATE_FRAMES
    assert (rows[0], rows[-1]) == (0, 9999)
    assert (plain("white", (2, 2)) == 255).all()
    assert (plain("grey", (2, 2)) == 128).all()
