"""What an evaluation scores beside the model's prediction: robot and background, simulation, other guidance."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from simforcing.data.latents import decode_latents, encode_clips
from simforcing.data.pair_streams import REAL, SIM
from simforcing.data.sim_background import background_reader
from simforcing.evaluation.result import ROWS, TRUE_SIMULATION
from simforcing.evaluation.scoring import Further, Predict, Reconstruct, Simulation
from simforcing.generation.rollout import Predictor, sim_streams
from simforcing.recipes.prediction import Ready
from simforcing.types import Clip, DataSpec, Episode, View

STRENGTHS = (0.0, 0.3, 0.6, 1.0)  # w of v_off + w (v_on - v_off); the run's own is the model's row


def further_of(ready: Ready, *, alternatives: bool) -> Further:
    """What this run can be asked beside its own prediction.

    Args:
        alternatives: also score other strengths of the simulation condition, and the true simulation in its place.
    """
    predictor = ready.predictor
    rows = other_guidance(predictor) if alternatives and is_guided(predictor) else {}
    baseline = strength(0.0) if strength(0.0) in rows else "model"
    compared = [name for name in ("model", *rows) if name == "model" or name.startswith(TRUE_SIMULATION)]
    return Further(
        alternatives=rows,
        comparisons=tuple((name, baseline) for name in compared if name != baseline),
        simulation=simulation_of(ready),
        label=f"{ROWS['model']}, {strength(predictor.sampler.sim_guidance)}" if is_guided(predictor) else ROWS["model"],
    )


def is_guided(predictor: Predictor) -> bool:
    """Whether the model's own simulation conditions its video."""
    return predictor.bundle.model.config.sim_condition and predictor.sampler.sim_source == "self"


def other_guidance(predictor: Predictor) -> dict[str, Predict]:
    """Rows by label: other strengths of the self-made simulation, and the true one at the run's own strength."""
    own = predictor.sampler.sim_guidance
    rows: dict[str, Predict] = {
        strength(w): predictor.using(sim_guidance=w).predict for w in STRENGTHS if strength(w) != strength(own)
    }
    if own > 0:
        rows[f"{TRUE_SIMULATION}, {strength(own)}"] = predictor.using(sim_source="true").predict
    return rows


def strength(w: float) -> str:
    """How the strength of a simulation condition is written."""
    return f"w = {w:g}"


def simulation_of(ready: Ready) -> Simulation | str:
    """The simulation that the run predicts in the scored view, or why its silhouettes cannot be scored."""
    spec, predictor, view = ready.spec, ready.predictor, ready.predictor.view
    if spec.sim_views and predictor.sampler.sim_source == "true":
        return "the model is given the true simulation and makes none"
    name = spec.sim_views[view] if spec.sim_views else spec.views[view]
    stored = [one for episode in ready.held_out for one in episode.views if one.name == name]
    root = Path(ready.data.root)
    background = background_reader(root, spec.resize, stored[0].frames.size) if stored else None
    if background is None or (not spec.sim_views and name != SIM):
        return "only real video is predicted, which has no simulator's mask"
    if any(one.masks is None for one in stored) or len(stored) < len(ready.held_out):
        return f"view {name} of the data has no masks"
    if fault := unreadable(background, ready.held_out):
        return fault
    return Simulation(
        stream=len(spec.views) + view if spec.sim_views else view,
        background=background,
        reconstruct=sim_reconstruction(predictor) if spec.sim_views else predictor.reconstruct,
        predict=predictor.predict_sim if spec.sim_views else None,
    )


def unreadable(background: Callable[[str], np.ndarray], episodes: Sequence[Episode]) -> str:
    """Why an episode's background is not there; empty where all are."""
    try:
        for episode in episodes:
            background(episode.name)
    except ValueError as error:
        return str(error)
    return ""


def sim_reconstruction(predictor: Predictor) -> Reconstruct:
    """The true simulation of the scored view through the autoencoder."""
    bundle = predictor.bundle

    def reconstruct(clips: list[Clip]) -> list[np.ndarray]:
        latents = encode_clips(clips, bundle.autoencoder, streams=sim_streams(bundle.spec))
        return list(decode_latents(latents, bundle.autoencoder)[:, predictor.view])

    return reconstruct


def with_robot_masks(episodes: Sequence[Episode], spec: DataSpec) -> list[Episode]:
    """Episodes whose views carry the mask of their aligned simulation where they have none of their own."""
    simulation = dict(zip(spec.views, spec.sim_views, strict=False)) or {REAL: SIM}
    return [
        replace(episode, views=tuple(_masked(view, episode, simulation) for view in episode.views))
        for episode in episodes
    ]


def _masked(view: View, episode: Episode, simulation: dict[str, str]) -> View:
    if view.masks is not None or view.name not in simulation:
        return view
    aligned = next((one for one in episode.views if one.name == simulation[view.name]), None)
    return view if aligned is None else replace(view, masks=aligned.masks)
