"""Rollouts over whole held-out episodes, chunk after chunk, for the measurement of drift."""

from itertools import groupby

import numpy as np

from simforcing.data.clips import Clips
from simforcing.evaluation.drift import DriftResult, LongVideo, measure_drift, no_drift
from simforcing.evaluation.protocols import Protocol
from simforcing.evaluation.result import EvaluationSettings
from simforcing.generation.session import follows_given, needs_sim, roll_out
from simforcing.generation.start import start_of_clip
from simforcing.recipes.prediction import Ready
from simforcing.types import Clip, DataSpec, Episode
from simforcing.types.progress import Report

MAX_CHUNKS = 8  # of one episode: enough to see where it goes


def drift_of(ready: Ready, rules: Protocol, settings: EvaluationSettings, report: Report) -> DriftResult:
    """Every held-out episode of at least two windows, from its first frame, under its own commands."""
    spec = ready.spec
    needed = spec.streams if needs_sim(ready.predictor) else spec.views
    whole = [episode for episode in ready.held_out if set(needed) <= {view.name for view in episode.views}]
    if len(whole) < len(ready.held_out):
        report(f"drift: {len(ready.held_out) - len(whole)} episodes lack one of {', '.join(needed)} and are left out")
    long = [clips for episode in whole if len(clips := windows_of(episode, spec)) > 1]
    if not long:
        return no_drift("no held-out episode with all views is longer than one window")
    count = sum(min(len(clips), MAX_CHUNKS) for clips in long)
    report(f"drift: rollouts over {len(long)} whole episodes, {count} windows (at most {MAX_CHUNKS} each)")
    videos: list[LongVideo] = []
    long.sort(key=lambda clips: min(len(clips), MAX_CHUNKS))
    for length, group in groupby(long, key=lambda clips: min(len(clips), MAX_CHUNKS)):
        alike = list(group)
        for at in range(0, len(alike), settings.batch_size):
            batch = [[clips[i] for i in range(length)] for clips in alike[at : at + settings.batch_size]]
            seeds = [settings.seed + len(videos) + i for i in range(len(batch))]
            videos += rolled_out(ready, batch, seeds, settings.view)
    return measure_drift(videos, spec.num_frames - 1, rules, fps=spec.fps, seed=settings.seed)


def windows_of(episode: Episode, spec: DataSpec) -> Clips:
    """Consecutive windows from the episode's first frame, each beginning with the last frame of the one before."""
    clips = Clips([episode], spec, stride=spec.num_frames - 1)
    return clips if clips.keys and clips.keys[0][1] == 0 else clips.reading([])


def rolled_out(ready: Ready, batch: list[list[Clip]], seeds: list[int], view: int) -> list[LongVideo]:
    """The scored view of episodes of equally many windows."""
    spec, predictor = ready.spec, ready.predictor
    starts = [start_of_clip(clips[0], spec) for clips in batch]
    actions = np.stack([np.concatenate([clip.action for clip in clips]) for clips in batch])
    filmed = [
        np.concatenate([clips[0].frames[:, :1], *(clip.frames[:, 1:] for clip in clips)], axis=1) for clips in batch
    ]
    sims = [frames[len(spec.views) :] for frames in filmed] if follows_given(predictor) else None
    made = roll_out(predictor, starts, actions, seeds, sims)
    return [
        LongVideo(episode=clips[0].episode, truth=frames[view], predicted=rollout.frames[view])
        for clips, frames, rollout in zip(batch, filmed, made, strict=True)
    ]
