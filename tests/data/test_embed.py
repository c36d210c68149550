"""Several embodiments in one set: numbers, validity, statistics, and a training step that never sees what is absent."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from simforcing.data.clips import Clips
from simforcing.data.conditions import conditions_of
from simforcing.data.embed import join_sets
from simforcing.data.latents import LatentWindows
from simforcing.data.spec import fit_spec, window_of
from simforcing.data.video import ArrayFrames
from simforcing.data.windows import WindowSpec, read_clip
from simforcing.models.autoencoder import TinyAutoencoderConfig
from simforcing.models.presets import tiny_world_model
from simforcing.recipes import recipe_named
from simforcing.recipes.execute import execute
from simforcing.recipes.run import RunOptions
from simforcing.training.draws import draw
from simforcing.training.log import read_log
from simforcing.training.objectives import FlowMatching
from simforcing.types import LAYOUTS, Episode, EpisodeSet, Layout, NetworkInput, Normaliser, Part, Resize, View

NUM_FRAMES = 13
WINDOW = WindowSpec(num_frames=5, views=("front",), resize=Resize(height=32, width=32))


def arrays_set(layout: Layout, seed: int) -> EpisodeSet:
    """Four episodes of noise in memory; every number of their layout moves."""
    episodes = []
    for index in range(4):
        rng = np.random.default_rng([seed, index])
        times_s = np.arange(NUM_FRAMES) / 5
        numbers = rng.uniform(0.2, 0.8, (NUM_FRAMES, layout.dim)).astype(np.float32)
        episodes.append(
            Episode(
                name=f"take {index}",
                task="move",
                fps=5.0,
                num_frames=NUM_FRAMES,
                views=(
                    View(name="front", frames=ArrayFrames(rng.integers(0, 255, (NUM_FRAMES, 32, 32, 3), np.uint8))),
                ),
                action=numbers,
                action_time_s=times_s,
                state=numbers,
                state_time_s=times_s,
            )
        )
    return EpisodeSet(
        root=layout.name,
        kind="arrays",
        episodes=tuple(episodes),
        rejected=(),
        warnings=(),
        action_layout=layout,
        state_layout=layout,
        robot=layout.name,
        fingerprint=layout.name,
    )


@pytest.fixture
def joined() -> EpisodeSet:
    """A single arm of 7 numbers and two arms of 14, in one space of 21."""
    return join_sets([arrays_set(LAYOUTS["tabletop"], 0), arrays_set(LAYOUTS["aloha"], 1)], "both")


def test_every_embodiment_keeps_its_numbers_and_the_rest_is_zero_and_not_valid(joined: EpisodeSet) -> None:
    assert joined.action_layout.dim == 21
    assert len({episode.name for episode in joined.episodes}) == 8
    one, two = joined.episodes[0], joined.episodes[4]
    np.testing.assert_allclose(one.action[:, :7], arrays_set(LAYOUTS["tabletop"], 0).episodes[0].action, atol=1e-6)
    np.testing.assert_allclose(two.action[:, 7:], arrays_set(LAYOUTS["aloha"], 1).episodes[0].action, atol=1e-6)
    assert one.action_valid[:, :7].all()
    assert not one.action_valid[:, 7:].any()
    assert (two.action_valid == ~one.action_valid).all()
    assert (two.state_valid == ~one.state_valid).all()
    assert (one.action[~one.action_valid] == 0).all()


def test_flags_of_an_episode_survive_the_embedding() -> None:
    single = arrays_set(LAYOUTS["tabletop"], 0)
    valid = np.ones((NUM_FRAMES, 7), bool)
    valid[4, 6] = False
    single = replace(single, episodes=(replace(single.episodes[0], action_valid=valid), *single.episodes[1:]))
    found = join_sets([single, arrays_set(LAYOUTS["aloha"], 1)], "both").episodes[0].action_valid
    np.testing.assert_array_equal(found[:, :7], valid)


def test_statistics_are_those_of_the_embodiment_that_has_the_number(joined: EpisodeSet) -> None:
    spec = fit_spec(joined, joined.episodes, window=WINDOW)
    for data, columns in (
        (arrays_set(LAYOUTS["tabletop"], 0), "translation"),
        (arrays_set(LAYOUTS["aloha"], 1), "left_joint"),
    ):
        numbers = np.concatenate([episode.action for episode in data.episodes])[:, data.action_layout.slices[columns]]
        place = spec.action.normaliser.layout.slices[columns]
        low = np.array(spec.action.normaliser.offset[place]) - spec.action.normaliser.scale[place]
        np.testing.assert_allclose(low, numbers.min(axis=0), atol=1e-6)


def test_a_number_that_is_valid_nowhere_is_left_as_it_is() -> None:
    layout = Layout(name="three", parts=(Part(kind="translation", size=3),))
    valid = np.ones((9, 3), bool)
    valid[:, 1] = valid[3, 0] = False
    values = np.random.default_rng(0).random((9, 3))
    values[3, 0] = 100.0
    found = Normaliser.fit(values, layout, valid=valid)
    assert (found.offset[1], found.scale[1]) == (0.0, 1.0)
    assert found.offset[0] + found.scale[0] < 1


def test_an_absent_quaternion_is_no_rotation_and_is_never_read_as_one() -> None:
    layout = Layout(name="quat", parts=(Part(kind="rotation", size=4, unit="rad", rotation="quaternion_xyzw"),))
    values, valid = np.tile([0.0, 0.0, 0.6, 0.8], (4, 1)), np.ones((4, 4), bool)
    values[1], valid[1] = 0.0, False
    read, known = NetworkInput.fit(values, layout, valid=valid).read(values, valid)
    assert not known[1].any()
    assert known[0].all()
    assert (read[1] == 0).all()


def test_two_embodiments_train_together(joined: EpisodeSet, tmp_path: Path) -> None:
    run = recipe_named("debug")(joined, RunOptions(num_steps=2, batch_size=4, held_out=2))
    execute(run, joined, tmp_path, report=lambda line: None)
    losses = [record["loss"] for record in read_log(tmp_path / "log.jsonl")]
    assert len(losses) == 2
    assert np.isfinite(losses).all()


def test_columns_that_no_clip_has_get_no_gradient(joined: EpisodeSet) -> None:
    spec = fit_spec(joined, joined.episodes, window=WINDOW)
    clips = Clips(joined.episodes[:4], spec, stride=4)  # the single arm alone
    clip = read_clip(joined.episodes[0], 0, window_of(spec), 21, 21)
    assert clip.action_valid.any()
    assert not clip.action_valid.all()
    conditions = conditions_of([clip], spec, 4)
    absent = ~conditions.action_valid.flatten(0, 1).any(dim=0)
    assert absent.sum() == 14
    autoencoder = TinyAutoencoderConfig(channels=8, width=8, num_decoder_blocks=0).build()
    windows = LatentWindows.encode(clips, autoencoder, spec)
    torch.manual_seed(0)
    model = tiny_world_model(
        channels=8,
        action_dim=spec.action_dim,
        state_dim=spec.state_dim,
        width=32,
        action_width=16,
        num_layers=2,
        head_width=16,
        text_width=16,
    ).build()
    torch.nn.init.normal_(model.state_in.weight)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    before = model.action_in.weight.detach().clone()
    for step in range(2):
        batch = windows.batch([0, 1, 2, 3])
        optimiser.zero_grad()
        FlowMatching(weight="clean")(model, batch, draw(batch, 0, step, range(4))).total.backward()
        assert (model.action_in.weight.grad[:, absent] == 0).all()
        assert (model.state_in.weight.grad[:, absent] == 0).all()
        optimiser.step()
    assert (model.action_in.weight[:, absent] == before[:, absent]).all()
    assert (model.action_in.weight[:, ~absent] != before[:, ~absent]).any()
