"""Bootstrap intervals: coverage where the truth is known, clusters, missing values, pairing."""

import numpy as np
import pytest
from scipy.stats import t as student_t

from simforcing.evaluation.intervals import bootstrap_curve, bootstrap_mean, bootstrap_ratio, paired_difference


def clustered(seed: int, num_clusters: int, per_cluster: int) -> tuple[np.ndarray, list[str]]:
    """Values around 0 of which most of the variance is shared by a cluster."""
    rng = np.random.default_rng(seed)
    index = np.repeat(np.arange(num_clusters), per_cluster)
    values = rng.normal(0, 1, num_clusters)[index] + rng.normal(0, 0.5, len(index))
    return values, [f"episode {i}" for i in index]


@pytest.mark.parametrize("num_clusters", [6, 25])
def test_the_interval_covers_the_truth_nineteen_times_in_twenty(num_clusters: int) -> None:
    covered = 0
    for seed in range(400):
        values, names = clustered(seed, num_clusters, 4)
        interval = bootstrap_mean(values, names, seed=seed, num_resamples=400)
        covered += interval.low <= 0 <= interval.high
    assert 0.90 <= covered / 400 <= 0.985  # 0.95 +- 0.02 of chance, a little less with few clusters


@pytest.mark.parametrize("num_clusters", [8, 30])
def test_on_normal_values_the_interval_is_as_wide_as_that_of_student_s_t(num_clusters: int) -> None:
    ratios = []
    for seed in range(40):
        values = np.random.default_rng(seed).normal(size=num_clusters)
        interval = bootstrap_mean(values, [str(i) for i in range(num_clusters)], seed=seed)
        half = student_t.ppf(0.975, num_clusters - 1) * values.std(ddof=1) / np.sqrt(num_clusters)
        ratios.append((interval.high - interval.low) / (2 * half))
    assert 0.95 < np.mean(ratios) < 1.01  # measured: 0.971 and 0.995


def test_forgetting_the_clusters_would_make_the_interval_too_narrow() -> None:
    values, names = clustered(0, 12, 8)
    by_episode = bootstrap_mean(values, names)
    by_clip = bootstrap_mean(values, [str(i) for i in range(len(values))])
    assert by_episode.high - by_episode.low > 1.8 * (by_clip.high - by_clip.low)
    assert by_episode.mean == pytest.approx(by_clip.mean)


def test_the_same_seed_gives_the_same_interval_and_another_seed_nearly_so() -> None:
    values, names = clustered(1, 20, 2)
    assert bootstrap_mean(values, names, seed=5) == bootstrap_mean(values, names, seed=5)
    first, second = bootstrap_mean(values, names, seed=5), bootstrap_mean(values, names, seed=6)
    assert first.low != second.low
    assert first.low == pytest.approx(second.low, abs=0.1)


def test_the_order_of_clips_does_not_matter() -> None:
    values, names = clustered(2, 10, 3)
    order = np.random.default_rng(0).permutation(len(values))
    shuffled = bootstrap_mean(values[order], [names[i] for i in order])
    straight = bootstrap_mean(values, names)
    assert (shuffled.low, shuffled.high) == pytest.approx((straight.low, straight.high))


def test_missing_values_are_left_out_and_not_counted() -> None:
    values, names = clustered(3, 8, 2)
    with_gaps = np.concatenate([values, [np.nan, np.nan]])
    interval = bootstrap_mean(with_gaps, [*names, "episode 0", "all missing"])
    assert (interval.num_values, interval.num_clusters) == (16, 8)
    assert interval.mean == pytest.approx(values.mean())


def test_one_episode_has_a_mean_and_no_interval() -> None:
    interval = bootstrap_mean(np.array([1.0, 3.0]), ["a", "a"])
    assert interval.mean == 2.0
    assert np.isnan([interval.low, interval.high]).all()
    assert str(interval) == "2.00"


def test_no_value_at_all_is_not_a_number_but_no_error() -> None:
    interval = bootstrap_mean(np.array([np.nan]), ["a"])
    assert np.isnan(interval.mean)
    assert str(interval) == "n/a"


def test_pairing_removes_what_both_share() -> None:
    shared, names = clustered(4, 15, 2)
    first = 10 * shared + 1.0
    interval = paired_difference(first, 10 * shared, names)
    assert (interval.low, interval.high) == pytest.approx((1.0, 1.0))


def test_a_curve_is_the_mean_of_each_frame() -> None:
    values, names = clustered(5, 9, 2)
    curve = bootstrap_curve(np.stack([values, values + 1], axis=1), names)
    one = bootstrap_mean(values, names)
    assert (curve.mean[0], curve.low[0], curve.high[0]) == pytest.approx((one.mean, one.low, one.high))
    np.testing.assert_allclose(curve.mean[1] - curve.mean[0], 1.0)


def test_a_ratio_is_of_sums_and_exact_where_all_clusters_agree() -> None:
    bottom = np.array([1.0, 2.0, 4.0])
    interval = bootstrap_ratio(3 * bottom, bottom, ["a", "b", "c"])
    assert (interval.mean, interval.low, interval.high) == pytest.approx((3.0, 3.0, 3.0))


def test_values_without_a_cluster_are_refused() -> None:
    with pytest.raises(ValueError, match="2 values for 1 cluster names"):
        bootstrap_mean(np.zeros(2), ["a"])
