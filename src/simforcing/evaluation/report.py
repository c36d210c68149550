"""A self-contained HTML report of an evaluation: videos, scores, curves, swapped actions, provenance."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined

from simforcing.evaluation.drift import ROWS as DRIFT_ROWS
from simforcing.evaluation.drift import DriftResult
from simforcing.evaluation.figures import COLOURS, curve_line, line_chart
from simforcing.evaluation.following import FollowingResult, not_applicable
from simforcing.evaluation.intervals import Interval
from simforcing.evaluation.page import PAGE
from simforcing.evaluation.pictures import SIMULATED_PANELS, side_by_side, video_uri
from simforcing.evaluation.protocols import METRICS, SCORES
from simforcing.evaluation.result import EvaluationResult, Example, in_words
from simforcing.evaluation.silhouette import LABELS, ROLLOUT, SilhouetteResult
from simforcing.evaluation.training_charts import training_charts
from simforcing.types.files import write_text

METRIC_NAMES = {
    "psnr": "PSNR, dB",
    "moving_psnr": "moving region PSNR, dB",
    "ssim": "SSIM",
    "robot_psnr": "robot PSNR, dB",
    "background_psnr": "background PSNR, dB",
}
DIGITS = {metric: 3 if metric == "ssim" else 2 for metric in SCORES}


def write_report(
    path: Path,
    result: EvaluationResult,
    *,
    title: str,
    following: FollowingResult | None = None,
    logs: Mapping[str, Path] | None = None,
) -> None:
    """Write the report atomically to `path`. OSError, in one line, where the disk is full.

    Args:
        title: heading of the page.
        following: cost of swapped actions, or `n/a` with its reason.
        logs: training logs (JSONL) by the name of the trained model, in order; missing files are left out.
    """
    try:
        page = report_html(result, title=title, following=following, logs=logs)
    except OSError as error:  # the videos of the page are encoded in a temporary folder
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
        raise OSError(f"{path}: not written ({cause.strerror or cause}); an older file is as it was") from error
    write_text(path, page)


def report_html(
    result: EvaluationResult,
    *,
    title: str,
    following: FollowingResult | None = None,
    logs: Mapping[str, Path] | None = None,
) -> str:
    """The page as text; see `write_report`."""
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(PAGE)
    return template.render(
        title=title,
        subtitle=_subtitle(result),
        tiles=_tiles(result, following),
        videos=[_video(result, example) for example in result.examples],
        counts=_counts(result),
        metric_names=[METRIC_NAMES[metric] for metric in SCORES],
        rows=_rows(result),
        robot_reason=result.robot_reason,
        charts=[_time_chart(result, metric) for metric in (METRICS if result.robot_reason else SCORES)],
        following=_following(following),
        silhouettes=_silhouettes(result.silhouettes),
        drift=_drift(result.drift),
        losses=[chart for name, log in (logs or {}).items() for chart in training_charts(name, log)],
        episodes=_episodes(result),
        footer=_footer(result),
    )


def _subtitle(result: EvaluationResult) -> str:
    data = Path(result.provenance.data).name or "data"
    return f"Protocol {result.protocol.name} on held-out episodes of {data}: {result.protocol.note}"


def _tiles(result: EvaluationResult, following: FollowingResult | None) -> list[dict[str, str]]:
    tiles = [
        {"value": _signed(result.difference("model", "copy", "psnr")), "label": "PSNR above the copy row"},
        {
            "value": _signed(result.difference("model", "copy", "moving_psnr")),
            "label": "moving-region PSNR above the copy row",
        },
    ]
    if following is not None and not following.reason:
        tiles.append({"value": _signed(following.cost(moving=False)), "label": "PSNR lost when actions are swapped"})
    if not result.silhouettes.reason:
        overlap = result.silhouettes.interval(ROLLOUT).mean
        tiles.append({"value": _number(overlap, 2), "label": "robot IoU of the simulated rollout"})
    tiles.append({"value": f"{len(set(result.episodes))}", "label": f"held-out episodes, {len(result.clips)} clips"})
    return tiles


def _video(result: EvaluationResult, example: Example) -> dict[str, Any]:
    fps = _fps(example.frame_time_s)
    frames = side_by_side(example.truth, example.predicted, fps)
    if example.simulated is not None:
        below = side_by_side(*example.simulated, fps, panels=SIMULATED_PANELS)
        frames = np.concatenate([frames, below], axis=1)
    index = next(
        i for i, clip in enumerate(result.clips) if (clip.episode, clip.start) == (example.episode, example.start)
    )
    scores = [
        {
            "kind": name if name in COLOURS else "",
            "name": name.partition(",")[0],
            "colour": colour(name),
            "psnr": _number(result.rows[name].per_clip("psnr")[index], 2),
            "moving": _number(result.rows[name].per_clip("moving_psnr")[index], 2),
        }
        for name in result.drawn
    ]
    return {
        "uri": video_uri(frames, fps),
        "width": frames.shape[2],
        "height": frames.shape[1],
        "task": example.task,
        "name": f"{example.episode}, from frame {example.start}",
        "scores": scores,
    }


def _counts(result: EvaluationResult) -> str:
    frames = len(result.frame_time_s)
    given = "given frame counted" if result.protocol.include_given else "given frame left out"
    text = (
        f"{len(result.clips)} clips of {len(set(result.episodes))} episodes, {frames} frames each ({given}),"
        f" {result.size[0]}x{result.size[1]} px."
    )
    if result.num_still_frames:
        text += f" {result.num_still_frames} frames in which nothing has moved do not count in the moving region."
    return text


def _rows(result: EvaluationResult) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name, row in result.rows.items():
        cells = [_cell(result.interval(name, metric), DIGITS[metric]) for metric in SCORES]
        dot = colour(name) if name in result.drawn else ""
        rows.append({"label": row.label, "kind": name if name in COLOURS else "", "dot": dot, "cells": cells})
    for i, (first, second) in enumerate(result.comparisons):
        cells = [_cell(result.difference(first, second, metric), DIGITS[metric], signed=True) for metric in SCORES]
        rows.append({"label": in_words(first, second), "kind": "" if i else "gap", "dot": "", "cells": cells})
    return rows


def colour(row: str) -> str:
    """Of a row that curves show."""
    return COLOURS.get(row, COLOURS["alternative"])


def _time_chart(result: EvaluationResult, metric: str) -> dict[str, str]:
    lines = [
        curve_line(result.rows[name].label, result.frame_time_s, result.curve(name, metric), colour(name))
        for name in result.drawn
    ]
    name = METRIC_NAMES[metric]
    svg = line_chart(f"time-{metric}", lines, x_label="seconds after the given frame", y_label=name)
    return {"title": name.removesuffix(", dB"), "svg": svg}


def _silhouettes(silhouettes: SilhouetteResult) -> dict[str, Any]:
    if silhouettes.reason:
        return {"reason": silhouettes.reason}
    rows = [{"label": LABELS[row], "cell": _cell(silhouettes.interval(row), 3)} for row in silhouettes.iou]
    return {"reason": "", "level": silhouettes.level, "rows": rows}


def _drift(drift: DriftResult) -> dict[str, Any]:
    if drift.reason:
        return {"reason": drift.reason}
    curves = [drift.curve(row, metric) for metric in ("psnr", "moving_psnr") for row in DRIFT_ROWS]
    rows = []
    for i, (end_s, count) in enumerate(zip(drift.end_s, drift.num_episodes, strict=True)):
        means = [[float(line[i]) for line in (curve.mean, curve.low, curve.high)] for curve in curves]
        cells = [
            _cell(Interval(mean=three[0], low=three[1], high=three[2], num_values=count, num_clusters=count), 2)
            for three in means
        ]
        rows.append({"end": f"{end_s:g}", "count": count, "cells": cells})
    return {"reason": "", "rows": rows}


def _following(following: FollowingResult | None) -> dict[str, Any]:
    following = following or not_applicable("not measured")
    if following.reason:
        return {"reason": following.reason}
    rows = []
    for region, moving in (("whole frame", False), ("moving region", True)):
        own, swapped = following.decibels(moving=moving)
        cost = _cell(following.cost(moving=moving), 2, signed=True)
        rows.append(
            {"region": region, "own": _number(_mean(own), 2), "swapped": _number(_mean(swapped), 2), "cost": cost}
        )
    starts = len({swap.start for swap in following.swaps})
    summary = (
        f"{len(following.swaps)} swaps between true branches of {starts} starts: the same first frame, state, words and"
        " noise, another branch's actions, scored against the branch's own true video."
    )
    if following.num_equal:
        summary += f" {following.num_equal} pairs command the same and were left out."
    return {"reason": "", "summary": summary, "rows": rows}


def _episodes(result: EvaluationResult) -> list[dict[str, Any]]:
    columns = [
        (result.rows[row].per_clip(metric), DIGITS[metric])
        for row, metric in (
            ("model", "psnr"),
            ("copy", "psnr"),
            ("model", "moving_psnr"),
            ("copy", "moving_psnr"),
            ("model", "ssim"),
        )
    ]
    rows = []
    for name in dict.fromkeys(result.episodes):
        indices = [i for i, clip in enumerate(result.clips) if clip.episode == name]
        cells = [str(len(indices)), *(_number(_mean(values[indices]), digits) for values, digits in columns)]
        rows.append({"name": name, "task": result.clips[indices[0]].task, "cells": cells})
    return rows


def _footer(result: EvaluationResult) -> list[tuple[str, str]]:
    origin, settings = result.provenance, result.settings
    rejected = "; ".join(f"{item.name}: {item.reason}" for item in origin.rejected)
    rows = [
        ("command", origin.command),
        ("run", origin.run),
        ("data", origin.data),
        ("data fingerprint", origin.data_fingerprint),
        ("protocol", f"{result.protocol.name} ({result.protocol.colour}, SSIM {result.protocol.ssim_form})"),
        ("seeds", f"clip i is predicted with seed {settings.seed} + i; bootstrap seed {settings.seed}"),
        ("sampler", ", ".join(f"{key} {value}" for key, value in origin.sampler.items())),
        ("rejected episodes", rejected or "none"),
        ("warnings", "; ".join(origin.warnings)),
        ("versions", ", ".join(f"{key} {value}" for key, value in origin.versions.items())),
    ]
    return [(name, value) for name, value in rows if value]


def _cell(interval: Interval, digits: int, *, signed: bool = False) -> dict[str, str]:
    if not np.isfinite(interval.mean):
        return {"mean": "n/a", "range": ""}
    form = f"{'+' if signed else ''}.{digits}f"
    span = f"[{interval.low:{form}}, {interval.high:{form}}]" if np.isfinite(interval.low) else ""
    return {"mean": f"{interval.mean:{form}}", "range": span}


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if np.isfinite(value) else "-"


def _signed(interval: Interval) -> str:
    return f"{interval.mean:+.2f} dB" if np.isfinite(interval.mean) else "n/a"


def _mean(values: np.ndarray) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else float("nan")


def _fps(frame_time_s: np.ndarray) -> float:
    return float((len(frame_time_s) - 1) / (frame_time_s[-1] - frame_time_s[0]))
