"""Other ways to the same end on the same pairs, latents, windows and video expert: what the method is compared with."""

from dataclasses import replace
from typing import Any

from simforcing.data.pair_streams import REAL, SIM
from simforcing.data.paired import require_paired
from simforcing.data.trajectory_maps import num_channels
from simforcing.generation.sampler import SamplerConfig
from simforcing.recipes.prepare import require_tiny
from simforcing.recipes.run import AutoencoderPlan, Run, RunOptions
from simforcing.recipes.scale import SCALES
from simforcing.recipes.teacher import WINDOW_STRIDE
from simforcing.training.distillation import ConditionConfig, Distillation
from simforcing.training.objectives import FlowMatching
from simforcing.types import EpisodeSet

NUM_HISTORY = 4  # past states of `cross_attention`


def sft(data: EpisodeSet, options: RunOptions) -> Run:
    """Real video alone, actions through their expert; about 3 minutes and 2 GB on two CPU cores."""
    return real_only("sft", data, options)


def rendered(data: EpisodeSet, options: RunOptions) -> Run:
    """The true simulation as the condition, in training and at inference; 3 minutes and 2 GB on two CPU cores.

    So it needs robot model, camera and renderer where the student needs none (the way of GeniWorld and RoboDream).
    """
    always = ConditionConfig(rate=1.0, corruption_rate=0.0)
    run = real_only(
        "rendered",
        data,
        options,
        network={"sim_condition": True},
        spec={"sim_views": (SIM,)},
        objective=Distillation(weight="clean", flow_sim=0.0, distill=None, condition=always),
    )
    return replace(run, sampler=replace(run.sampler, sim_source="true", sim_guidance=1.0))


def modulation(data: EpisodeSet, options: RunOptions) -> Run:
    """Actions modulate the norms of their frame (the way of IRASim); 3 minutes and 2 GB on two CPU cores."""
    return real_only("modulation", data, options, network={"actions": "modulation", "action": None})


def cross_attention(data: EpisodeSet, options: RunOptions) -> Run:
    """Actions and past states by cross-attention (the way of Ctrl-World); 3 minutes and 2 GB on two CPU cores."""
    network = {"actions": "cross_attention", "action": None, "num_history": NUM_HISTORY}
    return real_only("cross_attention", data, options, network=network, spec={"num_history": NUM_HISTORY})


def maps(data: EpisodeSet, options: RunOptions) -> Run:
    """Trajectory and rays drawn into the frame (the way of EnerVerse-AC); 3 minutes and 2 GB on two CPU cores."""
    channels = num_channels(data.action_layout) if data.action_layout else 0
    network = {"actions": "maps", "action": None, "map_channels": channels}
    return real_only("maps", data, options, network=network, spec={"with_maps": True})


def real_only(
    recipe: str,
    data: EpisodeSet,
    options: RunOptions,
    *,
    network: dict[str, Any] | None = None,
    spec: dict[str, Any] | None = None,
    objective: FlowMatching | Distillation | None = None,
) -> Run:
    """A world model of the pairs' real video, from scratch, in the latents that a teacher of the same seed has.

    Args:
        network: fields of the model's config other than the usual ones.
        spec: likewise of the spec.
        objective: other than flow matching of the real video.

    Raises:
        ValueError: no pairs, or a teacher, which none of these has.
    """
    require_tiny(options, recipe)
    if options.teacher is not None:
        raise ValueError(f"recipe {recipe} has no teacher; recipes student and joint have")
    require_paired(data, (REAL,), (SIM,))
    scale = SCALES[options.scale]
    ready = scale.prepare(data, options, REAL)
    num_windows = ready.num_windows(WINDOW_STRIDE)
    autoencoder = scale.autoencoder(ready, num_windows)
    return Run(
        recipe=recipe,
        spec=replace(ready.spec, **(spec or {})),
        window_stride=WINDOW_STRIDE,
        held_out=ready.held_out,
        max_episodes=options.max_episodes,
        autoencoder=AutoencoderPlan(config=autoencoder, views=(REAL, SIM)),
        model=scale.model(ready, autoencoder.channels, **(network or {})),
        objective=objective or FlowMatching(weight="clean", action_dropout=0.0),
        trainer=scale.trainer(options, num_windows),
        sampler=SamplerConfig(num_steps=3),
    )
