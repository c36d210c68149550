"""Stage 1: a world model of the simulation, the robot alone, with perturbed variants: it knows motion."""

from simforcing.data.pair_streams import REAL, SIM
from simforcing.data.paired import Variants, require_paired, variants_beside
from simforcing.generation.sampler import SamplerConfig
from simforcing.recipes.prepare import Prepared, require_tiny
from simforcing.recipes.run import AutoencoderPlan, Run, RunOptions
from simforcing.recipes.scale import SCALES
from simforcing.training.objectives import FlowMatching
from simforcing.types import EpisodeSet

WINDOW_STRIDE = 4


def teacher(data: EpisodeSet, options: RunOptions) -> Run:
    """Up to 17 frames, short side 64 px; 3 to 4 minutes and 2 GB on two CPU cores for 320 pairs and their variants.

    The autoencoder is fitted on both domains, as the student works in the same latents. Expected on held-out
    episodes: docs/paired-training.md.
    """
    require_tiny(options, "teacher")
    require_paired(data, (REAL,), (SIM,))
    scale = SCALES[options.scale]
    ready = scale.prepare(data, options, SIM)
    num_windows = ready.num_windows(WINDOW_STRIDE)
    variants = variants_beside(data)
    autoencoder = scale.autoencoder(ready, num_windows)
    return Run(
        recipe="teacher",
        spec=ready.spec,
        window_stride=WINDOW_STRIDE,
        held_out=ready.held_out,
        max_episodes=options.max_episodes,
        variants=variants is not None,
        variants_fingerprint=None if variants is None else variants.data.fingerprint,
        autoencoder=AutoencoderPlan(config=autoencoder, views=(REAL, SIM)),
        model=scale.model(ready, autoencoder.channels),
        objective=FlowMatching(weight="clean", action_dropout=0.1),
        trainer=scale.trainer(options, num_windows * (1 + variants_per_episode(variants, ready))),
        sampler=SamplerConfig(num_steps=3),
    )


def variants_per_episode(variants: Variants | None, ready: Prepared) -> int:
    """How many perturbed variants a training episode has, rounded."""
    return 0 if variants is None else round(len(variants.of(ready.training)) / len(ready.training))
