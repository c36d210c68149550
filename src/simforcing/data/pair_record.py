"""meta/simulation.json of paired sets and their variants: what decided the pictures, what became of each episode."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from simforcing.data.backgrounds import BackgroundKind, plain
from simforcing.data.pair_jobs import Outcome, VariantOutcome
from simforcing.data.pair_plan import PairPlan, Shot
from simforcing.data.pair_streams import PICTURED
from simforcing.types import to_json
from simforcing.types.version import package_version


def record_of(plan: PairPlan, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The record of a finished job."""
    rendering, source, provenance = plan.rendering, plan.source, plan.provenance
    done = [outcome for outcome in outcomes if not outcome.reason]
    return {
        "job": plan.fingerprint,
        "version": package_version(),
        "source": {
            "data": source.root,
            "kind": source.kind,
            "fingerprint": source.fingerprint,
            "view": rendering.view,
        },
        "cameras": plan.cameras_from,
        "robot": rendering.robot,
        "model": {"path": provenance.model_path, "fingerprint": provenance.model},
        "mujoco": provenance.mujoco,
        "gl": provenance.gl,
        "tracking_limits": to_json(rendering.limits),
        "size": list(rendering.size),
        "background": _background(rendering.background),
        "seed": rendering.seed,
        "variants": rendering.num_variants,
        "perturbation": to_json(rendering.perturb),
        "rejected_proposals": _rejected([variant for outcome in done for variant in outcome.variants]),
        "episodes": {outcome.name: _entry(plan.shots[outcome.name], outcome) for outcome in done},
        "left_out": plan.left_out | {outcome.name: outcome.reason for outcome in outcomes if outcome.reason},
    }


def _rejected(variants: list[VariantOutcome]) -> dict[str, Any]:
    """How many proposals were rejected, of how many, and why."""
    reasons = sum((Counter(variant.rejected) for variant in variants), Counter[str]())
    count, num_accepted = reasons.total(), sum(not variant.reason for variant in variants)
    return {
        "count": count,
        "rate": count / (count + num_accepted) if count else 0.0,
        "reasons": dict(sorted(reasons.items())),
    }


def _entry(shot: Shot, outcome: Outcome) -> dict[str, Any]:
    return {
        "lag": shot.lag,
        "iou": shot.iou,
        "fitted_frames": list(shot.fitted_frames),
        "replayed_from": outcome.source,
        "position_error_m": outcome.position_error_m,
        "rotation_error_rad": outcome.rotation_error_rad,
        "variants": [{"rejected": v.rejected} | ({"none": v.reason} if v.reason else {}) for v in outcome.variants],
    }


def in_millimetres(error_m: float) -> str:
    """A replay's error for people."""
    return f"{1000 * error_m:.2f} mm" if error_m >= 5e-6 else "less than 0.01 mm"


def _background(kind: BackgroundKind) -> dict[str, Any]:
    """What the set declares: its value, or where each episode's picture is."""
    if kind in PICTURED:
        return {"kind": kind, "files": "meta/backgrounds/episode_{index:06d}.png"}
    return {"kind": kind, "value": plain(kind, (1, 1))[0, 0].tolist()}
