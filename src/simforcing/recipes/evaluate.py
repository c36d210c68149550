"""Scores a finished run on its held-out episodes and writes the report."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from simforcing.data.clips import Clips
from simforcing.data.counterfactuals import counterfactual_groups
from simforcing.data.open import open_dataset
from simforcing.data.spec import window_of
from simforcing.data.verify import verify_videos
from simforcing.data.windows import window_starts
from simforcing.evaluation.following import (
    CounterfactualGroup,
    FollowingResult,
    cost_of_swapped_actions,
    not_applicable,
)
from simforcing.evaluation.intervals import Interval
from simforcing.evaluation.pictures import contact_sheet
from simforcing.evaluation.protocols import METRICS, PROTOCOLS, Protocol, protocol_named
from simforcing.evaluation.record import write_record
from simforcing.evaluation.report import write_report
from simforcing.evaluation.scoring import EvaluationResult, EvaluationSettings, Provenance, evaluate
from simforcing.generation.rollout import Predictor
from simforcing.generation.sampler import SamplerConfig
from simforcing.models.bundle import Bundle, load_bundle
from simforcing.recipes.estimate import prediction_cost
from simforcing.types import Clip, DataSpec, Episode, EpisodeSet, from_json, to_json

Report = Callable[[str], None]
REPORT, RESULTS, SHEET = "report.html", "results.json", "contact_sheet.png"


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
    data: str | None = None,
    out: Path | None = None,
    counterfactuals: str | None = None,
    protocol: str | None = None,
    num_steps: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    dtype: Literal["float32", "bfloat16"] = "float32",
    overwrite: bool = False,
    command: str = "",
    report: Report = print,
) -> Evaluated:
    """Score the held-out episodes of a run under one protocol and write report.html, results.json and a contact sheet.

    Args:
        data: data set; default: the one that the run was trained on.
        out: folder of the report; default: RUN/evaluation.
        counterfactuals: set of true videos from equal starts; default: the folder `counterfactuals` beside the data.
        protocol: name; default: the first whose frames and size fit.
        num_steps: of the sampler; default: the recipe's.
        seed: of noise and bootstrap.

    Raises:
        ValueError: a run or data set that cannot be used, in one line.
    """
    folder = Path(out) if out else Path(run_dir) / "evaluation"
    if (folder / RESULTS).exists() and not overwrite:
        raise ValueError(f"{folder} holds an evaluation already; choose another --out, or --overwrite")
    bundle = load_bundle(run_dir)
    settings = EvaluationSettings(seed=seed)
    sampler = stored_sampler(bundle, num_steps)
    opened = open_for(bundle, data)
    held = held_out_episodes(bundle, opened)
    clips = Clips(held, bundle.spec, stride=bundle.spec.num_frames - 1)
    rules = protocol_named(protocol) if protocol else fitting_protocol(bundle.spec)
    report(
        f"{len(clips)} held-out clips of {len(held)} episodes, protocol {rules.name}, {sampler.num_steps} steps each"
    )
    predictor = Predictor(bundle, sampler, view=settings.view, device=device, dtype=dtype)
    if len(clips):
        report(prediction_cost(predictor, clips[0], len(clips), batch_size=settings.batch_size, with_videos=False))
    result = evaluate(
        clips,
        predictor.predict,
        predictor.reconstruct,
        rules,
        settings=settings,
        provenance=provenance_of(run_dir, bundle, opened, sampler, command),
        progress=lambda done, total: report(f"scoring clips: {done}/{total}"),
    )
    groups = groups_of(bundle, opened, counterfactuals)
    if groups:
        report(f"swapping actions between {sum(len(g.clips) for g in groups)} true branches of {len(groups)} starts")
    following = (
        cost_of_swapped_actions(groups, predictor.predict, rules, seed=settings.seed, view=settings.view)
        if groups
        else not_applicable("the data has no true videos of other actions from the same start")
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_record(folder / RESULTS, result, following)
    title = f"{bundle.about.get('recipe', 'world model')} on {Path(opened.root).name}"
    logs = {"world model": Path(run_dir) / "log.jsonl"}
    write_report(folder / REPORT, result, title=title, following=following, logs=logs)
    if result.examples:
        first = result.examples[0]
        sheet = contact_sheet(first.truth, first.predicted, bundle.spec.fps, title=first.task)
        sheet.save(folder / SHEET)
    return Evaluated(result=result, following=following, report=folder / REPORT, results=folder / RESULTS)


def stored_sampler(bundle: Bundle, num_steps: int | None = None) -> SamplerConfig:
    """The sampler of the recipe that made the run, at another number of steps if one is given."""
    sampler = from_json(SamplerConfig, bundle.about["run"]["sampler"], "sampler")
    return sampler if num_steps is None else replace(sampler, num_steps=num_steps)


def open_for(bundle: Bundle, data: str | None) -> EpisodeSet:
    """The run's data set, or another one, checked against what the model reads, broken videos left out by name."""
    source = data or bundle.about.get("data")
    if not source:
        raise ValueError("the run does not say what data it was trained on; give --data")
    opened = open_dataset(source, layout=None)
    bundle.spec.check(opened)
    return verify_videos(opened, bundle.spec.views)


def held_out_episodes(bundle: Bundle, opened: EpisodeSet) -> list[Episode]:
    """Held-out episodes by name; of another set than the training one, all."""
    if opened.fingerprint != bundle.spec.fingerprint:
        return list(opened.episodes)
    names = set(bundle.about["held_out"])
    return [episode for episode in opened.episodes if episode.name in names]


def fitting_protocol(spec: DataSpec) -> Protocol:
    """The first named protocol that scores exactly these frames, else `predicted-frames`."""
    size = (spec.resize.height, spec.resize.width)
    for protocol in PROTOCOLS.values():
        if protocol.num_frames == spec.num_frames and protocol.size == size:
            return protocol
    return PROTOCOLS["predicted-frames"]


def groups_of(bundle: Bundle, opened: EpisodeSet, counterfactuals: str | None) -> list[CounterfactualGroup]:
    """Counterfactual clips from each start's first frame; empty where there is no such set."""
    beside = Path(opened.root).parent / "counterfactuals"
    if counterfactuals is None and not (beside / "meta").is_dir():
        return []
    branches = open_dataset(counterfactuals or beside)
    bundle.spec.check(branches)
    groups = []
    for start, episodes in counterfactual_groups(branches).items():
        clips = [clip for clip in (first_clip(episode, bundle.spec) for episode in episodes) if clip is not None]
        if len(clips) > 1:
            groups.append(CounterfactualGroup(start=start, clips=tuple(clips)))
    return groups


def first_clip(episode: Episode, spec: DataSpec) -> Clip | None:
    """The window at frame 0, where it fits."""
    clips = Clips([episode], spec, stride=1)
    return clips[0] if window_starts(episode, window_of(spec))[:1] == [0] else None


def provenance_of(
    run_dir: Path, bundle: Bundle, opened: EpisodeSet, sampler: SamplerConfig, command: str
) -> Provenance:
    settings = {key: value for key, value in to_json(sampler).items() if key != "type"}
    return Provenance(
        run=str(run_dir),
        command=command,
        data=str(opened.root),
        data_fingerprint=opened.fingerprint,
        sampler=settings,
        rejected=opened.rejected,
        warnings=opened.warnings,
    )


def summary(evaluated: Evaluated) -> Sequence[str]:
    """The table that a terminal shows."""
    result = evaluated.result
    lines = [f"{'':26}{'PSNR dB':>22}{'moving PSNR dB':>22}{'SSIM':>24}"]
    for name, row in result.rows.items():
        cells = [in_words(result.interval(name, metric), "ssim" if metric == "ssim" else "dB") for metric in METRICS]
        lines.append(f"{row.label:26}{cells[0]:>22}{cells[1]:>22}{cells[2]:>24}")
    for metric, label in (("psnr", "whole frame"), ("moving_psnr", "moving region")):
        gain = result.difference("model", "copy", metric)
        lines.append(f"model - copy, {label}: {in_words(gain, 'gain')}")
    if evaluated.following.reason:
        lines.append(f"cost of swapped actions: n/a ({evaluated.following.reason})")
    else:
        for moving, label in ((False, "whole frame"), (True, "moving region")):
            cost = evaluated.following.cost(moving=moving)
            lines.append(f"cost of swapped actions, {label}: {in_words(cost, 'gain')}")
    return lines


def in_words(interval: Interval, kind: Literal["dB", "ssim", "gain"]) -> str:
    """Mean and interval; without an interval where one episode cannot give one."""
    number = {"dB": "{:.2f}", "ssim": "{:.3f}", "gain": "{:+.2f}"}[kind]
    unit = " dB" if kind == "gain" else ""
    if not math.isfinite(interval.mean):
        return "n/a"
    if not math.isfinite(interval.low):
        return f"{number.format(interval.mean)}{unit} (one episode)"
    return f"{number.format(interval.mean)}{unit} [{number.format(interval.low)}, {number.format(interval.high)}]"
