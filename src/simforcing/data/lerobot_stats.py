"""Statistics of LeRobot features, as LeRobot 0.4 defines them: per episode, then aggregated with the counts as weights.

Quantiles are of the sample (the smallest value whose share reaches q); LeRobot's own come from a histogram of 5000 bins
and agree to one bin. Images count frames, are sampled and thinned by LeRobot's rule, and lie in 0..1, shape (3, 1, 1).
"""

import numpy as np
from jaxtyping import Float, Shaped, UInt8

QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
Stats = dict[str, np.ndarray]


def vector_stats(values: Shaped[np.ndarray, "f ..."]) -> Stats:
    """Statistics over the rows of a numeric feature, one number per column (min and max keep the stored type)."""
    rows = values.reshape(len(values), -1)
    exact = rows.astype(np.float64)
    stats: Stats = {
        "min": rows.min(axis=0),
        "max": rows.max(axis=0),
        "mean": exact.mean(axis=0),
        "std": exact.std(axis=0),
        "count": np.array([len(rows)]),
    }
    quantiles = np.quantile(exact, list(QUANTILES.values()), axis=0, method="inverted_cdf")
    if len(rows) < 2:  # LeRobot's convention for a single sample
        quantiles = np.broadcast_to(stats["mean"], quantiles.shape)
    return stats | dict(zip(QUANTILES, quantiles, strict=True))


def image_stats(frames: UInt8[np.ndarray, "f h w 3"]) -> Stats:
    """Statistics per channel over the sampled frames' pixels; `count` is the number of sampled frames."""
    stats = ImageStats(len(frames))
    stats.add(frames)
    return stats.result()


class ImageStats:
    """The same of a video of known length whose frames come in pieces."""

    def __init__(self, num_frames: int) -> None:
        self._sampled = np.zeros(num_frames, bool)
        self._sampled[sampled_frames(num_frames)] = True
        self._counts = np.zeros((3, 256))
        self._done = 0

    def add(self, frames: UInt8[np.ndarray, "f h w 3"]) -> None:
        """The next frames."""
        sampled = frames[self._sampled[self._done : self._done + len(frames)]]
        step = pixel_step(frames.shape[1], frames.shape[2])
        pixels = sampled[:, ::step, ::step].reshape(-1, 3)
        self._counts += np.stack([np.bincount(pixels[:, channel], minlength=256) for channel in range(3)])
        self._done += len(frames)

    def result(self) -> Stats:
        """Of all frames together."""
        assert self._done == len(self._sampled)
        return _histogram_stats(self._counts) | {"count": np.array([int(self._sampled.sum())])}


def sampled_frames(num_frames: int) -> np.ndarray:
    """Indices of the frames that enter image statistics: all up to 100, then n^0.75, evenly spread."""
    num_samples = max(min(100, num_frames), min(int(num_frames**0.75), 10_000))
    return np.round(np.linspace(0, num_frames - 1, num_samples)).astype(int)


def pixel_step(height: int, width: int) -> int:
    """Every how many pixels enter image statistics: 1 below 300 pixels, else the longer side becomes about 150."""
    return 1 if max(height, width) < 300 else int(max(height, width) / 150)


def aggregate(episodes: list[Stats]) -> Stats:
    """One feature's statistics over all episodes; quantiles are LeRobot's count-weighted means of quantiles."""
    counts = np.stack([stats["count"] for stats in episodes]).astype(np.float64)
    weights = counts.reshape(len(episodes), *(1,) * episodes[0]["mean"].ndim) / counts.sum()
    means = np.stack([stats["mean"] for stats in episodes])
    mean = (means * weights).sum(axis=0)
    variances = np.stack([stats["std"] for stats in episodes]) ** 2
    merged: Stats = {
        "min": np.min([stats["min"] for stats in episodes], axis=0),
        "max": np.max([stats["max"] for stats in episodes], axis=0),
        "mean": mean,
        "std": np.sqrt(((variances + (means - mean) ** 2) * weights).sum(axis=0)),
        "count": np.array([int(counts.sum())]),
    }
    for name in QUANTILES:
        if all(name in stats for stats in episodes):
            merged[name] = (np.stack([stats[name] for stats in episodes]) * weights).sum(axis=0)
    return merged


def plain(stats: dict[str, Stats]) -> dict[str, dict[str, list]]:
    """As JSON values."""
    return {feature: {name: value.tolist() for name, value in values.items()} for feature, values in stats.items()}


def without_quantiles(stats: dict[str, Stats]) -> dict[str, Stats]:
    """As v2.1 stores them."""
    kept = ("min", "max", "mean", "std", "count")
    return {feature: {name: values[name] for name in kept} for feature, values in stats.items()}


def _histogram_stats(counts: Float[np.ndarray, "3 256"]) -> Stats:
    levels = np.arange(256) / 255.0
    share = counts.cumsum(axis=1) / counts.sum(axis=1, keepdims=True)
    probability = counts / counts.sum(axis=1, keepdims=True)
    mean = probability @ levels
    variance = (probability * (levels - mean[:, None]) ** 2).sum(axis=1)
    present = counts > 0
    stats = {
        "min": levels[present.argmax(axis=1)],
        "max": levels[255 - present[:, ::-1].argmax(axis=1)],
        "mean": mean,
        "std": np.sqrt(variance),
    }
    for name, q in QUANTILES.items():
        stats[name] = levels[(share >= q - 1e-12).argmax(axis=1)]
    return {name: value.reshape(3, 1, 1) for name, value in stats.items()}
