"""What a model may see of real clips: the form of its actions, and what dropped ones become."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simforcing.data.conditions import conditions_of
from simforcing.data.open import open_dataset
from simforcing.data.spec import action_numbers, commands_at, fit_spec, window_of
from simforcing.data.windows import WindowSpec, read_clip, window_starts
from simforcing.types import DataSpec, EpisodeSet, Resize
from simforcing.types.conversions import convert_actions
from simforcing.types.inputs import ActionForm

SETS = ("bridge_rlds", "droid")


def spec_of(data: EpisodeSet, form: ActionForm) -> DataSpec:
    window = WindowSpec(num_frames=5, views=(data.episodes[0].views[0].name,), resize=Resize(height=16, width=16))
    return fit_spec(data, data.episodes[:2], window=window, action_form=form)


@pytest.mark.parametrize("name", SETS)
def test_real_commands_survive_the_way_there_and_back(name: str, shared_data: Path):
    data = open_dataset(shared_data / name)
    delta, absolute = (spec_of(data, form).action for form in ("delta", "absolute"))
    layouts = delta.normaliser.layout, absolute.normaliser.layout
    for episode in data.episodes[:2]:
        for start in window_starts(episode, window_of(spec_of(data, "stored")), 7):
            commands = commands_at(episode, start, 5, data.state_layout)
            increments, targets = delta.rewrite(commands), absolute.rewrite(commands)
            chained = convert_actions(increments, *layouts, start=commands.start)
            np.testing.assert_allclose(chained, targets, atol=1e-9)
            np.testing.assert_allclose(
                convert_actions(chained, *layouts[::-1], start=commands.start), increments, atol=1e-9
            )


@pytest.mark.parametrize("form", ["delta", "absolute"])
@pytest.mark.parametrize("name", SETS)
def test_what_a_network_reads_of_training_windows_lies_within_one(name: str, form: ActionForm, shared_data: Path):
    data = open_dataset(shared_data / name)
    spec = spec_of(data, form)
    numbers = np.concatenate(action_numbers(data.episodes[:2], spec))
    assert np.abs(spec.action.normaliser.normalise(numbers)).max() <= 1 + 1e-6


def test_dropped_actions_are_given_for_absolute_forms_alone(shared_data: Path):
    data = open_dataset(shared_data / "bridge_rlds")
    episode = data.episodes[0]
    for form, is_given in (("stored", False), ("delta", False), ("absolute", True)):
        spec = spec_of(data, form)
        clip = read_clip(episode, 0, window_of(spec), spec.action.layout.dim, spec.stored_state_dim)
        conditions = conditions_of([clip, clip], spec, 4)
        assert (conditions.null_action is not None) == is_given
        if conditions.null_action is not None:
            assert conditions.null_action.shape == conditions.action.shape
            assert not bool((conditions.null_action == conditions.action).all())


def test_past_states_are_those_measured_then_and_the_first_one_before_the_start(shared_data: Path):
    data = open_dataset(shared_data / "droid")
    spec, episode = replace(spec_of(data, "stored"), num_history=4, history_span_s=1.2), data.episodes[0]
    dims = spec.action.layout.dim, spec.stored_state_dim
    assert spec.state is not None
    for start in (0, 2, 20):
        clip = read_clip(episode, start, window_of(spec), *dims)
        history = conditions_of([clip], spec, 4).pose_history
        assert history is not None
        wanted = []
        for back_s in (1.2, 0.9, 0.6, 0.3):
            measured = [t <= start / episode.fps - back_s + 1e-3 for t in episode.state_time_s]
            wanted.append(episode.state[max(0, sum(measured) - 1)])
        read, _ = spec.state.read(np.stack(wanted), np.ones((4, spec.stored_state_dim), bool))
        np.testing.assert_array_equal(history[0].numpy(), read)
    assert not np.array_equal(wanted[0], wanted[-1])
    plain = read_clip(episode, 0, window_of(spec_of(data, "stored")), *dims)
    with pytest.raises(ValueError, match="0 states before the window; this model reads 4"):
        conditions_of([plain], spec, 4)


def test_a_history_needs_states(shared_data: Path):
    data = open_dataset(shared_data / "language_table")
    with pytest.raises(ValueError, match="num_history is 2, but the set has no states"):
        replace(spec_of(data, "stored"), num_history=2)


def test_a_clip_without_a_state_to_start_from_is_named(shared_data: Path):
    data = open_dataset(shared_data / "bridge_rlds")
    spec, episode = spec_of(data, "absolute"), data.episodes[0]
    clip = read_clip(episode, 1, window_of(spec), spec.action.layout.dim, spec.stored_state_dim)
    blind = replace(clip, state_valid=np.zeros_like(clip.state_valid))
    with pytest.raises(
        ValueError, match=f"episode {episode.name}, frame 1: layout bridge cannot be converted.*measured"
    ):
        conditions_of([blind], spec, 4)


def test_a_set_without_states_is_refused_where_the_form_needs_one(shared_data: Path):
    data = open_dataset(shared_data / "language_table")
    assert spec_of(data, "delta").action.form == "delta"
    with pytest.raises(ValueError, match=r"language_table as absolute targets.*none was given"):
        spec_of(data, "absolute")
