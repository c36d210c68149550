"""Windows: what is read, how it is resized, actions by time, and splits that are stable."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from simforcing.data.resize import resize_camera, resize_frames, resize_nearest
from simforcing.data.video import ArrayDepth, ArrayFrames
from simforcing.data.windows import WindowSpec, action_rows, read_clip, split_episodes, window_starts
from simforcing.types import Camera, Episode, Resize, View


class CountingFrames(ArrayFrames):
    """Remembers which ranges were read."""

    def __init__(self, frames: np.ndarray) -> None:
        super().__init__(frames)
        self.ranges: list[tuple[int, int]] = []

    def read(self, start: int, stop: int) -> np.ndarray:
        self.ranges.append((start, stop))
        return super().read(start, stop)


def episode(num_frames: int = 12, num_actions: int | None = None, fps: float = 5.0, rate_hz: float = 5.0) -> Episode:
    frames = np.zeros((num_frames, 8, 12, 3), np.uint8)
    frames[...] = np.arange(num_frames, dtype=np.uint8)[:, None, None, None]
    num_actions = num_frames if num_actions is None else num_actions
    return Episode(
        name="take",
        task="push",
        fps=fps,
        num_frames=num_frames,
        views=(View(name="front", frames=CountingFrames(frames)),),
        action=np.arange(num_actions, dtype=np.float32)[:, None] * np.ones((1, 2), np.float32),
        action_time_s=np.arange(num_actions) / rate_hz,
        state=np.arange(num_frames, dtype=np.float32)[:, None] * np.ones((1, 3), np.float32),
        state_time_s=np.arange(num_frames) / fps,
    )


def spec(num_frames: int = 5, views: tuple[str, ...] = ("front",), size: tuple[int, int] = (8, 12)) -> WindowSpec:
    return WindowSpec(num_frames=num_frames, views=views, resize=Resize(height=size[0], width=size[1]))


@given(start=st.integers(0, 7))
def test_action_i_drives_frame_i_to_the_next_and_only_the_windows_frames_are_read(start: int) -> None:
    take = episode()
    clip = read_clip(take, start, spec(), 2)
    assert take.views[0].frames.ranges == [(start, start + 5)]
    np.testing.assert_array_equal(clip.frames[0, :, 0, 0, 0], np.arange(start, start + 5))
    np.testing.assert_array_equal(clip.action[:, 0], np.arange(start, start + 4))
    np.testing.assert_allclose(clip.action_time_s, np.arange(4) / 5, atol=1e-9)
    np.testing.assert_allclose(clip.frame_time_s, np.arange(5) / 5)
    np.testing.assert_array_equal(clip.state, [start] * 3)


@pytest.mark.parametrize(("fps", "rate_hz"), [(5.0, 15.0), (29.97, 29.97), (30.0, 10.0), (7.0, 3.0)])
@given(start=st.integers(0, 15))
def test_the_actions_of_a_window_are_those_in_force_during_it(fps: float, rate_hz: float, start: int) -> None:
    take = episode(20, 200, fps, rate_hz)
    rows = action_rows(take, start, 5)
    first_s, last_s = start / fps, (start + 4) / fps
    expected = [row for row in range(200) if (row + 1) / rate_hz > first_s + 1e-6 and row / rate_hz < last_s - 1e-6]
    assert rows.tolist() == expected


def test_every_window_fits_and_every_start_that_fits_is_given() -> None:
    assert window_starts(episode(12), spec()) == list(range(8))
    assert window_starts(episode(12, 11), spec()) == list(range(8))  # no command after the last frame is needed
    assert window_starts(episode(12, 9), spec()) == list(range(6))  # the last actions are missing
    assert window_starts(episode(12), spec(), stride=3) == [0, 3, 6]
    assert window_starts(episode(5), spec()) == [0]
    assert window_starts(episode(4), spec()) == []
    assert window_starts(episode(12), spec(views=("wrist",))) == []


def test_actions_and_states_are_filled_up_with_numbers_that_are_not_valid() -> None:
    clip = read_clip(episode(), 0, spec(), 4, state_dim=5)
    assert clip.action.shape == clip.action_valid.shape == (4, 4)
    assert clip.action_valid[0].tolist() == [True, True, False, False]
    assert (clip.action[:, 2:] == 0).all()
    assert clip.state_valid.tolist() == [True] * 3 + [False] * 2
    without = read_clip(replace(episode(), state=None, state_time_s=None), 0, spec(), 2, state_dim=3)
    assert without.state.tolist() == [0, 0, 0]
    assert not without.state_valid.any()


def test_a_view_that_the_episode_lacks_is_black_and_not_present() -> None:
    clip = read_clip(episode(), 3, spec(views=("wrist", "front")), 2)
    assert clip.view_present.tolist() == [False, True]
    assert not clip.frames[0].any()
    assert clip.frames[1].any()


def test_windows_that_cannot_be_read_name_the_episode() -> None:
    with pytest.raises(ValueError, match=r"episode take: frames 8..12 are not within 0..11"):
        read_clip(episode(), 8, spec(), 2)
    with pytest.raises(ValueError, match="episode take: actions have 2 numbers, more than action_dim 1"):
        read_clip(episode(), 0, spec(), 1)
    with pytest.raises(ValueError, match="episode take: none of the views wrist; views: front"):
        read_clip(episode(), 0, spec(views=("wrist",)), 2)
    with pytest.raises(ValueError, match="at least 2"):
        spec(num_frames=1)


@pytest.mark.parametrize("policy", ["pad", "crop", "squash"])
@given(height=st.integers(3, 40), width=st.integers(3, 40))
def test_every_policy_gives_the_size_asked_for_and_leaves_one_colour_alone(
    policy: str, height: int, width: int
) -> None:
    frames = np.full((2, 10, 16, 3), 137, np.uint8)
    out = resize_frames(frames, Resize(height=height, width=width, policy=policy))
    assert out.shape == (2, height, width, 3)
    assert set(np.unique(out)) <= ({137} if policy != "pad" else {0, 137})


def test_pad_keeps_everything_crop_keeps_the_centre_and_squash_is_pillows_bicubic() -> None:
    frames = np.random.default_rng(0).integers(0, 255, (1, 10, 20, 3), np.uint8)
    wide = Resize(height=20, width=20, policy="pad")
    padded = resize_frames(frames, wide)
    np.testing.assert_array_equal(padded[:, 5:15], frames)
    assert not padded[:, :5].any()
    assert not padded[:, 15:].any()
    cropped = resize_frames(frames, Resize(height=10, width=10, policy="crop"))
    np.testing.assert_array_equal(cropped, frames[:, :, 5:15])
    squashed = resize_frames(frames, Resize(height=7, width=9, policy="squash"))
    reference = np.asarray(Image.fromarray(frames[0]).resize((9, 7), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(squashed[0], reference)


def test_making_an_image_smaller_does_not_alias() -> None:
    stripes = np.zeros((1, 64, 64, 3), np.uint8)
    stripes[:, :, ::2] = 255
    small = resize_frames(stripes, Resize(height=16, width=16))
    assert small[:, :, 2:-2].std() < 3


def named(*names: str) -> list[Episode]:
    return [replace(episode(), name=name) for name in names]


@given(count=st.integers(2, 30), fraction=st.floats(0.01, 0.99), seed=st.integers(0, 5))
def test_a_split_parts_whole_episodes_and_leaves_neither_side_empty(count: int, fraction: float, seed: int) -> None:
    episodes = named(*(f"e{i}" for i in range(count)))
    wanted = max(1, round(fraction * count))
    if wanted == count:
        with pytest.raises(ValueError, match=f"cannot hold out {count} of {count}"):
            split_episodes(episodes, fraction=fraction, seed=seed)
        return
    training, held_out = split_episodes(episodes, fraction=fraction, seed=seed)
    assert len(held_out) == wanted
    assert sorted(e.name for e in training + held_out) == sorted(e.name for e in episodes)


def test_a_split_does_not_depend_on_the_order_of_reading_but_on_the_seed() -> None:
    episodes = named(*(f"e{i}" for i in range(20)))
    held = {e.name for e in split_episodes(episodes, count=4)[1]}
    assert {e.name for e in split_episodes(episodes[::-1], count=4)[1]} == held
    assert {e.name for e in split_episodes(episodes, count=4, seed=1)[1]} != held
    more = {e.name for e in split_episodes(episodes, count=8)[1]}
    assert held < more


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either the fraction or the count"),
        ({"fraction": 0.5, "count": 1}, "either the fraction or the count"),
        ({"fraction": 1.5}, "must lie between 0 and 1"),
        ({"count": 3}, "cannot hold out 3 of 3 episodes; choices: 1..2"),
    ],
)
def test_a_split_that_makes_no_sense_is_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split_episodes(named("a", "b", "c"), **arguments)


def two_views() -> Episode:
    """A front view with a mask and depth whose left half differs, and a bare side view."""
    take = episode()
    masks = np.zeros((12, 8, 12, 3), np.uint8)
    masks[:, :, :6] = 250
    depth = np.where(masks[..., 0] > 0, 0.5, 2.0)
    depth[3] = np.nan
    front = replace(take.views[0], masks=ArrayFrames(masks), depth=ArrayDepth(depth))
    return replace(take, views=(front, View(name="side", frames=ArrayFrames(masks))))


def test_masks_and_depth_reach_the_clip_on_request_with_flags_of_the_views_that_have_them() -> None:
    wanted = replace(spec(views=("front", "side", "wrist"), size=(4, 6)), with_masks=True, with_depth=True)
    clip = read_clip(two_views(), 2, wanted, 2)
    assert clip.masks.shape == clip.depth.shape == (3, 5, 4, 6)
    assert clip.mask_present.tolist() == clip.depth_present.tolist() == [True, False, False]
    assert clip.masks[0, :, :, :3].all()
    assert not clip.masks[0, :, :, 3:].any()
    assert not clip.masks[1:].any()
    np.testing.assert_array_equal(clip.depth[0, 0], [[0.5] * 3 + [2.0] * 3] * 4)
    assert (clip.depth[0, 1] == 0).all()  # NaN is unknown, and unknown is 0
    assert read_clip(two_views(), 2, spec(), 2).masks is None
    assert read_clip(episode(), 2, replace(spec(), with_masks=True, with_depth=True), 2).depth is None


@pytest.mark.parametrize("policy", ["pad", "crop", "squash"])
@given(height=st.integers(4, 30), width=st.integers(4, 30))
def test_masks_follow_the_pictures_and_hold_no_new_values(policy: str, height: int, width: int) -> None:
    resize = Resize(height=height, width=width, policy=policy)
    depth = np.where(np.arange(40) < 20, 1.0, 3.0) * np.ones((1, 30, 40))
    pictures = np.where(depth < 2, 60, 200).astype(np.uint8)[..., None].repeat(3, 3)
    small = resize_nearest(depth, resize)
    assert set(np.unique(small)) <= {0.0, 1.0, 3.0}
    level = resize_frames(pictures, resize)[..., 0].astype(int)
    assert (small[np.abs(level - 60) < 20] == 1).all()
    assert (small[np.abs(level - 200) < 20] == 3).all()


@pytest.mark.parametrize("policy", ["pad", "crop", "squash"])
@given(height=st.integers(20, 90), width=st.integers(20, 90), x=st.floats(-0.2, 0.2), y=st.floats(-0.15, 0.15))
def test_a_projected_point_stays_on_its_picture_content(
    policy: str, height: int, width: int, x: float, y: float
) -> None:
    pose = np.eye(4)
    pose[:3, :3] = [[0, 0, 1], [-1, 0, 0], [0, -1, 0]]  # the camera looks along the base's x axis
    pose[:3, 3] = (-1.0, 0.02, 0.1)
    camera = Camera(size=(60, 80), intrinsics=np.array([[100.0, 0, 39.5], [0, 100, 29.5], [0, 0, 1]]), pose=pose)
    point = np.array([[0.0, x, 0.1 + y]])
    column, row = camera.project(point)[0]
    rows, columns = np.mgrid[:60, :80]
    blob = 255 * np.exp(-((rows - row) ** 2 + (columns - column) ** 2) / (2 * 3.0**2))
    picture = blob.astype(np.uint8)[None, :, :, None].repeat(3, 3)
    resize = Resize(height=height, width=width, policy=policy)
    seen = resize_frames(picture, resize)[0, :, :, 0].astype(float)
    new_column, new_row = resize_camera(camera, resize).project(point)[0]
    inside = 8 <= column < 72 and 8 <= row < 52 and 8 <= new_column < width - 8 and 8 <= new_row < height - 8
    if inside:
        rows, columns = np.mgrid[:height, :width]
        assert (seen * rows).sum() / seen.sum() == pytest.approx(new_row, abs=0.35)
        assert (seen * columns).sum() / seen.sum() == pytest.approx(new_column, abs=0.35)


def test_numbers_that_an_episode_says_do_not_exist_are_not_valid_in_its_clips() -> None:
    take = episode()
    action_valid, state_valid = np.ones((12, 2), bool), np.ones((12, 3), bool)
    action_valid[3, 1] = state_valid[2, 0] = False
    clip = read_clip(replace(take, action_valid=action_valid, state_valid=state_valid), 2, spec(), 4, 5)
    np.testing.assert_array_equal(clip.action_valid, [[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0]])
    np.testing.assert_array_equal(clip.state_valid, [0, 1, 1, 0, 0])
