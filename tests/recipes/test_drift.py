"""Rollouts over whole episodes: their first chunk is the evaluation's first clip, later ones go on from it."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from simforcing.data.clips import Clips
from simforcing.evaluation.protocols import PROTOCOLS
from simforcing.evaluation.result import EvaluationSettings
from simforcing.recipes.drift import drift_of, rolled_out, windows_of
from simforcing.recipes.prediction import PredictionOptions, ready_to_predict


def quiet(line: str) -> None:
    pass


def test_the_first_chunk_is_the_first_windows_prediction(debug_run: Path):
    ready = ready_to_predict(debug_run, PredictionOptions(num_steps=2), quiet)
    short = replace(ready.spec, num_frames=5, num_actions=4)
    predictor = ready.predictor.windows_of(5, 4)
    ready = replace(ready, predictor=predictor, bundle=replace(ready.bundle, spec=short))
    clips = windows_of(ready.held_out[0], short)
    windows = [clips[i] for i in range(2)]
    (video,) = rolled_out(ready, [windows], [3], 0)
    assert len(video.predicted) == len(video.truth) == 9
    np.testing.assert_array_equal(video.predicted[1:5], predictor.predict([windows[0]], [3])[0][1:])
    np.testing.assert_array_equal(video.truth[4:], windows[1].frames[0])
    found = drift_of(ready, PROTOCOLS["predicted-frames"], EvaluationSettings(), quiet)
    assert found.reason == ""
    assert len(found.episodes) == len(ready.held_out)
    assert found.num_episodes[0] == len(ready.held_out)


def test_one_window_is_no_long_rollout(debug_run: Path):
    ready = ready_to_predict(debug_run, PredictionOptions(), quiet)
    found = drift_of(ready, PROTOCOLS["predicted-frames"], EvaluationSettings(), quiet)
    assert len(Clips(ready.held_out, ready.spec, stride=ready.spec.num_frames - 1)) == len(ready.held_out)
    assert found.reason == "no held-out episode with all views is longer than one window"


def test_episodes_that_lack_a_view_are_left_out_and_said(debug_run: Path):
    ready = ready_to_predict(debug_run, PredictionOptions(num_steps=2), quiet)
    said: list[str] = []
    held_out = tuple(replace(episode, views=()) for episode in ready.held_out)
    found = drift_of(
        replace(ready, held_out=held_out), PROTOCOLS["predicted-frames"], EvaluationSettings(), said.append
    )
    assert found.reason == "no held-out episode with all views is longer than one window"
    assert said == [f"drift: {len(held_out)} episodes lack one of {', '.join(ready.spec.views)} and are left out"]
