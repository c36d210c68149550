"""Masks of a robot from a file or from learnt colours: what they find, and what they refuse in one line."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from simforcing.data.picture_files import read_picture
from simforcing.generation.sam3 import Sam3Options
from simforcing.generation.segment import (
    AppearanceFile,
    AppearanceSegmenter,
    MaskFile,
    Segmenter,
    SegmenterConfig,
    segmenter_named,
)
from simforcing.sim.appearance import learn_appearance
from simforcing.types import Camera
from simforcing.types.calibration import (
    Appearance,
    Calibration,
    EpisodeFit,
    GroupFit,
    read_calibration,
    write_calibration,
)

SIZE = (24, 32)


def scene(column: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A noisy orange bar on a noisy grey ground, and where it is."""
    robot = np.zeros(SIZE, bool)
    robot[4:20, column : column + 6] = True
    colour = np.where(robot[..., None], (210, 120, 40), (90, 95, 100))
    return (colour + rng.integers(-8, 9, (*SIZE, 3))).clip(0, 255).astype(np.uint8), robot


@pytest.fixture
def appearance(rng: np.random.Generator) -> Appearance:
    pictures, masks = zip(*(scene(column, rng) for column in (2, 8, 14, 20)), strict=True)
    return learn_appearance(np.stack(pictures), np.stack(masks))


def calibration(appearance: Appearance | None, names: tuple[str, ...] = ("0",)) -> Calibration:
    camera = Camera(size=SIZE, intrinsics=np.diag([30.0, 30.0, 1.0]), pose=np.eye(4))
    groups = tuple(
        GroupFit(
            name=name,
            camera=camera,
            lag=0,
            episodes=(EpisodeFit(name=f"episode {name}", accepted=True),),
            appearance=appearance,
        )
        for name in names
    )
    return Calibration(data="d", fingerprint="f", view="v", robot="r", groups=groups, seed=0, settings={})


def written(path: Path, levels: np.ndarray) -> Path:
    Image.fromarray(levels).save(path)
    return path


def test_a_mask_file_is_the_mask_of_a_picture_of_its_size(tmp_path: Path, rng: np.random.Generator):
    image, robot = scene(8, rng)
    grey = written(tmp_path / "grey.png", np.where(robot, 200, 60).astype(np.uint8))
    colour = written(tmp_path / "colour.png", np.repeat(np.where(robot, 255, 0)[..., None], 3, 2).astype(np.uint8))
    for path in (grey, colour):
        segmenter = MaskFile(path=path).build()
        assert isinstance(segmenter, Segmenter)
        np.testing.assert_array_equal(segmenter(image), robot)


def test_a_mask_of_another_size_is_refused_with_both_sizes(tmp_path: Path, rng: np.random.Generator):
    path = written(tmp_path / "m.png", np.full((12, 16), 255, np.uint8))
    with pytest.raises(ValueError, match=r"m\.png: a mask of 12x16 pixels for a picture of 24x32"):
        MaskFile(path=path).build()(scene(8, rng)[0])


@pytest.mark.parametrize(
    ("level", "message"),
    [
        (0, r"no robot found in the frame: .*its brightest pixel is 0\) marks 0 of its 768 pixels"),
        (1, r"no robot found in the frame: .*its brightest pixel is 1\)"),
        (255, r"marks 100 % of the frame as robot, at most 90 % are expected"),
    ],
)
def test_an_empty_or_full_mask_is_refused(level: int, message: str, tmp_path: Path, rng: np.random.Generator):
    path = written(tmp_path / "m.png", np.full(SIZE, level, np.uint8))
    with pytest.raises(ValueError, match=message) as error:
        MaskFile(path=path).build()(scene(8, rng)[0])
    assert "\n" not in str(error.value)


def test_a_file_that_is_no_picture_is_refused_by_name(tmp_path: Path):
    (tmp_path / "text.png").write_text("no picture")
    for name, why in (("text.png", "cannot identify image file"), ("missing.png", "no such file")):
        with pytest.raises(ValueError, match=f"{name}: {why}"):
            MaskFile(path=tmp_path / name).build()


def test_a_mask_is_turned_as_its_photo_is(tmp_path: Path, rng: np.random.Generator):
    """Both come from one camera that lay on its side."""
    image, robot = scene(8, rng)
    levels = np.where(robot, 255, 0).astype(np.uint8)
    turned = Image.Exif()
    turned[0x0112] = 8  # shown after a quarter turn counterclockwise
    for name, pixels in (("photo.png", image), ("mask.png", levels)):
        Image.fromarray(np.rot90(pixels, -1).copy()).save(tmp_path / name, exif=turned)
    photo = read_picture(tmp_path / "photo.png")
    np.testing.assert_array_equal(photo, image)
    np.testing.assert_array_equal(MaskFile(path=tmp_path / "mask.png").build()(photo), robot)


def test_a_mask_of_one_bit_is_a_mask(tmp_path: Path, rng: np.random.Generator):
    image, robot = scene(8, rng)
    path = written(tmp_path / "m.png", robot)
    np.testing.assert_array_equal(MaskFile(path=path).build()(image), robot)


def test_learnt_colours_find_the_robot_where_it_never_was(appearance: Appearance, rng: np.random.Generator):
    image, robot = scene(11, rng)
    found = AppearanceSegmenter(appearance)(image)
    assert (found & robot).sum() / (found | robot).sum() > 0.9


def test_learnt_colours_are_of_a_picture_of_any_size(appearance: Appearance, rng: np.random.Generator):
    image, robot = scene(11, rng)
    found = AppearanceSegmenter(appearance)(image.repeat(3, axis=0).repeat(3, axis=1))
    large = robot.repeat(3, axis=0).repeat(3, axis=1)
    assert (found & large).sum() / (found | large).sum() > 0.85


def test_where_the_robot_usually_is_decides_between_equal_colours(rng: np.random.Generator):
    """A second thing of the robot's colour, in a corner where the robot never was."""
    pictures, masks = zip(*(scene(column, rng) for column in (18, 20, 22)), strict=True)
    for picture in pictures:
        picture[2:20, 1:4] = (210, 120, 40)
    found = AppearanceSegmenter(learn_appearance(np.stack(pictures), np.stack(masks)))(pictures[0])
    assert found[masks[0]].mean() > 0.9
    assert found[2:20, 1:4].mean() < 0.3


def test_a_frame_of_the_ground_alone_holds_no_robot(appearance: Appearance, rng: np.random.Generator):
    ground = (np.array((90, 95, 100)) + rng.integers(-8, 9, (*SIZE, 3))).astype(np.uint8)
    with pytest.raises(ValueError, match="no robot found in the frame: its appearance marks"):
        AppearanceSegmenter(appearance)(ground)


def test_nothing_is_learnt_of_frames_without_robot_or_without_ground(rng: np.random.Generator):
    image, robot = scene(8, rng)
    for mask, message in ((robot & False, "hold no robot"), (robot | True, "hold nothing but the robot")):
        with pytest.raises(ValueError, match=message):
            learn_appearance(image[None], mask[None])


def test_a_calibration_keeps_the_appearance_exactly(appearance: Appearance, tmp_path: Path, rng: np.random.Generator):
    path = tmp_path / "calibration.json"
    write_calibration(path, calibration(appearance))
    assert read_calibration(path).groups[0].appearance == appearance
    image, _ = scene(11, rng)
    np.testing.assert_array_equal(AppearanceFile(path=path).build()(image), AppearanceSegmenter(appearance)(image))


def test_one_of_several_cameras_is_chosen_by_group_or_episode(appearance: Appearance, tmp_path: Path):
    path = tmp_path / "calibration.json"
    write_calibration(path, calibration(appearance, ("0", "1")))
    with pytest.raises(ValueError, match=r"name one of its 2 cameras, as .*@GROUP_OR_EPISODE; groups: 0, 1"):
        AppearanceFile(path=path).build()
    for name in ("1", "episode 1"):
        AppearanceFile(path=path, group=name).build()
    with pytest.raises(ValueError, match="no fitted camera for '7'; groups: 0, 1"):
        AppearanceFile(path=path, group="7").build()


def test_a_calibration_without_appearance_says_to_calibrate_again(tmp_path: Path):
    path = tmp_path / "calibration.json"
    write_calibration(path, calibration(None))
    with pytest.raises(ValueError, match="no group has a model of the robot's appearance; run `simforcing calibrate`"):
        AppearanceFile(path=path).build()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": (0.0,) * 9}, "9 colours, expected as many as a cube of bins"),
        ({"place": ((0.0, 1.0), (0.0,))}, "rows of places of one length"),
        ({"place": ()}, "rows of places of one length"),
    ],
)
def test_a_damaged_appearance_is_refused_by_place(change: dict, message: str, appearance: Appearance, tmp_path: Path):
    path = tmp_path / "calibration.json"
    damaged = Appearance(**(vars(appearance) | change))
    write_calibration(path, calibration(damaged))
    with pytest.raises(ValueError, match=rf"groups\[0\]\.appearance: .*{message}"):
        read_calibration(path)


@pytest.mark.parametrize(
    ("word", "config"),
    [
        ("mask:a/b.png", MaskFile(path=Path("a/b.png"))),
        ("appearance:c.json", AppearanceFile(path=Path("c.json"))),
        ("appearance:c.json@3", AppearanceFile(path=Path("c.json"), group="3")),
        ("sam3:org/name", Sam3Options(path="org/name")),
        ("sam3:folder@robot gripper", Sam3Options(path="folder", prompt="robot gripper")),
        ("sam3:folder@12,30;40.5,8", Sam3Options(path="folder", points_px=((12.0, 30.0), (40.5, 8.0)))),
    ],
)
def test_a_word_names_a_segmenter(word: str, config: SegmenterConfig):
    assert segmenter_named(word) == config


@pytest.mark.parametrize("word", ["", "mask", "mask:", "sam2:x", "robot.png"])
def test_another_word_is_refused_with_the_choices(word: str):
    with pytest.raises(
        ValueError, match=r"unknown segmenter .*choices: sam3:.*mask:FILE.*appearance:CALIBRATION\.json"
    ):
        segmenter_named(word)


@pytest.mark.parametrize("points", ["12", "1,2,3", "1,2;x,3"])
def test_points_that_are_no_pairs_are_refused(points: str):
    with pytest.raises(ValueError, match="expected X,Y;X,Y"):
        segmenter_named(f"sam3:folder@{points}")
