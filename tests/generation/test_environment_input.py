"""What an environment is given: data sets, starts, actions and settings, used or refused in one line."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simforcing.data.lerobot_writer import LeRobotWriter
from simforcing.generation.episode_starts import EpisodeStarts
from simforcing.types import layout_named

gymnasium = pytest.importorskip("gymnasium")
from small_environment import FPS, ID, WORLD, make, near, starts  # noqa: E402
from small_world import small_world  # noqa: E402


def test_episodes_of_a_data_set_are_starts(square_lerobot: Path):
    env = gymnasium.make(ID, model=WORLD, starts=square_lerobot)
    seen, info = env.reset(seed=0, options={"start": 1})
    assert info["name"] == "episode_000001"
    assert info["task"] == "reach 1"
    np.testing.assert_allclose(seen["state"][0], np.full(7, 0.1), atol=1e-6)
    assert abs(int(seen["frames"][0].mean()) - 110) < 5


def test_episodes_without_a_stored_simulation_are_starts_whose_simulation_is_made_as_of_a_photo(square_lerobot: Path):
    model = small_world()
    found = EpisodeStarts.of(square_lerobot, model.spec)
    assert [start.sim for start in found] == [None, None]
    with pytest.raises(ValueError, match=r"episode_000000: .*simulation.*\(to WorldModel.start, which makes starts\)"):
        make(model, starts=square_lerobot)


@pytest.fixture
def square_lerobot(tmp_path: Path) -> Path:
    """A LeRobot set of two episodes of the table top's layouts, one grey each."""
    layout = layout_named("tabletop")
    with LeRobotWriter(
        tmp_path / "set", fps=FPS, views={"front": (32, 32)}, action_layout=layout, state_layout=layout
    ) as writer:
        for i in range(2):
            writer.add(
                frames={"front": np.full((10, 32, 32, 3), 60 + 50 * i, np.uint8)},
                action=np.full((10, 7), 0.1, np.float32),
                state=np.full((10, 7), 0.1, np.float32),
                task=f"reach {i}",
            )
    return tmp_path / "set"


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (np.zeros((4, 6)), r"shape \[4, 6\]; a step takes \[4, 7\]: 4 rows of layout tabletop"),
        (np.zeros(7), r"shape \[7\]; a step takes \[4, 7\]"),
        (np.full((4, 7), np.nan), r"action row 0, column 0 \(.*\) is nan"),
        (np.full((4, 7), 500.0), r"row 0 is 500, layout tabletop declares -1 .. 1; is it of another layout or unit"),
        (np.full((4, 7), "up"), "action is of type <U2; expected numbers"),
    ],
)
def test_bad_actions_are_refused_in_one_line_and_the_episode_goes_on(action, message: str):
    env = make().unwrapped
    seen, _ = env.reset(seed=0)
    with pytest.raises(ValueError, match=message) as raised:
        env.step(action)
    assert "\n" not in str(raised.value)
    assert env.step(near(seen["state"]))[4]["num_steps"] == 1


def test_actions_outside_the_trainings_range_are_allowed_and_said_once(recwarn: pytest.WarningsRecorder):
    env = make()
    seen, _ = env.reset(seed=0)
    action = near(seen["state"])
    action[2, 1] = 1.04
    for _ in range(2):
        env.step(action)
    said = [str(warning.message) for warning in recwarn]
    assert len(said) == 1, said
    assert "action 2, number 1 is 1.04, outside -1 .. 1" in said[0]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"num_actions": 9}, "num_actions is 9; this model takes 1 to 8"),
        ({"starts": []}, "no starts"),
        ({"starts": None}, "does not say what data"),
        ({"max_steps": 0}, "max_steps is 0"),
        ({"sampler": {"steps": 3}}, "sampler has no field 'steps'; choices: num_steps, "),
        ({"render_mode": "ascii"}, "choices: rgb_array"),
        ({"starts": "nowhere"}, "nowhere"),
    ],
)
def test_bad_settings_are_refused_in_one_line(how: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        make(**how)


@pytest.mark.parametrize("field", ["images", "sim"])
def test_pictures_of_another_aspect_are_refused_when_the_environment_is_made(field: str):
    model = small_world()
    wide = replace(starts(model)[0], **{field: (np.zeros((16, 32, 3), np.uint8),)})
    with pytest.raises(ValueError, match=r"start 0: (image|sim) of view front"):
        make(model, starts=[wide])


@pytest.mark.parametrize("w", [-0.5, 1.5])
def test_guidance_outside_of_what_helps_is_said(w: float):
    with pytest.warns(UserWarning, match=f"sim_guidance is {w}; it is known to help within 0 .. 1"):
        make(small_world(), sampler={"sim_guidance": w})


def test_a_given_rendering_is_refused_when_the_environment_is_made():
    with pytest.raises(ValueError, match="sim_source is 'true', but an environment is given no rendered simulation"):
        make(small_world(), sampler={"sim_source": "true"})


def test_a_start_without_the_simulation_that_the_model_reads_says_what_is_missing():
    model = small_world()
    known, *others = starts(model)
    with pytest.raises(ValueError, match=r"start .*WorldModel.start, which makes starts"):
        make(model, starts=[replace(known, sim=None)])
    with pytest.raises(ValueError, match=r"start 1.*WorldModel.start, which makes starts"):
        make(model, starts=[known, replace(others[0], sim=None)]).reset(options={"start": 1})


def test_starts_without_the_state_that_the_model_was_trained_with_are_said_when_the_environment_is_made():
    with pytest.warns(UserWarning, match="start 0: no state, which the model was trained with"):
        env = make(starts=[replace(start, state=None) for start in starts(WORLD)])
    assert "state" not in env.observation_space.spaces
    with pytest.raises(ValueError, match="set translation, and the state holds nothing"):
        env.unwrapped.world.rest(None)


def test_unknown_options_and_starts_are_refused():
    with pytest.raises(ValueError, match=r"start 3 does not exist; there are 3"):
        make().reset(options={"start": 3})
    with pytest.raises(ValueError, match="start 'first' does not exist"):
        make().reset(options={"start": "first"})
    with pytest.raises(ValueError, match="no option 'begin'; choices: start"):
        make().reset(options={"begin": 0})
    with pytest.raises(ValueError, match="2 seeds for 3 clips"):
        gymnasium.make_vec(ID, num_envs=3, model=WORLD, starts=starts(WORLD)).reset(seed=[0, 1])
