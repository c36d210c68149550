"""Sizes of the recipes for paired sets: what a method is trained at, apart from what it is."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from simforcing.models.autoencoder import TinyAutoencoderConfig
from simforcing.models.presets import tiny_world_model
from simforcing.models.world_model import WorldModelConfig
from simforcing.recipes.laptop import fitting_channels, near_size
from simforcing.recipes.prepare import Limits, Prepared, prepare
from simforcing.recipes.run import RunOptions
from simforcing.training.trainer import TrainerConfig
from simforcing.types import EpisodeSet


@dataclass(frozen=True, kw_only=True)
class Scale:
    """One size of windows, networks and training.

    Args:
        max_frames: longest window.
        max_channels: of the latents; fewer where the windows have fewer principal components.
        size: stored (height, width) -> the model's.
        network: arguments of `tiny_world_model`.
        visits: of each window, within `min_steps`..`max_steps`.
        training: fields of the trainer.
    """

    max_frames: int
    max_channels: int
    size: Callable[[tuple[int, int]], tuple[int, int]]
    network: dict[str, int] = field(default_factory=dict)
    visits: int
    min_steps: int
    max_steps: int
    training: dict[str, Any]

    def prepare(
        self, data: EpisodeSet, options: RunOptions, view: str, *, held_out: tuple[str, ...] | None = None
    ) -> Prepared:
        """Windows, sizes, held-out episodes (drawn from the seed, if not given) and normalisers for one stream."""
        limits = Limits(max_frames=self.max_frames, multiple=16, size=self.size)
        return prepare(data, options, limits, views=(view,), held_out=held_out)

    def autoencoder(self, ready: Prepared, num_windows: int) -> TinyAutoencoderConfig:
        """The closed-form autoencoder."""
        channels = min(self.max_channels, fitting_channels(ready, num_windows))
        return TinyAutoencoderConfig(channels=channels, num_encoder_blocks=0, num_decoder_blocks=0)

    def model(self, ready: Prepared, channels: int, **changes: Any) -> WorldModelConfig:
        """The network, for these latents, actions and states."""
        known = {"channels": channels, "action_dim": ready.action_dim, "state_dim": ready.state_dim}
        return replace(tiny_world_model(**known, **self.network), **changes)

    def trainer(self, options: RunOptions, num_windows: int) -> TrainerConfig:
        """So many steps that each window is visited `visits` times, within bounds."""
        batch_size = options.batch_size or self.training["batch_size"]
        num_steps = min(self.max_steps, max(self.min_steps, self.visits * num_windows // batch_size))
        return options.trainer(num_steps=num_steps, **self.training)


SCALES = {
    "debug": Scale(
        max_frames=9,
        max_channels=16,
        size=lambda _: (32, 32),
        network={"width": 32, "action_width": 16, "num_layers": 2, "head_width": 16, "text_width": 16},
        visits=1,
        min_steps=20,
        max_steps=20,
        training={"batch_size": 4, "learning_rate": 2e-3, "ema_decay": 0.9, "checkpoint_every": 10, "log_every": 1},
    ),
    "laptop": Scale(
        max_frames=17,
        max_channels=96,
        size=near_size,
        visits=8,
        min_steps=100,
        max_steps=2400,
        training={
            "batch_size": 8,
            "learning_rate": 3e-3,
            "ema_decay": 0.995,
            "checkpoint_every": 250,
            "log_every": 10,
            "validate_every": 200,
        },
    ),
}
