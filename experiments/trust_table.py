"""Tables of `trust.py`: rows against the best fixed w, choices on one half and scores on the other (its protocol)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

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


def unit_path(folder: Path, num_steps: int, source: str, which: str) -> Path:
    """Where a unit's result lies."""
    return folder / f"{num_steps}-{source.replace(' ', '_')}-{which}.json"


def stored(folder: Path, num_steps: int, source: str, which: str) -> Unit:
    """One finished unit; of two sources, `A + B`: every clip under either."""
    if " + " in source:
        own, wrong = (stored(folder, num_steps, part, which) for part in source.split(" + "))
        estimates = {name: np.concatenate([own.estimates[name], wrong.estimates[name]]) for name in own.estimates}
        return Unit(
            names=own.names,
            scores=np.concatenate([own.scores, wrong.scores], axis=2),
            estimates=estimates | {"known": np.repeat([0.0, 1.0], len(own.clusters))},
            clusters=np.concatenate([own.clusters, wrong.clusters]),
        )
    found = read_json(unit_path(folder, num_steps, source, which))
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


def crossed(choose: Choose, unit: Unit, chosen_on: Unit | None = None) -> np.ndarray:
    """Rows of all clips, chosen on the other half of the clusters, of these clips or of others in the same clusters."""
    learnt = chosen_on or unit
    rows = np.zeros(len(unit.clusters), int)
    for parity in (0, 1):
        rule = choose(learnt.subset(half(learnt, 1 - parity)))
        rows[half(unit, parity)] = rule(unit.subset(half(unit, parity)))
    return rows


def half(unit: Unit, parity: int) -> np.ndarray:
    """Which clips are of every second cluster."""
    names = sorted(set(unit.clusters))
    return np.array([names.index(cluster) % 2 == parity for cluster in unit.clusters])


def choices(unit: Unit) -> dict[str, Choose]:
    """All rows of a table but the reference."""
    found = {name: constant(row) for row, name in enumerate(unit.names)}
    return found | {f"by {name}": by_estimate(name) for name in unit.estimates} | {"oracle": oracle}


def comparison(unit: Unit, obedience: tuple[Unit, Unit] | None) -> list[str]:
    """Lines of a table: the best fixed w as it is, all else as difference to it."""
    reference_rows = crossed(best_fixed, unit)
    reference, clusters = unit.taken(reference_rows), unit.clusters.tolist()
    titles = [*METRICS.values(), *(["swapped actions cost, dB"] if obedience else [])]
    lines = [f"| | {' | '.join(titles)} |", "|---" * (len(titles) + 1) + "|"]
    cells = [f"{values.mean():.2f}" for values in reference]
    if obedience:
        cells.append(f"{costs(best_fixed, unit, obedience).mean():.2f}")
    lines.append(f"| best fixed w ({used(unit, reference_rows)}) | {' | '.join(cells)} |")
    for name, choose in choices(unit).items():
        taken = unit.taken(crossed(choose, unit))
        found = [paired_difference(one, other, clusters) for one, other in zip(taken, reference, strict=True)]
        cells = [in_words(interval) for interval in found]
        if obedience and name != "oracle":
            change = costs(choose, unit, obedience) - costs(best_fixed, unit, obedience)
            cells.append(in_words(bootstrap_mean(change, obedience[0].clusters.tolist())))
        elif obedience:
            cells.append("n/a")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def used(unit: Unit, rows: np.ndarray) -> str:
    """The fixed w of either half."""
    return " / ".join(dict.fromkeys(unit.names[row].removeprefix("w = ") for row in rows))


def moving_table(columns: dict[str, Unit]) -> list[str]:
    """Moving-region PSNR alone, one column for each unit."""
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    references = {title: crossed(best_fixed, unit) for title, unit in columns.items()}
    best = [
        f"{u.taken(references[title])[0].mean():.2f} ({used(u, references[title])})" for title, u in columns.items()
    ]
    lines.append(f"| best fixed w | {' | '.join(best)} |")
    for name in choices(next(iter(columns.values()))):
        cells = []
        for title, unit in columns.items():
            taken, reference = (unit.taken(rows)[0] for rows in (crossed(choices(unit)[name], unit), references[title]))
            cells.append(in_words(paired_difference(taken, reference, unit.clusters.tolist())))
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


def detection(columns: dict[str, Unit]) -> list[str]:
    """AUC of every estimate, wrong against own rollouts."""
    lines = [f"| AUC | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name in next(iter(columns.values())).estimates:
        if name != "known":
            cells = [auc_in_words(u.estimates[name], u.estimates["known"] > 0, u.clusters) for u in columns.values()]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def transfer(folder: Path, num_steps: int) -> list[str]:
    """Rules chosen where half of the renderings are of other actions, scored where all are right, or half are late."""
    learnt = stored(folder, num_steps, "true + true wrong", "held-out")
    columns = {title: stored(folder, num_steps, title, "held-out") for title in ("true", "true + true late")}
    lines = [f"| {num_steps} steps | all right | half late |", "|---|---|---|"]
    for name in learnt.estimates:
        if name == "known":
            continue
        cells = []
        for unit in columns.values():
            rows, reference = crossed(by_estimate(name), unit, learnt), crossed(best_fixed, unit)
            found = paired_difference(unit.taken(rows)[0], unit.taken(reference)[0], unit.clusters.tolist())
            cells.append(in_words(found))
        lines.append(f"| by {name} | {' | '.join(cells)} |")
    return lines


def prediction(columns: dict[str, Unit]) -> list[str]:
    """Rank correlation of every estimate with what w = 1 gains over w = 0 in the moving region."""
    lines = [f"| rank correlation | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name in next(iter(columns.values())).estimates:
        gains = [u.moving[u.fixed[-1]] - u.moving[u.fixed[0]] for u in columns.values()]
        ranks = [rank_correlation(u.estimates[name], gain) for u, gain in zip(columns.values(), gains, strict=True)]
        lines.append(f"| {name} | {' | '.join(f'{rank:+.2f}' for rank in ranks)} |")
    return lines


def rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's."""
    return float(np.corrcoef(rankdata(one), rankdata(other))[0, 1])


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


def there(folder: Path, wanted: Sequence[tuple[int, str, str]]) -> dict[str, Unit]:
    """The units that are finished, by what a column says."""
    found = {}
    for num, source, which in wanted:
        if all(unit_path(folder, num, part, which).exists() for part in source.split(" + ")):
            found[f"{source}, {which}, {num} steps"] = stored(folder, num, source, which)
    return found


def table(folder: Path, steps: Sequence[int]) -> list[str]:
    """All tables of what is finished, in Markdown."""
    lines = []
    for num in steps:
        parts = there(folder, [(num, "self", which) for which in ("held-out", "branches", "swapped")])
        unit, *obedience = parts.values()
        lines += ["", f"Self-made simulation, {num} steps:", ""]
        lines += comparison(unit, (obedience[0], obedience[1]) if len(obedience) == 2 else None)
    own, true = (there(folder, [(num, source, "held-out") for num in steps]) for source in ("self", "true"))
    lines += ["", "Self-made simulation, estimate and gain:", "", *prediction(own)]
    lines += ["", "True simulation, moving PSNR:", "", *moving_table(true)]
    cases = (("self + wrong", "held-out"), ("self + wrong", "branches"))
    given = (("true + true wrong", "held-out"), ("true + true wrong", "branches"), ("true + true late", "held-out"))
    for title, wanted in (("Half of the rollouts wrong", cases), ("Half of the given renderings wrong", given)):
        columns = there(folder, [(num, source, which) for source, which in wanted for num in steps])
        lines += ["", f"{title}, moving PSNR:", "", *moving_table(columns), "", *detection(columns)]
    lines += ["", "Rules chosen where half of the renderings are of other actions, moving PSNR:"]
    for num in steps:
        if len(there(folder, [(num, "true + true wrong", "held-out"), (num, "true + true late", "held-out")])) == 2:
            lines += ["", *transfer(folder, num)]
    return lines
