"""The figure of pair agreement: comparisons of the whole set, every episode's signed correlation, and edge offsets."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from simforcing.evaluation.agreement_verdict import Verdict
from simforcing.evaluation.intervals import Interval
from simforcing.types.files import whole_file

COLOURS: dict[Verdict, str] = {"go": "#2ba36f", "doubtful": "#e07b1f", "no-go": "#d2476b"}
SIGNED, MAGNITUDE = "#2f7de1", "#b9c4d0"
MOST_EPISODES = 60


def write_figure(
    path: Path,
    *,
    comparisons: Sequence[tuple[str, Sequence[float]]],
    episodes: Sequence[tuple[str, Interval, Verdict]],
    offsets_px: Sequence[tuple[tuple[float, float], Verdict]],
) -> None:
    """Write it as PNG, atomically.

    Args:
        comparisons: words -> (signed, magnitude) over the set.
        episodes: name, signed correlation, verdict; the first few are drawn.
        offsets_px: (down, right) by which the sim would have to be moved.
    """
    figure = Figure(figsize=(13, 0.26 * max(len(comparisons), 14) + 1.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.5, 1.2, 1))
    places = np.arange(len(comparisons))[::-1]
    left.barh(places + 0.2, [values[0] for _, values in comparisons], 0.38, color=SIGNED, label="signed")
    left.barh(places - 0.2, [values[1] for _, values in comparisons], 0.38, color=MAGNITUDE, label="magnitude")
    left.set_yticks(places, [words for words, _ in comparisons], fontsize=8.5)
    left.set_title("latent motion, sim against real", fontsize=10, loc="left")
    left.legend(frameon=False, fontsize=8, loc="lower right")
    shown = episodes[:MOST_EPISODES]
    for i, (_, value, verdict) in enumerate(shown):
        middle.plot([value.low, value.high], [-i, -i], color=COLOURS[verdict], linewidth=1.5, alpha=0.5)
        middle.plot(value.mean, -i, "o", color=COLOURS[verdict], markersize=4)
    middle.set_yticks(
        [-i for i in range(len(shown))], [name[-14:] for name, _, _ in shown], fontsize=6 + (len(shown) < 20) * 2
    )
    middle.set_title("signed, by episode and verdict", fontsize=10, loc="left")
    for (down, across), verdict in offsets_px:
        right.plot(across, down, "o", color=COLOURS[verdict], markersize=5, alpha=0.8)
    right.axhline(0, color="#888", linewidth=0.7)
    right.axvline(0, color="#888", linewidth=0.7)
    reach = max([3.0, *(1.15 * abs(step) for offset, _ in offsets_px for step in offset)])
    right.set_xlim(-reach, reach)
    right.set_ylim(reach, -reach)
    right.set_aspect("equal")
    right.set_title("where edges fit best, px right and down", fontsize=10, loc="left")
    for axes in (left, middle, right):
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.tick_params(labelsize=8)
        axes.grid(axis="x", alpha=0.2)
    with whole_file(path) as partial:
        figure.savefig(partial, format="png", dpi=110, metadata={"Software": None})
