"""Paired sets: real and rendered frames of the same demonstrations as two streams, and perturbed variants beside them.

`DST` holds real, sim and the sim's mask; `DST-variants` holds rendered variants alone, with their parents' numbers.
Episodes are finished one by one under `DST.parts`, which the same command takes up again; both sets appear together.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from simforcing.data.backgrounds import BackgroundKind, plain
from simforcing.data.convert import common_fps, extra_by_episode, kept_joint_layout, kept_state_layout
from simforcing.data.lerobot_writer import LeRobotWriter
from simforcing.data.open import require_layout
from simforcing.data.pair_jobs import (
    BACKGROUND_FILE,
    DEPTH,
    MASK,
    PICTURED,
    REAL,
    SIM,
    Outcome,
    PairJob,
    Rendering,
    encoded,
    read_tables,
)
from simforcing.sim.replay import Layouts
from simforcing.types import Camera, EpisodeSet, to_json
from simforcing.types.cameras import camera_to_json
from simforcing.types.files import read_json, write_json
from simforcing.types.progress import Report
from simforcing.types.version import package_version

RECORD_NAME = "simulation.json"  # in meta/ of both sets
JOB_NAME = "job.json"  # in the folder of parts
FORMAT = 2  # of parts; another one is not taken up again
SHOWN_REASONS = 3
Run = Callable[[list[PairJob]], Generator[Outcome, None, None]]


@dataclass(frozen=True, kw_only=True)
class Shot:
    """Through which camera and with which lag an episode is rendered; the calibration's overlap, for the record."""

    camera: Camera
    lag: int
    iou: float | None = None


@dataclass(frozen=True, kw_only=True)
class PairPlan:
    """What a paired set will hold.

    Args:
        shots: by episode name; the others are left out.
        left_out: episode name -> why it is not rendered, in one line.
        cameras_from: where the cameras come from, for the record.
    """

    source: EpisodeSet
    rendering: Rendering
    shots: dict[str, Shot]
    left_out: dict[str, str]
    cameras_from: str

    @property
    def fingerprint(self) -> str:
        """Of all that decides the pictures and tables: parts of another one are not used."""
        value = {
            "format": FORMAT,
            "version": package_version(),
            "data": self.source.fingerprint,
            "rendering": asdict(self.rendering),
            "shots": {name: [camera_to_json(shot.camera), shot.lag] for name, shot in self.shots.items()},
        }
        return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:32]


def variants_root(root: Path) -> Path:
    """Where the variants of a paired set lie."""
    return root.with_name(f"{root.name}-variants")


def layouts_to_keep(source: EpisodeSet, report: Report) -> Layouts:
    """The layouts of what every episode has; a line for what is left out."""
    return Layouts(
        action=require_layout(source),
        state=kept_state_layout(source, report),
        joint=kept_joint_layout(source, report),
    )


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
    parts = root.with_name(f"{root.name}.parts")
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
        record = assembly.record()
        assembly.finish(record, report)
    shutil.rmtree(parts, ignore_errors=True)
    return record


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
        return False
    is_done = variants.exists() and _job_of(variants / "meta" / RECORD_NAME) == plan.fingerprint
    for folder in (root, variants):
        if folder.exists() and not (folder == variants and is_done and not root.exists()):
            raise ValueError(f"{folder} exists; choose another name or overwrite it")
    return is_done


def _take_up(parts: Path, plan: PairPlan, *, overwrite: bool, report: Report) -> None:
    """Keep parts of this very job, refuse others, and forget what a killed process left unfinished."""
    settings = {"job": plan.fingerprint, "data": plan.source.root, "rendering": to_json(plan.rendering)}
    found = _job_of(parts / JOB_NAME)
    if parts.exists() and found != plan.fingerprint:
        if found is None and any(parts.iterdir()):
            raise ValueError(f"{parts} exists and holds no interrupted simulation; move it away")
        if found is not None and not overwrite:
            raise ValueError(
                f"{parts} holds {_num_finished(parts)} finished episodes of other options"
                f" ({_difference(parts, settings)}); give the same options to go on with them, or overwrite them"
            )
        shutil.rmtree(parts)
    for left in parts.glob("*.partial"):
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    parts.mkdir(parents=True, exist_ok=True)
    write_json(parts / JOB_NAME, settings)
    if num_finished := _num_finished(parts):
        report(f"{parts}: {num_finished} episodes are finished already")


def _num_finished(parts: Path) -> int:
    return sum(path.is_dir() and path.name.isdigit() for path in parts.iterdir())


def _difference(parts: Path, settings: dict[str, Any]) -> str:
    """Which option differs first, in words."""
    before = read_json(parts / JOB_NAME)
    if before.get("data") != settings["data"]:
        return f"data {before.get('data')}, now {settings['data']}"
    old, new = before.get("rendering") or {}, settings["rendering"]
    changed = [f"{key} {old.get(key)}, now {new[key]}" for key in new if old.get(key) != new[key]]
    return f"{changed[0]:.200}" if changed else "the data, a camera or the package's version changed"


def _job_of(path: Path) -> str | None:
    """The fingerprint that a record holds; None where there is none."""
    try:
        value = read_json(path)
    except ValueError:
        return None
    return value.get("job") if isinstance(value, dict) else None


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
        self._outcomes: list[Outcome] = []
        self._num_pairs = self._num_variants = 0

    def add(self, job: PairJob, outcome: Outcome, report: Report) -> None:
        """One episode and its variants, or the line that says why it is left out."""
        self._outcomes.append(outcome)
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

    def finish(self, record: dict[str, Any], report: Report) -> None:
        """Put the record into both sets, and see that they hold something."""
        if not self._num_pairs:
            reasons = [f"{outcome.name}: {outcome.reason}" for outcome in self._outcomes if outcome.reason]
            reasons += [f"{name}: {reason}" for name, reason in self._plan.left_out.items()]
            shown = "; ".join(reasons[:SHOWN_REASONS])
            raise ValueError(
                f"{self._plan.source.root}: no episode could be rendered ({len(reasons)} left out: {shown})"
            )
        self._pairs.meta[RECORD_NAME] = record
        if self._variants is not None:
            self._variants.meta[RECORD_NAME] = record
            if not self._num_variants:
                self._variants.abort()
                report(f"{self._variants.root}: not written, no variant is possible; lower the amplitudes")

    def record(self) -> dict[str, Any]:
        """meta/simulation.json."""
        rendering, source = self._plan.rendering, self._plan.source
        done = [outcome for outcome in self._outcomes if not outcome.reason]
        draws = [variant for outcome in done for variant in outcome.variants]
        num_rejected = sum(variant.num_rejected for variant in draws)
        num_accepted = sum(not variant.reason for variant in draws)
        return {
            "job": self._plan.fingerprint,
            "version": package_version(),
            "source": {
                "data": source.root,
                "kind": source.kind,
                "fingerprint": source.fingerprint,
                "view": rendering.view,
            },
            "cameras": self._plan.cameras_from,
            "robot": rendering.robot,
            "size": list(rendering.size),
            "background": _background(rendering.background),
            "seed": rendering.seed,
            "variants": rendering.num_variants,
            "perturbation": to_json(rendering.perturb),
            "rejected_proposals": {
                "count": num_rejected,
                "rate": num_rejected / (num_rejected + num_accepted) if num_rejected else 0.0,
            },
            "episodes": {outcome.name: self._entry(outcome) for outcome in done},
            "left_out": self._plan.left_out | {o.name: o.reason for o in self._outcomes if o.reason},
        }

    def _entry(self, outcome: Outcome) -> dict[str, Any]:
        shot = self._plan.shots[outcome.name]
        return {
            "lag": shot.lag,
            "iou": shot.iou,
            "replayed_from": outcome.source,
            "position_error_m": outcome.position_error_m,
            "rotation_error_rad": outcome.rotation_error_rad,
            "variants": [
                {"rejected": v.num_rejected} | ({"none": v.reason} if v.reason else {}) for v in outcome.variants
            ],
        }

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


def in_millimetres(error_m: float) -> str:
    """A replay's error for people."""
    return f"{1000 * error_m:.2f} mm" if error_m >= 5e-6 else "less than 0.01 mm"


def _background(kind: BackgroundKind) -> dict[str, Any]:
    """What the set declares: its value, or where each episode's picture is."""
    if kind in PICTURED:
        return {"kind": kind, "files": "meta/backgrounds/episode_{index:06d}.png"}
    return {"kind": kind, "value": plain(kind, (1, 1))[0, 0].tolist()}


def pair_bytes(plan: PairPlan, bytes_per_pixel: float) -> float:
    """Disk of both sets, an upper bound."""
    height, width = plan.rendering.size
    frames = sum(episode.num_frames for episode in plan.source.episodes if episode.name in plan.shots)
    streams = 3 + 2 * plan.rendering.num_variants + 10 * plan.rendering.with_depth * (1 + plan.rendering.num_variants)
    return frames * height * width * streams * bytes_per_pixel
