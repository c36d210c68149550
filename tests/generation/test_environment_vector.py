"""Many clips at once: as single environments do, reset each by itself, and in Gymnasium's own vectors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simforcing.generation.session import Session

gymnasium = pytest.importorskip("gymnasium")
from small_environment import FPS, ID, WORLD, make, near, starts  # noqa: E402
from small_world import SIDE  # noqa: E402


def test_a_vector_of_clips_does_what_single_environments_do_through_endings_and_new_beginnings():
    def reward(before: Any, action: Any, after: Any, info: Any) -> tuple[float, bool]:
        return float(action[0, 0]), bool(action[0, 1] > 0.9)

    how = {"max_steps": 3, "reward_fn": reward}
    for mode in ("NextStep", "SameStep"):
        batched = gymnasium.make_vec(ID, num_envs=3, model=WORLD, starts=starts(WORLD), autoreset_mode=mode, **how)
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


def test_clips_of_a_vector_are_reset_by_mask_start_and_seed():
    env = gymnasium.make_vec(
        ID,
        num_envs=3,
        model=WORLD,
        starts=starts(WORLD),
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
def test_gymnasiums_own_vector_environments_work_on_a_folder(mode: str, tmp_path: Path):
    WORLD.bundle.save(tmp_path / "run")
    env = gymnasium.make_vec(
        ID, num_envs=2, vectorization_mode=mode, model=tmp_path / "run", starts=starts(WORLD), sampler={"num_steps": 1}
    )
    seen, _ = env.reset(seed=0)
    seen, *_ = env.step(np.stack([near(row) for row in seen["state"]]))
    assert seen["frames"].shape == (2, 4, SIDE, SIDE, 3)
    env.close()


def test_a_clip_that_has_ended_is_asked_to_stay_where_its_last_command_left_it(monkeypatch: pytest.MonkeyPatch):
    told, step = [], Session.step

    def recorded(self: Session, actions: np.ndarray) -> Any:
        told.append(actions)
        return step(self, actions)

    monkeypatch.setattr(Session, "step", recorded)
    ends = {"reward_fn": lambda before, action, after, info: (0.0, bool(action[0, 1] > 0.9))}
    env = gymnasium.make_vec(ID, num_envs=2, model=WORLD, starts=starts(WORLD), **ends)
    seen, _ = env.reset(seed=0)
    actions = np.stack([near(row) for row in seen["state"]])
    actions[1, 0, 1] = 0.95
    env.step(actions)
    env.step(actions)
    np.testing.assert_array_equal(told[1][0], actions[0])
    np.testing.assert_array_equal(told[1][1], np.repeat(actions[1, -1:], 4, axis=0))
