"""The result of pair agreement: numbers of a set and of its episodes, as a table, as JSON values and for the figure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from simforcing.data.backgrounds import BackgroundKind
from simforcing.evaluation.agreement import MEASURES, Setting, Sums, interval
from simforcing.evaluation.agreement_verdict import Judged, Verdict
from simforcing.evaluation.edge_agreement import EdgeAgreement
from simforcing.evaluation.intervals import Interval
from simforcing.types import to_json


@dataclass(frozen=True, kw_only=True)
class EpisodeAgreement:
    """One episode: sums by setting, edges, a verdict."""

    name: str
    sums: dict[Setting, Sums]
    edges: EdgeAgreement | None
    judged: Judged


@dataclass(frozen=True, kw_only=True)
class SetAgreement:
    """All episodes of a set; `background` is the one that its sim stands on."""

    background: BackgroundKind
    episodes: tuple[EpisodeAgreement, ...]
    left_out: dict[str, str]
    verdict: Verdict
    seed: int

    def interval(self, name: str, setting: Setting) -> Interval | None:
        """A measure over the whole set; None where no episode has the setting."""
        parts = [(e.sums[setting], e.name) for e in self.episodes if setting in e.sums]
        if not parts:
            return None
        clusters = [episode for sums, episode in parts for _ in sums]
        return interval(name, np.concatenate([sums for sums, _ in parts]), clusters, self.seed)

    @property
    def settings(self) -> list[Setting]:
        """In the order in which they were compared."""
        return list(dict.fromkeys(setting for episode in self.episodes for setting in episode.sums))


def table(result: SetAgreement) -> list[str]:
    """The result in lines for people."""
    own = Setting(background=result.background)
    lines = [f"{'episode':28s} {'verdict':9s} {'signed':>6s} {'magn.':>6s} {'R2':>6s} {'edges':>6s} {'off, px':>12s}"]
    for episode in result.episodes:
        signed, magnitude, explained = (
            interval(name, episode.sums[own], _clips(episode, own), result.seed).mean for name in MEASURES[:3]
        )
        edges = episode.edges
        seen = (
            "   n/a"
            if edges is None
            else f"{_figure(edges.correlation)} {edges.offset_px[0]:5.1f} {edges.offset_px[1]:5.1f}"
        )
        numbers = f"{_figure(signed)} {_figure(magnitude)} {_figure(explained)} {seen}"
        lines.append(
            f"{episode.name:28.28s} {episode.judged.verdict:9s} {numbers}  {'; '.join(episode.judged.reasons)}"
        )
    lines.append("")
    lines.append(f"{'all episodes':28s} {'signed':>20s} {'magnitude':>20s} {'R2':>6s} {'energy':>7s}")
    for setting in result.settings:
        row = [result.interval(name, setting) for name in MEASURES]
        signed, magnitude, explained, energy = (value for value in row if value is not None)
        last = f"{_figure(explained.mean)} {_figure(energy.mean):>7s}"
        lines.append(f"{words(setting):28s} {signed!s:>20s} {magnitude!s:>20s} {last}")
    counts = {v: sum(e.judged.verdict == v for e in result.episodes) for v in ("go", "doubtful", "no-go")}
    counted = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    lines.append(f"verdict: {result.verdict} ({counted}, {len(result.left_out)} left out)")
    return lines


def _figure(value: float) -> str:
    return f"{value:6.2f}" if np.isfinite(value) else f"{'n/a':>6s}"


def words(setting: Setting) -> str:
    """A setting for people."""
    if setting.source == "other":
        return "another episode's sim"
    if setting.source == "cut-out":
        return f"real robot on {setting.background}"
    if setting.moved_px:
        return f"sim moved by {setting.moved_px} px"
    if setting.shift:
        frames = "frame" if abs(setting.shift) == 1 else "frames"
        return f"sim {abs(setting.shift)} {frames} {'later' if setting.shift > 0 else 'earlier'}"
    return f"on {setting.background}, {'where it moves' if setting.region == 'moving' else 'everywhere'}"


def agreement_record(result: SetAgreement) -> dict[str, Any]:
    """The result as JSON values."""
    return {
        "seed": result.seed,
        "background": result.background,
        "verdict": result.verdict,
        "comparisons": [
            {"setting": _named(setting)} | {name: _numbers(result.interval(name, setting)) for name in MEASURES}
            for setting in result.settings
        ],
        "episodes": {episode.name: _entry(episode, result) for episode in result.episodes},
        "left_out": result.left_out,
    }


def _clips(episode: EpisodeAgreement, setting: Setting) -> list[str]:
    return [str(i) for i in range(len(episode.sums[setting]))]


def _named(setting: Setting) -> dict[str, Any]:
    return {key: value for key, value in to_json(setting).items() if key != "type"}


def _numbers(value: Interval | None) -> dict[str, float | None] | None:
    if value is None:
        return None
    return {key: float(x) if np.isfinite(x := getattr(value, key)) else None for key in ("mean", "low", "high")}


def _entry(episode: EpisodeAgreement, result: SetAgreement) -> dict[str, Any]:
    comparisons = []
    for setting, sums in episode.sums.items():
        values = {name: _numbers(interval(name, sums, _clips(episode, setting), result.seed)) for name in MEASURES}
        comparisons.append({"setting": _named(setting)} | values)
    edges = episode.edges
    return {
        "verdict": episode.judged.verdict,
        "reasons": list(episode.judged.reasons),
        "clips": len(next(iter(episode.sums.values()))),
        "edges": None
        if edges is None
        else {
            "correlation": edges.correlation,
            "offset_px": list(edges.offset_px),
            "best": edges.best,
            "z": edges.z,
            "best_z": edges.best_z,
            "by_shift": {str(shift): value for shift, value in sorted(edges.by_shift.items())},
            "frames": edges.num_frames,
        },
        "comparisons": comparisons,
    }


def panels(result: SetAgreement) -> dict[str, Any]:
    """What the figure shows, as arguments of `write_figure`."""
    own = Setting(background=result.background)
    rows: list[tuple[str, Sequence[float]]] = []
    for setting in result.settings:
        values = [result.interval(name, setting) for name in MEASURES[:2]]
        rows.append((words(setting), [value.mean for value in values if value is not None]))
    return {
        "comparisons": rows,
        "episodes": [
            (e.name, interval("signed", e.sums[own], _clips(e, own), result.seed), e.judged.verdict)
            for e in result.episodes
        ],
        "offsets_px": [(e.edges.offset_px, e.judged.verdict) for e in result.episodes if e.edges is not None],
    }
