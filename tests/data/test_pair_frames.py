"""A rendered robot can be put on another background, moved and cut out, without rendering again."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simforcing.data.lerobot import read_lerobot
from simforcing.data.pair_frames import PairFrames, PairReader
from simforcing.data.pair_streams import RECORD_NAME
from simforcing.data.tabletop import TabletopSets
from simforcing.recipes.simulate import SimulateOptions, simulate
from simforcing.sim.tabletop import TabletopConfig


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One demonstration, and its sim on grey, white and its clean plate."""
    root = tmp_path_factory.mktemp("table")
    TabletopSets(num_episodes=1, seed=4, simulator=TabletopConfig(num_frames=9, size_px=48), num_processes=1).write(
        root
    )
    for kind in ("grey", "white", "plate"):
        options = SimulateOptions(variants=0, background=kind)
        simulate(str(root / "episodes"), root / kind, options, processes=1, report=lambda line: None)
    return root


def read(root: Path, kind: str, size: tuple[int, int] | None = None) -> PairFrames:
    data = read_lerobot(root / kind)
    return PairReader(data, size).read(data.episodes[0])


def decibels(first: np.ndarray, second: np.ndarray) -> float:
    return float(-10 * np.log10(max(np.square(first.astype(float) - second).mean(), 1e-3) / 255**2))


@pytest.mark.parametrize(
    ("before", "after"), [("grey", "white"), ("white", "grey"), ("grey", "plate"), ("plate", "grey")]
)
def test_a_robot_on_another_background_looks_as_if_it_had_been_rendered_on_it(
    table: Path, before: str, after: str
) -> None:
    stored, wanted = read(table, before), read(table, after)
    changed = stored.on(wanted.kind)
    assert changed.kind == wanted.kind
    assert decibels(changed.background, wanted.background) > 33
    assert decibels(changed.sim, wanted.sim) > 24
    hard = np.where(stored.mask[..., None], stored.sim, wanted.background)
    assert decibels(changed.sim, wanted.sim) > decibels(hard, wanted.sim)


def test_the_stored_background_comes_back_as_it_is(table: Path) -> None:
    stored = read(table, "grey")
    assert stored.on("grey") is stored
    assert read(table, "plate").background.std() > 5  # each episode has a picture of its own


def test_a_cut_out_is_real_inside_the_mask_and_background_outside(table: Path) -> None:
    stored = read(table, "grey")
    cut = stored.cut_out()
    np.testing.assert_array_equal(cut.sim[stored.mask], stored.real[stored.mask])
    assert (cut.sim[~stored.mask] == 128).all()


def test_moved_robots_are_moved_and_leave_their_background_behind(table: Path) -> None:
    stored = read(table, "plate")
    moved = stored.moved(3, -2)
    np.testing.assert_array_equal(moved.mask[:, 3:, :-2], stored.mask[:, :-3, 2:])
    assert not moved.mask[:, :3].any()
    outside = ~moved.mask & (moved.coverage == 0)
    untouched = np.abs(moved.sim.astype(int) - stored.background).max(axis=-1)
    assert np.quantile(untouched[outside & ~np.roll(stored.mask, (3, -2), (1, 2))], 0.95) < 8
    np.testing.assert_array_equal(stored.moved(0, 0).mask, stored.mask)


def test_frames_come_in_the_size_that_is_asked_for(table: Path) -> None:
    small = read(table, "grey", (24, 32))
    assert small.real.shape == small.sim.shape == (9, 24, 32, 3)
    assert small.mask.shape == (9, 24, 32)
    assert small.background.shape == (24, 32, 3)


def test_a_set_that_is_not_paired_is_refused_and_a_missing_background_is_named(table: Path) -> None:
    with pytest.raises(ValueError, match=r"no paired set \(streams real and sim\)"):
        PairReader(read_lerobot(table / "episodes"))
    data = read_lerobot(table / "plate")
    reader = PairReader(data)
    reader.record = reader.record | {"background": reader.record["background"] | {"files": "meta/none_{index:06d}.png"}}
    with pytest.raises(ValueError, match=r"the background of episode .*none_000000\.png: "):
        reader.read(data.episodes[0])
    episode = data.episodes[0]
    bare = replace(episode, views=tuple(replace(view, masks=None) for view in episode.views))
    with pytest.raises(ValueError, match="the sim has no mask"):
        reader.read(bare)


@pytest.mark.parametrize(
    ("background", "said"),
    [
        (5, "field background.kind is missing"),
        ({"kind": "plate"}, "field background.files is missing"),
        ({"kind": "foo"}, "field background.kind: 'foo'; choices: white, grey, mean, plate"),
        ({"kind": "grey", "value": [1, 2]}, "field background.value: expected 3 numbers"),
        ({"kind": "plate", "files": "../../{index:06d}.png"}, "background.files: .*lies outside of"),
        ({"kind": "mean", "files": "/etc/{index:06d}.png"}, "background.files: .*lies outside of"),
    ],
)
def test_a_background_that_cannot_be_used_is_one_line_naming_file_and_field(
    background: object, said: str, table: Path, tmp_path: Path
) -> None:
    root = tmp_path / "set"
    shutil.copytree(table / "grey", root)
    path = root / "meta" / RECORD_NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | {"background": background}))
    with pytest.raises(ValueError, match=f"{re.escape(str(path))}: .*{said}"):
        PairReader(read_lerobot(root))


def test_chosen_frames_are_those_of_the_whole_episode_on_every_background(table: Path) -> None:
    data = read_lerobot(table / "grey")
    reader = PairReader(data, (24, 32))
    whole, numbers = reader.read(data.episodes[0]), np.array([1, 2, 6])
    some = reader.read(data.episodes[0], numbers, with_mean=True)
    assert len(some.real) == 3
    assert some.num_frames == whole.num_frames == 9
    np.testing.assert_array_equal(some.at(np.array([2, 6])), [1, 2])
    for kind in ("grey", "white", "mean"):
        np.testing.assert_array_equal(some.on(kind).sim, whole.on(kind).sim[numbers])
    np.testing.assert_array_equal(some.real, whole.real[numbers])
    np.testing.assert_array_equal(some.mask, whole.mask[numbers])
    every = reader.read(data.episodes[0], np.arange(9))
    np.testing.assert_array_equal(every.on("plate").sim, whole.on("plate").sim)
    with pytest.raises(AssertionError, match="not read"):
        some.on("plate")
