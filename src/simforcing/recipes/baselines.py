"""Other ways to the same end on the same pairs, latents, windows and video expert: what the method is compared with."""

from dataclasses import replace

from simforcing.data.pair_streams import SIM
from simforcing.data.trajectory_maps import num_channels
from simforcing.recipes.from_scratch import from_scratch
from simforcing.recipes.run import Run, RunOptions
from simforcing.training.distillation import ConditionConfig, Distillation
from simforcing.training.objectives import FlowMatching
from simforcing.types import EpisodeSet

PLAIN = FlowMatching(weight="clean", action_dropout=0.0)
NUM_HISTORY = 4  # past states of `cross_attention`


def sft(data: EpisodeSet, options: RunOptions) -> Run:
    """Real video alone, actions through their expert; about 4 minutes and 2 GB on one CPU core."""
    return from_scratch("sft", data, options, PLAIN)


def rendered(data: EpisodeSet, options: RunOptions) -> Run:
    """The true simulation as the condition, in training and at inference; 4 minutes and 2 GB on one CPU core.

    So it needs robot model, camera and renderer where the student needs none (the way of GeniWorld and RoboDream).
    """
    always = ConditionConfig(rate=1.0, corruption_rate=0.0)
    objective = Distillation(weight="clean", flow_sim=0.0, distill=None, condition=always)
    spec, network = {"sim_views": (SIM,)}, {"sim_condition": True}
    run = from_scratch("rendered", data, options, objective, network=network, spec=spec)
    return replace(run, sampler=replace(run.sampler, sim_source="true", sim_guidance=1.0))


def modulation(data: EpisodeSet, options: RunOptions) -> Run:
    """Actions modulate the norms of their frame (the way of IRASim); 4 minutes and 2 GB on one CPU core."""
    return from_scratch("modulation", data, options, PLAIN, network={"actions": "modulation", "action": None})


def cross_attention(data: EpisodeSet, options: RunOptions) -> Run:
    """Actions and past states by cross-attention (the way of Ctrl-World); 4 minutes and 2 GB on one CPU core."""
    network = {"actions": "cross_attention", "action": None, "num_history": NUM_HISTORY}
    return from_scratch("cross_attention", data, options, PLAIN, network=network, spec={"num_history": NUM_HISTORY})


def maps(data: EpisodeSet, options: RunOptions) -> Run:
    """Trajectory and rays drawn into the frame (the way of EnerVerse-AC); 4 minutes and 2 GB on one CPU core."""
    channels = num_channels(data.action_layout) if data.action_layout else 0
    network = {"actions": "maps", "action": None, "map_channels": channels}
    return from_scratch("maps", data, options, PLAIN, network=network, spec={"with_maps": True})
