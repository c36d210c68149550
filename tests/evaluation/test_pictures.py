"""Pictures show the scored pixels: exact panels, even sides, readable files."""

import base64
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from simforcing.data.video import VideoFrames
from simforcing.evaluation.figures import Line, line_chart, running_mean
from simforcing.evaluation.pictures import (
    GAP_PX,
    animation,
    contact_sheet,
    difference,
    enlarge,
    enlargement,
    side_by_side,
    video_uri,
)


@pytest.fixture
def pair(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    truth = rng.integers(0, 256, (7, 64, 64, 3), dtype=np.uint8)
    predicted = truth.copy()
    predicted[1:, 20:40, 20:40] = 128
    return truth, predicted


def test_a_difference_is_black_exactly_where_frames_agree(pair) -> None:
    truth, predicted = pair
    black = difference(truth, truth)[0, 0, 0]
    agrees = (truth == predicted).all(axis=-1)
    np.testing.assert_array_equal((difference(truth, predicted) == black).all(axis=-1)[:, :16], agrees[:, :16])
    assert (difference(truth, predicted)[1, 30, 30] != black).any()


@pytest.mark.parametrize(("size", "factor"), [((64, 64), 4), ((224, 320), 1), ((192, 320), 1), ((32, 32), 8)])
def test_frames_are_enlarged_by_whole_factors_to_about_256_pixels(size, factor) -> None:
    assert enlargement(*size) == factor


def test_the_panels_hold_the_frames_pixel_for_pixel(pair) -> None:
    truth, predicted = pair
    frames = side_by_side(truth, predicted, fps=5.0)
    assert frames.shape[1] % 2 == 0
    assert frames.shape[2] % 2 == 0
    assert len(frames) == len(truth)
    top = frames.shape[1] - 256
    np.testing.assert_array_equal(frames[:, top:, :256], enlarge(truth, 4))
    np.testing.assert_array_equal(frames[:, top:, 256 + GAP_PX : 512 + GAP_PX], enlarge(predicted, 4))


@pytest.mark.parametrize("shape", [(3, 33, 47, 3), (2, 65, 101, 3)])
def test_odd_sizes_still_make_a_video_that_comes_back(shape, rng: np.random.Generator, tmp_path: Path) -> None:
    truth = rng.integers(0, 256, shape, dtype=np.uint8)
    uri = video_uri(side_by_side(truth, truth, fps=5.0), 5.0)
    path = tmp_path / "a.mp4"
    path.write_bytes(base64.b64decode(uri.removeprefix("data:video/mp4;base64,")))
    assert VideoFrames(path).num_frames == len(truth)


def test_a_contact_sheet_begins_with_the_given_frame_and_ends_with_the_last(pair) -> None:
    truth, predicted = pair
    sheet = np.asarray(contact_sheet(truth, predicted, 5.0, num_columns=4, side_px=64, title="a long title" * 20))
    margin, head, step = 26, 50, 64 + GAP_PX
    np.testing.assert_array_equal(sheet[head : head + 64, margin : margin + 64], truth[0])
    left = margin + 3 * step
    np.testing.assert_array_equal(sheet[head + step : head + step + 64, left : left + 64], predicted[-1])


@pytest.mark.parametrize("ending", [".gif", ".webp"])
def test_an_animation_has_every_frame_at_its_rate_and_repeats(pair, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a{ending}"
    animation([pair, pair], 5.0, path)
    with Image.open(path) as image:
        assert image.n_frames == 7
        assert image.info["loop"] == 0
        image.seek(1)
        image.load()
        assert image.info["duration"] == 200


def test_another_ending_is_refused(pair, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"choices: \.gif, \.webp"):
        animation([pair], 5.0, tmp_path / "a.png")


def test_charts_take_their_ink_from_the_page_and_are_the_same_every_time() -> None:
    line = Line(label="loss", x=np.arange(50.0), y=np.exp(-np.arange(50.0) / 9), colour="#2f7de1")
    first, second = (line_chart("a", [line], x_label="step", y_label="loss", log_y=True, smooth=True) for _ in range(2))
    assert first == second
    assert "currentColor" in first
    assert "#010203" not in first
    assert "#000000" not in first


def test_a_running_mean_of_one_is_the_line_itself_and_of_all_the_mean_so_far() -> None:
    y = np.array([4.0, 2.0, 0.0, 6.0])
    np.testing.assert_allclose(running_mean(y, 1), y)
    np.testing.assert_allclose(running_mean(y, 99), [4, 3, 2, 3])
