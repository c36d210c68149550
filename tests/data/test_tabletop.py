"""Tabletop data sets on disk: what was simulated is what is read, whatever the number of processes."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from simforcing.data.tabletop import TabletopSets, true_cameras
from simforcing.data.windows import MASK_LEVEL
from simforcing.sim.real_like import RealLike
from simforcing.sim.tabletop import BRANCHES, TabletopConfig
from simforcing.types import LAYOUTS

lerobot = pytest.importorskip("simforcing.data.lerobot", reason="the LeRobot reader is missing")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[int, int]]]:
    root, calls = tmp_path_factory.mktemp("tabletop"), []
    TabletopSets(
        num_episodes=3,
        num_counterfactual_starts=2,
        seed=0,
        simulator=TabletopConfig(num_frames=7, size_px=32),
        num_processes=1,
    ).write(root, lambda done, total: calls.append((done, total)))
    return root, calls


def rows(root: Path) -> dict:
    return pq.read_table(sorted((root / "data").rglob("*.parquet"))[0]).to_pydict()


def test_progress_counts_every_episode_once(written: tuple[Path, list[tuple[int, int]]]):
    assert written[1] == [(i + 1, 3 + 2 * BRANCHES) for i in range(3 + 2 * BRANCHES)]


def test_sets_are_read_back_with_layout_and_instruction(written: tuple[Path, list[tuple[int, int]]]):
    episodes = lerobot.read_lerobot(written[0] / "episodes")
    assert len(episodes.episodes) == 3
    assert not episodes.rejected
    assert episodes.action_layout is not None
    assert episodes.action_layout.name == "tabletop"
    assert episodes.robot == "tabletop_arm"
    first = episodes.episodes[0]
    assert (first.fps, first.num_frames) == (5.0, 7)
    assert first.task
    assert first.views[0].frames.read(0, 7).shape == (7, 32, 32, 3)


def test_stored_numbers_are_the_simulated_ones(written: tuple[Path, list[tuple[int, int]]]):
    from simforcing.sim.tabletop import TabletopConfig

    simulator = TabletopConfig(num_frames=7, size_px=32).build()
    truth = simulator.episode(seed=0, index=1)
    simulator.close()
    episode = lerobot.read_lerobot(written[0] / "episodes").episodes[1]
    np.testing.assert_array_equal(episode.action[:6], truth.action[:6])
    np.testing.assert_array_equal(episode.state, truth.state)
    error = episode.views[0].frames.read(0, 7).astype(float) - truth.frames
    assert 10 * np.log10(255**2 / np.mean(error**2)) > 25


def test_counterfactual_rows_name_start_and_branch(written: tuple[Path, list[tuple[int, int]]]):
    table = rows(written[0] / "counterfactuals")
    pairs = [(table["start"][i], table["branch"][i]) for i in range(0, len(table["start"]), 7)]
    assert pairs == [(start, branch) for start in range(2) for branch in range(BRANCHES)]


def test_processes_do_not_change_what_is_written(written: tuple[Path, list[tuple[int, int]]], tmp_path: Path):
    TabletopSets(num_episodes=3, seed=0, simulator=TabletopConfig(num_frames=7, size_px=32), num_processes=2).write(
        tmp_path
    )
    one, two = (lerobot.read_lerobot(root / "episodes").episodes for root in (written[0], tmp_path))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a.action, b.action)
        np.testing.assert_array_equal(a.views[0].frames.read(0, 7), b.views[0].frames.read(0, 7))


def test_an_existing_set_is_never_touched(written: tuple[Path, list[tuple[int, int]]]):
    with pytest.raises(ValueError, match="exists already"):
        TabletopSets(num_episodes=1, seed=0).write(written[0])


def test_overwriting_replaces_an_older_set(tmp_path: Path):
    small = TabletopConfig(num_frames=3, size_px=16)
    for num_episodes in (2, 1):
        sets = TabletopSets(num_episodes=num_episodes, simulator=small, num_processes=1)
        sets.write(tmp_path, overwrite=True)
    assert len(lerobot.read_lerobot(tmp_path / "episodes").episodes) == 1


def test_a_run_that_was_stopped_between_its_sets_goes_on_and_any_other_is_refused(tmp_path: Path):
    small = TabletopConfig(num_frames=3, size_px=16)

    def sets(**changes: int) -> TabletopSets:
        return TabletopSets(
            **{"num_episodes": 2, "num_counterfactual_starts": 1, "num_processes": 1, **changes}, simulator=small
        )

    def stop(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sets().write(tmp_path, stop)
    assert [path.name for path in tmp_path.iterdir()] == ["episodes"]
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match="exists already"):
        sets(seed=1).write(tmp_path)
    calls: list[tuple[int, int]] = []
    sets(num_processes=2).write(tmp_path, lambda done, total: calls.append((done, total)))
    assert calls == [(done, 6) for done in (3, 4, 5, 6)]
    assert before.items() <= {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}.items()
    assert len(lerobot.read_lerobot(tmp_path / "counterfactuals").episodes) == BRANCHES
    with pytest.raises(ValueError, match="exists already"):
        sets().write(tmp_path)


def test_an_interrupted_run_leaves_no_set_behind(tmp_path: Path):
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TabletopSets(num_episodes=4, seed=0, simulator=TabletopConfig(num_frames=3, size_px=16), num_processes=2).write(
            tmp_path, interrupt
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kwargs", [{"num_episodes": 0}, {"num_episodes": 1, "seed": -1}])
def test_impossible_sizes_are_refused_by_name(kwargs: dict):
    with pytest.raises(ValueError, match=r"num_episodes 0|seed -1"):
        TabletopSets(**kwargs)


def test_every_episode_is_read_with_the_camera_it_was_rendered_by(written: tuple[Path, list[tuple[int, int]]]):
    simulator = TabletopConfig(num_frames=7, size_px=32).build()
    truth = [simulator.episode(seed=0, index=index).camera for index in range(3)]
    simulator.close()
    episodes = lerobot.read_lerobot(written[0] / "episodes").episodes
    assert [episode.views[0].camera for episode in episodes] == truth
    assert truth[0] != truth[1]


def test_branches_of_a_start_share_their_first_frame_bit_for_bit(written: tuple[Path, list[tuple[int, int]]]):
    episodes = lerobot.read_lerobot(written[0] / "counterfactuals").episodes
    for start in range(2):
        first = [episode.views[0].frames.read(0, 1) for episode in episodes[start * BRANCHES : (start + 1) * BRANCHES]]
        for other in first[1:]:
            np.testing.assert_array_equal(other, first[0])


REAL = TabletopConfig(
    num_frames=7,
    size_px=32,
    truth=True,
    real=RealLike(appearance="full", frame_lag=1, actuator_lag=1, stiction_rad=0.01, camera_error_px=2.0),
)


@pytest.fixture(scope="module")
def real_like(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("real_like")
    TabletopSets(num_episodes=2, num_held_out=1, num_counterfactual_starts=1, simulator=REAL, num_processes=1).write(
        root
    )
    return root


def test_the_whole_truth_is_stored_and_read_back(real_like: Path):
    simulator = REAL.build()
    truths = [simulator.episode(seed=0, index=index) for index in range(2)]
    simulator.close()
    found, cameras = lerobot.read_lerobot(real_like / "episodes"), true_cameras(real_like / "episodes")
    assert found.joint_layout == LAYOUTS["tabletop_joint"]
    for episode, truth in zip(found.episodes, truths, strict=True):
        view = episode.views[0]
        assert (view.name, len(episode.views)) == ("front", 1)
        masks = view.masks.read(0, 7)[..., 0] > MASK_LEVEL
        assert (masks != truth.mask).mean() < 0.01
        np.testing.assert_allclose(view.depth.read(0, 7), truth.depth_m, atol=6e-4)
        np.testing.assert_array_equal(episode.joint[:, :6], truth.joint_rad.astype(np.float32))
        np.testing.assert_array_equal(episode.joint[:, 6], truth.state[:, 6])
        assert cameras[episode.name] == truth.camera != view.camera
        assert view.camera == truth.declared_camera


def test_held_out_episodes_and_counterfactuals_are_sets_of_their_own(real_like: Path):
    tasks = {}
    for name, expected in (("episodes", 2), ("held_out", 1), ("counterfactuals", BRANCHES)):
        episodes = lerobot.read_lerobot(real_like / name).episodes
        assert len(episodes) == expected == len(true_cameras(real_like / name))
        tasks[name] = [episode.action.tobytes() for episode in episodes]
    assert not set(tasks["episodes"]) & set(tasks["held_out"])


def test_a_set_may_declare_no_camera_and_still_store_the_true_one(tmp_path: Path):
    real = RealLike(declare_camera=False, shared_camera=True)
    simulator = TabletopConfig(num_frames=3, size_px=16, real=real)
    TabletopSets(num_episodes=2, simulator=simulator, num_processes=1).write(tmp_path)
    assert all(e.views[0].camera is None for e in lerobot.read_lerobot(tmp_path / "episodes").episodes)
    cameras = true_cameras(tmp_path / "episodes")
    assert cameras["episode_000000"] == cameras["episode_000001"]


def test_true_cameras_of_another_set_are_refused_by_file(tmp_path: Path):
    with pytest.raises(ValueError, match=r"tabletop_truth\.json"):
        true_cameras(tmp_path)
