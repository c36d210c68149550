"""Runs on data of other shapes: two arms and cameras, other control rates, no state; and what resuming refuses."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from simforcing.data.clips import Clips
from simforcing.data.verify import verify_videos
from simforcing.data.video import ArrayFrames
from simforcing.generation.rollout import Predictor
from simforcing.models.bundle import load_bundle
from simforcing.recipes import execute as execution
from simforcing.recipes import recipe_named
from simforcing.recipes.execute import LATENTS, execute
from simforcing.recipes.run import RunOptions
from simforcing.training.checkpoint import CHECKPOINT_FOLDER
from simforcing.types import Episode, EpisodeSet, View, layout_named

SHORT = RunOptions(num_steps=2, batch_size=2)


def quiet(line: str) -> None:
    """Reports go nowhere."""


@pytest.fixture(scope="module")
def bimanual_set() -> EpisodeSet:
    """Two arms of 7 joints, two cameras (one missing from an episode), control at 10 Hz beside video at 5 Hz."""
    episodes = []
    for index in range(4):
        rng = np.random.default_rng(index)
        views = tuple(
            View(name=name, frames=ArrayFrames(rng.integers(0, 255, (9, 32, 32, 3)).astype(np.uint8)))
            for name in ("head", "wrist")
        )
        joints = rng.uniform(0, 0.03, (18, 14)).astype(np.float32)
        episodes.append(
            Episode(
                name=f"fold {index}",
                task="fold the towel",
                fps=5.0,
                num_frames=9,
                views=views[: 1 if index == 1 else 2],
                action=joints,
                action_time_s=np.arange(18) / 10,
                state=joints,
                state_time_s=np.arange(18) / 10,
            )
        )
    layout = layout_named("aloha")
    return EpisodeSet(
        root="towels",
        kind="arrays",
        episodes=tuple(episodes),
        rejected=(),
        warnings=(),
        action_layout=layout,
        state_layout=layout,
        robot=None,
        fingerprint="towels-1",
    )


def test_two_arms_two_cameras_and_faster_control_train_and_predict(bimanual_set: EpisodeSet, tmp_path: Path):
    run = recipe_named("debug")(bimanual_set, replace(SHORT, views=("head", "wrist")))
    assert run.spec.num_actions == 16
    assert run.model.action_dim == 14
    execute(run, bimanual_set, tmp_path, report=quiet)
    bundle = load_bundle(tmp_path)
    for view in (0, 1):
        predictor = Predictor(bundle, run.sampler, view=view)
        clips = Clips(bimanual_set.episodes, bundle.spec, stride=8)
        videos = predictor.predict(clips[:2], [0, 1])
        assert [video.shape for video in videos] == [(9, 32, 32, 3)] * 2
    assert clips[1].view_present.tolist() == [True, False]


def test_a_set_without_state_trains(square_set: EpisodeSet, tmp_path: Path):
    bare = replace(
        square_set,
        state_layout=None,
        episodes=tuple(replace(episode, state=None, state_time_s=None) for episode in square_set.episodes),
    )
    run = recipe_named("debug")(bare, SHORT)
    assert run.spec.state is None
    assert run.model.state_dim == 0
    execute(run, bare, tmp_path, report=quiet)


def test_a_prediction_reads_the_given_frame_and_the_actions_alone(square_set: EpisodeSet, tmp_path: Path):
    run = recipe_named("debug")(square_set, SHORT)
    predictor = Predictor(execute(run, square_set, tmp_path, report=quiet), run.sampler)
    clip = Clips(square_set.episodes, run.spec, stride=4)[0]
    blind = replace(clip, frames=np.concatenate([clip.frames[:, :1], np.zeros_like(clip.frames[:, 1:])], axis=1))
    assert np.array_equal(predictor.predict([clip], [3])[0], predictor.predict([blind], [3])[0])
    assert not np.array_equal(predictor.predict([clip], [3])[0], predictor.predict([clip], [4])[0])


def test_a_video_does_not_depend_on_its_batch(square_set: EpisodeSet, tmp_path: Path):
    run = recipe_named("debug")(square_set, SHORT)
    predictor = Predictor(execute(run, square_set, tmp_path, report=quiet), run.sampler)
    clips = Clips(square_set.episodes, run.spec, stride=4)[:3]
    together, alone = predictor.predict(clips, [0, 1, 2])[2], predictor.predict(clips[2:], [2])[0]
    assert np.abs(together.astype(int) - alone).max() <= 1  # rounding to 8 bits


def test_runs_that_share_a_cache_encode_once_and_learn_the_same(square_set: EpisodeSet, tmp_path: Path):
    run = recipe_named("debug")(square_set, SHORT)
    own = execute(run, square_set, tmp_path / "own", report=quiet)
    lines: list[str] = []
    for name in ("first", "second"):
        lines.append(name)
        shared = execute(run, square_set, tmp_path / name, report=lines.append, cache=tmp_path / "cache")
        assert not (tmp_path / name / LATENTS).exists()
        for tensor, other in zip(own.model.state_dict().values(), shared.model.state_dict().values(), strict=True):
            assert torch.equal(tensor, other)
    encoding = [line for line in lines if line in ("first", "second") or line.startswith("encoding")]
    assert encoding == ["first", "encoding windows: 8/8", "encoding windows: 2/2", "second"]


def test_a_cache_of_another_autoencoder_is_refused(square_set: EpisodeSet, tmp_path: Path):
    run = recipe_named("debug")(square_set, SHORT)
    execute(run, square_set, tmp_path / "one", report=quiet, cache=tmp_path / "cache")
    other = recipe_named("debug")(square_set, replace(SHORT, held_out=3))
    with pytest.raises(ValueError, match=r"latents with autoencoder_sha256 \w+, but this run has \w+; choose another"):
        execute(other, square_set, tmp_path / "two", report=quiet, cache=tmp_path / "cache")


def test_a_folder_continues_only_its_own_run(square_set: EpisodeSet, tmp_path: Path):
    run = recipe_named("debug")(square_set, SHORT)
    execute(run, square_set, tmp_path, report=quiet)
    other = recipe_named("debug")(square_set, replace(SHORT, batch_size=3))
    with pytest.raises(ValueError, match=r"trainer\.batch_size was 2, is 3"):
        execute(other, square_set, tmp_path, report=quiet)
    execute(other, square_set, tmp_path, report=quiet, overwrite=True)


class Unreadable(ArrayFrames):
    """A video whose later frames cannot be decoded."""

    def read(self, start: int, stop: int) -> np.ndarray:
        raise ValueError(f"clip.mp4: frame {start} cannot be decoded")


def test_an_episode_that_cannot_be_decoded_is_left_out_by_name(square_set: EpisodeSet):
    broken = View(name="front", frames=Unreadable(np.zeros((13, 32, 32, 3), np.uint8)))
    first = replace(square_set.episodes[0], views=(broken,))
    verified = verify_videos(replace(square_set, episodes=(first, *square_set.episodes[1:])), ("front",))
    assert [item.name for item in verified.rejected] == ["square 0"]
    assert "clip.mp4: frame 0" in verified.rejected[0].reason
    assert len(verified.episodes) == 4
    with pytest.raises(ValueError, match="no episode is left; square 0"):
        verify_videos(replace(square_set, episodes=(first,)), ("front",))


def test_what_cannot_be_measured_of_the_pictures_costs_no_training(
    square_set: EpisodeSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def unreadable(*given: object) -> None:
        raise ValueError("frame 0 cannot be decoded")

    monkeypatch.setattr(execution, "familiarity_of", unreadable)
    said: list[str] = []
    with pytest.raises(ValueError, match="cannot be decoded"):
        execute(recipe_named("debug")(square_set, SHORT), square_set, tmp_path, report=said.append)
    assert not (tmp_path / CHECKPOINT_FOLDER).exists()
    assert any("world model" in line for line in said)
