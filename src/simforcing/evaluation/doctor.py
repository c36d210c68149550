"""Checks of a run, as plain functions of callables and arrays: does it obey, and does it fit its data?

The environment's own checks are in `environment`; what is loaded, printed and exited with is the command line's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float

from simforcing.evaluation.checks import Check
from simforcing.evaluation.intervals import bootstrap_ratio
from simforcing.evaluation.scoring import Predict
from simforcing.types import Clip, Layout, Normaliser
from simforcing.types.normalisers import CLAMP
from simforcing.types.rotations import read_rotations, write_rotations
from simforcing.types.spec import FPS_TOLERANCE

# An action-blind model has ratio 1. At 1.25 the actions explain 1 - 1/1.25 = 20 % of the squared distance between two
# predictions: less than that is lost beside the noise of sampling, whatever its statistical significance.
MIN_OBEDIENCE_RATIO = 1.25
# Distance of two videos that agree up to rounding to 8 bits: keeps a deterministic model's ratio defined.
ROUNDING_DISTANCE = 2 / 12 / 255**2
# Largest share of a part's numbers outside [-1, 1]. Expected are 0, 2 % and 32 %, and a few held-out episodes may leave
# the range of training; numbers in another unit are nearly all outside.
OUTSIDE_LIMITS = {"min_max": 0.25, "quantile": 0.30, "mean_std": 0.60}
OUTSIDE_MARGIN = 0.05
MAX_CLAMPED = 0.001
MIN_SPREAD = 0.02  # a part that uses less than this of [-1, 1] was stored in other units (seen elsewhere: 55 times)


def mirrored_actions(clips: Sequence[Clip], layout: Layout) -> list[Clip]:
    """The opposite motion from the same pose: increments change sign, absolute targets are reflected about the first.

    Rotations are reflected as rotations (R0 R^-1 R0), grippers keep their commands. The result need not be reachable:
    the question is whether the video changes.
    """
    return [replace(clip, action=_mirrored(clip.action, layout)) for clip in clips]


def _mirrored(action: Float[np.ndarray, "k a"], layout: Layout) -> Float[np.ndarray, "k a"]:
    out = action.copy()
    for name, columns in layout.slices.items():
        part, stored = layout.part(name), action[:, columns]
        if part.kind == "gripper":
            continue
        if part.rotation is not None:
            turns = read_rotations(stored / part.scale, part.rotation)
            opposite = turns.inv() if part.mode == "delta" else turns[0] * turns.inv() * turns[0]
            out[:, columns] = write_rotations(opposite, part.rotation) * part.scale
        else:
            out[:, columns] = -stored if part.mode == "delta" else 2 * stored[:1] - stored
    return out


def obedience_check(
    clips: Sequence[Clip],
    others: Sequence[Clip],
    predict: Predict,
    *,
    clusters: Sequence[str] | None = None,
    seed: int = 0,
    batch_size: int = 8,
) -> Check:
    """Other actions give other video: squared distance under other actions over that of new noise alone.

        ratio = sum over clips of |video(a, s1) - video(b, s3)|^2 and |video(a, s2) - video(b, s3)|^2, halved
                / sum over clips of |video(a, s1) - video(a, s2)|^2

    An action-blind model has ratio 1 in expectation. Passes if the 95 % interval (over clusters) lies above
    MIN_OBEDIENCE_RATIO. The given frame is not counted.

    Args:
        others: the same clips under other actions from the same pose (true counterfactuals, or `mirrored_actions`).
        clusters: what the bootstrap resamples, one name per clip; default its episode. Branches of one start are one.
    """
    same, other = [], []
    for start in range(0, len(clips), batch_size):
        batch, changed = list(clips[start : start + batch_size]), list(others[start : start + batch_size])
        seeds = [seed + 3 * (start + i) for i in range(len(batch))]
        first, second, third = (
            predict(which, [s + draw for s in seeds]) for draw, which in enumerate((batch, batch, changed))
        )
        for a, b, c in zip(first, second, third, strict=True):
            same.append(_distance(a, b))
            other.append((_distance(a, c) + _distance(b, c)) / 2)
    floor, reached = np.array(same) + ROUNDING_DISTANCE, np.array(other) + ROUNDING_DISTANCE
    ratio = bootstrap_ratio(reached, floor, clusters or [clip.episode for clip in clips], seed=seed)
    passed = bool(np.isfinite(ratio.low) and ratio.low > MIN_OBEDIENCE_RATIO)
    detail = (
        f"other actions move the video {ratio.mean:.2f} [{ratio.low:.2f}, {ratio.high:.2f}] times as far as other noise"
        f" ({ratio.num_clusters} starts; an action-blind model has 1, needed: interval above {MIN_OBEDIENCE_RATIO:g})"
    )
    if not np.isfinite(ratio.low):
        detail = f"needs clips of two starts or more for an interval, found {ratio.num_clusters}"
    return Check(name="obedience", passed=passed, value=ratio.mean, detail=detail)


def normaliser_check(name: str, values: Float[np.ndarray, "m a"], normaliser: Normaliser) -> Check:
    """The stored normaliser fits the data's numbers: neither outside, nor clamped, nor far too small.

    A number is outside where it leaves [-1, 1] by more than 0.05 before clamping. The value is the share of the worst
    part (translation, rotation, ...). `name` is `action` or `state`.
    """
    title, layout = f"{name} normaliser", normaliser.layout
    if values.shape[1] != layout.dim:
        detail = f"data has {values.shape[1]} numbers per step, layout {layout.name} {layout.dim}"
        return Check(name=title, passed=False, value=f"{values.shape[1]} numbers", detail=detail)
    scaled = (values.astype(np.float64) - np.array(normaliser.offset)) / np.array(normaliser.scale)
    beyond = np.abs(scaled) > 1 + OUTSIDE_MARGIN
    shares = {part: float(beyond[:, columns].mean()) for part, columns in layout.slices.items()}
    clamped = {part: float((np.abs(scaled[:, columns]) > CLAMP).mean()) for part, columns in layout.slices.items()}
    worst, limit = max(shares.values()), OUTSIDE_LIMITS[normaliser.kind]
    by_part = ", ".join(f"{part} {share:.1%}" for part, share in shares.items())
    detail = (
        f"outside [-1, 1]: {by_part} (at most {limit:.0%});"
        f" clamped at {CLAMP:g}: {max(clamped.values()):.2%} (at most {MAX_CLAMPED:.1%})"
    )
    passed = worst <= limit and max(clamped.values()) <= MAX_CLAMPED
    if passed and (still := _still_parts(scaled, normaliser)):
        passed, detail = False, f"{still} uses under {MIN_SPREAD:.0%} of its range: other units, or already normalised?"
    return Check(name=title, passed=passed, value=worst, detail=detail)


def layout_check(name: str, run: Layout | None, data: Layout | None) -> Check:
    """The layout stored with the run equals the one the data declares; both sides are named where not."""
    title = f"{name} layout"
    if run == data:
        return Check(name=title, passed=True, value=run.name if run else "none", detail="run and data agree")
    if run is None or data is None:
        sides = f"run {run.name if run else 'none'}, data {data.name if data else 'none'}"
        return Check(name=title, passed=False, value=sides, detail="one side declares no layout")
    if len(run.parts) != len(data.parts):
        detail = f"run has parts {', '.join(run.slices)}; data has {', '.join(data.slices)}"
    else:
        detail = "; ".join(
            f"{ours.name}: run {ours}, data {theirs}"
            for ours, theirs in zip(run.parts, data.parts, strict=True)
            if ours != theirs
        )
    return Check(name=title, passed=False, value=f"run {run.name}, data {data.name}", detail=detail or "names differ")


def agreement_check(name: str, run: float | int | str | None, data: float | int | str | None) -> Check:
    """A plain property (fps, robot, number of actions) is the same in the run and in the data; fps within 1 %."""
    if name == "fps" and isinstance(run, int | float) and isinstance(data, int | float):
        passed = abs(run - data) <= FPS_TOLERANCE * abs(run)
    else:
        passed = run == data
    detail = "run and data agree" if passed else f"run has {run}, data has {data}"
    return Check(name=name, passed=passed, value=str(run), detail=detail)


def loading_check(load: Callable[[], object]) -> Check:
    """The checkpoint loads strictly; the error's own line is the detail where it does not."""
    try:
        load()
    except Exception as error:  # whatever a broken file raises, it must end as one line
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return Check(name="checkpoint", passed=False, value="refused", detail=lines[0])
    return Check(name="checkpoint", passed=True, value="loaded", detail="every tensor present, none extra")


def equality_check(name: str, first: Float[np.ndarray, "..."], second: Float[np.ndarray, "..."], detail: str) -> Check:
    """Two outputs are the same bit for bit; the value is their largest difference."""
    largest = float(np.abs(first.astype(np.float64) - second).max())
    return Check(name=name, passed=bool(np.array_equal(first, second)), value=largest, detail=detail)


def untouched_check(path: str, recorded: str, found: str | None) -> Check:
    """The file of a frozen network has the hash that the run recorded; no file: nothing to compare.

    Args:
        found: its hash now; None: it is not there.
    """
    if found is None:
        return Check(name="teacher", passed=None, value="n/a", detail=f"{path} is not there any more")
    detail = "as the run recorded it" if found == recorded else f"the run started from {recorded[:12]}: {path} changed"
    return Check(name="teacher", passed=found == recorded, value=found[:12], detail=detail)


def gradient_check(student: Mapping[str, bool], teacher: Mapping[str, bool]) -> Check:
    """A step's gradients reach the student and nothing of the teacher.

    Args:
        student, teacher: by parameter, whether it received a gradient.
    """
    reached = [name for name, received in teacher.items() if received]
    count = sum(student.values())
    detail = f"{count} of {len(student)} of the student's tensors, {len(reached)} of {len(teacher)} of the teacher's"
    if reached:
        detail += f": {', '.join(reached[:3])}"
    return Check(name="gradients", passed=not reached and count > 0, value=f"{count} tensors", detail=detail)


def rate_check(name: str, rate: float, drawn: Bool[np.ndarray, " n"]) -> Check:
    """A random choice is made as often as configured, within three standard errors; 0 and 1 are exact."""
    found = float(drawn.mean())
    error = float(np.sqrt(rate * (1 - rate) / len(drawn)))
    detail = f"configured {rate:g} +- {3 * error:.3f} (3 standard errors of {len(drawn)} clips)"
    return Check(name=name, passed=abs(found - rate) <= 3 * error, value=found, detail=detail)


def _distance(first: np.ndarray, second: np.ndarray) -> float:
    """Mean squared distance of the predicted frames, 0..1 per channel."""
    return float(np.square((first[1:].astype(np.float64) - second[1:]) / 255).mean())


def _still_parts(scaled: np.ndarray, normaliser: Normaliser) -> str:
    """Moving parts whose numbers all stay within a sliver of the range. A gripper may well never move."""
    low, high = np.quantile(scaled, [0.01, 0.99], axis=0)
    spread = (high - low) / 2
    moves = np.array(normaliser.scale) != 1.0  # a dimension that was constant in training is only shifted
    still = []
    for name, part in normaliser.layout.slices.items():
        if normaliser.layout.part(name).kind != "gripper" and moves[part].any() and spread[part].max() < MIN_SPREAD:
            still.append(name)
    return ", ".join(still)
