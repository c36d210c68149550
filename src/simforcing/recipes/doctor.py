"""Checks of a finished run: it loads strictly, it fits its data, and it obeys its actions."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from simforcing.data.clips import Clips
from simforcing.data.open import open_dataset
from simforcing.data.verify import verify_videos
from simforcing.evaluation.checks import Check
from simforcing.evaluation.doctor import agreement_check, layout_check, loading_check, normaliser_check, obedience_check
from simforcing.evaluation.following import with_actions_of
from simforcing.generation.rollout import Predictor
from simforcing.models.bundle import Bundle, load_bundle
from simforcing.recipes.evaluate import groups_of, held_out_episodes, stored_sampler
from simforcing.types import Clip, EpisodeSet, Layout

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
    clips, others = obedience_pairs(bundle, opened)
    predictor = Predictor(bundle, stored_sampler(bundle), device=device)
    checks.append(obedience_check(clips, others, predictor.predict, seed=seed))
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


def obedience_pairs(bundle: Bundle, opened: EpisodeSet) -> tuple[list[Clip], list[Clip]]:
    """Held-out clips and the same clips under other actions that start from the same pose.

    True counterfactual branches where the data has them, else mirrored actions.
    """
    groups = groups_of(bundle, opened, None)
    if groups:
        pairs = [(g.clips[i], g.clips[(i + 1) % len(g.clips)]) for g in groups for i in range(len(g.clips))][:MAX_CLIPS]
        return [a for a, _ in pairs], [with_actions_of(a, b) for a, b in pairs]
    held = Clips(held_out_episodes(bundle, opened), bundle.spec, stride=bundle.spec.num_frames - 1)
    step = max(1, len(held) // MAX_CLIPS)
    clips = [held[i] for i in range(0, len(held), step)][:MAX_CLIPS]
    return clips, mirrored_actions(clips, bundle.spec.action.layout)


def mirrored_actions(clips: Sequence[Clip], layout: Layout) -> list[Clip]:
    """The opposite motion from the same pose: increments change sign, absolute targets are reflected about the first.

    Grippers keep their commands. The result need not be reachable: the question is whether the video changes.
    """
    sign, anchored = np.ones(layout.dim, np.float32), np.zeros(layout.dim, np.float32)
    for name, columns in layout.slices.items():
        part = layout.part(name)
        if part.kind != "gripper":
            sign[columns] = -1.0
            anchored[columns] = 2.0 if part.mode == "absolute" else 0.0
    return [replace(clip, action=sign * clip.action + anchored * clip.action[:1]) for clip in clips]
