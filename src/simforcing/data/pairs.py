"""Paired sets: real and rendered frames of the same demonstrations as two streams, and perturbed variants beside them.

`DST` holds real, sim and the sim's mask; `DST-variants` holds rendered variants alone, with their parents' numbers.
Episodes are finished one by one under `DST.parts`, which the same command takes up again; both sets appear together.
"""

import shutil
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from simforcing.data.convert import common_fps, extra_by_episode
from simforcing.data.lerobot_writer import LeRobotWriter
from simforcing.data.pair_jobs import BACKGROUND_FILE, Outcome, PairJob, encoded, read_outcome, read_tables
from simforcing.data.pair_parts import JOB_FILE, fault_of, foreign_files, remove_parts
from simforcing.data.pair_places import parts_root
from simforcing.data.pair_plan import PairPlan
from simforcing.data.pair_record import record_of
from simforcing.data.pair_streams import DEPTH, MASK, PICTURED, REAL, RECORD_NAME, SIM, job_of, variants_root
from simforcing.data.partial_folder import PartialFolder, leftovers, remove_leftovers, remove_set, why_kept
from simforcing.types import to_json
from simforcing.types.files import read_json, write_json
from simforcing.types.progress import Report

SHOWN_REASONS = 3
Run = Callable[[list[PairJob]], Generator[Outcome, None, None]]


def write_pairs(
    root: Path,
    plan: PairPlan,
    run: Run,
    *,
    overwrite: bool = False,
    report: Report,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    """Render what is not rendered yet, and write both sets. Returns the record that both hold.

    Args:
        run: carries out `pair_jobs.render_pair` for every job, in order.
        overwrite: replace older sets, and parts of other options.
        progress: called with (episodes finished, episodes in all).

    Raises:
        ValueError: a set or parts of other options are in the way, or no episode could be rendered.
        OSError: the disk is full; finished episodes are kept.
    """
    parts = parts_root(root)
    if not overwrite and _is_untidy(root, plan):
        with ExitStack() as stack:
            stack.callback(PartialFolder(root, overwrite=True).remove)  # held: another process may be replacing the set
            _refuse_foreign(parts)
            _tidy(root)
        report(f"{root}: complete already; what an interrupted run had left beside it is removed")
        return read_json(root / "meta" / RECORD_NAME)
    is_variants_done = _refuse_existing(root, plan, overwrite=overwrite)
    with ExitStack() as stack:
        pairs = stack.enter_context(_writer(root, plan, is_pairs=True, overwrite=overwrite))
        variants = None
        if plan.rendering.num_variants and not is_variants_done:
            variants = stack.enter_context(_writer(variants_root(root), plan, is_pairs=False, overwrite=overwrite))
        _take_up(parts, plan, overwrite=overwrite, report=report)
        assembly = _Assembly(plan, pairs, variants, extra_by_episode(plan.source, report))
        jobs = _jobs(plan, parts)
        with closing(run(jobs)) as outcomes:
            for done, (job, outcome) in enumerate(zip(jobs, outcomes, strict=True), start=1):
                assembly.add(job, outcome, report)
                progress(done, len(jobs))
        if (reason := assembly.why_empty()) is not None:
            remove_parts(parts)  # nothing to go on with
            raise ValueError(reason)
        record = record_of(plan, assembly.outcomes)
        has_variants = assembly.finish(record, report)
        if overwrite and not has_variants and variants_root(root).exists():
            remove_set(variants_root(root))  # of another job: they must not lie beside the new set
            report(f"{variants_root(root)}: removed, it held variants of the set that is replaced")
    _tidy(root)
    return record


def _is_untidy(root: Path, plan: PairPlan) -> bool:
    """Whether the set is complete, of this very job, and a killed run left its parts or an older set beside it."""
    found = job_of(root / "meta" / RECORD_NAME)
    left = [*leftovers(root), *leftovers(variants_root(root))]
    return found == plan.fingerprint and (bool(left) or job_of(parts_root(root) / JOB_FILE) == found)


def _tidy(root: Path) -> None:
    """Remove what is of no use once both sets are there."""
    remove_parts(parts_root(root))
    for folder in (root, variants_root(root)):
        remove_leftovers(folder)


def _jobs(plan: PairPlan, parts: Path) -> list[PairJob]:
    return [
        PairJob(
            index=index,
            episode=episode,
            camera=plan.shots[episode.name].camera,
            lag=plan.shots[episode.name].lag,
            rendering=plan.rendering,
            folder=parts.absolute(),
        )
        for index, episode in enumerate(plan.source.episodes)
        if episode.name in plan.shots
    ]


def _refuse_existing(root: Path, plan: PairPlan, *, overwrite: bool) -> bool:
    """Whether the variants are there already, as a run that was killed between the two sets leaves them."""
    variants = variants_root(root)
    if overwrite:
        if variants.exists() and (reason := why_kept(variants)) is not None:
            raise ValueError(f"{variants} {reason}; it is not overwritten")
        return False
    is_done = variants.exists() and job_of(variants / "meta" / RECORD_NAME) == plan.fingerprint
    for folder in (root, variants):
        if folder.exists() and not (folder == variants and is_done and not root.exists()):
            raise ValueError(f"{folder} exists; choose another name or overwrite it")
    return is_done


def _take_up(parts: Path, plan: PairPlan, *, overwrite: bool, report: Report) -> None:
    """Keep parts of this very job, refuse others, and forget what a killed process left unfinished."""
    settings = {
        "job": plan.fingerprint,
        "data": plan.source.root,
        "rendering": to_json(plan.rendering),
        "provenance": to_json(plan.provenance),
    }
    found = job_of(parts / JOB_FILE)
    if found is not None:
        _refuse_foreign(parts)
    if parts.exists() and found != plan.fingerprint:
        if found is None and any(parts.iterdir()):
            raise ValueError(f"{parts} exists and holds no interrupted simulation; move it away")
        if found is not None and not overwrite:
            raise ValueError(
                f"{parts} holds {_num_finished(parts)} finished episodes of other options"
                f" ({_difference(parts, settings)}); give the same options to go on with them, or overwrite them"
            )
        shutil.rmtree(parts)
    parts.mkdir(parents=True, exist_ok=True)
    for left in parts.glob("*.partial"):
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    for part in sorted(path for path in parts.iterdir() if path.is_dir()):
        if (reason := _why_again(part, plan)) is not None:
            report(f"{part}: {reason}; rendered again")
            shutil.rmtree(part)
    write_json(parts / JOB_FILE, settings)
    if num_finished := _num_finished(parts):
        report(f"{parts}: {num_finished} episodes are finished already")


def _refuse_foreign(parts: Path) -> None:
    if parts.is_dir() and (foreign := foreign_files(parts)):
        raise ValueError(f"{foreign[0]} lies among finished episodes, which are removed in the end; move it away")


def _why_again(part: Path, plan: PairPlan) -> str | None:
    """Why a part of this job cannot be used, in words."""
    names = [episode.name for episode in plan.source.episodes]
    try:
        outcome = read_outcome(part)
    except ValueError as error:
        return str(error).removeprefix(f"{part}/")
    if outcome.name not in names[int(part.name) : int(part.name) + 1]:
        return f"it holds another episode, {outcome.name}"
    if outcome.reason:
        return f"it was left out ({outcome.reason}), which may be mended"
    return fault_of(part, outcome.files)


def _num_finished(parts: Path) -> int:
    return sum(path.is_dir() and path.name.isdigit() for path in parts.iterdir())


def _difference(parts: Path, settings: dict[str, Any]) -> str:
    """Which option differs first, in words."""
    before = read_json(parts / JOB_FILE)
    if before.get("data") != settings["data"]:
        return f"data {before.get('data')}, now {settings['data']}"
    changed = []
    for part in ("rendering", "provenance"):
        old, new = before.get(part) or {}, settings[part]
        decisive = [key for key in new if key not in ("robot_path", "model_path")]
        changed += [f"{key} {old.get(key)}, now {new[key]}" for key in decisive if old.get(key) != new[key]]
    return f"{changed[0]:.200}" if changed else "the data, a camera or the package's version changed"


def _writer(root: Path, plan: PairPlan, *, is_pairs: bool, overwrite: bool) -> LeRobotWriter:
    rendering = plan.rendering
    assert rendering.layouts.action is not None
    names = (REAL, SIM, MASK) if is_pairs else (SIM, MASK)
    return LeRobotWriter(
        root,
        fps=common_fps(plan.source),
        views=dict.fromkeys(names, rendering.size),
        masks={SIM: MASK},
        depth=(SIM,) if rendering.with_depth else (),
        action_layout=rendering.layouts.action,
        state_layout=rendering.layouts.state,
        joint_layout=rendering.layouts.joint,
        robot=rendering.robot,
        overwrite=overwrite,
    )


class _Assembly:
    """Finished parts on their way into the two sets."""

    def __init__(
        self,
        plan: PairPlan,
        pairs: LeRobotWriter,
        variants: LeRobotWriter | None,
        extra: dict[str, dict[str, list]],
    ) -> None:
        self._plan, self._pairs, self._variants = plan, pairs, variants
        self._extra = {
            name: {key: value for key, value in columns.items() if not key.startswith("sim_")}
            for name, columns in extra.items()
        }
        self.outcomes: list[Outcome] = []
        self._num_pairs = self._num_variants = 0

    def add(self, job: PairJob, outcome: Outcome, report: Report) -> None:
        """One episode and its variants, or the line that says why it is left out."""
        self.outcomes.append(outcome)
        if outcome.reason:
            report(f"{self._plan.source.root}: episode {outcome.name} is left out: {outcome.reason}")
            return
        tables = read_tables(job.part)
        if job.rendering.background in PICTURED:
            self._pairs.files[f"backgrounds/episode_{self._num_pairs:06d}.png"] = job.part / BACKGROUND_FILE
        self._add(self._pairs, job, tables, "", self._extra.get(outcome.name, {}), outcome.name)
        for draw, variant in enumerate(outcome.variants):
            if variant.reason:
                report(f"{self._plan.source.root}: variant {draw} of episode {outcome.name}: {variant.reason}")
            elif self._variants is not None:
                extra = {"parent": self._num_pairs, "draw": draw}
                self._add(self._variants, job, tables, f"{draw}/", extra, f"{outcome.name}_{draw}")
                self._num_variants += 1
        self._num_pairs += 1

    def why_empty(self) -> str | None:
        """That no episode could be rendered, and why; None where one could."""
        if self._num_pairs:
            return None
        reasons = [f"{outcome.name}: {outcome.reason}" for outcome in self.outcomes if outcome.reason]
        reasons += [f"{name}: {reason}" for name, reason in self._plan.left_out.items()]
        shown = "; ".join(reasons[:SHOWN_REASONS])
        return f"{self._plan.source.root}: no episode could be rendered ({len(reasons)} left out: {shown})"

    def finish(self, record: dict[str, Any], report: Report) -> bool:
        """Put the record into both sets. Returns whether variants are written."""
        self._pairs.meta[RECORD_NAME] = record
        if self._variants is None:
            return False
        if not self._num_variants:
            self._variants.abort()
            report(f"{self._variants.root}: not written, no variant is possible; lower the amplitudes")
            return False
        self._variants.meta[RECORD_NAME] = record
        return True

    def _add(
        self,
        writer: LeRobotWriter,
        job: PairJob,
        tables: dict[str, np.ndarray],
        key: str,
        extra: dict[str, Any],
        name: str,
    ) -> None:
        """One episode of one set: its streams are taken as they are."""
        prefix, size = key.replace("/", "_"), job.rendering.size
        own = [column for column in tables if column.startswith(f"{key}sim_")]
        num_frames = job.episode.num_frames

        def stream(view: str) -> Any:
            return encoded(job.part, view if view == REAL else prefix + view, tables, size, num_frames)

        writer.add(
            frames={view: stream(view) for view in writer.views},
            action=tables[f"{key}action"],
            state=tables.get(f"{key}state"),
            joint=tables.get(f"{key}joint"),
            depth={view: stream(DEPTH) for view in writer.depth},
            task=job.episode.task,
            extra=extra | {column.removeprefix(key): tables[column] for column in sorted(own)},
            name=name,
            cameras={view: replace(job.camera, size=size) for view in writer.views if view != MASK},
        )
