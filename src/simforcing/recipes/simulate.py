"""From demonstrations to a paired set: which robot, camera and lag each episode is rendered with, and what it costs.

What is rendered and how sets are written is the affair of `data.pairs`; cameras come from `simforcing calibrate`.
"""

import time
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from simforcing.data.backgrounds import BackgroundKind
from simforcing.data.convert import BYTES_PER_PIXEL, SET_BYTES, check_free_space
from simforcing.data.fleet import Engine, run_jobs
from simforcing.data.open import open_dataset
from simforcing.data.pair_jobs import Outcome, PairJob, Rendering, render_pair
from simforcing.data.pair_places import require_apart, require_place
from simforcing.data.pair_plan import PairPlan, Shot, layouts_to_keep, pair_bytes
from simforcing.data.pair_record import in_millimetres
from simforcing.data.pair_streams import variants_root
from simforcing.data.pairs import write_pairs
from simforcing.data.resize import resize_camera
from simforcing.data.validate import describe
from simforcing.recipes.output import require_writable
from simforcing.sim.perturb import PerturbConfig
from simforcing.sim.provenance import provenance_of
from simforcing.sim.replay import TrackingLimits
from simforcing.sim.robots import ROBOTS, robot_named
from simforcing.sim.studio import close_studios, studio_of
from simforcing.sim.workers import usable_processes
from simforcing.types import Camera, Episode, EpisodeSet, Resize, check_seed
from simforcing.types.calibration import Calibration, read_calibration
from simforcing.types.progress import Report, in_words, throttled

TIMED_FRAMES = 6
MAX_LAG = 20
OTHER_S_PER_PIXEL = 0.3e-6  # decoding, blending and encoding, beside rendering; measured on one core


@dataclass(frozen=True, kw_only=True)
class SimulateOptions:
    """What `simulate` renders.

    Args:
        robot, robot_path: name of the robot (default: as the set declares) and its model file or folder.
        calibration: file of `simforcing calibrate`; None: cameras that the set itself holds, with `lag`.
        view: camera that is paired; default the calibrated one, or the only one that has a camera.
        lag: frame i shows the state of row i - lag, where no calibration says it.
        size: (height, width) of all frames; default as stored.
        variants: perturbed variants of each episode; 0 writes no second set.
    """

    robot: str | None = None
    robot_path: Path | None = None
    calibration: Path | None = None
    view: str | None = None
    lag: int = 0
    background: BackgroundKind = "grey"
    size: tuple[int, int] | None = None
    variants: int = 3
    perturb: PerturbConfig = field(default_factory=PerturbConfig)
    depth: bool = False
    track: bool = False
    seed: int = 0
    limits: TrackingLimits = field(default_factory=TrackingLimits)

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if self.variants < 0:
            raise ValueError(f"variants {self.variants}: must not be negative")
        if abs(self.lag) > MAX_LAG:
            raise ValueError(f"lag {self.lag}: at most {MAX_LAG} frames")
        if self.size is not None and (min(self.size) < 2 or any(side % 2 for side in self.size)):
            raise ValueError(f"size {self.size[0]}x{self.size[1]}: both sides must be even")


def simulate(
    source: str,
    destination: Path,
    options: SimulateOptions,
    *,
    engine: Engine = "local",
    processes: int | None = None,
    overwrite: bool = False,
    report: Report,
) -> dict[str, Any]:
    """Write `destination` and, with variants, `<destination>-variants`; returns what meta/simulation.json holds.

    The same call goes on where it was stopped, and loses at most the episodes that were being rendered.

    Raises:
        ValueError: no robot, camera or layout is known, options do not fit the set, or something is in the way.
        OSError: the disk has too little room.
        RuntimeError: OpenGL is missing, or a process died.
    """
    destination = Path(destination)
    require_place(destination)
    if Path(source).exists():  # otherwise it is of a hub
        require_apart(destination, Path(source))
    require_writable(destination)
    usable_processes(processes)  # refuses what is no number of processes
    data = open_dataset(Path(source).absolute() if Path(source).exists() else source)
    for line in describe(data):
        report(line)
    plan = plan_pairs(data, options, report)
    for name, reason in plan.left_out.items():
        report(f"{data.root}: episode {name} is left out: {reason}")
    if not plan.shots:
        raise ValueError(f"{data.root}: no episode can be rendered: all {len(plan.left_out)} are left out")
    num_bytes = 2 * SET_BYTES + pair_bytes(plan, BYTES_PER_PIXEL)
    check_free_space(destination, num_bytes)
    seconds = pair_seconds(plan) / (usable_processes(processes) if engine == "local" or processes else 1)
    report(f"{destination}: about {in_words(seconds)} on this machine, at most {num_bytes / 1e6:.1f} MB of disk")

    def run(jobs: list[PairJob]) -> Generator[Outcome, None, None]:
        return run_jobs(jobs, render_pair, engine=engine, num_processes=processes)

    progress = throttled(report, "simulated", "episodes")
    try:
        record = write_pairs(destination, plan, run, overwrite=overwrite, report=report, progress=progress)
    finally:
        close_studios()
    for line in summary(destination, record):
        report(line)
    return record


def summary(destination: Path, record: dict[str, Any]) -> list[str]:
    """What was written, in a few lines."""
    episodes, left_out = record["episodes"], record["left_out"]
    worst_m = max(entry["position_error_m"] for entry in episodes.values())
    lines = [
        f"{destination}: {len(episodes)} episodes with real and sim, {len(left_out)} left out;"
        f" replays are off by at most {in_millimetres(worst_m)}"
    ]
    if record["variants"]:
        count = sum("none" not in variant for entry in episodes.values() for variant in entry["variants"])
        rejected = record["rejected_proposals"]
        reasons = ", ".join(f"{reason} {number}" for reason, number in rejected["reasons"].items())
        share = f"{rejected['rate']:.0%} of all proposals were rejected{f' ({reasons})' if reasons else ''}"
        lines.append(f"{variants_root(destination)}: {count} variants, {share}")
    return lines


def plan_pairs(data: EpisodeSet, options: SimulateOptions, report: Report) -> PairPlan:
    """Robot, view, size, and for each episode a camera and a lag, or why it is left out."""
    calibration = None if options.calibration is None else _read_calibration(options.calibration, data, options)
    robot = options.robot or (calibration.robot if calibration is not None else data.robot)
    if robot is None:
        raise ValueError(f"{data.root}: no robot is declared; name one with --robot; choices: {', '.join(ROBOTS)}")
    description = robot_named(robot, options.robot_path)
    view = options.view or (calibration.view if calibration is not None else _only_view(data))
    size = options.size or _stored_size(data, view)
    find = partial(_stored_shot, options.lag) if calibration is None else partial(_calibrated_shot, calibration)
    shots, left_out, is_any_known = {}, {item.name: item.reason for item in data.rejected}, False
    for episode in data.episodes:
        try:
            shot = find(episode, view)
            is_any_known = True
            _require_motion(shot.lag, episode)
            stored = episode.view(view).frames.size
            if shot.camera.size != stored:
                raise ValueError(f"its camera is of {shot.camera.size}, its frames of {stored} pixels")
            shots[episode.name] = replace(shot, camera=_in_size(shot.camera, size))
        except ValueError as error:
            left_out[episode.name] = str(error).removeprefix(f"episode {episode.name}: ")
    if calibration is None and not is_any_known:
        raise ValueError(
            f"{data.root}: no camera of view {view} is known in the robot's base frame;"
            " run `simforcing calibrate` on it and give its file with --calibration"
        )
    rendering = Rendering(
        robot=robot,
        robot_path=None if options.robot_path is None else str(Path(options.robot_path).absolute()),
        view=view,
        size=size,
        background=options.background,
        with_depth=options.depth,
        with_track=options.track,
        layouts=layouts_to_keep(data, report),
        num_variants=options.variants,
        perturb=options.perturb,
        seed=options.seed,
        limits=options.limits,
    )
    where = "stored in the set" if calibration is None else f"{options.calibration}"
    return PairPlan(
        source=data,
        rendering=rendering,
        provenance=provenance_of(description, options.robot_path),
        shots=shots,
        left_out=left_out,
        cameras_from=where,
    )


def pair_seconds(plan: PairPlan) -> float:
    """On one core: a few pictures are timed. Raises RuntimeError without OpenGL, ValueError without a robot's model."""
    rendering = plan.rendering
    path = None if rendering.robot_path is None else Path(rendering.robot_path)
    studio = studio_of(rendering.robot, path, rendering.size)
    robot = studio.robot
    rows = robot.configuration(
        np.tile(robot.home_rad, (TIMED_FRAMES, 1)), np.ones((TIMED_FRAMES, len(robot.robot.arms)))
    )
    rows[:, robot.joint_columns[0]] += 0.01 * np.arange(TIMED_FRAMES)
    pictures = studio.pictures(rows, next(iter(plan.shots.values())).camera)
    next(pictures)  # the first one also sets up the driver
    begun = time.monotonic()
    for _ in pictures:
        pass
    picture_s = (time.monotonic() - begun) / (TIMED_FRAMES - 1)
    close_studios()
    num_frames = sum(episode.num_frames for episode in plan.source.episodes if episode.name in plan.shots)
    streams = 1 + rendering.num_variants
    pixels = rendering.size[0] * rendering.size[1]
    return num_frames * (streams * picture_s + (1 + 2 * streams) * pixels * OTHER_S_PER_PIXEL)


def _read_calibration(path: Path, data: EpisodeSet, options: SimulateOptions) -> Calibration:
    """ValueError where it is of another set, view or robot."""
    calibration = read_calibration(path)
    for what, given, found in (("view", options.view, calibration.view), ("robot", options.robot, calibration.robot)):
        if given is not None and given != found:
            raise ValueError(f"{path}: calibrated for {what} {found}, asked for {given}; calibrate again")
    if calibration.fingerprint != data.fingerprint:
        raise ValueError(
            f"{path}: calibrated on {calibration.data} as it was then (fingerprint {calibration.fingerprint}),"
            f" {data.root} is {data.fingerprint}; run `simforcing calibrate` on it again"
        )
    for group in calibration.groups:
        if abs(group.lag) > MAX_LAG:
            raise ValueError(f"{path}: group {group.name}: lag {group.lag}: at most {MAX_LAG} frames")
    return calibration


def _require_motion(lag: int, episode: Episode) -> None:
    """ValueError where a lag leaves the same row for every frame."""
    if lag and abs(lag) >= episode.num_frames - 1:
        raise ValueError(f"a lag of {lag} in {episode.num_frames} frames would show one state alone")


def _calibrated_shot(calibration: Calibration, episode: Episode, view: str) -> Shot:
    group = calibration.group_of(episode.name)
    if group is None:
        raise ValueError("it is not in the calibration")
    fit = next(fit for fit in group.episodes if fit.name == episode.name)
    if not fit.accepted or group.camera is None:
        raise ValueError(fit.reason or "the calibration does not accept it")
    return Shot(camera=group.camera, lag=group.lag, iou=fit.iou, fitted_frames=fit.fitted_frames)


def _stored_shot(lag: int, episode: Episode, view: str) -> Shot:
    camera = episode.view(view).camera
    if camera is None or camera.intrinsics is None or camera.pose is None:
        raise ValueError(f"the set holds no complete camera of view {view}")
    return Shot(camera=camera, lag=lag)


def _only_view(data: EpisodeSet) -> str:
    """The one view, or the only one with a camera; ValueError lists the choices."""
    views = {view.name: view for episode in data.episodes for view in episode.views}
    known = [name for name, view in views.items() if view.camera is not None] or list(views)
    if len(known) > 1:
        raise ValueError(f"{data.root}: several views; choose one with --view: {', '.join(views)}")
    return known[0]


def _stored_size(data: EpisodeSet, view: str) -> tuple[int, int]:
    """The view's size, even sides; ValueError where episodes differ or none has the view."""
    views = {one.name for episode in data.episodes for one in episode.views}
    if view not in views:
        raise ValueError(f"{data.root}: no view {view!r}; views: {', '.join(sorted(views))}")
    sizes = {one.frames.size for episode in data.episodes for one in episode.views if one.name == view}
    if len(sizes) > 1:
        listed = ", ".join(f"{height}x{width}" for height, width in sorted(sizes))
        raise ValueError(f"{data.root}: view {view} has several sizes ({listed}); choose one with --size")
    height, width = sizes.pop()
    return height - height % 2, width - width % 2


def _in_size(camera: Camera, size: tuple[int, int]) -> Camera:
    """The camera of the set's frames: cut at the far end where sides were odd, else resized."""
    if camera.size[0] - camera.size[0] % 2 == size[0] and camera.size[1] - camera.size[1] % 2 == size[1]:
        return replace(camera, size=size)
    return resize_camera(camera, Resize(height=size[0], width=size[1]))
