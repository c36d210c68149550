"""A run of seconds on any CPU: the same code as every other recipe, far too small to learn."""

from simforcing.generation.sampler import SamplerConfig
from simforcing.models.autoencoder import TinyAutoencoderConfig
from simforcing.models.presets import tiny_world_model
from simforcing.recipes.prepare import Limits, prepare, require_tiny
from simforcing.recipes.run import AutoencoderPlan, Run, RunOptions
from simforcing.training.objectives import FlowMatching
from simforcing.types import EpisodeSet


def debug(data: EpisodeSet, options: RunOptions) -> Run:
    """Seconds, one core, under 1 GB; predictions stay near the given frame. For tests and first steps with own data."""
    require_tiny(options, "debug")
    ready = prepare(data, options, Limits(max_frames=9, multiple=16, size=lambda _: (32, 32)))
    channels = 16
    return Run(
        recipe="debug",
        spec=ready.spec,
        window_stride=4,
        held_out=ready.held_out,
        autoencoder=AutoencoderPlan(
            config=TinyAutoencoderConfig(channels=channels, num_encoder_blocks=0, num_decoder_blocks=0), max_clips=32
        ),
        model=tiny_world_model(
            channels=channels,
            action_dim=ready.action_dim,
            state_dim=ready.state_dim,
            width=32,
            action_width=16,
            num_layers=2,
            head_width=16,
            text_width=16,
        ),
        objective=FlowMatching(weight="clean"),
        trainer=options.trainer(
            num_steps=20,
            batch_size=4,
            learning_rate=2e-3,
            ema_decay=0.9,
            checkpoint_every=10,
            log_every=1,
        ),
        sampler=SamplerConfig(num_steps=4),
    )
