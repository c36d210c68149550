"""Tables of `trust.py`: rows against the best fixed w, choices on one half and scores on the other (its protocol)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from simforcing.evaluation.intervals import Interval, bootstrap_mean, paired_difference
from simforcing.types.files import read_json

METRICS = {"moving_psnr": "moving PSNR, dB", "psnr": "PSNR, dB", "sharpness": "sharpness", "motion": "motion energy"}
QUARTILES = (0.25, 0.5, 0.75)
NUM_RESAMPLES = 500
Choose = Callable[["Unit"], Callable[["Unit"], np.ndarray]]  # choose on some clips -> the row that each clip takes


@dataclass(frozen=True, kw_only=True)
class Unit:
    """Scores of some clips: `scores[row, metric, clip]`, rows by name."""

    names: list[str]
    scores: np.ndarray
    estimates: dict[str, np.ndarray]
    clusters: np.ndarray

    def subset(self, kept: np.ndarray) -> "Unit":
        """Of those clips."""
        estimates = {name: values[kept] for name, values in self.estimates.items()}
        return Unit(names=self.names, scores=self.scores[:, :, kept], estimates=estimates, clusters=self.clusters[kept])

    def taken(self, rows: np.ndarray) -> np.ndarray:
        """[metric, clip] where each clip takes its own row."""
        return self.scores[rows, :, np.arange(len(rows))].T

    @property
    def moving(self) -> np.ndarray:
        """Moving-region PSNR, [row, clip]."""
        return self.scores[:, 0]

    @property
    def fixed(self) -> list[int]:
        """Rows of fixed w."""
        return [i for i, name in enumerate(self.names) if name.startswith("w = ")]


def stored(folder: Path, num_steps: int, source: str, which: str) -> Unit:
    """One finished unit; `mixed`: every clip under its own and under a wrong rollout."""
    if source == "mixed":
        own, wrong = (stored(folder, num_steps, part, which) for part in ("self", "wrong"))
        estimates = {name: np.concatenate([own.estimates[name], wrong.estimates[name]]) for name in own.estimates}
        return Unit(
            names=own.names,
            scores=np.concatenate([own.scores, wrong.scores], axis=2),
            estimates=estimates | {"known": np.repeat([0.0, 1.0], len(own.clusters))},
            clusters=np.concatenate([own.clusters, wrong.clusters]),
        )
    found = read_json(folder / f"{num_steps}-{source}-{which}.json")
    return Unit(
        names=list(found["rows"]),
        scores=np.array([[row[metric] for metric in METRICS] for row in found["rows"].values()]),
        estimates={name: np.array(values) for name, values in found["estimates"].items()},
        clusters=np.array(found["clusters"]),
    )


def best_fixed(unit: Unit) -> Callable[[Unit], np.ndarray]:
    """The fixed w of highest mean moving-region PSNR."""
    best = max(unit.fixed, key=lambda row: unit.moving[row].mean())
    return lambda other: np.full(len(other.clusters), best)


def constant(row: int) -> Choose:
    """Every clip takes this row."""
    return lambda unit: lambda other: np.full(len(other.clusters), row)


def by_estimate(name: str) -> Choose:
    """Threshold and both w of highest mean moving-region PSNR."""

    def choose(unit: Unit) -> Callable[[Unit], np.ndarray]:
        values = unit.estimates[name]
        thresholds = [0.5] if name == "known" else np.quantile(values, QUARTILES)

        def reached(rule: tuple[float, int, int]) -> float:
            threshold, low, high = rule
            return np.where(values > threshold, unit.moving[low], unit.moving[high]).mean()

        rules = [(threshold, low, high) for threshold in thresholds for low in unit.fixed for high in unit.fixed]
        threshold, low, high = max(rules, key=reached)
        return lambda other: np.where(other.estimates[name] > threshold, low, high)

    return choose


def oracle(unit: Unit) -> Callable[[Unit], np.ndarray]:
    """The best fixed w of each clip by the truth."""
    return lambda other: np.array(other.fixed)[other.moving[other.fixed].argmax(axis=0)]


def crossed(choose: Choose, unit: Unit) -> np.ndarray:
    """Rows of all clips, chosen on the other half of the clusters."""
    names = sorted(set(unit.clusters))
    odd = np.array([names.index(cluster) % 2 == 1 for cluster in unit.clusters])
    rows = np.zeros(len(odd), int)
    for half in (odd, ~odd):
        rows[half] = choose(unit.subset(~half))(unit.subset(half))
    return rows


def choices(unit: Unit) -> dict[str, Choose]:
    """All rows of a table but the reference."""
    found = {name: constant(row) for row, name in enumerate(unit.names)}
    if unit.estimates:
        found |= {f"by {name}": by_estimate(name) for name in unit.estimates}
    return found | {"oracle": oracle}


def comparison(unit: Unit, obedience: tuple[Unit, Unit] | None) -> list[str]:
    """Lines of a table: the best fixed w as it is, all else as difference to it."""
    reference_rows = crossed(best_fixed, unit)
    reference = unit.taken(reference_rows)
    used = " / ".join(dict.fromkeys(unit.names[row].removeprefix("w = ") for row in reference_rows))
    titles = [*METRICS.values(), *(["swapped actions cost, dB"] if obedience else [])]
    lines = [f"| | {' | '.join(titles)} |", "|---" * (len(titles) + 1) + "|"]
    cells = [f"{bootstrap_mean(values, unit.clusters).mean:.2f}" for values in reference]
    if obedience:
        cells.append(f"{costs(best_fixed, unit, obedience).mean():.2f}")
    lines.append(f"| best fixed w ({used}) | {' | '.join(cells)} |")
    for name, choose in choices(unit).items():
        taken = unit.taken(crossed(choose, unit))
        found = [paired_difference(one, other, unit.clusters) for one, other in zip(taken, reference, strict=True)]
        cells = [in_words(interval) for interval in found]
        if obedience and name != "oracle":
            change = costs(choose, unit, obedience) - costs(best_fixed, unit, obedience)
            cells.append(in_words(bootstrap_mean(change, obedience[0].clusters)))
        elif obedience:
            cells.append("n/a")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def costs(choose: Choose, unit: Unit, obedience: tuple[Unit, Unit]) -> np.ndarray:
    """Cost of swapped actions of every branch, in the moving region, choices made on all clips of `unit`."""
    rule = choose(unit)
    own, swapped = (one.taken(rule(one))[0] for one in obedience)
    return own - swapped


def in_words(interval: Interval) -> str:
    """Signed, with its interval."""
    if interval.low == interval.high == 0:
        return "0"
    return f"{interval.mean:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"


def detection(unit: Unit) -> list[str]:
    """Of every estimate: whether it tells wrong rollouts, and whether it goes with what the simulation gains."""
    lines = [
        "| estimate | AUC, wrong against own | rank correlation with the gain of w = 1 over w = 0, own | all |",
        "|---|---|---|---|",
    ]
    wrong = unit.estimates["known"] > 0
    gain = unit.moving[unit.fixed[-1]] - unit.moving[unit.fixed[0]]
    for name, values in unit.estimates.items():
        if name != "known":
            ranks = [spearmanr(values[kept], gain[kept]).statistic for kept in (~wrong, np.ones_like(wrong))]
            lines.append(
                f"| {name} | {auc_in_words(values, wrong, unit.clusters)} | {ranks[0]:+.2f} | {ranks[1]:+.2f} |"
            )
    return lines


def auc_in_words(values: np.ndarray, wrong: np.ndarray, clusters: np.ndarray) -> str:
    """With its percentile interval from resampled clusters."""
    names = np.unique(clusters)
    members = [np.flatnonzero(clusters == name) for name in names]
    rng, drawn = np.random.default_rng(0), []
    for _ in range(NUM_RESAMPLES):
        index = np.concatenate([members[i] for i in rng.integers(len(names), size=len(names))])
        drawn.append(auc(values[index], wrong[index]))
    low, high = np.quantile(drawn, [0.025, 0.975])
    return f"{auc(values, wrong):.2f} [{low:.2f}, {high:.2f}]"


def auc(values: np.ndarray, wrong: np.ndarray) -> float:
    """Probability that a wrong rollout's estimate is the larger."""
    above = values[wrong][:, None] - values[~wrong][None]
    return float(((above > 0) + 0.5 * (above == 0)).mean())


def table(folder: Path, steps: Sequence[int]) -> list[str]:
    """All tables, in Markdown."""
    lines = []
    for num_steps in steps:
        for source in ("self", "true"):
            obedience = stored(folder, num_steps, source, "branches"), stored(folder, num_steps, source, "swapped")
            lines += ["", f"## {num_steps} steps, simulation {source}, held-out clips", ""]
            lines += comparison(stored(folder, num_steps, source, "held-out"), obedience)
        for which in ("held-out", "branches"):
            unit = stored(folder, num_steps, "mixed", which)
            lines += ["", f"## {num_steps} steps, half of the rollouts wrong, {which}", ""]
            lines += [*comparison(unit, None), "", *detection(unit)]
    return lines
