"""Laws of long rollouts: what a chunk is made of, what is carried, and what a clip's video depends on."""

from dataclasses import replace

import numpy as np
import pytest
from small_world import SIDE, commands, small_start, small_world

from simforcing.generation.session import Session, chunk_seed, frames_of, held, read_seed, shortest_window
from simforcing.generation.start import clip_from
from simforcing.types import Clip, layout_named
from simforcing.types.layouts import Layout, Part

WORLD = small_world()
PREDICTOR = WORLD.predictor


def clip(index: int, action: np.ndarray) -> Clip:
    return clip_from(small_start(index), action, PREDICTOR.spec)


def test_the_first_chunk_is_what_the_predictor_makes_bit_for_bit():
    action = commands(0, 8)
    (chunk,) = Session(PREDICTOR, [small_start()], [3]).step(action[None])
    wanted = PREDICTOR.predict([clip(0, action)], [3])[0]
    np.testing.assert_array_equal(chunk.frames[0], wanted[1:])
    assert chunk.sim_frames is not None
    np.testing.assert_array_equal(chunk.sim_frames[0], PREDICTOR.predict_sim([clip(0, action)], [3])[0][1:])


def test_the_second_chunk_is_predicted_from_the_last_pictures_and_state_of_the_first():
    action = commands(0, 16)
    session = Session(PREDICTOR, [small_start()], [3])
    (first,) = session.step(action[None, :8])
    (second,) = session.step(action[None, 8:])
    assert first.sim_frames is not None
    assert first.state is not None
    start = replace(small_start(), images=(first.frames[0, -1],), sim=(first.sim_frames[0, -1],), state=first.state[-1])
    wanted = PREDICTOR.predict([clip_from(start, action[8:], PREDICTOR.spec)], [chunk_seed(3, 1)])[0]
    np.testing.assert_array_equal(second.frames[0], wanted[1:])


def test_each_chunk_has_noise_of_its_own_seed_and_of_no_other():
    seeds = {chunk_seed(seed, index) for seed in range(20) for index in range(20)}
    assert len(seeds) == 400
    assert chunk_seed(7, 0) == 7


def test_a_clips_video_depends_on_its_own_seed_whatever_runs_beside_it():
    actions = np.stack([commands(i, 8) for i in range(3)])
    together = Session(PREDICTOR, [small_start(i) for i in range(3)], [5, 6, 7])
    alone = Session(PREDICTOR, [small_start(1)], [6])
    other = Session(PREDICTOR, [small_start(1)], [8])
    for _ in range(2):
        chunks, (one,), (changed,) = together.step(actions), alone.step(actions[1:2]), other.step(actions[1:2])
        off = np.abs(chunks[1].frames.astype(int) - one.frames)
        assert off.max() <= 1  # sums of another batch size are rounded in another order
        assert np.abs(changed.frames.astype(int) - one.frames).max() > 10


def test_times_count_on_and_the_given_frame_is_in_no_chunk():
    session = Session(PREDICTOR, [small_start()], [0])
    times = [session.step(commands(0, count)[None])[0].time_s for count in (8, 3, 1, 8)]
    np.testing.assert_allclose(np.concatenate(times), np.arange(1, 21) / 5.0)
    assert session.time_s == (4.0,)


def test_a_clip_that_is_restarted_is_as_a_new_one_and_the_others_go_on():
    actions = np.stack([commands(i, 8) for i in range(2)])
    session, undisturbed = (Session(PREDICTOR, [small_start(i) for i in range(2)], [0, 1]) for _ in range(2))
    first = session.step(actions)
    undisturbed.step(actions)
    session.restart(0, small_start(0), 0)
    again, kept = session.step(actions)
    np.testing.assert_array_equal(again.frames, first[0].frames)
    np.testing.assert_array_equal(kept.frames, undisturbed.step(actions)[1].frames)
    assert again.time_s[0] == 0.2
    assert kept.time_s[0] == 1.8


def test_few_commands_are_the_window_with_the_last_one_held():
    action = commands(0, 3)
    (chunk,) = Session(PREDICTOR, [small_start()], [0]).step(action[None])
    whole = np.concatenate([action, np.repeat(action[-1:], 5, axis=0)])
    wanted = PREDICTOR.predict([clip(0, whole)], [0])[0]
    np.testing.assert_array_equal(chunk.frames[0], wanted[1:4])


def test_the_short_window_holds_whole_latent_frames():
    assert shortest_window(PREDICTOR, 3).spec.num_frames == 5
    assert shortest_window(PREDICTOR, 4).spec.num_actions == 4
    assert shortest_window(PREDICTOR, 5) is PREDICTOR
    (chunk,) = Session(PREDICTOR, [small_start()], [0], window="short").step(commands(0, 2)[None])
    assert chunk.frames.shape == (1, 2, SIDE, SIDE, 3)


def test_held_increments_move_nothing_and_held_targets_stay():
    bridge = layout_named("bridge")
    action = np.full((2, bridge.dim), 0.02)
    kept = held(action, 4, bridge)
    np.testing.assert_array_equal(kept[2:, :-1], 0)
    np.testing.assert_array_equal(kept[2:, -1], 0.02)
    turned = Layout(name="q", parts=(Part(kind="rotation", size=4, mode="delta", rotation="quaternion_wxyz"),))
    np.testing.assert_array_equal(held(np.full((1, 4), 0.5), 2, turned)[1], [1, 0, 0, 0])
    closing = Layout(name="g", parts=(Part(kind="gripper", size=1, mode="delta", gripper="closed_0_open_1"),))
    np.testing.assert_array_equal(held(np.ones((1, 1)), 3, closing), [[1], [0], [0]])
    np.testing.assert_array_equal(held(commands(0, 2), 3, layout_named("tabletop"))[2], commands(0, 2)[1])


def test_a_rendering_given_frame_by_frame_conditions_as_the_true_simulation():
    predictor = PREDICTOR.using(sim_source="true")
    video = np.random.default_rng(5).integers(0, 256, (1, 9, SIDE, SIDE, 3), dtype=np.uint8)
    start, action = replace(small_start(), sim=(video[0, 0],)), commands(0, 8)
    session = Session(predictor, [start], [2])
    (chunk,) = session.step(action[None], [video[:, 1:]])
    given = clip_from(start, action, predictor.spec)
    given.frames[1:] = video
    np.testing.assert_array_equal(chunk.frames[0], predictor.predict([given], [2])[0][1:])
    with pytest.raises(ValueError, match="sim_video is missing"):
        session.step(action[None])
    with pytest.raises(ValueError, match=r"uint8 \[1, 8, 16, 16, 3\]"):
        session.step(action[None], [video])
    with pytest.raises(ValueError, match="sim_video is given"):
        Session(PREDICTOR, [start], [2]).step(action[None], [video[:, 1:]])


def test_history_is_what_the_states_were():
    spec = replace(PREDICTOR.spec, num_history=2, history_span_s=0.8)
    session = Session(PREDICTOR, [small_start()], [0])
    session.spec = spec  # what is carried, without a network that reads it
    states = [session.starts[0].state]
    for count in (3, 4):
        (chunk,) = session.step(commands(count, count)[None])
        assert chunk.state is not None
        states += [*chunk.state]
    history = session.starts[0].history
    assert history is not None
    np.testing.assert_array_equal(history, [states[-5], states[-3]])


def test_a_given_history_is_read_until_states_of_the_rollout_reach_as_far_back():
    world = small_world(num_history=2, history_span_s=0.8)  # four and two frames before
    given = np.random.default_rng(0).uniform(-0.3, 0.5, (2, 7)).astype(np.float32)
    session = Session(world.predictor, [replace(small_start(), history=given)], [0])
    state = session.starts[0].state
    (chunk,) = session.step(commands(0, 1)[None])
    assert chunk.state is not None
    np.testing.assert_array_equal(session.starts[0].history, [given[0], given[1]])
    (chunk,) = session.step(commands(0, 1)[None])
    np.testing.assert_array_equal(session.starts[0].history, [given[1], state])
    stood = Session(world.predictor, [small_start()], [0])
    stood.step(commands(0, 1)[None])
    np.testing.assert_array_equal(stood.starts[0].history, [state, state])


def test_a_simulation_that_conditions_nothing_is_not_carried_on():
    session = Session(PREDICTOR.using(sim_guidance=0.0), [small_start()], [0])
    session.step(commands(0, 2)[None])
    assert session.starts[0].sim is None
    session.step(commands(1, 2)[None])


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 8, 6), r"start 0: actions have shape \[8, 6\]; layout tabletop of this model reads \[k, 7\]"),
        ((2, 8, 7), r"this session reads \[1, k, 7\]"),
        ((1, 9, 7), "9 actions; one step of this model takes 1 to 8"),
        ((1, 0, 7), "0 actions"),
    ],
)
def test_commands_of_another_shape_are_refused_and_nothing_is_lost(shape: tuple[int, ...], message: str):
    session = Session(PREDICTOR, [small_start()], [0])
    with pytest.raises(ValueError, match=message):
        session.step(np.zeros(shape, np.float32))
    assert session.time_s == (0.0,)


def test_commands_that_end_between_two_frames_are_refused():
    spec = replace(PREDICTOR.spec, num_actions=12)
    assert frames_of(3, spec) == 2
    with pytest.raises(ValueError, match="2 actions end between two frames"):
        frames_of(2, spec)


def test_starts_and_seeds_that_cannot_be_used_are_refused():
    with pytest.raises(ValueError, match="1 starts and 2 seeds; as many of both are needed"):
        Session(PREDICTOR, [small_start()], [0, 1])
    with pytest.raises(ValueError, match="seed is -1"):
        Session(PREDICTOR, [small_start()], [-1])
    with pytest.raises(ValueError, match=r"seed is 1\.5; expected an integer"):
        read_seed(1.5)
    with pytest.raises(ValueError, match="start 0: no first picture of the simulation"):
        Session(PREDICTOR, [replace(small_start(), sim=None)], [0])
    Session(PREDICTOR.using(sim_guidance=0.0), [replace(small_start(), sim=None)], [0])
