"""How a long rollout departs from the true video: scores chunk by chunk, beside a copy of the given frame."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float, UInt8

from simforcing.evaluation.intervals import Curve, bootstrap_curve, mean_over_frames
from simforcing.evaluation.protocols import Protocol, score_clip

METRICS = ("psnr", "moving_psnr")
ROWS = {"model": "model", "copy": "copy of the given frame"}


@dataclass(frozen=True, kw_only=True)
class LongVideo:
    """The true and the predicted video of one episode, the given frame first in both."""

    episode: str
    truth: UInt8[np.ndarray, "f h w 3"]
    predicted: UInt8[np.ndarray, "f h w 3"]


@dataclass(frozen=True, kw_only=True)
class DriftResult:
    """Means over the frames of each chunk; NaN where an episode has no such chunk, or nothing has moved.

    Args:
        episodes: one row of the scores each.
        end_s: when each chunk ends.
        scores: by (row, metric).
        reason: why there is nothing; empty where there is.
    """

    episodes: tuple[str, ...] = ()
    end_s: tuple[float, ...] = ()
    scores: dict[tuple[str, str], Float[np.ndarray, "n c"]] = field(default_factory=dict)
    seed: int = 0
    reason: str = ""

    def curve(self, row: str, metric: str) -> Curve:
        """Mean over episodes at each chunk, with its 95 % interval."""
        return bootstrap_curve(self.scores[row, metric], self.episodes, seed=self.seed)

    @property
    def num_episodes(self) -> list[int]:
        """How many episodes reach each chunk."""
        return np.isfinite(self.scores["model", "psnr"]).sum(axis=0).tolist()


def no_drift(reason: str) -> DriftResult:
    """The result where there is nothing to measure."""
    return DriftResult(reason=reason)


def measure_drift(
    videos: Sequence[LongVideo], frames_per_chunk: int, protocol: Protocol, *, fps: float, seed: int = 0
) -> DriftResult:
    """Scores of every chunk under a protocol's colour and cap; the given frame is left out.

    Args:
        videos: of whole chunks each, in any number.
    """
    if not videos:
        return no_drift("no held-out episode is longer than one window")
    rules = replace(protocol, num_frames=None, include_given=False, reencode_fps=None)
    num_chunks = max((len(video.truth) - 1) // frames_per_chunk for video in videos)
    scores = {(row, metric): np.full((len(videos), num_chunks), np.nan) for row in ROWS for metric in METRICS}
    for i, video in enumerate(videos):
        rows = {"model": video.predicted, "copy": np.repeat(video.truth[:1], len(video.truth), axis=0)}
        for row, frames in rows.items():
            found = score_clip(video.truth, frames, rules)
            for metric in METRICS:
                by_chunk = getattr(found, metric).reshape(-1, frames_per_chunk)
                scores[row, metric][i, : len(by_chunk)] = mean_over_frames(by_chunk)
    ends = tuple(((1 + np.arange(num_chunks)) * frames_per_chunk / fps).round(3).tolist())
    return DriftResult(episodes=tuple(video.episode for video in videos), end_s=ends, scores=scores, seed=seed)
