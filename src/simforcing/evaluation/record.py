"""An evaluation as a JSON file: protocol, counts, scores, intervals, seeds, versions, fingerprint, rejections."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from simforcing.evaluation.drift import METRICS as DRIFT_METRICS
from simforcing.evaluation.drift import ROWS as DRIFT_ROWS
from simforcing.evaluation.drift import DriftResult
from simforcing.evaluation.following import FollowingResult
from simforcing.evaluation.intervals import Interval
from simforcing.evaluation.protocols import ROBOT_METRICS, SCORES
from simforcing.evaluation.result import EvaluationResult
from simforcing.evaluation.silhouette import LABELS, SilhouetteResult
from simforcing.types import to_json
from simforcing.types.files import write_json


def result_record(result: EvaluationResult, following: FollowingResult | None = None) -> dict[str, Any]:
    """The result as JSON values; a number that does not exist is null."""
    differences = {
        f"{row} - {other}": {metric: _interval(result.difference(row, other, metric)) for metric in SCORES}
        for row, other in result.comparisons
    }
    return {
        "protocol": to_json(result.protocol),
        "settings": to_json(result.settings),
        "counts": {
            "clips": len(result.clips),
            "episodes": len(set(result.episodes)),
            "frames_per_clip": len(result.frame_time_s),
            "height_px": result.size[0],
            "width_px": result.size[1],
            "frames_without_motion": result.num_still_frames,
            "clips_without_motion": result.num_still_clips,
            "rejected_episodes": len(result.provenance.rejected),
        },
        "rows": {name: _row(result, name) for name in result.rows},
        "differences": differences,
        "reasons": dict.fromkeys(ROBOT_METRICS, result.robot_reason) if result.robot_reason else {},
        "silhouettes": silhouette_record(result.silhouettes),
        "following": following_record(following),
        "drift": drift_record(result.drift),
        "clips": _clips(result),
        "provenance": to_json(result.provenance),
    }


def following_record(following: FollowingResult | None) -> dict[str, Any]:
    """Cost of swapped actions as JSON values, or the reason why it does not apply."""
    if following is None:
        return {"reason": "not measured"}
    if following.reason:
        return {"reason": following.reason, "pairs_with_equal_actions": following.num_equal}
    return {
        "cost_psnr": _interval(following.cost(moving=False)),
        "cost_moving_psnr": _interval(following.cost(moving=True)),
        "pairs_with_equal_actions": following.num_equal,
        "swaps": [{k: _number(v) for k, v in to_json(swap).items() if k != "type"} for swap in following.swaps],
    }


def silhouette_record(silhouettes: SilhouetteResult) -> dict[str, Any]:
    """IoU of simulated rollouts with the simulator's mask as JSON values, or the reason why it does not apply."""
    if silhouettes.reason:
        return {"reason": silhouettes.reason}
    return {
        "level": silhouettes.level,
        "rows": {
            row: {"label": LABELS[row], "iou": _interval(silhouettes.interval(row)), "clips": _numbers(clips)}
            for row, clips in ((row, silhouettes.per_clip(row)) for row in silhouettes.iou)
        },
    }


def drift_record(drift: DriftResult) -> dict[str, Any]:
    """Scores of long rollouts by chunk as JSON values, or the reason why there are none."""
    if drift.reason:
        return {"reason": drift.reason}
    curves = {
        row: {
            metric: {part: _numbers(getattr(drift.curve(row, metric), part)) for part in ("mean", "low", "high")}
            for metric in DRIFT_METRICS
        }
        for row in DRIFT_ROWS
    }
    return {"end_s": list(drift.end_s), "episodes": drift.num_episodes, "rows": curves}


def write_record(path: Path, result: EvaluationResult, following: FollowingResult | None = None) -> None:
    """Write the record atomically: the file is either the old one or complete."""
    write_json(path, result_record(result, following))


def _row(result: EvaluationResult, name: str) -> dict[str, Any]:
    out: dict[str, Any] = {"label": result.rows[name].label, "curves": {"time_s": _numbers(result.frame_time_s)}}
    for metric in SCORES:
        out[metric] = _interval(result.interval(name, metric))
        curve = result.curve(name, metric)
        out["curves"][metric] = {part: _numbers(getattr(curve, part)) for part in ("mean", "low", "high")}
    return out


def _clips(result: EvaluationResult) -> list[dict[str, Any]]:
    """Scores of every clip, and under `frames` those of its counted frames, at the times of the row's curves."""
    clips = [{k: v for k, v in to_json(key).items() if k != "type"} for key in result.clips]
    for name, row in result.rows.items():
        columns = {metric: row.per_clip(metric) for metric in SCORES}
        for i, clip in enumerate(clips):
            clip[name] = {metric: _number(float(values[i])) for metric, values in columns.items()}
            clip[name]["frames"] = {metric: _numbers(getattr(row, metric)[i]) for metric in SCORES}
    return clips


def _interval(interval: Interval) -> dict[str, Any]:
    return {key: _number(value) for key, value in to_json(interval).items() if key != "type"}


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _numbers(values: np.ndarray) -> list[Any]:
    return [_number(float(value)) for value in values]
