"""Checks of a finished run: it loads strictly, it fits its data, and it obeys its actions."""

from pathlib import Path

import numpy as np

from simforcing.data.clips import Clips
from simforcing.data.open import open_dataset
from simforcing.data.verify import verify_videos
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
from simforcing.models.bundle import Bundle, load_bundle
from simforcing.recipes.evaluate import groups_of, held_out_episodes, stored_sampler
from simforcing.types import Clip, EpisodeSet

MAX_CLIPS = 32


def run_checks(run_dir: Path, *, data: str | None = None, seed: int = 0, device: str = "cpu") -> list[Check]:
    """Every check of a run, in order; later ones need the earlier to pass.

    Raises:
        ValueError: the data set cannot be opened.
    """
    loaded = loading_check(lambda: load_bundle(run_dir))
    if not loaded.passed:
        return [loaded]
    bundle = load_bundle(run_dir)
    source = data or bundle.about.get("data")
    opened = open_dataset(str(source))
    checks = [loaded, *agreement_checks(bundle, opened)]
    if any(check.passed is False for check in checks):
        return checks
    opened = verify_videos(opened, bundle.spec.views)
    checks.append(normaliser_check("action", np.concatenate([e.action for e in opened.episodes]), bundle.spec.action))
    states = [e.state for e in opened.episodes if e.state is not None]
    if bundle.spec.state is not None:
        checks.append(normaliser_check("state", np.concatenate(states), bundle.spec.state))
    clips, others, clusters = obedience_pairs(bundle, opened)
    predictor = Predictor(bundle, stored_sampler(bundle), device=device)
    checks.append(obedience_check(clips, others, predictor.predict, clusters=clusters, seed=seed))
    return checks


def agreement_checks(bundle: Bundle, opened: EpisodeSet) -> list[Check]:
    """Layouts, video rate and robot of run and data."""
    spec = bundle.spec
    checks = [layout_check("action", spec.action.layout, opened.action_layout)]
    if spec.state is not None:
        checks.append(layout_check("state", spec.state.layout, opened.state_layout))
    checks.append(agreement_check("fps", spec.fps, opened.episodes[0].fps))
    if spec.robot is not None and opened.robot is not None:
        checks.append(agreement_check("robot", spec.robot, opened.robot))
    return checks


def obedience_pairs(bundle: Bundle, opened: EpisodeSet) -> tuple[list[Clip], list[Clip], list[str]]:
    """Clips, the same clips under other actions that start from the same pose, and the start that each belongs to.

    True counterfactual branches where the data has them, else mirrored actions on held-out clips (of all episodes
    where fewer than two were held out: whether the video changes can be asked of any).
    """
    groups = groups_of(bundle, opened, None)
    if groups:
        pairs = [(g.clips[i], g.clips[(i + 1) % len(g.clips)], g.start) for g in groups for i in range(len(g.clips))]
        pairs = pairs[:MAX_CLIPS]
        return [a for a, _, _ in pairs], [with_actions_of(a, b) for a, b, _ in pairs], [start for _, _, start in pairs]
    held = held_out_episodes(bundle, opened)
    episodes = held if len(held) > 1 else opened.episodes
    windows = Clips(episodes, bundle.spec, stride=bundle.spec.num_frames - 1)
    step = max(1, len(windows) // MAX_CLIPS)
    clips = [windows[i] for i in range(0, len(windows), step)][:MAX_CLIPS]
    return clips, mirrored_actions(clips, bundle.spec.action.layout), [clip.episode for clip in clips]
