"""Real robot clips on a laptop: a small world model of any LeRobot, Bridge or DROID set, without a GPU."""

from simforcing.generation.sampler import SamplerConfig
from simforcing.models.autoencoder import TinyAutoencoderConfig
from simforcing.models.presets import tiny_world_model
from simforcing.models.taef2 import CHANNELS as TAEF2_CHANNELS
from simforcing.models.taef2 import Taef2Config
from simforcing.recipes.run import AutoencoderPlan, Run, RunOptions, prepare
from simforcing.training.objectives import FlowMatching
from simforcing.training.trainer import TrainerConfig
from simforcing.types import EpisodeSet

SHORT_SIDE_PX = 64


def laptop(data: EpisodeSet, options: RunOptions) -> Run:
    """Up to 17 frames, short side 64 px; 10 to 20 minutes and 3 GB on two CPU cores.

    Expected on nine DROID episodes and on nineteen of Bridge: docs/real-data.md.
    """
    taef2 = options.autoencoder == "taef2"
    ready = prepare(data, options, max_frames=17, multiple=16, size=near_size, temporal_factor=1 if taef2 else 4)
    if taef2:
        plan = AutoencoderPlan(config=Taef2Config(path=options.taef2_path))
        channels = TAEF2_CHANNELS
    else:
        channels = 48
        plan = AutoencoderPlan(config=TinyAutoencoderConfig(channels=channels, num_decoder_blocks=0))
    return Run(
        recipe="laptop",
        spec=ready.spec,
        window_stride=1 if taef2 else 2,
        held_out=ready.held_out,
        autoencoder=plan,
        model=tiny_world_model(channels=channels, action_dim=ready.action_dim, state_dim=ready.state_dim),
        objective=FlowMatching(weight="clean"),
        trainer=TrainerConfig(
            num_steps=options.num_steps or 1500,
            batch_size=options.batch_size or 8,
            learning_rate=2e-3,
            ema_decay=0.995,
            checkpoint_every=250,
            log_every=10,
            seed=options.seed,
            device=options.device,
            dtype=options.dtype,
            tensorboard=options.tensorboard,
        ),
        sampler=SamplerConfig(num_steps=10),
    )


def near_size(stored: tuple[int, int]) -> tuple[int, int]:
    """Short side 64 px, the long one the multiple of 16 nearest to the stored aspect."""
    height, width = stored
    long_side = max(16, round(SHORT_SIDE_PX * max(stored) / min(stored) / 16) * 16)
    return (SHORT_SIDE_PX, long_side) if height <= width else (long_side, SHORT_SIDE_PX)
