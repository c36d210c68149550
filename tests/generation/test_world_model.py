"""The public class: its videos are the session's and the predictor's, and what it cannot read is said in one line."""

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_world import SIDE, commands, picture, small_start, small_world

from simforcing.data.video import VideoFrames
from simforcing.generation.session import Session
from simforcing.generation.start import Start, clip_from
from simforcing.generation.world_model import WorldModel
from simforcing.models import pretrained
from simforcing.models.pretrained import is_hub_id, model_folder
from simforcing.types import Camera, NetworkInput, layout_named
from simforcing.types.conversions import StartState
from simforcing.types.inputs import Commands

WORLD = small_world()


def test_a_prediction_is_the_predictors_behind_the_given_picture(tmp_path: Path):
    start, action = small_start(), commands(0, 8)
    made = WORLD.predict(start, action, seed=4)
    wanted = WORLD.predictor.predict([clip_from(start, action, WORLD.spec)], [4])[0]
    np.testing.assert_array_equal(made.frames[0, 1:], wanted[1:])
    np.testing.assert_array_equal(made.view("front")[0], start.images[0])
    assert made.sim_frames is not None
    assert made.sim_frames.shape == made.frames.shape == (1, 9, SIDE, SIDE, 3)
    assert made.state is not None
    assert made.state.shape == (9, 7)
    np.testing.assert_array_equal(made.state[0], start.state)
    np.testing.assert_allclose(made.time_s, np.arange(9) / 5)
    assert (made.fps, made.seed, made.task) == (5.0, 4, "push the cup")
    made.save(tmp_path / "video.mp4")
    assert VideoFrames(tmp_path / "video.mp4").num_frames == 9
    with pytest.raises(ValueError, match="no view 'wrist'; views: front"):
        made.view("wrist")


def test_a_rollout_is_what_a_stream_gives_chunk_by_chunk():
    start, action = small_start(), commands(0, 19)
    whole = WORLD.rollout(start, action, seed=1)
    chunks = list(WORLD.stream(start, action, seed=1))
    assert [chunk.frames.shape[1] for chunk in chunks] == [8, 8, 3]
    np.testing.assert_array_equal(whole.frames[:, 1:], np.concatenate([chunk.frames for chunk in chunks], axis=1))
    assert whole.frames.shape[1] == 20


def test_a_stream_asks_for_commands_only_after_the_chunk_before_was_taken():
    asked: list[int] = []

    def policy() -> Iterator[np.ndarray]:
        for i in range(3):
            asked.append(i)
            yield commands(i, 4)

    stream = WORLD.stream(small_start(), policy())
    assert asked == []
    for i, chunk in enumerate(stream):
        assert asked == list(range(i + 1))
        assert chunk.frames.shape[1] == 4


def test_many_at_once_are_the_same_videos_as_one_by_one():
    starts, actions = [small_start(i) for i in range(3)], np.stack([commands(i, 11) for i in range(3)])
    for i, made in enumerate(WORLD.rollouts(starts, actions)):
        alone = WORLD.rollout(starts[i], actions[i], seed=i)
        assert np.abs(made.frames.astype(int) - alone.frames).max() <= 2
        assert made.seed == i


def test_changes_of_the_sampler_are_those_of_the_predictor_and_of_this_call_alone():
    start, action = small_start(), commands(0, 8)
    changed = WORLD.predict(start, action, num_steps=3, sim_guidance=0.0)
    predictor = WORLD.predictor.using(num_steps=3, sim_guidance=0.0)
    (wanted,) = Session(predictor, [start], [0]).step(action[None])
    np.testing.assert_array_equal(changed.frames[:, 1:], wanted.frames)
    assert changed.sim_frames is None
    assert changed.sampler.num_steps == 3
    assert WORLD.predictor.sampler.num_steps == 2


def test_a_rendering_of_the_simulation_conditions_in_place_of_the_models_own():
    video = np.random.default_rng(1).integers(0, 256, (1, 13, SIDE, SIDE, 3), dtype=np.uint8)
    made = WORLD.rollout(small_start(), commands(0, 12), sim_video=video)
    assert made.sim_frames is not None
    np.testing.assert_array_equal(made.sim_frames, video)
    assert made.sampler.sim_source == "true"
    with pytest.raises(ValueError, match=r"sim_video is uint8 \[1, 5, 16, 16, 3\]; this model reads uint8 \[1, 13,"):
        WORLD.rollout(small_start(), commands(0, 12), sim_video=video[:, :5])
    with pytest.raises(ValueError, match="this model reads uint8"):
        WORLD.rollout(small_start(), commands(0, 12), sim_video=video[0])
    with pytest.raises(ValueError, match=r"sim_video is uint8 \[1, 13, 16, 16, 3\]; this model reads uint8 \[1, 5,"):
        WORLD.rollout(small_start(), commands(0, 4), sim_video=video)
    with pytest.raises(ValueError, match=r"sim_video of view front: a picture of 16x10 \(aspect 0\.625\)"):
        WORLD.rollout(small_start(), commands(0, 12), sim_video=video[:, :, :, :10])
    with pytest.raises(ValueError, match=r"sim_video is int64 \[1, 1\]"):
        WORLD.rollout(small_start(), commands(0, 12), sim_video=[[1]])
    with pytest.raises(ValueError, match="sim_source is 'true', but a stream is given no rendered simulation"):
        WORLD.stream(small_start(), commands(0, 12), sim_source="true")


def test_pictures_with_task_and_state_are_a_start():
    start, action = small_start(), commands(0, 8)
    how = {"task": start.task, "state": start.state, "sim_guidance": 0.0}
    made = WORLD.predict(start.images[0], action, **how)
    np.testing.assert_array_equal(made.frames, WORLD.predict(start, action, sim_guidance=0.0).frames)
    checked = WORLD.start(start.images[0], task=start.task, state=start.state, sim=start.sim)
    np.testing.assert_array_equal(WORLD.predict(checked, action).frames, WORLD.predict(start, action).frames)


def test_it_says_what_it_reads():
    said = WORLD.describe()
    for words in ("front of 16x16 px (squash) at 5 frames/s", "8 actions", "translation 3 (absolute, m)", "front_sim"):
        assert words in said
    assert (WORLD.num_actions, WORLD.fps, WORLD.size, WORLD.views) == (8, 5.0, (16, 16), ("front",))
    assert WORLD.action_layout.name == "tabletop"


def broken(row: int, column: int, value: float) -> np.ndarray:
    action = commands(0, 8)
    action[row, column] = value
    return action


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (commands(0, 8)[:, :6], r"shape \[8, 6\]; layout tabletop of this model reads \[k, 7\]: x, y, z, roll"),
        (commands(0, 9), "9 actions; predict takes at most 8, rollout any number"),
        (broken(2, 4, np.nan), r"action row 2, column 4 \(pitch\) is nan"),
        (broken(0, 0, 320.0), "translation.0. of row 0 is 320, layout tabletop declares -1 .. 1; is it of another"),
        (broken(1, 3, 90.0), "rotation.0. of row 1 is 90, layout tabletop declares -3.14"),
        (np.array([["left"] * 7] * 8), "action is of type <U4; expected numbers"),
    ],
)
def test_commands_of_another_layout_length_or_unit_are_refused(action: np.ndarray, message: str):
    with pytest.raises(ValueError, match=message):
        WORLD.predict(small_start(), action)


def test_commands_far_outside_the_trainings_range_are_warned_of_with_range_and_unit():
    with pytest.warns(UserWarning, match=r"translation\[0\] is -1 m; the training's lie about -0\.3\d* \.\. 0\.5"):
        WORLD.predict(small_start(), broken(0, 0, -1.0))
    joints = small_world(action="tabletop_joint")
    action = commands(0, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        WORLD.predict(small_start(), action)
    action[0, 2] = 3.1
    with pytest.warns(UserWarning, match=r"joint\[2\] is 3\.1 rad; .*radians or degrees"):
        joints.predict(small_start(), action)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (picture(0).astype(np.float32) / 255, r"image of view front is float32 \[16, 16, 3\]; expected uint8"),
        (picture(0)[..., :1], r"uint8 \[16, 16, 1\]; expected uint8 \[height, width, 3\]"),
        (
            picture(0, 32)[:20],
            r"a picture of 20x32 \(aspect 1\.6\); the model was trained on 16x16 \(1\).*pad, crop",
        ),
    ],
)
def test_pictures_that_the_model_does_not_read_are_refused(image: np.ndarray, message: str):
    with pytest.raises(ValueError, match=message):
        WORLD.predict(image, commands(0, 8), state=small_start().state, sim_guidance=0.0)
    with pytest.raises(ValueError, match="2 images; this model reads one of each view: front"):
        WORLD.start([image, image])


def test_the_simulations_picture_is_checked_as_the_photo_is():
    with pytest.raises(ValueError, match="start 0: sim of view front: a picture of 20x32"):
        WORLD.predict(replace(small_start(), sim=(picture(1, 32)[:20],)), commands(0, 8))
    with pytest.raises(ValueError, match="sim of view front is float32"):
        WORLD.start(picture(0), sim=picture(1).astype(np.float32))


def test_task_and_state_of_a_call_are_those_of_all_its_starts():
    starts, actions = [small_start(i) for i in range(2)], np.stack([commands(i, 8) for i in range(2)])
    state = [0.1] * 7
    for i, made in enumerate(WORLD.rollouts(starts, actions, task="lift it", state=state)):
        assert made.task == "lift it"
        assert made.state is not None
        np.testing.assert_array_equal(made.state[0], np.array(state, np.float32))
        changed = replace(starts[i], task="lift it", state=np.array(state))
        alone = WORLD.predict(changed, actions[i], seed=i)
        assert np.abs(made.frames.astype(int) - alone.frames).max() <= 1


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"actions": [commands(0, 8), commands(0, 7)]}, r"\[8, 7\] commands; rollouts of one call are equally long"),
        ({"actions": [commands(0, 8)]}, "2 starts and commands of 1"),
        ({"state": ["left"] * 7}, "state is of type <U4; expected numbers"),
        ({"state": [[0.0], [0.0, 1.0]]}, "state rows differ in length"),
        ({"sim_video": [np.zeros((1, 9, SIDE, SIDE, 3), np.uint8)]}, "1 sim_videos for 2 starts"),
    ],
)
def test_what_no_rollouts_can_be_made_of_is_said_in_one_line(how: dict, message: str):
    given = {"actions": [commands(0, 8), commands(1, 8)], **how}
    with pytest.raises(ValueError, match=message):
        WORLD.rollouts([small_start(0), small_start(1)], **given)


def test_seeds_of_numpy_are_seeds():
    made = WORLD.predict(small_start(), commands(0, 8), seed=np.int64(3))
    np.testing.assert_array_equal(made.frames, WORLD.predict(small_start(), commands(0, 8), seed=3).frames)
    assert type(made.seed) is int


def test_commands_that_end_between_frames_are_refused_before_any_window_is_made(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Session, "step", lambda *given: pytest.fail("a window was made"))
    odd = small_world(num_actions=12)
    with pytest.raises(ValueError, match="13 actions end between two frames"):
        odd.rollout(small_start(), commands(0, 13))


def test_cameras_of_a_start_are_brought_to_its_pictures():
    camera = Camera(size=(20, 32), intrinsics=np.array([[40.0, 0, 16], [0, 40, 10], [0, 0, 1]]), pose=np.eye(4))
    photo = picture(0, 32)[:20]
    how = {"state": small_start().state, "sim": picture(1)}
    start = WORLD.start(photo, cameras=[camera], resize="pad", **how)
    assert start.cameras[0] is not None
    assert start.cameras[0].intrinsics is not None
    assert start.cameras[0].size == (16, 16)
    np.testing.assert_allclose(start.cameras[0].intrinsics[0, 0], 20)
    with pytest.raises(ValueError, match="camera of view front is of 20x32 pixels, of another aspect"):
        WORLD.start(picture(0), cameras=[camera], **how)
    with pytest.raises(ValueError, match="2 cameras; give one of each view"):
        WORLD.start(photo, cameras=[camera] * 2, resize="pad", **how)


def test_the_robot_is_cut_out_of_the_photo_as_it_is(tmp_path: Path):
    photo = picture(0, 32)[:20]
    mask = np.zeros(photo.shape[:2], np.uint8)
    mask[:, 8:16] = 255
    Image.fromarray(mask).save(tmp_path / "robot.png")
    how = {"state": small_start().state, "background": "white", "resize": "crop"}
    start = WORLD.start(photo, segmenter=f"mask:{tmp_path / 'robot.png'}", **how)
    cut = np.where(mask[..., None] > 0, photo, 255).astype(np.uint8)
    wanted = WORLD.start(photo, sim=cut, state=how["state"], resize="crop")
    assert start.sim is not None
    assert wanted.sim is not None
    np.testing.assert_array_equal(start.sim[0], wanted.sim[0])
    with pytest.raises(ValueError, match="unknown segmenter 'masks:a'; choices"):
        WORLD.start(photo, segmenter="masks:a", **how)
    with pytest.raises(ValueError, match="arguments of WorldModel"):
        WORLD.predict(replace(small_start(), sim=None), commands(0, 8))


def test_a_policy_brings_another_aspect_to_the_trainings():
    state, sim = small_start().state, picture(1)
    for policy in ("pad", "crop", "squash"):
        start = WORLD.start(picture(0, 32)[:20], state=state, sim=sim, resize=policy)
        assert start.images[0].shape == (16, 16, 3)


def test_missing_states_and_strange_strengths_are_said_and_allowed():
    start, action = small_start(), commands(0, 8)
    with pytest.warns(UserWarning, match="start 0: no state, which the model was trained with"):
        WORLD.predict(replace(start, state=None), action)
    with pytest.warns(UserWarning, match=r"sim_guidance is 1\.5; it is known to help within 0 \.\. 1"):
        WORLD.predict(start, action, sim_guidance=1.5)
    with pytest.warns(UserWarning, match=r"sim_guidance is -0\.5; it is known to help within"):
        WORLD.predict(start, action, sim_guidance=-0.5)
    with pytest.raises(ValueError, match="unknown argument 'steps'; choices: task, state, num_steps"):
        WORLD.predict(start, action, steps=3)


def test_without_a_way_to_the_simulations_picture_the_ways_are_listed():
    with pytest.raises(ValueError, match="give the background: white, grey, plate"):
        WORLD.start(picture(0), state=small_start().state)

    def left_half(image: np.ndarray) -> np.ndarray:
        mask = np.zeros(image.shape[:2], bool)
        mask[:, :8] = True
        return mask

    start = WORLD.start(picture(0), state=small_start().state, segmenter=left_half, background="white")
    assert start.sim is not None
    np.testing.assert_array_equal(start.sim[0][:, :8], picture(0)[:, :8])
    assert (start.sim[0][:, 8:] == 255).all()


def test_a_state_that_the_action_form_needs_must_be_given():
    bridge, pose = layout_named("bridge"), layout_named("tabletop")
    rows = np.random.default_rng(0).uniform(-0.02, 0.02, (3, 8, 7))
    start = StartState(values=np.zeros(7), layout=pose)
    windows = [Commands(row, np.ones(row.shape, bool), start) for row in rows]
    reader = NetworkInput.fit_windows(windows, bridge, form="absolute")
    world = small_world(reader=reader)
    with pytest.warns(UserWarning, match="no state"), pytest.raises(ValueError, match=r"start 0.*start"):
        world.predict(replace(small_start(), state=None), rows[0].astype(np.float32))


def test_a_model_is_found_by_folder_by_name_or_refused_with_what_there_is(tmp_path: Path, monkeypatch):
    WORLD.bundle.save(tmp_path / "run")
    found = WorldModel.from_pretrained(tmp_path / "run")
    start, action = small_start(), commands(0, 8)
    np.testing.assert_array_equal(found.predict(start, action).frames, WORLD.predict(start, action).frames)
    with pytest.raises(ValueError, match="nothing: no such run; models that come with the package: "):
        WorldModel.from_pretrained("nothing")
    with pytest.raises(ValueError, match=r"config\.json is a file; expected the folder of a finished run"):
        WorldModel.from_pretrained(tmp_path / "run" / "config.json")
    with pytest.raises(ValueError, match=r"device 'tpu' is not available; choices: auto, cpu"):
        WorldModel.from_pretrained(tmp_path / "run", device="tpu")
    monkeypatch.setattr(pretrained, "PACKAGED", tmp_path)
    assert model_folder("run") == tmp_path / "run"
    with pytest.raises(ValueError, match="come with the package: run; a model of the hub"):
        model_folder("walk")


def test_a_hub_id_is_told_from_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    assert is_hub_id("owner/name")
    assert is_hub_id("some-one/a.model_2")
    for word in ("runs/student", "./owner/name", "/owner/name", "owner/name/more", "~/name", "name", "../name"):
        assert not is_hub_id(word)
    assert not is_hub_id(Path("owner/name"))


def test_a_hub_that_gives_nothing_is_said_in_one_line():
    program = "from simforcing.models.pretrained import model_folder; model_folder('owner/no-such-model')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=offline())
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ValueError: owner/no-such-model: no such run, and the hub does not give it (")


def offline() -> dict[str, str]:
    return {**os.environ, "HF_HUB_OFFLINE": "1"}


def test_a_start_is_exported_and_a_start_of_another_model_is_refused():
    two = small_world(views=("front", "wrist"), sim_views=("front_sim", "wrist_sim"))
    with pytest.raises(ValueError, match="1 pictures and 1 of simulation; this model reads front, wrist"):
        two.predict(small_start(), commands(0, 8))
    start = Start(images=(picture(0), picture(1)), sim=(picture(2), picture(3)), state=small_start().state)
    assert two.predict(start, commands(0, 8)).frames.shape == (2, 9, SIDE, SIDE, 3)


def test_what_the_caller_does_to_its_memory_afterwards_changes_nothing():
    world, start = small_world(), small_start()
    image, sim, state = start.images[0].copy(), start.sim[0].copy(), start.state.copy()
    begun = world.start(image, sim=sim, state=state, task=start.task)
    actions = commands(0, 16)
    expected = world.rollout(begun, actions).frames
    for memory in (image, sim, state):
        memory[:] = 0
    chunks = []
    for chunk in world.stream(begun, actions):
        chunks.append(chunk.frames.copy())
        chunk.state[:] = 0
        chunk.frames[:] = 0
    assert np.array_equal(np.concatenate(chunks, axis=1), expected[:, 1:])
