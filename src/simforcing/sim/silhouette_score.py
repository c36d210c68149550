"""How well rendered silhouettes agree with what is seen: the score that decides whether a camera is believed.

Robot and ground are told apart by histograms of change and colour that are learnt under the silhouettes of every other
frame and tried on the frames between, only where the robot is not usual: a wrong camera learns nothing that holds
there. Its intersection over union then falls to chance, while a right one's stays high.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.ndimage import gaussian_filter

from simforcing.sim.contours import Rendered, free_pixels, smoothed
from simforcing.sim.observation import NUM_CHANGE_BINS, NUM_KEYS, Observation

SMOOTHING_PX = 0.7
NUM_THRESHOLDS = 25
NUM_RESAMPLES = 400


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Intersections and unions of rendered and observed silhouettes, frame by frame, and the observed ones.

    Args:
        visible: frames in which some of the robot can be seen to come and go; none under a mask that is white all over.
    """

    intersection_px: Int[np.ndarray, " f"]
    union_px: Int[np.ndarray, " f"]
    visible: Bool[np.ndarray, " f"]
    observed: Bool[np.ndarray, "f h w"]

    def iou(self, chosen: Bool[np.ndarray, " f"] | None = None) -> float:
        """Over all pixels of some frames (all where None); 0 where nothing is seen."""
        chosen = np.ones(len(self.union_px), bool) if chosen is None else chosen
        return float(self.intersection_px[chosen].sum() / max(1, self.union_px[chosen].sum()))

    def interval(self, chosen: Bool[np.ndarray, " f"], seed: int) -> tuple[float, float]:
        """95 % bootstrap interval of that over frames."""
        own = np.flatnonzero(chosen)
        if len(own) == 0:
            return 0.0, 0.0
        drawn = np.random.default_rng(seed).choice(own, (NUM_RESAMPLES, len(own)))
        ratios = self.intersection_px[drawn].sum(axis=1) / np.maximum(1, self.union_px[drawn].sum(axis=1))
        low, high = np.quantile(ratios, (0.025, 0.975))
        return float(low), float(high)

    def surpassed_by(self, other: "Overlap", chosen: Bool[np.ndarray, " f"], seed: int) -> bool:
        """Whether another camera or lag overlaps more on the same frames, beyond chance: paired bootstrap, 97.5 %."""
        own = np.flatnonzero(chosen)
        if len(own) == 0:
            return False
        drawn = np.random.default_rng(seed).choice(own, (NUM_RESAMPLES, len(own)))
        ratios = [
            one.intersection_px[drawn].sum(axis=1) / np.maximum(1, one.union_px[drawn].sum(axis=1))
            for one in (self, other)
        ]
        return bool(np.quantile(ratios[1] - ratios[0], 0.025) > 0)


def overlap(rendered: Rendered, observation: Observation) -> Overlap:
    """Score silhouettes on frames of one camera, in their order."""
    silhouettes = rendered.coverage >= 0.5
    free = free_pixels(silhouettes, observation)
    predicted = silhouettes & free
    if observation.masked:
        observed = observation.change >= 0.5
    else:
        observed = np.zeros_like(predicted)
        even = np.arange(len(predicted)) % 2 == 0
        for learnt in (even, ~even):
            if learnt.any() and (~learnt).any():
                observed[~learnt] = _recognised(rendered.coverage, free, observation, learnt)
    return Overlap(
        intersection_px=(predicted & observed).sum(axis=(1, 2)),
        union_px=(predicted | observed).sum(axis=(1, 2)),
        visible=(predicted.sum(axis=(1, 2)) > 0) & (observed.mean(axis=(1, 2)) < 1),
        observed=observed,
    )


def _recognised(
    coverage: Float[np.ndarray, "f h w"], free: Bool[np.ndarray, "f h w"], observation: Observation, learnt: np.ndarray
) -> Bool[np.ndarray, "f2 h w"]:
    """Robot pixels of the frames that were not learnt from, at the threshold that was best on those that were."""
    odds = _odds(coverage[learnt], free[learnt], observation.key[learnt])
    on_learnt = gaussian_filter(odds[observation.key[learnt]], (0, SMOOTHING_PX, SMOOTHING_PX))
    inside = (coverage[learnt] >= 0.5) & free[learnt]
    thresholds = np.quantile(on_learnt[free[learnt]], np.linspace(0.5, 0.999, NUM_THRESHOLDS)) if free.any() else [0.0]

    def iou(threshold: float) -> float:
        found = (on_learnt > threshold) & free[learnt]
        return float((found & inside).sum() / max(1, (found | inside).sum()))

    best = max(thresholds, key=iou)
    others = gaussian_filter(odds[observation.key[~learnt]], (0, SMOOTHING_PX, SMOOTHING_PX))
    return (others > best) & free[~learnt]


def _odds(coverage: np.ndarray, free: np.ndarray, key: np.ndarray) -> Float[np.ndarray, " k"]:
    """Log odds of robot against everything else for every key."""
    robot, rest = (
        np.bincount(key[chosen], minlength=NUM_KEYS).astype(np.float64).reshape(NUM_CHANGE_BINS, -1, 1)
        for chosen in ((coverage > 0.9) & free, (coverage < 0.1) & free)
    )
    return np.log(smoothed(robot) / smoothed(rest)).ravel().astype(np.float32)
