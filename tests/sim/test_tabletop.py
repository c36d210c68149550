"""Simulated episodes: deterministic, physical, counterfactual."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from simforcing.sim.real_like import RealLike
from simforcing.sim.tabletop import BRANCHES, SimulatedEpisode, Start, Tabletop, TabletopConfig
from simforcing.sim.tabletop_arm import RANGES_RAD
from simforcing.sim.tabletop_jobs import Job, simulate_jobs

SHORT = TabletopConfig(num_frames=9, size_px=32)
PICKS = TabletopConfig(num_frames=25, size_px=16, supersample=1, task_weights=(0.0, 0.0, 0.0, 1.0, 0.0))


@pytest.fixture(scope="module")
def tabletop():
    simulator = SHORT.build()
    yield simulator
    simulator.close()


def arrays(episode: SimulatedEpisode) -> list[np.ndarray]:
    return [episode.frames, episode.action, episode.state, episode.joint_rad]


def assert_same(first: SimulatedEpisode, second: SimulatedEpisode):
    assert first.task == second.task
    for a, b in zip(arrays(first), arrays(second), strict=True):
        np.testing.assert_array_equal(a, b)


def test_same_seed_gives_the_same_episode_bit_for_bit_whatever_came_before(tabletop: Tabletop):
    first = tabletop.episode(seed=5, index=2)
    tabletop.episode(seed=5, index=0)
    assert_same(first, tabletop.episode(seed=5, index=2))


def test_a_simulator_that_was_never_closed_does_not_spoil_the_next_one(tabletop: Tabletop):
    first = tabletop.episode(seed=5, index=2)
    simulator = SHORT.build()
    simulator = SHORT.build()  # the one before is collected now
    second = simulator.episode(seed=5, index=2)
    simulator.close()
    assert_same(first, second)
    assert_same(first, tabletop.episode(seed=5, index=2))


def test_other_indices_and_seeds_give_other_episodes(tabletop: Tabletop):
    first = tabletop.episode(seed=5, index=2)
    for other in (tabletop.episode(seed=5, index=3), tabletop.episode(seed=6, index=2)):
        assert (first.frames != other.frames).any()
        assert (first.action != other.action).any()


def test_two_processes_give_the_episodes_of_one():
    real = RealLike(appearance="full", stiction_rad=0.01, camera_error_px=1.0)
    config, results = replace(SHORT, real=real), []
    for num_processes in (1, 2):
        jobs = [*(Job(kind="episode", seed=1, index=i) for i in range(5)), Job(kind="counterfactuals", seed=1, index=0)]
        results.append([e for job in simulate_jobs(config, jobs, num_processes=num_processes) for e in job])
    assert len(results[0]) == len(results[1]) == 5 + BRANCHES
    for first, second in zip(*results, strict=True):
        assert_same(first, second)


def test_counterfactual_branches_share_their_start_and_part_soon(tabletop: Tabletop):
    for index in range(4):
        branches = tabletop.counterfactuals(seed=0, index=index)
        assert [(b.start, b.branch) for b in branches] == [(index, i) for i in range(BRANCHES)]
        for i, branch in enumerate(branches):
            np.testing.assert_array_equal(branch.frames[0], branches[0].frames[0])
            np.testing.assert_array_equal(branch.state[0], branches[0].state[0])
            for other in branches[:i]:
                assert (branch.frames[-1] != other.frames[-1]).any(axis=-1).mean() > 0.05


def test_one_counterfactual_branch_is_a_grasp_that_holds_nothing():
    jobs = [Job(kind="counterfactuals", seed=0, index=i) for i in range(6)]
    branches = [branch for job in simulate_jobs(PICKS, jobs, num_processes=1) for branch in job]
    assert all([b.kind for b in branches[i::BRANCHES]] == [branches[i].kind] * 6 for i in range(BRANCHES))
    assert sum(b.lifted for b in branches if b.kind == "miss") == 0
    assert sum(b.lifted for b in branches if b.kind == "pick") >= 4


def test_picked_objects_are_lifted_by_contact():
    jobs = [Job(kind="episode", seed=0, index=i) for i in range(20)]
    episodes = [episode for job in simulate_jobs(PICKS, jobs, num_processes=1) for episode in job]
    assert {e.kind for e in episodes} == {"pick"}
    assert np.mean([e.lifted for e in episodes]) >= 0.6


def test_measured_state_follows_the_command(tabletop: Tabletop):
    for index in range(6):
        episode = tabletop.episode(seed=2, index=index)
        lag = np.abs(episode.state[1:] - episode.action[:-1])
        assert np.median(lag[:, :3]) < 0.006
        assert lag[:, :3].max() < 0.04
        np.testing.assert_array_equal(episode.action[-1], episode.action[-2])


def test_unstable_physics_is_simulated_again_with_finer_steps(tabletop: Tabletop, monkeypatch: pytest.MonkeyPatch):
    expected, record, tried = tabletop.episode(seed=2, index=0), Tabletop._record, []

    def blow_up(simulator: Tabletop, start: Start, controls: np.ndarray, refinement: int):
        tried.append(refinement)
        if refinement < 2:  # as a contact that throws an object away at infinite speed
            simulator._data.qvel[-1] = np.inf
        return record(simulator, start, controls, refinement)

    monkeypatch.setattr(Tabletop, "_record", blow_up)
    episode = tabletop.episode(seed=2, index=0)
    assert tried == [1, 2]
    assert episode.task == expected.task
    np.testing.assert_allclose(episode.state, expected.state, atol=0.02)


def test_physics_that_stays_unstable_is_named(tabletop: Tabletop, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Tabletop, "_record", lambda *_: None)
    with pytest.raises(RuntimeError, match="start 7, branch 0: unstable physics"):
        tabletop.episode(seed=2, index=7)


def test_joints_stay_within_their_limits(tabletop: Tabletop):
    for index in range(6):
        joint_rad = tabletop.episode(seed=3, index=index).joint_rad
        low_rad, high_rad = np.array(list(RANGES_RAD.values())).T
        assert (joint_rad > low_rad - 0.01).all()
        assert (joint_rad < high_rad + 0.01).all()


def test_arm_covers_and_moves_a_good_part_of_the_picture():
    simulator = TabletopConfig(num_frames=17).build()
    frames = np.stack([simulator.episode(seed=0, index=i).frames for i in range(8)]).astype(int)
    simulator.close()
    moved = (np.abs(frames[:, 8] - frames[:, 0]) > 10).any(axis=-1)
    assert moved.mean() > 0.1


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_frames": 1}, "num_frames 1"),
        ({"size_px": 4}, "size_px 4"),
        ({"size_px": 33}, "size_px 33: an even number of pixels from 16 to 2048"),
        ({"size_px": 99999}, "size_px 99999: an even number of pixels from 16 to 2048"),
        ({"timestep_s": 0.007}, "timestep_s 0.007"),
        ({"task_weights": (0.0, 0.0, 0.0, 0.0, 0.0)}, "task_weights"),
    ],
)
def test_impossible_settings_are_refused_by_name(kwargs: dict, message: str):
    with pytest.raises(ValueError, match=message):
        TabletopConfig(**kwargs)


def test_simulation_never_imports_torch():
    program = "import sys, simforcing.sim.tabletop\nassert 'torch' not in sys.modules, 'torch was imported'"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_camera_projects_the_gripper_to_the_hands_orange_pixels():
    simulator = TabletopConfig(num_frames=9, size_px=96).build()
    episodes = [simulator.episode(seed=4, index=index) for index in range(8)]
    simulator.close()
    offsets = []
    for episode in episodes:
        pixels = episode.frames.astype(int)
        red, green, blue = np.moveaxis(pixels, -1, 0)
        orange = (red > 140) & (red > 1.4 * green) & (green > 1.8 * blue)
        back = Rotation.from_euler("xyz", episode.state[:, 3:6]).as_matrix()[:, :, 2]
        hand = episode.camera.project(episode.state[:, :3] + 0.055 * back)  # 5.5 cm behind the finger tips
        for seen, (column, row) in zip(orange, hand, strict=True):
            if seen.sum() > 60 and 15 < column < 80 and 15 < row < 80:
                rows, columns = np.nonzero(seen)
                offsets.append(np.hypot(rows.mean() - row, columns.mean() - column))
    assert len(offsets) > 30
    assert np.median(offsets) < 3  # of 96 pixels
