"""Bootstrap intervals for means over clips, resampling whole episodes because clips of one episode are not independent.

Expanded percentile intervals (Hesterberg 2015, "What Teachers Should Know About the Bootstrap", section 4.3): the
percentiles are widened so that few episodes give the width of a t interval instead of one that is too narrow.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.stats import norm
from scipy.stats import t as student_t

NUM_RESAMPLES = 2000


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A mean with its bootstrap interval; `low` and `high` are NaN with fewer than two clusters.

    Args:
        num_values: values that counted (NaN ones did not).
        num_clusters: clusters (episodes) that had at least one value.
    """

    mean: float
    low: float
    high: float
    num_values: int
    num_clusters: int

    def __str__(self) -> str:
        if not np.isfinite(self.mean):
            return "n/a"
        return f"{self.mean:.2f} [{self.low:.2f}, {self.high:.2f}]" if np.isfinite(self.low) else f"{self.mean:.2f}"


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Means along an axis (time), each with its interval."""

    mean: Float[np.ndarray, " f"]
    low: Float[np.ndarray, " f"]
    high: Float[np.ndarray, " f"]


def mean_over_frames(values: Float[np.ndarray, "n f"]) -> Float[np.ndarray, " n"]:
    """Mean of each clip's frames that count (are not NaN); NaN for a clip in which none does."""
    counts = np.isfinite(values).sum(axis=1)
    total = np.where(np.isfinite(values), values, 0.0).sum(axis=1)
    return np.where(counts > 0, total / np.maximum(counts, 1), np.nan)


def bootstrap_mean(
    values: Float[np.ndarray, " n"],
    clusters: Sequence[str],
    *,
    seed: int = 0,
    num_resamples: int = NUM_RESAMPLES,
    level: float = 0.95,
) -> Interval:
    """Mean of the values with its interval; NaN values are left out and not counted.

    Raises ValueError where values and clusters differ in number.
    """
    curve, num_clusters = _bootstrap(values[:, None], clusters, (seed, num_resamples, level))
    num_values = int(np.isfinite(values).sum())
    mean, low, high = (float(line[0]) for line in (curve.mean, curve.low, curve.high))
    return Interval(mean=mean, low=low, high=high, num_values=num_values, num_clusters=num_clusters)


def bootstrap_curve(
    values: Float[np.ndarray, "n f"], clusters: Sequence[str], *, seed: int = 0, num_resamples: int = NUM_RESAMPLES
) -> Curve:
    """Mean over clips at each frame, with 95 % intervals (pointwise: each frame by itself)."""
    return _bootstrap(values, clusters, (seed, num_resamples, 0.95))[0]


def paired_difference(
    first: Float[np.ndarray, " n"],
    second: Float[np.ndarray, " n"],
    clusters: Sequence[str],
    *,
    seed: int = 0,
    num_resamples: int = NUM_RESAMPLES,
) -> Interval:
    """Mean of first - second over the clips that have both, with its interval."""
    return bootstrap_mean(first - second, clusters, seed=seed, num_resamples=num_resamples)


def bootstrap_ratio(
    numerator: Float[np.ndarray, " n"],
    denominator: Float[np.ndarray, " n"],
    clusters: Sequence[str],
    *,
    seed: int = 0,
    num_resamples: int = NUM_RESAMPLES,
) -> Interval:
    """sum(numerator) / sum(denominator) with its interval (numerator and denominator resampled together)."""
    both = np.stack([numerator, denominator], axis=1)
    return bootstrap_statistic(
        both, clusters, lambda sums: sums[:, 0] / sums[:, 1], seed=seed, num_resamples=num_resamples
    )


def bootstrap_statistic(
    values: Float[np.ndarray, "n m"],
    clusters: Sequence[str],
    statistic: Callable[[Float[np.ndarray, "r m"]], Float[np.ndarray, " r"]],
    *,
    seed: int = 0,
    num_resamples: int = NUM_RESAMPLES,
) -> Interval:
    """A function of the columns' sums with its interval, all columns resampled together.

    Args:
        statistic: of rows of sums; NaN where they have none.
    """
    sums, counts = _cluster_sums(values, clusters)
    drawn = statistic(_resamples(len(sums), seed, num_resamples) @ sums)
    low, high = _expanded_quantiles(drawn[:, None], len(sums), 0.95)
    return Interval(
        mean=float(statistic(sums.sum(axis=0, keepdims=True))[0]),
        low=float(low[0]),
        high=float(high[0]),
        num_values=int(counts[:, 0].sum()),
        num_clusters=len(sums),
    )


def _bootstrap(values: np.ndarray, clusters: Sequence[str], how: tuple[int, int, float]) -> tuple[Curve, int]:
    seed, num_resamples, level = how
    sums, counts = _cluster_sums(values, clusters)
    used = counts.any(axis=1)
    sums, counts = sums[used], counts[used]
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = sums.sum(axis=0) / counts.sum(axis=0)
        weights = _resamples(len(sums), seed, num_resamples)
        low, high = _expanded_quantiles((weights @ sums) / (weights @ counts), len(sums), level)
    return Curve(mean=mean, low=low, high=high), len(sums)


def _cluster_sums(values: np.ndarray, clusters: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Sum and number of the finite values of each cluster, in order of name so that the seed alone decides."""
    if len(values) != len(clusters):
        raise ValueError(f"{len(values)} values for {len(clusters)} cluster names; they must agree")
    names, index = np.unique(np.asarray(clusters, dtype=str), return_inverse=True)
    finite = np.isfinite(values)
    sums, counts = np.zeros((len(names), values.shape[1])), np.zeros((len(names), values.shape[1]))
    np.add.at(sums, index, np.where(finite, values, 0.0))
    np.add.at(counts, index, finite.astype(np.float64))
    return sums, counts


def _resamples(num_clusters: int, seed: int, num_resamples: int) -> np.ndarray:
    """How often each cluster is drawn in each resample, [resample, cluster]."""
    if num_clusters == 0:
        return np.zeros((num_resamples, 0))
    rng = np.random.default_rng(seed)
    return rng.multinomial(num_clusters, np.full(num_clusters, 1 / num_clusters), size=num_resamples).astype(np.float64)


def _expanded_quantiles(means: np.ndarray, num_clusters: int, level: float) -> tuple[np.ndarray, np.ndarray]:
    if num_clusters < 2:
        missing = np.full(means.shape[1], np.nan)
        return missing, missing
    widened = student_t.ppf((1 + level) / 2, num_clusters - 1) * np.sqrt(num_clusters / (num_clusters - 1))
    tail = float(norm.cdf(-widened))
    low, high = np.full((2, means.shape[1]), np.nan)
    for column in range(means.shape[1]):
        finite = means[np.isfinite(means[:, column]), column]
        if len(finite):
            low[column], high[column] = np.quantile(finite, [tail, 1 - tail])
    return low, high
