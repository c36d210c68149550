"""The sheet of a calibration: outlines where the robot is, a row for every group, the same every time."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from simforcing.data.open import open_dataset
from simforcing.data.overlay import OUTLINE, TILE_PX, TITLE_PX, outlined, write_sheet
from simforcing.data.tabletop import VIEW, TabletopSets, true_cameras
from simforcing.sim.model import RobotModel
from simforcing.sim.replay import Layouts, replay
from simforcing.sim.tabletop import TabletopConfig
from simforcing.sim.tabletop_arm import TABLETOP_ARM
from simforcing.types import Episode
from simforcing.types.calibration import Calibration, EpisodeFit, GroupFit

ROW_PX = TILE_PX + TITLE_PX + 2
Set = tuple[dict[str, Episode], dict[str, np.ndarray], Calibration]


@pytest.fixture(scope="module")
def tabletop(tmp_path_factory: pytest.TempPathFactory) -> Set:
    """Two episodes with their true cameras as two groups."""
    root = tmp_path_factory.mktemp("sheet")
    TabletopSets(num_episodes=2, seed=0, simulator=TabletopConfig(num_frames=9, size_px=64), num_processes=1).write(
        root
    )
    data = open_dataset(root / "episodes")
    robot, layouts = RobotModel(TABLETOP_ARM), Layouts.of(data)
    qpos = {episode.name: replay(robot, episode, layouts).qpos for episode in data.episodes}
    groups = tuple(
        GroupFit(name=name, camera=camera, lag=0, episodes=(EpisodeFit(name=name, accepted=True, iou=0.5),))
        for name, camera in true_cameras(root / "episodes").items()
    )
    calibration = Calibration(
        data="d", fingerprint="f", view=VIEW, robot=TABLETOP_ARM.name, groups=groups, seed=0, settings={}
    )
    return {episode.name: episode for episode in data.episodes}, qpos, calibration


def sheet(path: Path, made: Set, calibration: Calibration) -> np.ndarray:
    episodes, qpos, _ = made
    write_sheet(path, episodes, calibration, robot=TABLETOP_ARM, qpos=qpos)
    return np.asarray(Image.open(path))


def is_outline(picture: np.ndarray) -> np.ndarray:
    return (picture == OUTLINE).all(axis=-1)


def test_outline_is_the_inner_edge_of_the_mask_and_leaves_the_rest(rng: np.random.Generator):
    frame = rng.integers(0, 200, (20, 30, 3), dtype=np.uint8)
    before, mask = frame.copy(), np.zeros((20, 30), bool)
    mask[5:12, 4:15] = True
    drawn = outlined(frame, mask)
    edge = mask.copy()
    edge[6:11, 5:14] = False
    np.testing.assert_array_equal(is_outline(drawn), edge)
    np.testing.assert_array_equal(drawn[~edge], frame[~edge])
    np.testing.assert_array_equal(frame, before)


def test_a_robot_that_is_cut_by_the_border_has_no_line_there():
    mask = np.zeros((20, 30), bool)
    mask[:, :10] = True
    drawn = is_outline(outlined(np.zeros((20, 30, 3), np.uint8), mask))
    assert drawn[:, 9].all()
    assert drawn.sum() == 20


def test_sheet_has_a_row_for_every_group_with_five_outlined_frames(tabletop: Set, tmp_path: Path):
    picture = sheet(tmp_path / "sheet.png", tabletop, tabletop[2])
    assert picture.shape == (2 * ROW_PX, 5 * (TILE_PX + 2), 3)
    for tile in np.split(is_outline(picture), 5, axis=1):
        for row in np.split(tile, 2):
            assert row.sum() > 50
            assert not row[:TITLE_PX].any()


def test_outlines_lie_on_the_edge_of_the_seen_robot(tabletop: Set, tmp_path: Path):
    """Turned by a tenth of the picture, the line lies elsewhere."""
    _, _, calibration = tabletop
    first = calibration.groups[0]
    assert first.camera is not None
    assert first.camera.intrinsics is not None
    aside = first.camera.intrinsics.copy()
    aside[0, 2] += 6.4
    moved = replace(first, camera=replace(first.camera, intrinsics=aside))
    right, wrong = (
        is_outline(sheet(tmp_path / "one.png", tabletop, replace(calibration, groups=(group,))))
        for group in (first, moved)
    )
    shifted = np.roll(right, round(0.1 * TILE_PX), axis=1)
    assert (shifted & wrong).sum() > 3 * (right & wrong).sum()


def test_a_group_without_a_camera_is_shown_without_outlines(tabletop: Set, tmp_path: Path):
    _, _, calibration = tabletop
    lost = GroupFit(
        name="0", camera=None, lag=0, episodes=(EpisodeFit(name="episode_000000", accepted=False, reason="none"),)
    )
    picture = sheet(tmp_path / "lost.png", tabletop, replace(calibration, groups=(lost,)))
    assert picture.shape == (ROW_PX, 5 * (TILE_PX + 2), 3)
    assert not is_outline(picture).any()


def test_sheet_is_the_same_every_time_and_leaves_nothing_else_behind(tabletop: Set, tmp_path: Path):
    first, second = (sheet(tmp_path / name, tabletop, tabletop[2]) for name in ("a.png", "b.png"))
    np.testing.assert_array_equal(first, second)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "b.png"]


def test_a_sheet_of_many_groups_stays_small(tabletop: Set, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("simforcing.data.overlay.SHEET_GROUPS", 2)
    _, _, calibration = tabletop
    many = replace(calibration, groups=calibration.groups[:1] * 3)
    assert len(sheet(tmp_path / "many.png", tabletop, many)) == 2 * ROW_PX
