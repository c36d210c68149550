"""Scores a model on held-out clips, always beside a copy of the given frame and the autoencoder's ceiling.

The model is known only as a callable; nothing here depends on networks, samplers or checkpoints.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, UInt8

from simforcing.evaluation.protocols import SCORES, FrameScores, Protocol, score_clip
from simforcing.evaluation.result import (
    ROWS,
    ClipKey,
    EvaluationResult,
    EvaluationSettings,
    Example,
    Row,
)
from simforcing.evaluation.silhouette import (
    CEILING,
    COPY,
    ROLLOUT,
    TRUTH,
    SilhouetteResult,
    SilhouetteScores,
    no_silhouettes,
)
from simforcing.types import Clip

Predict = Callable[
    [list[Clip], list[int]], list[np.ndarray]
]  # clips, one seed each -> frames f h w 3 each, given one too
Reconstruct = Callable[[list[Clip]], list[np.ndarray]]
Progress = Callable[[int, int], None]  # clips done, clips in all

NO_ROBOT = "the data has no mask of the robot for the scored view"


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """The simulation that a model predicts, scored by its robot's silhouette.

    Args:
        stream: of a clip's frames; the clip's masks of it are the true silhouettes.
        background: of an episode (by name), in the size of the frames.
        reconstruct: its true frames through the autoencoder.
        predict: its rollout; None: the model's own predictions are simulation.
    """

    stream: int
    background: Callable[[str], UInt8[np.ndarray, "h w 3"]]
    reconstruct: Reconstruct
    predict: Predict | None = None


@dataclass(frozen=True, kw_only=True)
class Further:
    """What is scored beside the model.

    Args:
        alternatives: further rows of the table, by label, on the same clips and seeds.
        comparisons: pairs of rows whose difference is reported, beside model minus copy and model minus ceiling.
        simulation: what the model predicts of it, or the reason why there is nothing to compare.
        label: of the model's own row.
    """

    alternatives: Mapping[str, Predict] = field(default_factory=dict)
    comparisons: tuple[tuple[str, str], ...] = ()
    simulation: Simulation | str = "not measured"
    label: str = ROWS["model"]

    def __post_init__(self) -> None:
        if taken := sorted(set(self.alternatives) & set(ROWS)):
            raise ValueError(f"an alternative cannot be named {taken[0]!r}; taken: {', '.join(ROWS)}")


def evaluate(
    clips: Sequence[Clip],
    predict: Predict,
    reconstruct: Reconstruct,
    protocol: Protocol,
    *,
    settings: EvaluationSettings | None = None,
    further: Further | None = None,
    progress: Progress | None = None,
) -> EvaluationResult:
    """Predict, copy and reconstruct every clip and score all three, and what is asked for beside them.

    Args:
        clips: held-out clips of equal length and size; read one batch at a time, so a lazy sequence stays lazy. Masks
            of the scored view, where a clip has them, are the true silhouettes of the robot.
        predict: frames of each clip from its given frame and actions, all f of them.
        reconstruct: each clip's own frames through the autoencoder.
        progress: called after each batch.

    Raises ValueError for no clips, for clips the protocol does not score and for predictions of a wrong shape.
    """
    settings, further = settings or EvaluationSettings(), further or Further()
    if len(clips) == 0:
        raise ValueError("no clip to evaluate: no held-out episode is long enough for one window")
    keep = _spread(len(clips), settings.num_videos)
    predictors = {"model": predict, **further.alternatives}
    scores: dict[str, list[FrameScores]] = {name: [] for name in [*ROWS, *further.alternatives]}
    rollouts = _Rollouts(further.simulation, protocol)
    keys: list[ClipKey] = []
    examples: list[Example] = []
    first = clips[0]
    for start, batch in _batches(clips, settings.batch_size):
        seeds = [settings.seed + start + i for i in range(len(batch))]
        truths = [clip.frames[settings.view] for clip in batch]
        _check_equal_shapes(first.frames[settings.view], truths, batch)
        videos = {name: _checked(call(batch, seeds), truths, "predict") for name, call in predictors.items()}
        videos["copy"] = [_repeated(truth) for truth in truths]
        videos["ceiling"] = _checked(reconstruct(batch), truths, "reconstruct")
        for name, row in videos.items():
            for clip, truth, frames in zip(batch, truths, row, strict=True):
                scores[name].append(score_clip(truth, frames, protocol, true_mask(clip, settings.view)))
        rolled = rollouts.add(batch, seeds, videos["model"])
        for i, clip in enumerate(batch):
            keys.append(ClipKey(episode=clip.episode, start=clip.start, task=clip.task, seed=seeds[i]))
            if start + i in keep:
                frames = {name: row[i] for name, row in videos.items()}
                examples.append(_example(clip, truths[i], frames, rollouts.example(clip, rolled, i)))
        if progress is not None:
            progress(len(keys), len(clips))
    labels = ROWS | {"model": further.label}
    rows = {name: _row(labels.get(name, name), scores[name]) for name in scores}
    known = np.isfinite([rows["copy"].robot_psnr, rows["copy"].background_psnr]).any()
    return EvaluationResult(
        protocol=protocol,
        settings=settings,
        clips=tuple(keys),
        frame_time_s=np.asarray(first.frame_time_s, np.float64)[protocol.first_counted :],
        size=(first.frames.shape[2], first.frames.shape[3]),
        rows=rows,
        examples=tuple(examples),
        comparisons=(("model", "copy"), ("model", "ceiling"), *further.comparisons),
        robot_reason="" if known else NO_ROBOT,
        silhouettes=rollouts.result([key.episode for key in keys], settings),
    )


def true_mask(clip: Clip, stream: int) -> Bool[np.ndarray, "f h w"] | None:
    """Where the robot truly is in a stream of the clip; None where that is not known."""
    if clip.masks is None or (clip.mask_present is not None and not clip.mask_present[stream]):
        return None
    return clip.masks[stream]


class _Rollouts:
    """What the model predicts of the simulation, where it does."""

    def __init__(self, simulation: Simulation | str, protocol: Protocol) -> None:
        self._simulation, self._first = simulation, protocol.first_counted
        self._scores = SilhouetteScores()

    def add(self, batch: list[Clip], seeds: list[int], own: list[np.ndarray]) -> list[np.ndarray]:
        """Score a batch and return its rollouts; none where no simulation is predicted."""
        simulation = self._simulation
        if isinstance(simulation, str):
            return []
        truths = [clip.frames[simulation.stream] for clip in batch]
        called = own if simulation.predict is None else simulation.predict(batch, seeds)
        rolled = _checked(called, truths, "predict of the simulation")
        rebuilt = _checked(simulation.reconstruct(batch), truths, "reconstruct of the simulation")
        for clip, truth, predicted, ceiling in zip(batch, truths, rolled, rebuilt, strict=True):
            robot = true_mask(clip, simulation.stream)
            if robot is None:
                raise ValueError(f"clip {clip.episode}:{clip.start}: the simulation has no mask")
            videos = {ROLLOUT: predicted, COPY: _repeated(truth), CEILING: ceiling, TRUTH: truth}
            counted = {name: video[self._first :] for name, video in videos.items()}
            self._scores.add(counted, robot[self._first :], simulation.background(clip.episode))
        return rolled

    def example(self, clip: Clip, rolled: list[np.ndarray], i: int) -> tuple[np.ndarray, np.ndarray] | None:
        """True and predicted simulation of one clip, where that is not what is scored already."""
        if isinstance(self._simulation, str) or self._simulation.predict is None:
            return None
        return clip.frames[self._simulation.stream], rolled[i]

    def result(self, episodes: list[str], settings: EvaluationSettings) -> SilhouetteResult:
        if isinstance(self._simulation, str):
            return no_silhouettes(self._simulation)
        return self._scores.result(episodes, seed=settings.seed, num_resamples=settings.num_resamples)


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


def _repeated(frames: np.ndarray) -> np.ndarray:
    return np.repeat(frames[:1], len(frames), axis=0)


def _example(
    clip: Clip, truth: np.ndarray, videos: dict[str, np.ndarray], simulated: tuple[np.ndarray, np.ndarray] | None
) -> Example:
    return Example(
        episode=clip.episode,
        start=clip.start,
        task=clip.task,
        frame_time_s=np.asarray(clip.frame_time_s, np.float64),
        truth=truth,
        predicted=videos["model"],
        reconstructed=videos["ceiling"],
        simulated=simulated,
    )


def _row(label: str, scores: list[FrameScores]) -> Row:
    stacked = {metric: np.stack([getattr(score, metric) for score in scores]) for metric in SCORES}
    return Row(label=label, **stacked)
