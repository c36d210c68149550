"""What the teacher and the baselines share: one stream of a set of pairs, learnt from random weights."""

from dataclasses import replace
from typing import Any

from simforcing.data.pair_streams import REAL, SIM
from simforcing.data.paired import Variants, require_paired, variants_beside
from simforcing.generation.sampler import SamplerConfig
from simforcing.recipes.prepare import Prepared, require_tiny
from simforcing.recipes.run import AutoencoderPlan, Run, RunOptions
from simforcing.recipes.scale import SCALES
from simforcing.training.distillation import Distillation
from simforcing.training.objectives import FlowMatching
from simforcing.types import EpisodeSet

WINDOW_STRIDE = 4  # frames between the windows of every recipe for pairs


def from_scratch(
    recipe: str,
    data: EpisodeSet,
    options: RunOptions,
    objective: FlowMatching | Distillation,
    *,
    stream: str = REAL,
    network: dict[str, Any] | None = None,
    spec: dict[str, Any] | None = None,
) -> Run:
    """A world model of one stream. Its autoencoder is fitted on both: runs of one seed have the same latents.

    Args:
        stream: what is learnt; perturbed variants, where there are any, join the simulation.
        network: fields of the model's config other than the usual ones.
        spec: likewise of the spec.

    Raises:
        ValueError: no pairs, or a teacher, which none of these has.
    """
    require_tiny(options, recipe)
    if options.teacher is not None:
        raise ValueError(f"recipe {recipe} has no teacher; recipes student and joint have")
    require_paired(data, (REAL,), (SIM,))
    scale = SCALES[options.scale]
    ready = scale.prepare(data, options, stream)
    num_windows = ready.num_windows(WINDOW_STRIDE)
    autoencoder = scale.autoencoder(ready, num_windows)
    variants = variants_beside(data)
    joining = variants if stream == SIM else None
    return Run(
        recipe=recipe,
        spec=replace(ready.spec, **(spec or {})),
        window_stride=WINDOW_STRIDE,
        held_out=ready.held_out,
        max_episodes=options.max_episodes,
        variants=joining is not None,
        variants_fingerprint=None if variants is None else variants.data.fingerprint,
        autoencoder=AutoencoderPlan(config=autoencoder, views=(REAL, SIM)),
        model=scale.model(ready, autoencoder.channels, **(network or {})),
        objective=objective,
        trainer=scale.trainer(options, num_windows * (1 + variants_per_episode(joining, ready))),
        sampler=SamplerConfig(num_steps=3),
    )


def variants_per_episode(variants: Variants | None, ready: Prepared) -> int:
    """How many perturbed variants a training episode has, rounded."""
    return 0 if variants is None else round(len(variants.of(ready.training)) / len(ready.training))
