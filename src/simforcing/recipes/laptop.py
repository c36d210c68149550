"""Real robot clips on a laptop: a small world model of any LeRobot, Bridge or DROID set, without a GPU."""

from simforcing.generation.sampler import SamplerConfig
from simforcing.models.autoencoder import TinyAutoencoderConfig
from simforcing.models.presets import tiny_world_model
from simforcing.models.taef2 import CHANNELS as TAEF2_CHANNELS
from simforcing.models.taef2 import HUB_ID, Taef2Config
from simforcing.recipes.prepare import Limits, Prepared, prepare
from simforcing.recipes.run import AutoencoderPlan, Run, RunOptions
from simforcing.training.objectives import FlowMatching
from simforcing.types import EpisodeSet

SHORT_SIDE_PX = 64
VISITS = 4  # of each window: small sets are learnt by heart beyond that (docs/laptop.md)
MIN_STEPS, MAX_STEPS = 100, 1500
MAX_CHANNELS = 96


def laptop(data: EpisodeSet, options: RunOptions) -> Run:
    """Up to 17 frames, short side 64 px; up to 10 to 20 minutes and 3 GB on two CPU cores.

    Steps grow with the data: four visits of each window, at least 100 and at most 1500 steps.
    Expected on nine DROID episodes and on nineteen of Bridge: docs/real-data.md.
    """
    taef2 = options.autoencoder == "taef2"
    limits = Limits(max_frames=17, multiple=16, size=near_size, temporal_factor=1 if taef2 else 4)
    ready = prepare(data, options, limits)
    stride, batch_size = 1 if taef2 else 2, options.batch_size or 8
    num_windows = ready.num_windows(stride)
    if taef2:
        plan = AutoencoderPlan(config=Taef2Config(path=options.taef2_path or HUB_ID))
        channels = TAEF2_CHANNELS
    else:
        channels = fitting_channels(ready, num_windows)
        plan = AutoencoderPlan(config=TinyAutoencoderConfig(channels=channels, num_decoder_blocks=0))
    return Run(
        recipe="laptop",
        spec=ready.spec,
        window_stride=stride,
        held_out=ready.held_out,
        autoencoder=plan,
        model=tiny_world_model(channels=channels, action_dim=ready.action_dim, state_dim=ready.state_dim),
        objective=FlowMatching(weight="clean"),
        trainer=options.trainer(
            num_steps=default_steps(num_windows, batch_size),
            batch_size=batch_size,
            learning_rate=1e-3,
            ema_decay=0.995,
            checkpoint_every=250,
            log_every=10,
            validate_every=100,
        ),
        sampler=SamplerConfig(num_steps=4),
    )


def default_steps(num_windows: int, batch_size: int) -> int:
    """Steps for VISITS visits of each window, within MIN_STEPS..MAX_STEPS."""
    return min(MAX_STEPS, max(MIN_STEPS, VISITS * num_windows // batch_size))


def fitting_channels(ready: Prepared, num_windows: int) -> int:
    """At most MAX_CHANNELS, and fewer than the patches of the windows: no more principal components exist."""
    resize, patch = ready.spec.resize, TinyAutoencoderConfig()
    cells = resize.height * resize.width // patch.spatial_factor**2
    groups = 1 + (ready.spec.num_frames - 1) // patch.temporal_factor
    return max(1, min(MAX_CHANNELS, num_windows * groups * cells - 1))


def near_size(stored: tuple[int, int]) -> tuple[int, int]:
    """Short side 64 px, the long one the multiple of 16 nearest to the stored aspect."""
    height, width = stored
    long_side = max(16, round(SHORT_SIDE_PX * max(stored) / min(stored) / 16) * 16)
    return (SHORT_SIDE_PX, long_side) if height <= width else (long_side, SHORT_SIDE_PX)
