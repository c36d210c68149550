"""Go, doubtful or no-go: what the numbers of pair agreement say about an episode, in words.

Where the thresholds come from: docs/pair-agreement.md.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from simforcing.evaluation.edge_agreement import EdgeAgreement
from simforcing.evaluation.intervals import Interval

Verdict = Literal["go", "doubtful", "no-go"]


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """What a pair must reach; between the two numbers of a line it is doubtful.

    Args:
        go_offset, most_offset: displacement at which the edges fit best, as a share of the short side.
        go_z, least_z: of the edges' correlation among all displacements.
        go_signed, least_signed: correlation of signed latent motion where the robot moves.
        shift_gain: share by which edges must fit better under another shift for that to be believed.
    """

    go_offset: float = 0.02
    most_offset: float = 0.04
    go_z: float = 3.5
    least_z: float = 2.5
    go_signed: float = 0.3
    least_signed: float = 0.15
    shift_gain: float = 0.05


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A verdict and every reason against `go`."""

    verdict: Verdict
    reasons: tuple[str, ...] = ()


def judged(
    edges: EdgeAgreement | None, signed: Interval, other: Interval | None, short_side_px: int, limits: Thresholds
) -> Judged:
    """The worst of what edges and motion say.

    Args:
        edges: None where too few frames could be compared.
        signed: of the sim with its own real video. other: the same of another episode's sim; None: there is none.
    """
    faults: list[tuple[Verdict, str]] = []
    if edges is None:
        faults.append(("doubtful", "too few frames to compare edges"))
    else:
        faults += _of_edges(edges, short_side_px, limits)
    words = f"signed motion correlates by {signed.mean:.2f}"
    if not np.isfinite(signed.mean):
        words = "the sim's robot is never seen to move, or nothing moves in the real video there"
    if not signed.mean >= limits.least_signed:
        faults.append(("no-go", words))
    elif signed.mean < limits.go_signed:
        faults.append(("doubtful", words))
    if other is not None and other.mean >= signed.mean:
        faults.append(("no-go", f"another episode's sim fits as well ({other.mean:.2f})"))
    verdicts = [verdict for verdict, _ in faults]
    worst: Verdict = "no-go" if "no-go" in verdicts else "doubtful" if verdicts else "go"
    return Judged(verdict=worst, reasons=tuple(reason for _, reason in faults))


def _of_edges(edges: EdgeAgreement, short_side_px: int, limits: Thresholds) -> list[tuple[Verdict, str]]:
    faults: list[tuple[Verdict, str]] = []
    if edges.best_z < limits.go_z:
        verdict = "no-go" if edges.best_z < limits.least_z else "doubtful"
        faults.append((verdict, f"edges fit nowhere clearly (z {edges.best_z:.1f})"))
    elif edges.distance_px > limits.go_offset * short_side_px:
        verdict = "no-go" if edges.distance_px > limits.most_offset * short_side_px else "doubtful"
        down, right = edges.offset_px
        faults.append((verdict, f"edges fit best with the sim moved by ({down:.1f} down, {right:.1f} right) px"))
    best = max(edges.by_shift, key=lambda shift: (edges.by_shift[shift], -abs(shift)))
    if best and edges.by_shift[best] > (1 + limits.shift_gain) * max(edges.by_shift[0], 0.0):
        gain = f"{edges.by_shift[best]:.2f} against {edges.by_shift[0]:.2f}"
        faults.append(("doubtful" if abs(best) == 1 else "no-go", f"edges fit better at lag {best:+d} ({gain})"))
    return faults
