"""Every recipe is a complete run: it builds on the meta device and says what does not fit."""

from dataclasses import replace

import pytest
import torch

from simforcing.recipes import RECIPES, RunOptions, recipe_named
from simforcing.recipes.laptop import near_size
from simforcing.recipes.run import Run
from simforcing.types import EpisodeSet, from_json, to_json


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_builds_on_meta_and_survives_json(name: str, square_set: EpisodeSet):
    run = recipe_named(name)(square_set, RunOptions())
    with torch.device("meta"):
        model = run.model.build()
    assert sum(p.numel() for p in model.parameters()) > 0
    assert from_json(Run, to_json(run)) == run
    assert run.recipe == name
    assert set(run.held_out) < {episode.name for episode in square_set.episodes}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_documents_its_cost(name: str):
    text = (RECIPES[name].__doc__ or "").lower()
    assert any(word in text for word in ("second", "minute"))
    assert "gb" in text


def test_options_change_what_they_name(square_set: EpisodeSet):
    run = recipe_named("debug")(
        square_set, RunOptions(num_frames=5, size=(16, 48), resize="pad", held_out=2, num_steps=7, batch_size=2, seed=3)
    )
    assert run.spec.num_frames == 5
    assert run.spec.num_actions == 4
    assert (run.spec.resize.height, run.spec.resize.width, run.spec.resize.policy) == (16, 48, "pad")
    assert len(run.held_out) == 2
    assert (run.trainer.num_steps, run.trainer.batch_size, run.seed) == (7, 2, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_frames": 8}, "windows of 8 frames"),
        ({"num_frames": 17}, "fits a window of 17 frames"),
        ({"size": (20, 32)}, "frames of 20x32"),
        ({"views": ("wrist",)}, "no view 'wrist'; views: front"),
        ({"held_out": 5}, "cannot hold out 5 of 5"),
    ],
)
def test_what_does_not_fit_is_one_line(options: dict, message: str, square_set: EpisodeSet):
    with pytest.raises(ValueError, match=message) as caught:
        recipe_named("debug")(square_set, RunOptions(**options))
    assert "\n" not in str(caught.value)


def test_a_set_without_layout_is_refused_with_the_choices(square_set: EpisodeSet):
    with pytest.raises(ValueError, match=r"no action layout is declared .* choices: .*droid"):
        recipe_named("debug")(replace(square_set, action_layout=None), RunOptions())


def test_unknown_recipes_are_refused_with_the_choices():
    with pytest.raises(ValueError, match="choices: debug, laptop, tabletop"):
        recipe_named("bridge9000")


@pytest.mark.parametrize(
    ("stored", "chosen"),
    [((64, 64), (64, 64)), ((192, 320), (64, 112)), ((480, 640), (64, 80)), ((320, 192), (112, 64))],
)
def test_the_laptop_recipe_keeps_the_aspect(stored: tuple[int, int], chosen: tuple[int, int]):
    assert near_size(stored) == chosen
