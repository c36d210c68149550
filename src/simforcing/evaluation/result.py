"""What an evaluation found: rows of the table per clip and frame, with intervals over episodes."""

import importlib.metadata
import platform
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, UInt8

from simforcing.evaluation.drift import DriftResult, no_drift
from simforcing.evaluation.intervals import (
    Curve,
    Interval,
    bootstrap_curve,
    bootstrap_mean,
    mean_over_frames,
    paired_difference,
)
from simforcing.evaluation.protocols import Protocol
from simforcing.evaluation.silhouette import SilhouetteResult, no_silhouettes
from simforcing.types import Rejected

ROWS = {"model": "model", "copy": "copy of the given frame", "ceiling": "autoencoder ceiling"}
TRUE_SIMULATION = "true simulation"  # how a row begins that reads the true simulation's latents
VERSIONED = ("simforcing", "torch", "numpy", "scipy", "av")


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """What an evaluation does beside its protocol.

    Args:
        seed: clip i is predicted with seed + i; the bootstrap uses `seed` as well.
        batch_size: clips per call of the model.
        view: which camera is scored.
        num_videos: clips whose frames are kept for the report, spread evenly over the held-out clips.
        num_resamples: bootstrap resamples.
    """

    seed: int = 0
    batch_size: int = 8
    view: int = 0
    num_videos: int = 6
    num_resamples: int = 2000

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.num_videos < 0 or self.num_resamples < 1:
            raise ValueError(
                f"batch size {self.batch_size} and resamples {self.num_resamples} must be at least 1,"
                f" videos {self.num_videos} at least 0"
            )


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where a result comes from: everything needed to make it again."""

    run: str = ""
    command: str = ""
    data: str = ""
    data_fingerprint: str = ""
    sampler: dict[str, float | int | str | bool | None] = field(default_factory=dict)
    rejected: tuple[Rejected, ...] = ()
    warnings: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=lambda: installed_versions())


@dataclass(frozen=True, kw_only=True)
class Example:
    """One clip's videos, kept for looking at.

    Args:
        simulated: the true simulation and the model's own one, where it makes one beside the video that is scored.
    """

    episode: str
    start: int
    task: str
    frame_time_s: Float[np.ndarray, " f"]
    truth: UInt8[np.ndarray, "f h w 3"]
    predicted: UInt8[np.ndarray, "f h w 3"]
    reconstructed: UInt8[np.ndarray, "f h w 3"]
    simulated: tuple[UInt8[np.ndarray, "f h w 3"], UInt8[np.ndarray, "f h w 3"]] | None = None


@dataclass(frozen=True, kw_only=True)
class ClipKey:
    """Which clip a score belongs to."""

    episode: str
    start: int
    task: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class Row:
    """Scores of one row of the table, per clip and counted frame; NaN = the frame's region is empty, or not known."""

    label: str
    psnr: Float[np.ndarray, "n f"]
    moving_psnr: Float[np.ndarray, "n f"]
    ssim: Float[np.ndarray, "n f"]
    robot_psnr: Float[np.ndarray, "n f"]
    background_psnr: Float[np.ndarray, "n f"]

    def per_clip(self, metric: str) -> Float[np.ndarray, " n"]:
        """Mean over the frames that count; NaN for a clip in which none does."""
        return mean_over_frames(np.asarray(getattr(self, metric)))


@dataclass(frozen=True, kw_only=True)
class EvaluationResult:
    """Rows `model`, `copy`, `ceiling` and further ones on the same clips, under one protocol.

    Args:
        comparisons: pairs of rows whose difference is reported.
        robot_reason: why scores inside and outside the robot do not apply; empty where they do.
    """

    protocol: Protocol
    settings: EvaluationSettings
    clips: tuple[ClipKey, ...]
    frame_time_s: Float[np.ndarray, " f"]
    size: tuple[int, int]
    rows: dict[str, Row]
    examples: tuple[Example, ...] = ()
    comparisons: tuple[tuple[str, str], ...] = (("model", "copy"), ("model", "ceiling"))
    robot_reason: str = ""
    silhouettes: SilhouetteResult = field(default_factory=lambda: no_silhouettes("not measured"))
    drift: DriftResult = field(default_factory=lambda: no_drift("not measured"))
    provenance: Provenance = field(default_factory=lambda: Provenance())

    @property
    def episodes(self) -> list[str]:
        """Episode of each clip: the clusters of the bootstrap."""
        return [clip.episode for clip in self.clips]

    def interval(self, row: str, metric: str) -> Interval:
        """Mean over clips of a metric (`protocols.SCORES`), with its 95 % interval over episodes."""
        values = self.rows[row].per_clip(metric)
        how = self.settings
        return bootstrap_mean(values, self.episodes, seed=how.seed, num_resamples=how.num_resamples)

    @property
    def drawn(self) -> list[str]:
        """Rows that curves show: the three, and the one with the true simulation; more could not be told apart."""
        return [name for name in self.rows if name in ROWS or name.startswith(TRUE_SIMULATION)]

    def difference(self, row: str, other: str, metric: str) -> Interval:
        """Paired difference row - other over clips, with its 95 % interval."""
        first, second = (self.rows[name].per_clip(metric) for name in (row, other))
        how = self.settings
        return paired_difference(first, second, self.episodes, seed=how.seed, num_resamples=how.num_resamples)

    def curve(self, row: str, metric: str) -> Curve:
        """Mean over clips at each counted frame, with its interval."""
        how = self.settings
        return bootstrap_curve(
            getattr(self.rows[row], metric), self.episodes, seed=how.seed, num_resamples=how.num_resamples
        )

    @property
    def num_still_frames(self) -> int:
        """Counted frames left out of the moving-region metric because nothing had moved."""
        return int(np.isnan(self.rows["copy"].moving_psnr).sum())

    @property
    def num_still_clips(self) -> int:
        """Clips left out of the moving-region metric because nothing moves in them."""
        return int(np.isnan(self.rows["copy"].per_clip("moving_psnr")).sum())


def in_words(row: str, other: str) -> str:
    """A difference of rows; a name with an equation in it, which would be misread, is put into brackets."""
    first, second = (f"({name})" if "=" in name else name for name in (row, other))
    return f"{first} minus {second}"


def installed_versions() -> dict[str, str]:
    """Versions that a number can depend on; a package that is not installed is left out."""
    versions = {"python": platform.python_version(), "platform": platform.platform()}
    for name in VERSIONED:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
