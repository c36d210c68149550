"""Stage 1: a world model of the simulation, the robot alone, with perturbed variants: it knows motion."""

from simforcing.data.pair_streams import SIM
from simforcing.recipes.from_scratch import from_scratch
from simforcing.recipes.run import Run, RunOptions
from simforcing.training.objectives import FlowMatching
from simforcing.types import EpisodeSet


def teacher(data: EpisodeSet, options: RunOptions) -> Run:
    """Up to 17 frames, short side 64 px; about 6 minutes and 2 GB on one CPU core for 320 pairs and their variants.

    The autoencoder is fitted on both domains, as the student works in the same latents. Expected on held-out
    episodes: docs/paired-training.md.
    """
    objective = FlowMatching(weight="clean", action_dropout=0.1)
    return from_scratch("teacher", data, options, objective, stream=SIM)
