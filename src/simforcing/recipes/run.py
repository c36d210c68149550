"""A Run: everything that fixes a training, as values; and what every recipe has in common in building one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from simforcing.data.spec import fit_spec
from simforcing.data.windows import WindowSpec, split_episodes
from simforcing.generation.sampler import SamplerConfig
from simforcing.models.autoencoder import TinyAutoencoderConfig
from simforcing.models.taef2 import Taef2Config
from simforcing.models.world_model import WorldModelConfig
from simforcing.training.objectives import FlowMatching
from simforcing.training.trainer import TrainerConfig
from simforcing.types import DataSpec, Episode, EpisodeSet, Resize
from simforcing.types.episodes import ResizePolicy


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a user may set on any recipe; None = the recipe's own choice.

    Args:
        views: cameras to learn; default: the set's first one.
        num_frames: frames of a window; default: the longest that fits the recipe and the shortest episode.
        size: (height, width) of the model's frames.
        resize: policy where the stored aspect differs.
        held_out: how many episodes are kept for evaluation.
        num_steps, batch_size: of the world model's training.
        autoencoder: tiny (trained in the run) or taef2 (weights from `taef2_path`, a folder or hub id).
    """

    views: tuple[str, ...] | None = None
    num_frames: int | None = None
    size: tuple[int, int] | None = None
    resize: ResizePolicy = "squash"
    held_out: int | None = None
    num_steps: int | None = None
    batch_size: int | None = None
    autoencoder: Literal["tiny", "taef2"] = "tiny"
    taef2_path: str | None = None
    seed: int = 0
    device: str = "cpu"
    dtype: Literal["float32", "bfloat16"] = "float32"
    tensorboard: bool = False


@dataclass(frozen=True, kw_only=True)
class AutoencoderPlan:
    """Which autoencoder, and how it is made.

    Args:
        config: what is built.
        num_steps: of training after the closed-form start; 0 keeps that.
        max_clips: windows that it is fitted on, spread evenly over the training windows.
    """

    config: TinyAutoencoderConfig | Taef2Config
    num_steps: int = 0
    batch_size: int = 8
    learning_rate: float = 1e-3
    max_clips: int = 256


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training run, complete.

    Args:
        recipe: name of the recipe that made it.
        window_stride: frames between the starts of training windows; a multiple of the temporal factor, so that the
            latents of windows can be encoded once.
        held_out: names of the episodes that training never sees.
    """

    recipe: str
    spec: DataSpec
    window_stride: int
    held_out: tuple[str, ...]
    autoencoder: AutoencoderPlan
    model: WorldModelConfig
    objective: FlowMatching
    trainer: TrainerConfig
    sampler: SamplerConfig

    @property
    def seed(self) -> int:
        return self.trainer.seed


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What a recipe decides about a data set before it chooses networks."""

    spec: DataSpec
    held_out: tuple[str, ...]

    @property
    def state_dim(self) -> int:
        return self.spec.state_dim

    @property
    def action_dim(self) -> int:
        return self.spec.action.layout.dim


def prepare(
    data: EpisodeSet,
    options: RunOptions,
    *,
    max_frames: int,
    multiple: int,
    size: Callable[[tuple[int, int]], tuple[int, int]],
    temporal_factor: int = 4,
) -> Prepared:
    """Choose views, window, frame size and held-out episodes, and fit the normalisers.

    Args:
        max_frames: longest window of the recipe.
        multiple: what both sides of a frame must be multiples of.
        size: stored (height, width) -> the recipe's own frame size.
        temporal_factor: windows hold n * temporal_factor + 1 frames.

    Raises:
        ValueError: a choice that does not fit the data or the autoencoder.
    """
    views = options.views or (data.episodes[0].views[0].name,)
    held_out_count = options.held_out or max(1, round(0.1 * len(data.episodes)))
    training, held_out = split_episodes(data.episodes, count=held_out_count, seed=options.seed)
    num_frames = options.num_frames or _longest_window(training, max_frames, temporal_factor)
    if (num_frames - 1) % temporal_factor or num_frames < temporal_factor + 1:
        raise ValueError(f"windows of {num_frames} frames; this autoencoder needs {temporal_factor} * n + 1, n >= 1")
    stored = data.episodes[0].view(views[0]).frames.size
    height, width = options.size or size(stored)
    if height % multiple or width % multiple:
        raise ValueError(f"frames of {height}x{width}; both sides must be multiples of {multiple} for this recipe")
    window = WindowSpec(
        num_frames=num_frames, views=views, resize=Resize(height=height, width=width, policy=options.resize)
    )
    return Prepared(spec=fit_spec(data, training, window=window), held_out=tuple(e.name for e in held_out))


def _longest_window(training: list[Episode], max_frames: int, temporal_factor: int) -> int:
    shortest = min(min(episode.num_frames for episode in training), max_frames)
    return max(1, (shortest - 1) // temporal_factor) * temporal_factor + 1
