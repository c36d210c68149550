"""A Run: everything that fixes a training, as values; and what every recipe has in common in building one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from simforcing.data.pair_streams import SIM
from simforcing.data.trajectory_maps import num_channels
from simforcing.data.windows import split_episodes
from simforcing.generation.sampler import SamplerConfig
from simforcing.models.adapters import LoraConfig
from simforcing.models.autoencoder import TinyAutoencoderConfig
from simforcing.models.taef2 import CHANNELS as TAEF2_CHANNELS
from simforcing.models.taef2 import Taef2Config
from simforcing.models.world_model import WorldModelConfig
from simforcing.training.distillation import Distillation
from simforcing.training.objectives import FlowMatching
from simforcing.training.trainer import TrainerConfig
from simforcing.types import DataSpec, Episode, check_choices, check_seed
from simforcing.types.episodes import ResizePolicy
from simforcing.types.inputs import ActionForm
from simforcing.types.normalisers import NormaliserKind


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
        normaliser: of actions and states: min_max, quantile or mean_std.
        action_form: commands are read as stored, or converted exactly to increments or absolute targets.
        autoencoder: tiny (fitted in the run) or, in recipe laptop, taef2 (weights from `taef2_path`, a folder or hub
            id; default the author's).
        scale: of the recipes for paired sets: `laptop` or `debug` (seconds, learns nothing).
        teacher: folder of a finished run of recipe teacher, which recipe student starts from.
        lora_rank: train adapters of that rank beside the teacher's frozen weights instead of a second copy of them.
        max_episodes: train on at most so many episodes, the same ones for the same seed.
        cache: folder for encoded windows that several runs may share; default: in the run's own.
        preset: `ours`, or `release`: everything that the authors' release does otherwise.
        settings: `dotted.name=value` of the Run, applied last: every choice of the method is one.
    """

    views: tuple[str, ...] | None = None
    num_frames: int | None = None
    size: tuple[int, int] | None = None
    resize: ResizePolicy = "squash"
    held_out: int | None = None
    num_steps: int | None = None
    batch_size: int | None = None
    normaliser: NormaliserKind = "min_max"
    action_form: ActionForm = "stored"
    autoencoder: Literal["tiny", "taef2"] = "tiny"
    taef2_path: str | None = None
    seed: int = 0
    device: str = "cpu"
    dtype: Literal["float32", "bfloat16"] = "float32"
    tensorboard: bool = False
    scale: Literal["debug", "laptop"] = "laptop"
    teacher: str | None = None
    lora_rank: int | None = None
    max_episodes: int | None = None
    cache: str | None = None
    preset: Literal["ours", "release"] = "ours"
    settings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.taef2_path is not None and self.autoencoder != "taef2":
            raise ValueError(f"taef2_path is {self.taef2_path}, but the autoencoder is {self.autoencoder}, not taef2")
        for name in ("num_frames", "held_out", "num_steps", "batch_size", "max_episodes", "lora_rank"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        check_seed(self.seed)
        check_choices(self)

    def trainer(self, *, num_steps: int, batch_size: int, learning_rate: float, **defaults: Any) -> TrainerConfig:
        """A recipe's trainer, with what was asked for in place of its defaults."""
        return TrainerConfig(
            num_steps=self.num_steps or num_steps,
            batch_size=self.batch_size or batch_size,
            learning_rate=learning_rate,
            seed=self.seed,
            device=self.device,
            dtype=self.dtype,
            tensorboard=self.tensorboard,
            **defaults,
        )


@dataclass(frozen=True, kw_only=True)
class AutoencoderPlan:
    """Which autoencoder, and how it is made.

    Args:
        config: what is built.
        num_steps: of training after the closed-form start; 0 keeps that.
        max_clips: windows that it is fitted on, spread evenly over the training windows.
        views: cameras that it is fitted on; none: the run's own.
    """

    config: TinyAutoencoderConfig | Taef2Config
    views: tuple[str, ...] = ()
    num_steps: int = 0
    batch_size: int = 8
    learning_rate: float = 1e-3
    max_clips: int = 256

    def __post_init__(self) -> None:
        for name, least in (("num_steps", 0), ("batch_size", 1), ("max_clips", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"autoencoder.{name} is {getattr(self, name)}; it must be at least {least}")


@dataclass(frozen=True, kw_only=True)
class Start:
    """The finished run whose weights and autoencoder another one starts from.

    Args:
        path: its folder.
        sha256: of its network, autoencoder and config, so that another run is never taken for it.
    """

    path: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training run, complete.

    Args:
        recipe: name of the recipe that made it.
        window_stride: frames between the starts of training windows, each of which is encoded once.
        held_out: names of the episodes that training never sees.
        max_episodes: training takes at most so many of the others, by a hash of (seed, name).
        variants: perturbed variants of the training episodes join in, where the set has them.
        variants_fingerprint: of the set of variants beside the data, None where there is none.
        start: the run that this one starts from, and whose network is the frozen teacher where the objective has one.
        lora: train low-rank adapters beside the start's frozen weights, which then are the teacher too: one copy.

    Raises:
        ValueError: parts that do not fit each other, both named.
    """

    recipe: str
    spec: DataSpec
    window_stride: int
    held_out: tuple[str, ...]
    autoencoder: AutoencoderPlan
    model: WorldModelConfig
    objective: FlowMatching | Distillation
    trainer: TrainerConfig
    sampler: SamplerConfig
    max_episodes: int | None = None
    variants: bool = False
    variants_fingerprint: str | None = None
    start: Start | None = None
    lora: LoraConfig | None = None

    def __post_init__(self) -> None:
        self._check_objective()
        self._check_lora()
        if repeated := sorted({name for name in self.held_out if self.held_out.count(name) > 1}):
            raise ValueError(f"held_out names {', '.join(repeated)} more than once")
        if self.variants and not (self.spec.sim_views or self.spec.views == (SIM,)):
            raise ValueError(f"variants is true: they are simulation alone, but this run learns {self.spec.views}")
        if self.max_episodes is not None and self.max_episodes < 1:
            raise ValueError(f"max_episodes is {self.max_episodes}; it must be at least 1")
        if self.window_stride < 1:
            raise ValueError(f"window_stride is {self.window_stride}, expected at least 1")
        config = self.autoencoder.config
        drawn = num_channels(self.spec.action.layout) if self.spec.with_maps else 0
        pairs = {
            "channels": (self.model.channels, TAEF2_CHANNELS if isinstance(config, Taef2Config) else config.channels),
            "action_dim": (self.model.action_dim, self.spec.action_dim),
            "state_dim": (self.model.state_dim, self.spec.state_dim),
            "num_history": (self.model.num_history, self.spec.num_history),
            "map_channels": (self.model.map_channels, drawn),
        }
        for name, (reads, given) in pairs.items():
            if reads != given:
                raise ValueError(f"model.{name} is {reads}, but autoencoder and data give {given}")

    def _check_lora(self) -> None:
        if self.lora is None:
            return
        if self.lora.rank > self.model.video.width:
            raise ValueError(f"lora.rank is {self.lora.rank}, more than the network's width, {self.model.video.width}")
        if self.start is None:
            raise ValueError("lora adapts the weights of a start; give one, or no lora")
        distill = self.objective.distill if isinstance(self.objective, Distillation) else None
        if distill is not None and distill.teacher_state == "student":
            raise ValueError(
                "objective.distill.teacher_state is student, but with lora the teacher is the student's base network"
                " and reads proprioception as stage 1 did; choose teacher_state=own, or no lora"
            )

    def _check_objective(self) -> None:
        objective = self.objective
        if isinstance(objective, Distillation):
            if not self.spec.sim_views:
                raise ValueError("objective Distillation learns from pairs, but spec.sim_views is empty")
            if (objective.condition is not None) != self.model.sim_condition:
                raise ValueError(
                    f"objective.condition is {objective.condition}, but model.sim_condition is"
                    f" {self.model.sim_condition}; give both or neither"
                )
            if (
                objective.distill is not None
                and objective.distill.first_frame == "predicted"
                and self.model.predicts == "clean"
            ):
                raise ValueError(
                    "objective.distill.first_frame is predicted, but model.predicts is clean: such a network says"
                    " nothing of the given frame; choose first_frame=observed, or a teacher that predicts velocity"
                )
            if objective.needs_teacher and self.start is None:
                raise ValueError(f"objective.distill.teacher is {objective.distill}, but there is no start to be it")
            return
        if self.model.sim_condition:
            raise ValueError("model.sim_condition is true, but objective FlowMatching never conditions on simulation")
        noised = [name for name in ("video", "action") if getattr(objective.sigma, name)]
        if missing := [name for name in noised if name not in self.model.denoises]:
            raise ValueError(
                f"objective.sigma noises {', '.join(noised)}, but model.denoises is"
                f" {', '.join(self.model.denoises) or 'empty'}; without a head: {', '.join(missing)}"
            )

    @property
    def seed(self) -> int:
        """Of everything random in the run."""
        return self.trainer.seed

    def training(self, episodes: Sequence[Episode]) -> list[Episode]:
        """The episodes that are not held out, in order; at most `max_episodes` of them."""
        allowed = [episode for episode in episodes if episode.name not in self.held_out]
        if self.max_episodes is None or self.max_episodes >= len(allowed):
            return allowed
        return split_episodes(allowed, count=self.max_episodes, seed=self.seed)[1]
