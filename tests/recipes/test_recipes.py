"""Every recipe is a complete run: it builds on the meta device and says what does not fit."""

from dataclasses import replace

import pytest
import torch

from simforcing.data.video import ArrayFrames
from simforcing.evaluation.intervals import Interval
from simforcing.models.taef2 import HUB_ID
from simforcing.recipes import RECIPES, recipe_named
from simforcing.recipes.evaluate import in_words
from simforcing.recipes.laptop import MAX_CHANNELS, default_steps, near_size
from simforcing.recipes.run import Run, RunOptions
from simforcing.training.objectives import SigmaPolicy
from simforcing.types import Episode, EpisodeSet, from_json, to_json


def shortened(data: EpisodeSet, num_frames: int, num_episodes: int | None = None) -> EpisodeSet:
    """The first frames of the first episodes."""

    def cut(episode: Episode) -> Episode:
        view = episode.views[0]
        return replace(
            episode,
            num_frames=num_frames,
            views=(replace(view, frames=ArrayFrames(view.frames.read(0, num_frames))),),
            action=episode.action[:num_frames],
            action_time_s=episode.action_time_s[:num_frames],
            state=None if episode.state is None else episode.state[:num_frames],
            state_time_s=None if episode.state_time_s is None else episode.state_time_s[:num_frames],
        )

    return replace(data, episodes=tuple(cut(episode) for episode in data.episodes[:num_episodes]))


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_builds_on_meta_and_survives_json(name: str, square_set: EpisodeSet, planned_run):
    run = planned_run(name)
    with torch.device("meta"):
        model = run.model.build()
    assert sum(p.numel() for p in model.parameters()) > 0
    assert from_json(Run, to_json(run)) == run
    assert run.recipe == name
    assert set(run.held_out) < {episode.name for episode in square_set.episodes}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_documents_its_cost(name: str):
    text = (recipe_named(name).__doc__ or "").lower()
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


@pytest.mark.parametrize("name", ["debug", "tabletop"])
def test_recipes_that_fit_their_autoencoder_refuse_another(name: str, square_set: EpisodeSet):
    with pytest.raises(ValueError, match=f"recipe {name} fits its own autoencoder; taef2 goes with recipe laptop"):
        recipe_named(name)(square_set, RunOptions(autoencoder="taef2"))


def test_taef2_comes_from_the_hub_unless_a_folder_is_given(square_set: EpisodeSet):
    for options, path in (({}, HUB_ID), ({"taef2_path": "weights"}, "weights")):
        run = recipe_named("laptop")(square_set, RunOptions(autoencoder="taef2", **options))
        assert run.autoencoder.config.path == path
    with pytest.raises(ValueError, match="taef2_path is weights, but the autoencoder is tiny"):
        RunOptions(taef2_path="weights")


@pytest.mark.parametrize(("autoencoder", "window"), [("tiny", 9), ("taef2", 10)])
def test_episodes_of_ten_frames_give_windows_of_nine_to_groups_of_four(
    autoencoder: str, window: int, square_set: EpisodeSet
):
    run = recipe_named("laptop")(shortened(square_set, 10), RunOptions(autoencoder=autoencoder))
    assert run.spec.num_frames == window


def test_the_laptop_recipe_visits_each_window_thirty_times():
    assert default_steps(400, 8) == 200
    assert default_steps(5, 8) == 100
    assert default_steps(10_000, 8) == 1500


def test_the_laptop_recipe_has_no_more_channels_than_patches(square_set: EpisodeSet):
    assert recipe_named("laptop")(square_set, RunOptions()).model.channels == MAX_CHANNELS
    options = RunOptions(size=(16, 16), num_frames=5, held_out=1)
    run = recipe_named("laptop")(shortened(square_set, 6, num_episodes=2), options)
    assert run.model.channels == run.autoencoder.config.channels == 2 * 4 - 1  # one window: two groups of four patches


@pytest.mark.parametrize("kind", ["min_max", "quantile", "mean_std"])
def test_the_normaliser_is_the_chosen_one(kind: str, square_set: EpisodeSet):
    spec = recipe_named("debug")(square_set, RunOptions(normaliser=kind)).spec
    assert f"'{kind}'" in str(to_json(spec.action))
    assert f"'{kind}'" in str(to_json(spec.state))


def test_a_run_whose_parts_do_not_fit_is_refused_with_both_named(square_set: EpisodeSet):
    run = recipe_named("debug")(square_set, RunOptions())
    joint = replace(run.objective, sigma=SigmaPolicy(action=True))
    with pytest.raises(ValueError, match=r"sigma noises video, action, but model\.denoises is video; .*head: action"):
        replace(run, objective=joint)
    with pytest.raises(ValueError, match=r"model\.channels is 17, but .* give 16"):
        replace(run, model=replace(run.model, channels=17))
    with pytest.raises(ValueError, match=r"model\.num_history is 0, but .* give 2"):
        replace(run, spec=replace(run.spec, num_history=2))
    with pytest.raises(ValueError, match=r"model\.map_channels is 0, but .* give 26"):
        replace(run, spec=replace(run.spec, with_maps=True))
    with pytest.raises(ValueError, match="held_out names square 1 more than once"):
        replace(run, held_out=("square 1", "square 1"))
    with pytest.raises(ValueError, match="window_stride is 0"):
        replace(run, window_stride=0)


def test_a_mean_of_one_cluster_says_of_what_it_is_one():
    alone = Interval(mean=1.5, low=float("nan"), high=float("nan"), num_values=3, num_clusters=1)
    assert in_words(alone, "gain") == "+1.50 dB (one episode)"
    assert in_words(alone, "gain", "start") == "+1.50 dB (one start)"


@pytest.mark.parametrize("name", ["num_frames", "held_out", "num_steps", "batch_size"])
def test_zero_is_refused_and_never_means_the_default(name: str):
    with pytest.raises(ValueError, match=f"{name} is 0; it must be at least 1"):
        RunOptions(**{name: 0})


def test_one_short_episode_does_not_shorten_every_window(square_set: EpisodeSet):
    short = replace(square_set.episodes[0], name="short", num_frames=6)
    many = [replace(square_set.episodes[1], name=f"long {i}") for i in range(20)]
    run = recipe_named("debug")(replace(square_set, episodes=(short, *many)), RunOptions(held_out=2))
    assert run.spec.num_frames == 9
