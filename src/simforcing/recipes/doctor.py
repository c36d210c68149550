"""Checks of a finished run: it loads strictly, it fits its data, and it obeys its actions."""

from pathlib import Path

import numpy as np

from simforcing.data.clips import Clips
from simforcing.data.spec import action_numbers
from simforcing.evaluation.checks import Check
from simforcing.evaluation.doctor import (
    agreement_check,
    layout_check,
    loading_check,
    mirrored_actions,
    normaliser_check,
    obedience_check,
)
from simforcing.evaluation.following import with_actions_of
from simforcing.generation.rollout import Predictor
from simforcing.models.bundle import Bundle, load_bundle, require_finished
from simforcing.recipes.estimate import prediction_cost, verified
from simforcing.recipes.evaluate import groups_of
from simforcing.recipes.prediction import (
    DEFAULT,
    PredictionOptions,
    Ready,
    episodes_with,
    held_out_episodes,
    open_for,
    stored_sampler,
    view_index,
)
from simforcing.recipes.student_checks import student_checks
from simforcing.types import Clip, EpisodeSet
from simforcing.types.inputs import Commands
from simforcing.types.progress import Report

MAX_CLIPS = 32
PREDICTIONS_PER_CLIP = 3  # under its actions with two noises, and under other actions
BATCH = 8


def run_checks(run_dir: Path, *, options: PredictionOptions = DEFAULT, report: Report = print) -> list[Check]:
    """Every check of a run, in order; later ones need the earlier to pass.

    Raises:
        ValueError: there is no finished run, or its data set cannot be opened.
    """
    require_finished(run_dir)
    loaded = loading_check(lambda: load_bundle(run_dir))
    if not loaded.passed:
        return [loaded]
    bundle = load_bundle(run_dir)
    opened = open_for(bundle, options.data)
    checks = [loaded, *agreement_checks(bundle, opened)]
    if any(check.passed is False for check in checks):
        return checks
    opened = verified(opened, bundle.spec.streams, report)
    actions = np.concatenate(action_numbers(opened.episodes, bundle.spec))
    checks.append(normaliser_check("action", actions, bundle.spec.action.normaliser))
    states = [e.state for e in opened.episodes if e.state is not None]
    if bundle.spec.state is not None and states:
        stored = np.concatenate(states)
        numbers = bundle.spec.state.rewrite(Commands(stored, np.ones(stored.shape, bool)))
        checks.append(normaliser_check("state", numbers, bundle.spec.state.normaliser))
    view = view_index(bundle.spec, options.view)
    sampler = stored_sampler(bundle, options.num_steps)
    predictor = Predictor(bundle, sampler, view=view, device=options.device, dtype=options.dtype)
    held_out = episodes_with(held_out_episodes(bundle, opened), bundle.spec.views[view])
    ready = Ready(bundle=bundle, data=opened, held_out=tuple(held_out), predictor=predictor)
    checks += student_checks(ready, options.seed)
    return [*checks, obedience(ready, options, report)]


def obedience(ready: Ready, options: PredictionOptions, report: Report) -> Check:
    """Whether other actions give other video, where the question can be asked."""
    predictor = ready.predictor
    if predictor.sampler.sim_source == "true" and not groups_of(ready, None):
        why = "the model is given the true simulation, which mirrored actions would contradict"
        return Check(name="obedience", passed=None, value="n/a", detail=f"{why}; true videos of other actions would do")
    clips, others, clusters = obedience_pairs(ready)
    count = PREDICTIONS_PER_CLIP * len(clips)
    if clips:
        report(prediction_cost(predictor, clips[0], count, batch_size=BATCH, num_bytes=0, what="predictions"))
    return obedience_check(clips, others, predictor.predict, clusters=clusters, seed=options.seed)


def agreement_checks(bundle: Bundle, opened: EpisodeSet) -> list[Check]:
    """Layouts, video rate and robot of run and data."""
    spec = bundle.spec
    checks = [layout_check("action", spec.action.layout, opened.action_layout)]
    if spec.state is not None:
        checks.append(layout_check("state", spec.state.layout, opened.state_layout))
    rates = {episode.fps for episode in opened.episodes}
    checks.append(agreement_check("fps", spec.fps, max(rates, key=lambda rate: abs(rate - spec.fps))))
    if spec.robot is not None and opened.robot is not None:
        checks.append(agreement_check("robot", spec.robot, opened.robot))
    return checks


def obedience_pairs(ready: Ready) -> tuple[list[Clip], list[Clip], list[str]]:
    """Clips, the same clips under other actions that start from the same pose, and the start that each belongs to.

    True counterfactual branches where the data has them, else mirrored actions on held-out clips (of all episodes
    where fewer than two were held out: whether the video changes can be asked of any).
    """
    groups = groups_of(ready, None)
    if groups:
        pairs = [(g.clips[i], g.clips[(i + 1) % len(g.clips)], g.start) for g in groups for i in range(len(g.clips))]
        pairs = pairs[:MAX_CLIPS]
        others = [with_actions_of(a, b, len(ready.spec.views)) for a, b, _ in pairs]
        return [a for a, _, _ in pairs], others, [start for _, _, start in pairs]
    episodes = ready.held_out if len(ready.held_out) > 1 else episodes_with(list(ready.data.episodes), ready.view)
    windows = Clips(episodes, ready.spec, stride=ready.spec.num_frames - 1)
    step = max(1, len(windows) // MAX_CLIPS)
    clips = [windows[i] for i in range(0, len(windows), step)][:MAX_CLIPS]
    return clips, mirrored_actions(clips, ready.spec.action.layout), [clip.episode for clip in clips]
