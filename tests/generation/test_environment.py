"""The Gymnasium environment: what the library's checker asks for, and laws of seeds, batches, time and state."""

import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import simforcing
from simforcing.data.lerobot_writer import LeRobotWriter
from simforcing.generation.rollout import Predictor
from simforcing.generation.sampler import SamplerConfig
from simforcing.generation.session import Session
from simforcing.generation.start import Start, clip_from
from simforcing.generation.world_model import WorldModel
from simforcing.models.autoencoder import TinyAutoencoderConfig
from simforcing.models.bundle import Bundle
from simforcing.models.presets import tiny_world_model
from simforcing.types import DataSpec, NetworkInput, Part, Resize, layout_named
from simforcing.types.layouts import Layout

gymnasium = pytest.importorskip("gymnasium")
from gymnasium.utils.env_checker import check_env  # noqa: E402

ID, SIDE, FPS = "simforcing/WorldModel-v0", 16, 5.0


def network_input(layout: Layout) -> NetworkInput:
    rows = np.random.default_rng(0).uniform(-0.4, 0.6, (20, layout.dim))
    return NetworkInput.fit(rows, layout)


def world_model(
    *, views: tuple[str, ...] = ("front",), sim: bool = False, action: str = "tabletop", has_state: bool = True
) -> WorldModel:
    """A small network none of whose weights is zero; windows of 9 frames and 8 actions."""
    spec = DataSpec(
        views=views,
        num_frames=9,
        fps=FPS,
        num_actions=8,
        resize=Resize(height=SIDE, width=SIDE),
        action=network_input(layout_named(action)),
        state=network_input(layout_named("tabletop")) if has_state else None,
        robot=None,
        fingerprint="made",
        sim_views=tuple(f"{name}_sim" for name in views) if sim else (),
    )
    torch.manual_seed(0)
    config = tiny_world_model(
        channels=8,
        action_dim=spec.action_dim,
        state_dim=spec.state_dim,
        width=16,
        action_width=16,
        num_layers=1,
        head_width=16,
        text_width=8,
    )
    model = replace(config, sim_condition=sim).build()
    for parameter in model.parameters():
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=0.3)
    autoencoder = TinyAutoencoderConfig(channels=8, width=8, num_decoder_blocks=0).build()
    bundle = Bundle(model=model.eval(), autoencoder=autoencoder.eval(), spec=spec)
    return WorldModel(bundle, SamplerConfig(num_steps=2))


def starts(world: WorldModel, count: int = 3) -> list[Start]:
    rng = np.random.default_rng(1)
    spec = world.spec

    def pictures(number: int) -> tuple[np.ndarray, ...]:
        return tuple(rng.integers(0, 255, (SIDE, SIDE, 3), np.uint8) for _ in range(number))

    return [
        Start(
            images=pictures(len(spec.views)),
            task="reach",
            state=rng.uniform(-0.3, 0.3, 7).astype(np.float32) if spec.state else None,
            sim=pictures(len(spec.sim_views)) or None,
            name=f"start {i}",
        )
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def world() -> WorldModel:
    return world_model()


@pytest.fixture
def make(world: WorldModel) -> Callable[..., Any]:
    def made(model: WorldModel | None = None, **how: Any) -> Any:
        chosen = model or world
        return gymnasium.make(ID, model=chosen, starts=starts(chosen), **how)

    return made


def near(state: np.ndarray, count: int = 4, seed: int = 0) -> np.ndarray:
    """Actions around a pose."""
    moved = state[-1] + np.random.default_rng(seed).uniform(-0.05, 0.05, (count, 7))
    return np.concatenate([moved[:, :6], moved[:, 6:].clip(0, 1)], axis=1).astype(np.float32)


@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"views": ("front", "wrist")},
        {"sim": True},
        {"action": "bridge"},
        {"action": "libero"},
        {"has_state": False},
    ],
    ids=str,
)
def test_gymnasiums_own_checker_passes_without_a_warning(kind: dict[str, Any]):
    model = world_model(**kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(ID, model=model, starts=starts(model), render_mode="rgb_array").unwrapped)


@pytest.mark.parametrize("num_actions", [1, 3, 8])
def test_the_checker_passes_for_other_numbers_of_actions(make: Callable[..., Any], num_actions: int):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*approximate")
        check_env(make(num_actions=num_actions).unwrapped)


def test_the_same_seed_and_actions_give_the_same_bits_and_another_seed_others(make: Callable[..., Any]):
    def played(seed: int) -> np.ndarray:
        env = make()
        seen, _ = env.reset(seed=seed, options={"start": 1})
        for i in range(3):
            seen, *_ = env.step(near(seen["state"], seed=i))
        return seen["frames"]

    np.testing.assert_array_equal(played(3), played(3))
    assert (played(3) != played(4)).any()


@pytest.mark.parametrize("window", ["short", "whole"])
def test_an_episode_is_the_session_of_its_start_and_seed(make: Callable[..., Any], world: WorldModel, window: Any):
    env = make(window=window)
    seen, info = env.reset(seed=11)
    session = Session(world.predictor, [starts(world)[info["start"]]], [11], window=window)
    np.testing.assert_array_equal(seen["frames"][0], starts(world)[info["start"]].images[0])
    assert seen["time_s"].tolist() == [0, 0, 0, 0]
    for i in range(2):
        action = near(seen["state"], seed=i)
        seen, *_ = env.step(action)
        (chunk,) = session.step(action[None])
        np.testing.assert_array_equal(seen["frames"], chunk.frames[0])
        np.testing.assert_allclose(seen["state"], action, atol=1e-6)
        np.testing.assert_allclose(seen["time_s"], (4 * i + np.arange(1, 5)) / FPS)


def test_a_whole_window_is_what_the_predictor_makes_of_it(make: Callable[..., Any], world: WorldModel):
    env = make(num_actions=8)
    seen, _ = env.reset(seed=5, options={"start": 0})
    action = near(seen["state"], 8)
    seen, *_ = env.step(action)
    (frames,) = world.predictor.predict([clip_from(starts(world)[0], action, world.spec)], [5])
    np.testing.assert_array_equal(seen["frames"], frames[1:])


def test_a_step_in_a_whole_window_is_the_predictors_under_commands_that_are_held(
    make: Callable[..., Any], world: WorldModel
):
    env = make(window="whole")
    seen, _ = env.reset(seed=5, options={"start": 0})
    action = near(seen["state"])
    seen, *_ = env.step(action)
    whole = np.concatenate([action, np.repeat(action[-1:], 4, axis=0)])
    (frames,) = world.predictor.predict([clip_from(starts(world)[0], whole, world.spec)], [5])
    np.testing.assert_array_equal(seen["frames"], frames[1:5])


def test_noise_and_starts_leave_gymnasiums_generator_alone(make: Callable[..., Any]):
    env = make()
    seen, _ = env.reset(seed=2)
    untouched = gymnasium.utils.seeding.np_random(2)[0].bit_generator.state
    env.step(near(seen["state"]))
    env.reset()
    assert env.unwrapped.np_random.bit_generator.state == untouched


def test_episodes_after_the_first_vary_in_start_and_noise(make: Callable[..., Any]):
    env = make()
    env.reset(seed=0)
    infos = [env.reset()[1] for _ in range(12)]
    assert {info["start"] for info in infos} == {0, 1, 2}
    assert len({info["seed"] for info in infos}) == 12


def test_a_vector_of_clips_does_what_single_environments_do_through_endings_and_new_beginnings(
    make: Callable[..., Any], world: WorldModel
):
    def reward(before: Any, action: Any, after: Any, info: Any) -> tuple[float, bool]:
        return float(action[0, 0]), bool(action[0, 1] > 0.9)

    how = {"max_steps": 3, "reward_fn": reward}
    for mode in ("NextStep", "SameStep"):
        batched = gymnasium.make_vec(ID, num_envs=3, model=world, starts=starts(world), autoreset_mode=mode, **how)
        single = gymnasium.vector.SyncVectorEnv([lambda: make(**how)] * 3, autoreset_mode=mode)
        assert batched.single_action_space == single.single_action_space
        assert batched.observation_space == single.observation_space
        one, two = batched.reset(seed=7), single.reset(seed=7)
        _same(one, two)
        for i in range(8):
            actions = np.stack([near(row, seed=10 * i + j) for j, row in enumerate(one[0]["state"])])
            actions[i % 3, 0, 1] = 0.95 if i in (1, 4) else 0.0
            one, two = batched.step(actions), single.step(actions)
            assert one[0] in batched.observation_space
            _same(one, two)


def _same(one: Any, two: Any) -> None:
    """Equal structures; pictures to one level, since a larger batch rounds otherwise."""
    if isinstance(one, dict):
        assert one.keys() == two.keys()
        for key in one:
            _same(one[key], two[key])
    elif isinstance(one, tuple) or (isinstance(one, np.ndarray) and one.dtype == object):
        for left, right in zip(one, two, strict=True):
            _same(left, right)
    elif isinstance(one, np.ndarray):
        assert one.shape == two.shape
        np.testing.assert_allclose(
            one.astype(np.float64), two.astype(np.float64), atol=1 if one.dtype == np.uint8 else 1e-6
        )
    else:
        assert one == two


def test_clips_of_a_vector_are_reset_by_mask_start_and_seed(world: WorldModel):
    env = gymnasium.make_vec(
        ID,
        num_envs=3,
        model=world,
        starts=starts(world),
        max_steps=1,
        autoreset_mode="Disabled",
        render_mode="rgb_array",
    )
    seen, info = env.reset(seed=[5, None, 6], options={"start": [2, 1, 0]})
    assert info["start"].tolist() == [2, 1, 0]
    assert info["seed"].tolist()[::2] == [5, 6]
    actions = np.stack([near(row) for row in seen["state"]])
    _, _, _, truncated, _ = env.step(actions)
    assert truncated.all()
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"clips \[0, 1, 2\] have ended"):
        env.step(actions)
    seen, info = env.reset(options={"reset_mask": np.array([True, False, True]), "start": 1})
    assert seen["time_s"][:, -1].tolist() == [0, 4 / FPS, 0]
    assert info["_start"].tolist() == [True, False, True]
    assert [picture.shape for picture in env.render()] == [(SIDE, SIDE, 3)] * 3


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_gymnasiums_own_vector_environments_work_on_a_folder(mode: str, world: WorldModel, tmp_path: Path):
    replace(world.bundle, about={"run": {"sampler": {"num_steps": 2}}}).save(tmp_path / "run")
    env = gymnasium.make_vec(
        ID, num_envs=2, vectorization_mode=mode, model=tmp_path / "run", starts=starts(world), sampler={"num_steps": 1}
    )
    seen, _ = env.reset(seed=0)
    seen, *_ = env.step(np.stack([near(row) for row in seen["state"]]))
    assert seen["frames"].shape == (2, 4, SIDE, SIDE, 3)
    env.close()


def test_episodes_of_a_data_set_are_starts(world: WorldModel, square_lerobot: Path):
    env = gymnasium.make(ID, model=world, starts=square_lerobot)
    seen, info = env.reset(seed=0, options={"start": 1})
    assert info["name"] == "episode_000001"
    assert info["task"] == "reach 1"
    np.testing.assert_allclose(seen["state"][0], np.full(7, 0.1), atol=1e-6)
    assert abs(int(seen["frames"][0].mean()) - 110) < 5


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


def test_a_step_that_ends_inside_a_latent_frame_says_so(make: Callable[..., Any]):
    with pytest.warns(UserWarning, match="makes 1 frame.* approximate"):
        env = make(num_actions=1)
    seen, _ = env.reset(seed=0)
    assert env.step(near(seen["state"], 1))[0]["frames"].shape == (1, SIDE, SIDE, 3)


def test_reward_and_end_come_from_the_function_and_time_cuts(make: Callable[..., Any]):
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
def test_a_reward_that_is_no_number_is_refused(given: Any, make: Callable[..., Any]):
    env = make(reward_fn=lambda *known: given)
    seen, _ = env.reset(seed=0)
    with pytest.raises(ValueError, match=r"reward_fn returned .*; expected a finite number"):
        env.step(near(seen["state"]))


def test_the_last_frame_is_rendered_with_the_simulation_beside_it_where_asked():
    model = world_model(sim=True)
    env = gymnasium.make(ID, model=model, starts=starts(model), render_mode="rgb_array", render_sim=True)
    seen, _ = env.reset(seed=0)
    seen, _, _, _, info = env.step(near(seen["state"]))
    picture = env.render()
    np.testing.assert_array_equal(picture[:, :SIDE], seen["frames"][-1])
    np.testing.assert_array_equal(picture[:, SIDE:], info["sim_frames"][0, -1])
    assert env.metadata["render_fps"] == FPS / 4


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (np.zeros((4, 6)), r"shape \[4, 6\]; a step takes \[4, 7\]: 4 rows of layout tabletop"),
        (np.zeros(7), r"shape \[7\]; a step takes \[4, 7\]"),
        (np.full((4, 7), np.nan), "action 0, number 0 is nan"),
    ],
)
def test_bad_actions_are_refused_in_one_line_and_the_episode_goes_on(make: Callable[..., Any], action, message: str):
    env = make().unwrapped
    seen, _ = env.reset(seed=0)
    with pytest.raises(ValueError, match=message) as raised:
        env.step(action)
    assert "\n" not in str(raised.value)
    assert env.step(near(seen["state"]))[4]["num_steps"] == 1


def test_actions_out_of_range_are_allowed_and_said_once(make: Callable[..., Any], recwarn: pytest.WarningsRecorder):
    env = make()
    seen, _ = env.reset(seed=0)
    action = near(seen["state"])
    action[2, 1] = 1.7
    for _ in range(2):
        env.step(action)
    said = [str(warning.message) for warning in recwarn]
    assert len(said) == 1, said
    assert "action 2, number 1 is 1.7, outside -1 .. 1" in said[0]


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
def test_bad_settings_are_refused_in_one_line(how: dict[str, Any], message: str, world: WorldModel):
    with pytest.raises(ValueError, match=message):
        gymnasium.make(ID, **{"model": world, "starts": starts(world), **how})


def test_a_start_without_the_simulation_that_the_model_reads_says_what_is_missing():
    model = world_model(sim=True)
    env = gymnasium.make(ID, model=model, starts=[replace(start, sim=None) for start in starts(model)])
    with pytest.raises(ValueError, match=r"start .*WorldModel.start, which makes starts"):
        env.reset(seed=0)


def test_unknown_options_and_starts_are_refused(make: Callable[..., Any], world: WorldModel):
    with pytest.raises(ValueError, match=r"start 3 does not exist; there are 3"):
        make().reset(options={"start": 3})
    with pytest.raises(ValueError, match="start 'first' does not exist"):
        make().reset(options={"start": "first"})
    with pytest.raises(ValueError, match="no option 'begin'; choices: start"):
        make().reset(options={"begin": 0})
    with pytest.raises(ValueError, match="2 seeds for 3 clips"):
        gymnasium.make_vec(ID, num_envs=3, model=world, starts=starts(world)).reset(seed=[0, 1])


def test_bounds_are_the_layouts_own_or_those_of_training():
    plain = Layout(
        name="made",
        parts=(
            Part(kind="translation", size=3, mode="delta"),
            Part(kind="rotation", size=3, unit="rad", rotation="euler_xyz"),
            Part(kind="gripper", size=1, unit="fraction", gripper="closed_0_open_1", low=0.0, high=1.0),
        ),
    )
    world = world_model(has_state=False)
    rows = np.random.default_rng(0).uniform(-0.4, 0.6, (2000, 7))
    spec = replace(world.spec, action=NetworkInput.fit(rows, plain))
    bundle = replace(world.bundle, spec=spec)
    model = WorldModel(bundle, SamplerConfig(num_steps=1))
    space = gymnasium.make(ID, model=model, starts=starts(model)).action_space
    np.testing.assert_allclose(space.low[0], [-0.4] * 3 + [-np.pi] * 3 + [0], atol=2e-3)
    np.testing.assert_allclose(space.high[0], [0.6] * 3 + [np.pi] * 3 + [1], atol=2e-3)


@pytest.mark.parametrize(
    "program",
    [
        "import gymnasium, simforcing",
        "import simforcing, gymnasium",
        "import simforcing; from gymnasium.vector import VectorEnv; import gymnasium",
        "import gymnasium, simforcing; from simforcing.environment import register; register()",
    ],
)
def test_either_order_of_imports_registers_without_a_warning(program: str, project_root: Path):
    told = f"{program}; import sys; print({ID!r} in gymnasium.registry, 'torch' in sys.modules, len(sys.meta_path))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", told], capture_output=True, text=True, cwd=project_root / "src"
    )
    assert done.stdout.split()[:2] == ["True", "False"], done.stderr


def test_importing_the_package_imports_no_gymnasium(project_root: Path):
    told = "import sys, simforcing; print('gymnasium' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, cwd=project_root / "src")
    assert done.stdout == "False\n"


def test_the_module_before_the_name_is_enough(project_root: Path):
    told = "import gymnasium; gymnasium.make('simforcing.environment:simforcing/WorldModel-v0', model='/nowhere')"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, cwd=project_root / "src")
    assert "/nowhere: no such" in done.stderr.splitlines()[-1]


def test_without_gymnasium_one_line_names_the_extra(project_root: Path):
    told = "import sys; sys.modules['gymnasium'] = None\nimport simforcing.generation.environment"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, cwd=project_root / "src")
    assert "pip install 'simforcing[sim]'" in done.stderr.splitlines()[-1]


def test_a_predictors_settings_can_be_replaced(make: Callable[..., Any], world: WorldModel):
    env = make(sampler={"num_steps": 1})
    assert isinstance(env.unwrapped.world.predictor, Predictor)
    assert env.unwrapped.world.predictor.sampler.num_steps == 1
    assert world.predictor.sampler.num_steps == 2
    assert simforcing.WorldModel is WorldModel
