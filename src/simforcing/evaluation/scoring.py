"""Scores a model on held-out clips, always beside a copy of the given frame and the autoencoder's ceiling.

The model is known only as a callable; nothing here depends on networks, samplers or checkpoints.
"""

import importlib.metadata
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, UInt8

from simforcing.evaluation.intervals import Curve, Interval, bootstrap_curve, bootstrap_mean, paired_difference
from simforcing.evaluation.protocols import METRICS, FrameScores, Protocol, score_clip
from simforcing.types import Clip, Rejected

Frames = UInt8[np.ndarray, "f h w 3"]
Predict = Callable[
    [list[Clip], list[int]], list[np.ndarray]
]  # clips, one seed each -> frames f h w 3 each, given one too
Reconstruct = Callable[[list[Clip]], list[np.ndarray]]
Progress = Callable[[int, int], None]  # clips done, clips in all

ROWS = {"model": "model", "copy": "copy of the given frame", "ceiling": "autoencoder ceiling"}
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
    """One clip's videos, kept for looking at."""

    episode: str
    start: int
    task: str
    frame_time_s: Float[np.ndarray, " f"]
    truth: UInt8[np.ndarray, "f h w 3"]
    predicted: UInt8[np.ndarray, "f h w 3"]
    reconstructed: UInt8[np.ndarray, "f h w 3"]


@dataclass(frozen=True, kw_only=True)
class ClipKey:
    """Which clip a score belongs to."""

    episode: str
    start: int
    task: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class Row:
    """Scores of one row of the table, per clip and counted frame; NaN = empty moving region."""

    label: str
    psnr: Float[np.ndarray, "n f"]
    moving_psnr: Float[np.ndarray, "n f"]
    ssim: Float[np.ndarray, "n f"]

    def per_clip(self, metric: str) -> Float[np.ndarray, " n"]:
        """Mean over the frames that count; NaN for a clip in which none does."""
        values = np.asarray(getattr(self, metric))
        counts = np.isfinite(values).sum(axis=1)
        total = np.where(np.isfinite(values), values, 0.0).sum(axis=1)
        return np.where(counts > 0, total / np.maximum(counts, 1), np.nan)


@dataclass(frozen=True, kw_only=True)
class EvaluationResult:
    """Rows `model`, `copy` and `ceiling` on the same clips, under one protocol."""

    protocol: Protocol
    settings: EvaluationSettings
    provenance: Provenance
    clips: tuple[ClipKey, ...]
    frame_time_s: Float[np.ndarray, " f"]
    size: tuple[int, int]
    rows: dict[str, Row]
    examples: tuple[Example, ...] = ()

    @property
    def episodes(self) -> list[str]:
        """Episode of each clip: the clusters of the bootstrap."""
        return [clip.episode for clip in self.clips]

    def interval(self, row: str, metric: str) -> Interval:
        """Mean over clips of a metric (`psnr`, `moving_psnr`, `ssim`), with its 95 % interval over episodes."""
        values = self.rows[row].per_clip(metric)
        how = self.settings
        return bootstrap_mean(values, self.episodes, seed=how.seed, num_resamples=how.num_resamples)

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


def evaluate(
    clips: Sequence[Clip],
    predict: Predict,
    reconstruct: Reconstruct,
    protocol: Protocol,
    *,
    settings: EvaluationSettings | None = None,
    provenance: Provenance | None = None,
    progress: Progress | None = None,
) -> EvaluationResult:
    """Predict, copy and reconstruct every clip and score all three.

    Args:
        clips: held-out clips of equal length and size; read one batch at a time, so a lazy sequence stays lazy.
        predict: frames of each clip from its given frame and actions, all f of them.
        reconstruct: each clip's own frames through the autoencoder.
        progress: called after each batch.

    Raises ValueError for no clips, for clips the protocol does not score and for predictions of a wrong shape.
    """
    settings = settings or EvaluationSettings()
    if len(clips) == 0:
        raise ValueError("no clip to evaluate: no held-out episode is long enough for one window")
    keep = _spread(len(clips), settings.num_videos)
    keys: list[ClipKey] = []
    scores: dict[str, list[FrameScores]] = {name: [] for name in ROWS}
    examples: list[Example] = []
    first: Clip | None = None
    for start, batch in _batches(clips, settings.batch_size):
        first = first or batch[0]
        seeds = [settings.seed + start + i for i in range(len(batch))]
        truths = [clip.frames[settings.view] for clip in batch]
        _check_equal_shapes(first.frames[settings.view], truths, batch)
        predicted = _checked(predict(batch, seeds), truths, "predict")
        reconstructed = _checked(reconstruct(batch), truths, "reconstruct")
        for i, clip in enumerate(batch):
            copied = np.repeat(truths[i][:1], len(truths[i]), axis=0)
            for name, frames in (("model", predicted[i]), ("copy", copied), ("ceiling", reconstructed[i])):
                scores[name].append(score_clip(truths[i], frames, protocol))
            keys.append(ClipKey(episode=clip.episode, start=clip.start, task=clip.task, seed=seeds[i]))
            if start + i in keep:
                examples.append(_example(clip, truths[i], predicted[i], reconstructed[i]))
        if progress is not None:
            progress(len(keys), len(clips))
    assert first is not None
    return EvaluationResult(
        protocol=protocol,
        settings=settings,
        provenance=provenance or Provenance(),
        clips=tuple(keys),
        frame_time_s=np.asarray(first.frame_time_s, np.float64)[protocol.first_counted :],
        size=(first.frames.shape[2], first.frames.shape[3]),
        rows={name: _row(ROWS[name], scores[name]) for name in ROWS},
        examples=tuple(examples),
    )


def installed_versions() -> dict[str, str]:
    """Versions that a number can depend on; a package that is not installed is left out."""
    versions = {"python": platform.python_version(), "platform": platform.platform()}
    for name in VERSIONED:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _batches(clips: Sequence[Clip], batch_size: int) -> Iterator[tuple[int, list[Clip]]]:
    for start in range(0, len(clips), batch_size):
        yield start, [clips[i] for i in range(start, min(start + batch_size, len(clips)))]


def _spread(num_clips: int, num_kept: int) -> set[int]:
    """Indices of the kept clips, evenly spread, first and last included."""
    return set(np.linspace(0, num_clips - 1, min(num_kept, num_clips)).round().astype(int).tolist())


def _check_equal_shapes(reference: np.ndarray, truths: list[np.ndarray], batch: list[Clip]) -> None:
    for clip, frames in zip(batch, truths, strict=True):
        if frames.shape != reference.shape:
            raise ValueError(
                f"clip {clip.episode}:{clip.start} has frames {frames.shape}, the first clip {reference.shape};"
                " one evaluation scores clips of one shape"
            )


def _checked(videos: list[np.ndarray], truths: list[np.ndarray], who: str) -> list[np.ndarray]:
    if len(videos) != len(truths):
        raise ValueError(f"{who} returned {len(videos)} videos for {len(truths)} clips")
    for video, truth in zip(videos, truths, strict=True):
        if video.dtype != np.uint8 or video.shape != truth.shape:
            raise ValueError(f"{who} returned {video.dtype} {video.shape}, expected uint8 {truth.shape}")
    return videos


def _example(clip: Clip, truth: np.ndarray, predicted: np.ndarray, reconstructed: np.ndarray) -> Example:
    return Example(
        episode=clip.episode,
        start=clip.start,
        task=clip.task,
        frame_time_s=np.asarray(clip.frame_time_s, np.float64),
        truth=truth,
        predicted=predicted,
        reconstructed=reconstructed,
    )


def _row(label: str, scores: list[FrameScores]) -> Row:
    stacked = {metric: np.stack([getattr(score, metric) for score in scores]) for metric in METRICS}
    return Row(label=label, **stacked)
