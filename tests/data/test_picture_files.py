"""Photos from files: upright, still, opaque, and of the model's aspect or brought to it as somebody chose."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from simforcing.data.picture_files import of_aspect, read_picture


@pytest.fixture
def picture(rng: np.random.Generator) -> np.ndarray:
    """Noise of 12 x 16."""
    return rng.integers(0, 256, (12, 16, 3), np.uint8)


def test_a_picture_is_read_as_it_was_written_and_turned_as_its_camera_says(picture: np.ndarray, tmp_path: Path):
    Image.fromarray(picture).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_picture(tmp_path / "a.png"), picture)
    exif = Image.Exif()
    exif[0x0112] = 6  # taken with the camera on its side
    Image.fromarray(picture).save(tmp_path / "turned.png", exif=exif)
    np.testing.assert_array_equal(read_picture(tmp_path / "turned.png"), np.rot90(picture, -1))


def test_grey_and_opaque_pictures_are_pictures(picture: np.ndarray, tmp_path: Path):
    for mode in ("L", "RGBA", "P"):
        Image.fromarray(picture).convert(mode).save(tmp_path / f"{mode}.png")
        assert read_picture(tmp_path / f"{mode}.png").shape == (12, 16, 3)


def test_what_is_no_still_opaque_picture_is_refused_by_name(picture: np.ndarray, tmp_path: Path):
    frames = [Image.fromarray(np.roll(picture, i, 0)) for i in range(3)]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    clear = np.dstack([picture, np.full((12, 16), 90, np.uint8)])
    Image.fromarray(clear).save(tmp_path / "clear.png")
    Image.fromarray(picture[..., 0].astype(np.uint16) * 256).save(tmp_path / "deep.png")
    (tmp_path / "text.png").write_text("no picture")
    whole = (tmp_path / "clear.png").read_bytes()
    (tmp_path / "half.png").write_bytes(whole[: len(whole) // 2])
    lines = {
        "moving.gif": "holds 3 frames; give one still picture",
        "clear.png": "has transparent pixels",
        "deep.png": "has pixels of mode I;16",
        "text.png": "cannot identify",
        "half.png": "",
        "gone.png": "no such file",
    }
    for name, line in lines.items():
        with pytest.raises(ValueError, match=f"{name}: .*{line}") as caught:
            read_picture(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_another_aspect_is_refused_or_brought_to_the_models(picture: np.ndarray):
    assert of_aspect(picture, (60, 80), None, "a.png") is picture
    with pytest.raises(ValueError, match=r"a\.png: a picture of 12x16 .* trained on 20x20 .*--resize pad, crop or sq"):
        of_aspect(picture, (20, 20), None, "a.png")
    padded = of_aspect(picture, (16, 16), "pad", "a.png")
    np.testing.assert_array_equal(padded[2:14], picture)
    assert not padded[:2].any()
    np.testing.assert_array_equal(of_aspect(picture, (12, 12), "crop", "a.png"), picture[:, 2:14])
    assert of_aspect(picture, (24, 8), "squash", "a.png").shape == (24, 8, 3)
