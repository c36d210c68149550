"""A start becomes the clip that a data set would have given, or is refused in one line."""

from dataclasses import replace

import numpy as np
import pytest
from small_world import commands, picture, small_start, small_world

from simforcing.generation.start import Start, clip_from, read_start, start_of_clip
from simforcing.types import Camera

SPEC = small_world().spec


def test_the_clip_of_a_start_holds_its_pictures_commands_and_state():
    start, action = small_start(), commands(0, 8)
    clip = clip_from(start, action, SPEC)
    np.testing.assert_array_equal(clip.frames[0, 0], start.images[0])
    assert start.sim is not None
    np.testing.assert_array_equal(clip.frames[1, 0], start.sim[0])
    assert not clip.frames[:, 1:].any()
    np.testing.assert_array_equal(clip.action, action)
    np.testing.assert_array_equal(clip.state, start.state)
    np.testing.assert_allclose(clip.action_time_s, np.arange(8) / 5)
    assert clip.view_present.all()
    assert clip.state_valid.all()


def test_without_simulation_or_state_they_are_marked_as_missing():
    clip = clip_from(Start(images=(picture(0),)), commands(0, 8), SPEC)
    assert clip.view_present.tolist() == [True, False]
    assert not clip.state_valid.any()


def test_the_start_of_a_clip_is_the_one_that_it_was_made_of():
    spec = replace(SPEC, num_history=2)
    start = replace(small_start(), history=np.ones((2, 7), np.float32))
    clip = clip_from(start, commands(0, 8), spec)
    again = start_of_clip(clip, spec)
    np.testing.assert_equal(clip_from(again, commands(0, 8), spec).__dict__, clip.__dict__)
    assert again.history is not None
    assert clip.history_valid is not None
    unknown = replace(clip, history_valid=np.zeros_like(clip.history_valid))
    assert start_of_clip(unknown, spec).history is None
    assert start_of_clip(replace(clip, view_present=np.array([True, False])), spec).sim is None
    with pytest.raises(ValueError, match="no view front, which the model reads"):
        start_of_clip(replace(clip, view_present=np.array([False, True])), spec)


def test_pictures_and_cameras_are_resized_together():
    camera = Camera(size=(32, 32), intrinsics=np.array([[40.0, 0, 16], [0, 40, 16], [0, 0, 1]]), pose=np.eye(4))
    start = read_start(replace(small_start(), images=(picture(0, 32),), cameras=(camera,)), SPEC)
    assert start.images[0].shape == (16, 16, 3)
    assert start.cameras[0] is not None
    assert start.cameras[0].size == (16, 16)
    assert start.cameras[0].intrinsics is not None
    assert start.cameras[0].intrinsics[0, 0] == 20.0


def test_without_a_history_the_robot_stood_still():
    spec = replace(SPEC, num_history=3)
    clip = clip_from(small_start(), commands(0, 8), spec)
    assert clip.history is not None
    np.testing.assert_array_equal(clip.history, np.repeat(clip.state[None], 3, axis=0))
    given = replace(small_start(), history=np.ones((3, 7)))
    np.testing.assert_array_equal(clip_from(given, commands(0, 8), spec).history, np.ones((3, 7)))
    with pytest.raises(ValueError, match=r"history of shape \[2, 7\]; this model reads \[3, 7\]"):
        clip_from(replace(given, history=np.ones((2, 7))), commands(0, 8), spec)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (replace(small_start(), images=()), "0 pictures and 1 of simulation; this model reads front, front_sim"),
        (replace(small_start(), sim=(picture(0), picture(1))), "1 pictures and 2 of simulation"),
        (replace(small_start(), state=np.zeros(3)), r"a state of 3 numbers; this model reads layout tabletop \(7"),
        (replace(small_start(), state=np.full(7, np.nan)), "state number 0 is not finite"),
    ],
)
def test_a_start_that_the_model_does_not_read_is_refused(start: Start, message: str):
    with pytest.raises(ValueError, match=message):
        read_start(start, SPEC)


def test_commands_that_the_model_does_not_read_are_refused():
    with pytest.raises(ValueError, match=r"start 0: 7 actions; a window of this model holds 8"):
        clip_from(small_start(), commands(0, 7), SPEC)
    broken = commands(0, 8)
    with pytest.raises(ValueError, match=r"start 0: actions have shape \[8, 6\]; layout tabletop"):
        clip_from(small_start(), broken[:, :6], SPEC)
    broken[2, 3] = np.nan
    with pytest.raises(ValueError, match=r"start 0: action row 2, column 3 \(roll\) is nan"):
        clip_from(small_start(), broken, SPEC)
