"""Scores a finished run on its held-out episodes and writes the report."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from simforcing.data.clips import Clips
from simforcing.data.counterfactuals import counterfactual_groups
from simforcing.data.open import open_dataset
from simforcing.evaluation.following import (
    CounterfactualGroup,
    FollowingResult,
    cost_of_swapped_actions,
    not_applicable,
)
from simforcing.evaluation.intervals import Interval
from simforcing.evaluation.pictures import contact_sheet
from simforcing.evaluation.protocols import METRICS, PROTOCOLS, ROBOT_METRICS, Protocol, protocol_named
from simforcing.evaluation.record import write_record
from simforcing.evaluation.report import write_report
from simforcing.evaluation.result import EvaluationResult, EvaluationSettings, Provenance
from simforcing.evaluation.result import in_words as difference_in_words
from simforcing.evaluation.scoring import evaluate
from simforcing.evaluation.silhouette import CEILING, COPY, ROLLOUT
from simforcing.models.bundle import require_finished
from simforcing.recipes.drift import drift_of
from simforcing.recipes.estimate import prediction_cost, report_bytes
from simforcing.recipes.further import further_of, with_robot_masks
from simforcing.recipes.output import require_absent, require_apart, require_writable
from simforcing.recipes.prediction import (
    DEFAULT,
    PredictionOptions,
    Ready,
    episodes_with,
    ready_to_predict,
    starts_at_zero,
)
from simforcing.types import DataSpec, to_json
from simforcing.types.files import whole_file, write_text
from simforcing.types.progress import Report

REPORT, RESULTS, SHEET = "report.html", "results.json", "contact_sheet.png"
UNFINISHED = "evaluation.unfinished"  # there from the first file to the last


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """What an evaluation wrote and found."""

    result: EvaluationResult
    following: FollowingResult
    report: Path
    results: Path


def evaluate_run(
    run_dir: Path,
    *,
    out: Path | None = None,
    counterfactuals: str | None = None,
    protocol: str | None = None,
    options: PredictionOptions = DEFAULT,
    command: str = "",
    report: Report = print,
) -> Evaluated:
    """Score the held-out episodes of a run under one protocol and write report.html, results.json and a contact sheet.

    Args:
        out: folder of the report; default: RUN/evaluation.
        counterfactuals: set of true videos from equal starts; default: the folder `counterfactuals` beside the data.
        protocol: name; default: the first whose frames and size fit.

    Raises:
        ValueError: a run, data set or folder that cannot be used, in one line.
    """
    folder = Path(out) if out else Path(run_dir) / "evaluation"
    require_finished(run_dir)
    require_writable(folder)
    if not options.overwrite:
        require_no_evaluation(folder)
    ready = ready_to_predict(run_dir, options, report)
    require_apart(folder, ready.data.root)
    spec, predictor = ready.spec, ready.predictor
    settings = EvaluationSettings(seed=options.seed, view=predictor.view)
    clips = Clips(with_robot_masks(ready.held_out, spec), spec, stride=spec.num_frames - 1, with_masks=True)
    further = further_of(ready, alternatives=options.alternatives)
    groups = groups_of(ready, counterfactuals)
    rules = protocol_named(protocol) if protocol else fitting_protocol(spec)
    counts = f"{len(clips)} held-out clips of {len(ready.held_out)} episodes, view {ready.view}"
    report(f"{counts}, protocol {rules.name}, {predictor.sampler.num_steps} steps each")
    branches = sum(len(group.clips) for group in groups)
    if further.alternatives:
        report(f"further rows: {'; '.join(further.alternatives)} (--no-alternatives leaves them out)")
    if len(clips):
        count = (1 + len(further.alternatives)) * len(clips) + 2 * branches
        num_bytes = report_bytes(spec, len(clips), settings.num_videos)
        what = f"predictions and the report in {folder}"
        size = settings.batch_size
        report(prediction_cost(predictor, clips[0], count, batch_size=size, num_bytes=num_bytes, what=what))
        folder.mkdir(parents=True, exist_ok=True)
    result = evaluate(
        clips,
        predictor.predict,
        predictor.reconstruct,
        rules,
        settings=settings,
        further=further,
        progress=lambda done, total: report(f"scoring clips: {done}/{total}"),
    )
    drift = drift_of(ready, rules, settings, report)
    result = replace(result, drift=drift, provenance=provenance_of(run_dir, ready, command))
    following = not_applicable("the data has no true videos of other actions from the same start")
    if groups:
        report(f"swapping actions between {branches} true branches of {len(groups)} starts")
        how = {"seed": settings.seed, "view": settings.view, "num_views": len(spec.views)}
        following = cost_of_swapped_actions(groups, predictor.predict, rules, **how)
    return write_results(Path(run_dir), folder, ready, result, following)


def write_results(
    run_dir: Path, folder: Path, ready: Ready, result: EvaluationResult, following: FollowingResult
) -> Evaluated:
    """Write the page, the contact sheet and, last, the record: a folder with it is complete."""
    write_text(folder / UNFINISHED, "An evaluation is being written here; the same command starts it again.\n")
    root = Path(ready.data.root)
    named = root.parent.name if root.name == "episodes" else root.name
    title = f"{ready.bundle.about.get('recipe', 'world model')} on {named}"
    if len(ready.spec.views) > 1:
        title += f", view {ready.view}"
    write_report(folder / REPORT, result, title=title, following=following, logs=logs_of(run_dir, ready))
    if result.examples:
        first = result.examples[0]
        sheet = contact_sheet(first.truth, first.predicted, ready.spec.fps, title=first.task)
        with whole_file(folder / SHEET) as partial:
            sheet.save(partial, format="PNG")
    write_record(folder / RESULTS, result, following)
    (folder / UNFINISHED).unlink(missing_ok=True)
    return Evaluated(result=result, following=following, report=folder / REPORT, results=folder / RESULTS)


def logs_of(run_dir: Path, ready: Ready) -> dict[str, Path]:
    """Training logs by name: of the run that this one started from, where it is there, and its own."""
    about = ready.bundle.about
    start = (about.get("run") or {}).get("start")
    if not start:
        return {"world model": run_dir / "log.jsonl"}
    return {"teacher": Path(start["path"]) / "log.jsonl", about.get("recipe", "student"): run_dir / "log.jsonl"}


def require_no_evaluation(folder: Path) -> None:
    """ValueError where an evaluation, or a file of somebody else's, would be replaced; one cut short may be."""
    if (folder / RESULTS).exists():
        raise ValueError(f"{folder} holds an evaluation already; choose another --out, or --overwrite")
    if not (folder / UNFINISHED).exists():
        require_absent([folder / REPORT, folder / SHEET, folder / RESULTS])


def fitting_protocol(spec: DataSpec) -> Protocol:
    """`tabletop` for exactly its frames, else `predicted-frames`; the literature's protocols are asked for by name."""
    size = (spec.resize.height, spec.resize.width)
    ours = PROTOCOLS["tabletop"]
    return ours if (spec.num_frames, size) == (ours.num_frames, ours.size) else PROTOCOLS["predicted-frames"]


def groups_of(ready: Ready, counterfactuals: str | None) -> list[CounterfactualGroup]:
    """Counterfactual clips from each start's first frame, of the branches with the view; empty without such a set."""
    beside = Path(ready.data.root).parent / "counterfactuals"
    if counterfactuals is None and not (beside / "meta").is_dir():
        return []
    branches = open_dataset(counterfactuals or beside)
    ready.spec.check(branches)
    groups = []
    for start, episodes in counterfactual_groups(branches).items():
        usable = [e for e in episodes_with(episodes, ready.view) if starts_at_zero(e, ready.spec)]
        if len(usable) > 1:
            clips = tuple(Clips([episode], ready.spec, stride=1)[0] for episode in usable)
            groups.append(CounterfactualGroup(start=start, clips=clips))
    return groups


def provenance_of(run_dir: Path, ready: Ready, command: str) -> Provenance:
    settings = {key: value for key, value in to_json(ready.predictor.sampler).items() if key != "type"}
    return Provenance(
        run=str(run_dir),
        command=command,
        data=str(ready.data.root),
        data_fingerprint=ready.data.fingerprint,
        sampler=settings,
        rejected=ready.data.rejected,
        warnings=ready.data.warnings,
    )


def summary(evaluated: Evaluated) -> Sequence[str]:
    """The table that a terminal shows."""
    result = evaluated.result
    width = max(26, *(len(row.label) + 2 for row in result.rows.values()))
    lines = table(result, METRICS, ("PSNR dB", "moving PSNR dB", "SSIM"), width)
    if result.robot_reason:
        lines.append(f"robot and background: n/a ({result.robot_reason})")
    else:
        lines += table(result, ROBOT_METRICS, ("robot PSNR dB", "background PSNR dB"), width)
    for first, second in result.comparisons:
        if second != "ceiling":
            for metric, label in (("psnr", "whole frame"), ("moving_psnr", "moving region")):
                gain = result.difference(first, second, metric)
                lines.append(f"{difference_in_words(first, second)}, {label}: {in_words(gain, 'gain')}")
    return [*lines, *silhouette_lines(result), *following_lines(evaluated.following), *drift_lines(result)]


def table(result: EvaluationResult, metrics: Sequence[str], titles: Sequence[str], width: int) -> list[str]:
    """Rows of the result in these metrics."""
    lines = [" " * width + "".join(f"{title:>24}" for title in titles)]
    for name, row in result.rows.items():
        cells = [in_words(result.interval(name, metric), "ssim" if metric == "ssim" else "dB") for metric in metrics]
        lines.append(f"{row.label:{width}}" + "".join(f"{cell:>24}" for cell in cells))
    return lines


def silhouette_lines(result: EvaluationResult) -> list[str]:
    """IoU of the simulated robot, between what a copy and the autoencoder reach; or why there is none."""
    found = result.silhouettes
    if found.reason:
        return [f"robot IoU of simulated rollouts: n/a ({found.reason})"]
    rollout, copied, ceiling = (in_words(found.interval(row), "ssim") for row in (ROLLOUT, COPY, CEILING))
    return [f"robot IoU of simulated rollouts: {rollout}; copy {copied}, autoencoder ceiling {ceiling}"]


def following_lines(following: FollowingResult) -> list[str]:
    """Cost of swapped actions, or why there is none."""
    if following.reason:
        return [f"cost of swapped actions: n/a ({following.reason})"]
    return [
        f"cost of swapped actions, {label}: {in_words(following.cost(moving=moving), 'gain', 'start')}"
        for moving, label in ((False, "whole frame"), (True, "moving region"))
    ]


def drift_lines(result: EvaluationResult) -> list[str]:
    """PSNR of whole episodes' rollouts by chunk, beside the copy row; nothing where no episode is long enough."""
    drift = result.drift
    if drift.reason:
        return []
    model, copied = (drift.curve(row, "psnr").mean for row in ("model", "copy"))
    cells = [f"{m:.2f} ({c:.2f}) until {end:g} s" for m, c, end in zip(model, copied, drift.end_s, strict=True)]
    return [f"PSNR of long rollouts, dB (copy): {', '.join(cells)}"]


def in_words(interval: Interval, kind: Literal["dB", "ssim", "gain"], cluster: str = "episode") -> str:
    """Mean and interval; without an interval where one cluster (episode, start) cannot give one."""
    number = {"dB": "{:.2f}", "ssim": "{:.3f}", "gain": "{:+.2f}"}[kind]
    unit = " dB" if kind == "gain" else ""
    if not math.isfinite(interval.mean):
        return "n/a"
    if not math.isfinite(interval.low):
        return f"{number.format(interval.mean)}{unit} (one {cluster})"
    return f"{number.format(interval.mean)}{unit} [{number.format(interval.low)}, {number.format(interval.high)}]"
