"""The Gymnasium environment: what the library's checker asks for, and laws of seeds, time, rewards and pictures."""

import warnings
from typing import Any

import numpy as np
import pytest

import simforcing
from simforcing.generation.rollout import Predictor
from simforcing.generation.session import Session
from simforcing.generation.start import clip_from
from simforcing.generation.world_model import WorldModel
from simforcing.types import NetworkInput, Part
from simforcing.types.layouts import Layout

gymnasium = pytest.importorskip("gymnasium")
from gymnasium.utils.env_checker import check_env  # noqa: E402
from small_environment import FPS, WORLD, make, near, starts  # noqa: E402
from small_world import SIDE, small_world  # noqa: E402

UNBOUND = Layout(
    name="made",
    parts=(
        Part(kind="translation", size=3, mode="delta"),
        Part(kind="rotation", size=3, unit="rad", rotation="euler_xyz"),
        Part(kind="gripper", size=1, unit="fraction", gripper="closed_0_open_1", low=0.0, high=1.0),
    ),
)


@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"views": ("front", "wrist")},
        {"sim": True},
        {"action": "bridge"},
        {"action": "libero"},
        {"state": None},
    ],
    ids=str,
)
def test_gymnasiums_own_checker_passes_without_a_warning(kind: dict[str, Any]):
    model = small_world(**{"sim": False, **kind})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make(model, render_mode="rgb_array").unwrapped)


@pytest.mark.parametrize("num_actions", [1, 3, 8])
def test_the_checker_passes_for_other_numbers_of_actions(num_actions: int):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*approximate")
        check_env(make(num_actions=num_actions).unwrapped)


def test_the_same_seed_and_actions_give_the_same_bits_and_another_seed_others():
    def played(seed: int) -> np.ndarray:
        env = make()
        seen, _ = env.reset(seed=seed, options={"start": 1})
        for i in range(3):
            seen, *_ = env.step(near(seen["state"], seed=i))
        return seen["frames"]

    np.testing.assert_array_equal(played(3), played(3))
    assert (played(3) != played(4)).any()


@pytest.mark.parametrize("window", ["short", "whole"])
def test_an_episode_is_the_session_of_its_start_and_seed(window: Any):
    env = make(window=window)
    seen, info = env.reset(seed=11)
    session = Session(WORLD.predictor, [starts(WORLD)[info["start"]]], [11], window=window)
    np.testing.assert_array_equal(seen["frames"][0], starts(WORLD)[info["start"]].images[0])
    assert seen["time_s"].tolist() == [0, 0, 0, 0]
    for i in range(2):
        action = near(seen["state"], seed=i)
        seen, *_ = env.step(action)
        (chunk,) = session.step(action[None])
        np.testing.assert_array_equal(seen["frames"], chunk.frames[0])
        np.testing.assert_allclose(seen["state"], action, atol=1e-6)
        np.testing.assert_allclose(seen["time_s"], (4 * i + np.arange(1, 5)) / FPS)


def test_a_whole_window_is_what_the_predictor_makes_of_it():
    env = make(num_actions=8)
    seen, _ = env.reset(seed=5, options={"start": 0})
    action = near(seen["state"], 8)
    seen, *_ = env.step(action)
    (frames,) = WORLD.predictor.predict([clip_from(starts(WORLD)[0], action, WORLD.spec)], [5])
    np.testing.assert_array_equal(seen["frames"], frames[1:])


def test_a_step_in_a_whole_window_is_the_predictors_under_commands_that_are_held():
    env = make(window="whole")
    seen, _ = env.reset(seed=5, options={"start": 0})
    action = near(seen["state"])
    seen, *_ = env.step(action)
    whole = np.concatenate([action, np.repeat(action[-1:], 4, axis=0)])
    (frames,) = WORLD.predictor.predict([clip_from(starts(WORLD)[0], whole, WORLD.spec)], [5])
    np.testing.assert_array_equal(seen["frames"], frames[1:5])


def test_noise_and_starts_leave_gymnasiums_generator_alone():
    env = make()
    seen, _ = env.reset(seed=2)
    untouched = gymnasium.utils.seeding.np_random(2)[0].bit_generator.state
    env.step(near(seen["state"]))
    env.reset()
    assert env.unwrapped.np_random.bit_generator.state == untouched


def test_episodes_after_the_first_vary_in_start_and_noise():
    env = make()
    env.reset(seed=0)
    infos = [env.reset()[1] for _ in range(12)]
    assert {info["start"] for info in infos} == {0, 1, 2}
    assert len({info["seed"] for info in infos}) == 12


def test_a_step_that_ends_inside_a_latent_frame_says_so():
    with pytest.warns(UserWarning, match="makes 1 frame.* approximate"):
        env = make(num_actions=1)
    seen, _ = env.reset(seed=0)
    assert env.step(near(seen["state"], 1))[0]["frames"].shape == (1, SIDE, SIDE, 3)


def test_reward_and_end_come_from_the_function_and_time_cuts():
    calls = []

    def reward(before: Any, action: Any, after: Any, info: Any) -> tuple[float, bool]:
        calls.append((before["time_s"][-1], after["time_s"][-1], info["num_steps"]))
        return float(after["state"][-1, 0]), info["num_steps"] == 2

    env = make(reward_fn=reward, max_steps=3)
    seen, _ = env.reset(seed=0)
    ends = []
    for i in range(3):
        action = near(seen["state"], seed=i)
        seen, gained, terminated, truncated, _ = env.step(action)
        ends.append((terminated, truncated))
        assert gained == pytest.approx(float(action[-1, 0]), abs=1e-6)
    assert ends == [(False, False), (True, False), (False, True)]
    np.testing.assert_allclose(calls, [(0.0, 0.8, 1), (0.8, 1.6, 2), (1.6, 2.4, 3)])


@pytest.mark.parametrize("given", [None, float("nan"), (1.0,), "good"])
def test_a_reward_that_is_no_number_is_refused(
    given: Any,
):
    env = make(reward_fn=lambda *known: given)
    seen, _ = env.reset(seed=0)
    with pytest.raises(ValueError, match=r"reward_fn returned .*; expected a finite number"):
        env.step(near(seen["state"]))


def test_the_last_frame_is_rendered_with_the_simulation_beside_it_where_asked():
    env = make(small_world(), render_mode="rgb_array", render_sim=True)
    seen, _ = env.reset(seed=0)
    seen, _, _, _, info = env.step(near(seen["state"]))
    picture = env.render()
    np.testing.assert_array_equal(picture[:, :SIDE], seen["frames"][-1])
    np.testing.assert_array_equal(picture[:, SIDE:], info["sim_frames"][0, -1])
    assert env.metadata["render_fps"] == FPS / 4


def test_a_simulation_that_the_model_does_not_go_on_with_is_not_rendered():
    env = make(small_world(), render_mode="rgb_array", render_sim=True, sampler={"sim_guidance": 0.0})
    seen, _ = env.reset(seed=0)
    assert env.render().shape == (SIDE, SIDE, 3)
    seen, _, _, _, info = env.step(near(seen["state"]))
    np.testing.assert_array_equal(env.render(), seen["frames"][-1])
    assert "sim_frames" not in info


def test_bounds_are_the_layouts_own_or_those_of_training():
    rows = np.random.default_rng(0).uniform(-0.4, 0.6, (2000, 7))
    space = make(small_world(sim=False, state=None, reader=NetworkInput.fit(rows, UNBOUND))).action_space
    np.testing.assert_allclose(space.low[0], [-0.4] * 3 + [-np.pi] * 3 + [0], atol=2e-3)
    np.testing.assert_allclose(space.high[0], [0.6] * 3 + [np.pi] * 3 + [1], atol=2e-3)


def test_a_predictors_settings_can_be_replaced():
    env = make(sampler={"num_steps": 1})
    assert isinstance(env.unwrapped.world.predictor, Predictor)
    assert env.unwrapped.world.predictor.sampler.num_steps == 1
    assert WORLD.predictor.sampler.num_steps == 2
    assert simforcing.WorldModel is WorldModel
