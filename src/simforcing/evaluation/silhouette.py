"""Is the robot of a simulated rollout where the simulator puts it? Overlap of its silhouette with the true one.

    silhouette = max over channels |frame - background| > level        IoU = |predicted and true| / |predicted or true|

The true silhouette is the simulator's mask. A level tells a robot from its background that fits both and the
autoencoder's blur, so it is chosen where the true simulation through the autoencoder comes nearest to the mask: that
knows nothing of the model, and is reported beside its score (docs/metrics.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, UInt8

from simforcing.evaluation.intervals import NUM_RESAMPLES, Interval, bootstrap_mean, mean_over_frames

LEVELS = (8, 12, 16, 24, 32)  # grey levels of 255: above the noise of video coding, below any robot's own colours
ROLLOUT, COPY, CEILING, TRUTH = "rollout", "copy", "ceiling", "truth"
LABELS = {
    ROLLOUT: "simulated rollout",
    COPY: "copy of the given simulated frame",
    CEILING: "true simulation through the autoencoder",
    TRUTH: "true simulation, as stored",
}


@dataclass(frozen=True, kw_only=True)
class SilhouetteResult:
    """IoU with the simulator's mask per clip and counted frame, by row; or the reason why there is none.

    NaN = no robot in the frame, neither truly nor as predicted.

    Args:
        level: grey levels that tell the robot from its background.
        reason: why the measurement does not apply; empty where it does.
    """

    iou: dict[str, Float[np.ndarray, "n f"]] = field(default_factory=dict)
    level: int = 0
    episodes: tuple[str, ...] = ()
    seed: int = 0
    num_resamples: int = NUM_RESAMPLES
    reason: str = ""

    def per_clip(self, row: str) -> Float[np.ndarray, " n"]:
        """Mean over the frames that count."""
        return mean_over_frames(self.iou[row])

    def interval(self, row: str) -> Interval:
        """Mean over clips with its 95 % interval over episodes."""
        return bootstrap_mean(self.per_clip(row), self.episodes, seed=self.seed, num_resamples=self.num_resamples)


def no_silhouettes(reason: str) -> SilhouetteResult:
    """The result where no simulated robot is predicted; ValueError without a reason."""
    if not reason:
        raise ValueError("a measurement that does not apply needs its reason")
    return SilhouetteResult(reason=reason)


def silhouette(
    frames: UInt8[np.ndarray, "f h w 3"], background: UInt8[np.ndarray, "h w 3"], level: int
) -> Bool[np.ndarray, "f h w"]:
    """Pixels that differ from the background by more than `level` in any channel."""
    return np.abs(frames.astype(np.int16) - background.astype(np.int16)).max(axis=-1) > level


def overlap(predicted: Bool[np.ndarray, "f h w"], true: Bool[np.ndarray, "f h w"]) -> Float[np.ndarray, " f"]:
    """Intersection over union of each frame; NaN where both are empty."""
    either = (predicted | true).sum(axis=(1, 2))
    both = (predicted & true).sum(axis=(1, 2))
    return np.where(either > 0, both / np.maximum(either, 1), np.nan)


class SilhouetteScores:
    """Collects clips at every level, and chooses one at the end."""

    def __init__(self) -> None:
        self._by_level: dict[str, list[np.ndarray]] = {name: [] for name in LABELS}

    def add(
        self,
        videos: Mapping[str, UInt8[np.ndarray, "f h w 3"]],
        robot: Bool[np.ndarray, "f h w"],
        background: UInt8[np.ndarray, "h w 3"],
    ) -> None:
        """One clip's counted frames, as every row shows them, and the simulator's mask of them."""
        for name, frames in videos.items():
            scores = [overlap(silhouette(frames, background, level), robot) for level in LEVELS]
            self._by_level[name].append(np.stack(scores))

    def result(self, episodes: Sequence[str], *, seed: int, num_resamples: int) -> SilhouetteResult:
        """All clips at the level that suits the autoencoder's true simulation best (the lowest of equal ones)."""
        stacked = {name: np.stack(scores) for name, scores in self._by_level.items()}  # n, level, f
        means = [_mean(mean_over_frames(stacked[CEILING][:, i])) for i in range(len(LEVELS))]
        best = int(np.argmax(means))
        return SilhouetteResult(
            iou={name: scores[:, best] for name, scores in stacked.items()},
            level=LEVELS[best],
            episodes=tuple(episodes),
            seed=seed,
            num_resamples=num_resamples,
        )


def _mean(values: Float[np.ndarray, " n"]) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else 0.0
