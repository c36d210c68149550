"""What training on pairs refuses, with both sides named; and variants of training episodes alone."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import array_pairs as pairs
import numpy as np
import pytest

from simforcing.data.lerobot_writer import LeRobotWriter
from simforcing.data.open import open_dataset
from simforcing.data.paired import require_paired, variants_beside
from simforcing.data.video import VideoFrames, write_video
from simforcing.types import Episode, View, layout_named

REAL, SIM = ("real",), ("sim",)
NUM_PAIRS, DRAWS = 3, 2
RECORD = {"job": "first"}


def write_set(root: Path, episodes: dict[str, dict[str, Any]], **options: Any) -> Path:
    """A LeRobot set of noise; `episodes` holds name -> views, extra columns, and number of frames."""
    views = next(iter(episodes.values()))["views"]
    declared: dict[str, Any] = {"fps": 5, "robot": "tabletop_arm", "meta": {"simulation.json": RECORD}}
    layouts = {"action_layout": layout_named("tabletop"), "state_layout": layout_named("tabletop")}
    with LeRobotWriter(root, views=dict.fromkeys(views, (16, 16)), **(declared | layouts | options)) as writer:
        for seed, (name, one) in enumerate(episodes.items()):
            rng, count = np.random.default_rng(seed), one.get("num_frames", 9)
            poses = rng.uniform(0, 0.3, (count, 7)).astype(np.float32)
            frames = {view: rng.integers(0, 255, (count, 16, 16, 3)).astype(np.uint8) for view in views}
            state = poses if writer.state_layout is not None else None
            writer.add(frames=frames, action=poses, state=state, task="push", extra=one.get("extra", {}), name=name)
    return root


def write_pairs(root: Path, **options: Any) -> Path:
    return write_set(root, {f"take {i}": {"views": ("real", "sim")} for i in range(NUM_PAIRS)}, **options)


def write_variants(
    root: Path, *, change: Callable[[dict[str, Any]], Any] = lambda episodes: None, **options: Any
) -> Path:
    episodes: dict[str, Any] = {
        f"take {parent}_{draw}": {"views": ("sim",), "extra": {"parent": parent, "draw": draw}}
        for parent in range(NUM_PAIRS)
        for draw in range(DRAWS)
    }
    change(episodes)
    return write_set(root.with_name(f"{root.name}-variants"), episodes, **options)


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (what it says is checked by the caller)
        action()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_pairs_are_accepted(tmp_path: Path):
    require_paired(pairs.PAIRS, REAL, SIM)
    require_paired(open_dataset(write_pairs(tmp_path / "set")), REAL, SIM)


@pytest.mark.parametrize(("views", "missing"), [(("real",), "sim"), (("sim",), "real")])
def test_an_episode_without_one_side_is_named(views: tuple[str, ...], missing: str):
    data = pairs.set_of([pairs.pair(0), pairs.pair(1, views=views, name="lonely")])
    line = refusal(lambda: require_paired(data, REAL, SIM))
    assert line.startswith(f"pairs: episode lonely is no pair of real and sim: it has {views[0]}, and no {missing};")
    assert "simforcing simulate pairs" in line


def with_views(episode: Episode, **frames: Any) -> Episode:
    return replace(episode, views=tuple(View(name=name, frames=source) for name, source in frames.items()))


def test_a_pair_of_unequal_lengths_is_refused():
    longer = pairs.pair(0, num_frames=pairs.NUM_FRAMES + 1).view("sim").frames
    odd = with_views(pairs.pair(0), real=pairs.pair(0).view("real").frames, sim=longer)
    line = refusal(lambda: require_paired(pairs.set_of([odd]), REAL, SIM))
    assert "episode pair 0: real has 13 frames, sim 14" in line


def test_a_pair_of_unequal_rates_is_refused(tmp_path: Path):
    sources = {}
    for name, fps in (("real", 5), ("sim", 10)):
        write_video(tmp_path / f"{name}.mp4", np.zeros((13, 16, 16, 3), np.uint8), fps)
        sources[name] = VideoFrames(tmp_path / f"{name}.mp4")
    odd = with_views(pairs.pair(0), **sources)
    line = refusal(lambda: require_paired(pairs.set_of([odd]), REAL, SIM))
    assert "episode pair 0: real is a video at 5 frames/s, sim at 10" in line


def test_a_set_without_variants_has_none(tmp_path: Path):
    assert variants_beside(open_dataset(write_pairs(tmp_path / "set"))) is None
    assert variants_beside(pairs.PAIRS) is None


def test_variants_of_held_out_episodes_never_train(tmp_path: Path):
    root = write_pairs(tmp_path / "set")
    write_variants(root)
    data = open_dataset(root)
    variants = variants_beside(data)
    assert variants is not None
    assert len(variants.of(data.episodes)) == NUM_PAIRS * DRAWS
    for held_out in data.episodes:
        training = [episode for episode in data.episodes if episode.name != held_out.name]
        names = [variant.name for variant in variants.of(training)]
        assert names == [f"{e.name}_{draw}" for e in training for draw in range(DRAWS)]
    assert variants.of([]) == []


def test_the_set_may_be_named_from_inside_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    root = write_pairs(tmp_path / "set")
    write_variants(root)
    monkeypatch.chdir(root)
    assert variants_beside(open_dataset(".")) is not None


def test_variants_of_rejected_episodes_are_left_out(tmp_path: Path):
    root = write_pairs(tmp_path / "set")
    write_variants(root)
    data = open_dataset(root)
    variants = variants_beside(replace(data, episodes=data.episodes[1:]))
    assert variants is not None
    assert set(variants.parents.values()) == {"take 1", "take 2"}
    assert len(variants.data.episodes) == 2 * DRAWS


@pytest.mark.parametrize("other", [{"simulation.json": {"job": "second"}}, {}], ids=["another", "none"])
@pytest.mark.parametrize("side", ["set", "variants"])
def test_variants_of_another_simulation_are_refused(other: dict[str, Any], side: str, tmp_path: Path):
    root = write_pairs(tmp_path / "set", **({"meta": other} if side == "set" else {}))
    folder = write_variants(root, **({"meta": other} if side == "variants" else {}))
    line = refusal(lambda: variants_beside(open_dataset(root)))
    assert line.startswith(f"{folder} is ")
    assert f"but {root} is " in line
    assert "of simulation first" in line
    assert ("of simulation second" if other else "without meta/simulation.json") in line


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"action_layout": layout_named("droid")}, "action layout is droid, that of {root} is tabletop"),
        ({"state_layout": layout_named("droid")}, "state layout is droid, that of {root} is tabletop"),
        ({"state_layout": None}, "has 0 states, its parent take 0 9"),
        ({"robot": "widowx"}, "robot is widowx, that of {root} is tabletop_arm"),
        ({"fps": 10}, "has 10 frames/s, its parent take 0 5"),
    ],
)
def test_variants_that_mean_something_else_are_refused(options: dict[str, Any], words: str, tmp_path: Path):
    root = write_pairs(tmp_path / "set")
    folder = write_variants(root, **options)
    line = refusal(lambda: variants_beside(open_dataset(root)))
    assert line.startswith(f"{folder}: ")
    assert words.format(root=root) in line


def test_a_variant_of_another_length_than_its_parent_is_refused(tmp_path: Path):
    root = write_pairs(tmp_path / "set")
    write_variants(root, change=lambda episodes: episodes["take 1_0"].update(num_frames=8))
    line = refusal(lambda: variants_beside(open_dataset(root)))
    assert "episode take 1_0 has 8 frames, its parent take 1 9" in line


def test_a_variant_of_no_episode_is_refused(tmp_path: Path):
    root = write_pairs(tmp_path / "set")
    write_variants(root, change=lambda episodes: episodes["take 1_0"]["extra"].update(parent=7))
    line = refusal(lambda: variants_beside(open_dataset(root)))
    assert f"episode take 1_0 is a variant of 7, but {root} has 0..2" in line


def test_a_damaged_record_of_the_set_is_refused(tmp_path: Path):
    root = write_pairs(tmp_path / "set")
    write_variants(root)
    (root / "meta" / "simulation.json").write_text(json.dumps([1]))
    assert "without meta/simulation.json" in refusal(lambda: variants_beside(open_dataset(root)))
