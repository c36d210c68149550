"""Charts of training logs: the loss, then every term by branch, grouped so that what compares shares its axis."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from simforcing.evaluation.figures import CYCLE, Line, line_chart
from simforcing.training.log import read_log

Series = dict[str, list[tuple[int, float]]]

LOSS, OTHER = "loss", "terms"
# Terms are named GROUP_BRANCH. Magnitudes of two groups do not compare; branches of one do.
GROUPS = {
    "flow": "flow matching",
    "motion": "distance to the teacher's latent motion",
    "value": "distance to the teacher's latent values",
}
BRANCHES = {"real": CYCLE[0], "sim": CYCLE[1]}


def training_charts(name: str, log: Path) -> list[dict[str, str]]:
    """Title and SVG of each chart of one log; a log that is missing or empty gives none."""
    charts = []
    for group, series in grouped(record for record in read_log(log) if "step" in record).items():
        title = name if group == LOSS else f"{name}: {GROUPS.get(group, group)}"
        identifier = "loss-" + "".join(c if c.isalnum() else "-" for c in f"{name}-{group}")
        label = "loss" if group == LOSS else "weighted mean square" if group in GROUPS else "term"
        svg = line_chart(identifier, _lines(series), x_label="step", y_label=label, log_y=True, smooth=True)
        charts.append({"title": title, "svg": svg})
    return charts


def grouped(records: Iterable[dict[str, Any]]) -> dict[str, Series]:
    """Group -> name -> (step, value), the loss first; a single term is the loss and gets no chart of its own."""
    out: dict[str, Series] = {LOSS: {}}
    for record in records:
        terms = record.get("terms") or {}
        _append(out[LOSS], "training", record["step"], record.get("loss"))
        for term, value in terms.items() if len(terms) > 1 else ():
            _append(out.setdefault(_group(term), {}), term, record["step"], value)
        for key, value in (record.get("validation") or {}).items():
            group = next((_group(term) for term in terms if len(terms) > 1 and key.endswith(term)), LOSS)
            _append(out.setdefault(group, {}), f"validation {key}", record["step"], value)
    return {group: series for group, series in out.items() if series}


def _group(term: str) -> str:
    prefix = term.partition("_")[0]
    return prefix if prefix in GROUPS else OTHER


def _append(series: Series, name: str, step: int, value: Any) -> None:
    if isinstance(value, int | float):
        series.setdefault(name, []).append((step, value))


def _lines(series: Series) -> list[Line]:
    """A branch has the same colour in every chart; what has none takes the others in turn."""
    branch = {name: name.rpartition("_")[2] for name in series if not name.startswith("validation")}
    taken = {BRANCHES[b] for b in branch.values() if b in BRANCHES}
    free = iter([colour for colour in CYCLE if colour not in taken] * len(series))
    lines = []
    for name, points in series.items():
        x, y = np.array(points, np.float64).T
        lines.append(Line(label=name, x=x, y=y, colour=BRANCHES.get(branch.get(name, "")) or next(free)))
    return lines
