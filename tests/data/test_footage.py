"""What a calibration reads: few small frames of the right rows, masks beside them, episodes put together by camera."""

from dataclasses import replace

import numpy as np
import pytest

from simforcing.data.footage import (
    NUM_FRAMES,
    CameraPrior,
    background,
    build_group,
    group_episodes,
    read_footage,
    working_size,
)
from simforcing.data.video import ArrayFrames
from simforcing.sim.tabletop_arm import TABLETOP_ARM
from simforcing.types import Camera, Episode, View
from simforcing.types.cameras import pinhole_intrinsics


def episode(name: str, frames: np.ndarray, masks: np.ndarray | None = None) -> Episode:
    times, table = np.arange(len(frames)) / 5, np.zeros((len(frames), 7), np.float32)
    source = None if masks is None else ArrayFrames(masks)
    return Episode(
        name=name,
        task="",
        fps=5.0,
        num_frames=len(frames),
        views=(View(name="front", frames=ArrayFrames(frames), masks=source),),
        action=table,
        action_time_s=times,
    )


def numbered(num_frames: int, size: tuple[int, int] = (24, 32)) -> np.ndarray:
    """Frame i is grey level i."""
    return np.broadcast_to(np.arange(num_frames, dtype=np.uint8)[:, None, None, None], (num_frames, *size, 3)).copy()


def room(seed: int, num_frames: int = 8, size: tuple[int, int] = (64, 80)) -> np.ndarray:
    """A wall of coloured tiles, with a block that is elsewhere in every frame."""
    rng = np.random.default_rng(seed)
    tiles = rng.integers(0, 256, (size[0] // 8, size[1] // 8, 3), dtype=np.uint8).repeat(8, axis=0).repeat(8, axis=1)
    frames = np.repeat(tiles[None], num_frames, axis=0)
    for number, frame in enumerate(frames):
        frame[20:40, 8 * number : 8 * number + 8] = 0
    return frames


@pytest.mark.parametrize(
    ("stored", "small"),
    [((64, 64), (64, 64)), ((480, 640), (96, 128)), ((192, 320), (96, 160)), ((300, 100), (288, 96))],
)
def test_small_pictures_keep_their_shape_and_are_never_enlarged(stored: tuple[int, int], small: tuple[int, int]):
    assert working_size(stored) == small


def test_all_frames_of_a_short_episode_and_evenly_chosen_ones_of_a_long_one():
    short = read_footage(episode("a", numbered(7)), "front")
    np.testing.assert_array_equal(short.rows, np.arange(7))
    long = read_footage(episode("b", numbered(200)), "front")
    assert len(long.rows) == NUM_FRAMES
    assert long.rows[[0, -1]].tolist() == [0, 199]
    assert set(np.diff(long.rows)) <= {3, 4}
    np.testing.assert_array_equal(long.frames[:, 0, 0, 0], long.rows)  # the frames are those of the rows
    assert long.masks is None


def test_masks_are_read_beside_the_frames_and_shrunk_without_mixing():
    masks = np.zeros((5, 200, 240, 3), np.uint8)
    masks[:, 50:150, 60:180] = 255
    found = read_footage(episode("a", numbered(5, (200, 240)), masks), "front", with_masks=True)
    assert found.masks is not None
    assert found.masks.shape == (5, 96, 115)
    assert found.frames.shape == (5, 96, 115, 3)
    assert found.masks.mean() == pytest.approx(0.25, abs=0.01)


def test_masks_that_are_asked_for_and_missing_are_refused_by_name():
    with pytest.raises(ValueError, match="episode a: view front has no masks"):
        read_footage(episode("a", numbered(5)), "front", with_masks=True)


def test_background_is_what_stays_when_things_pass():
    frames = room(0)
    empty = room(0, num_frames=1)[0]
    found = background(episode("a", frames), "front")
    np.testing.assert_array_equal(found[:20], empty[:20])
    assert not (found[20:40] == 0).all(axis=-1).any()  # the block is gone


def test_episodes_are_put_together_by_background_in_order_and_by_size():
    episodes = [
        episode("a", room(1)),
        episode("b", room(2)),
        episode("c", room(1)[::-1]),
        episode("d", room(1, size=(32, 40))),
    ]
    backgrounds = {e.name: background(e, "front") for e in episodes}
    groups = [[e.name for e in group] for group in group_episodes(episodes, "front", backgrounds)]
    assert groups == [["d"], ["a", "c"], ["b"]]


def group(lags: tuple[int, ...], episodes: list[Episode], qpos: dict[str, np.ndarray], **options: bool):
    template = Camera(size=(24, 32), intrinsics=pinhole_intrinsics((24, 32), fovy_rad=0.8))
    prior = CameraPrior(template=template, lags=lags)
    return build_group("g", episodes, "front", robot=TABLETOP_ARM, qpos=qpos, prior=prior, **options)


def test_frame_i_is_put_beside_row_i_minus_lag_within_its_own_episode():
    episodes = [episode("a", numbered(5)), episode("b", numbered(3))]
    qpos = {"a": np.arange(5.0)[:, None] * np.ones(8), "b": 100 + np.arange(3.0)[:, None] * np.ones(8)}
    built = group((-1, 0, 2), episodes, qpos)
    assert built.episodes == ("a", "b")
    assert built.episode.tolist() == [0] * 5 + [1] * 3
    assert built.qpos[:, :, 0].tolist() == [
        [1, 2, 3, 4, 4, 101, 102, 102],
        [0, 1, 2, 3, 4, 100, 101, 102],
        [0, 0, 0, 1, 2, 100, 100, 100],
    ]
    assert built.configurations(np.array([4, 7]), 2)[:, 0].tolist() == [2, 100]
    assert built.masks is None


def test_chosen_frames_of_a_long_episode_keep_their_own_rows():
    qpos = {"a": np.arange(200.0)[:, None] * np.ones(8)}
    built = group((1,), [episode("a", numbered(200))], qpos)
    np.testing.assert_array_equal(built.qpos[0, 1:, 0], built.frames[1:, 0, 0, 0].astype(float) - 1)


def test_masks_of_all_episodes_follow_one_another():
    masks = [np.full((3, 24, 32, 3), level, np.uint8) for level in (0, 255)]
    episodes = [episode(name, numbered(3), mask) for name, mask in zip("ab", masks, strict=True)]
    built = group((0,), episodes, {name: np.zeros((3, 8)) for name in "ab"}, with_masks=True)
    assert built.masks is not None
    assert built.masks.mean(axis=(1, 2)).tolist() == [0, 0, 0, 1, 1, 1]
    assert replace(built, masks=None).observation.masked is False
    assert built.observation.masked
