"""From a set of demonstrations to cameras and lags: groups, fits on all cores, verdicts, a file and a sheet to look at.

How a camera is fitted is the affair of `sim.calibrate`; what is read of the frames, of `data.footage`.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float, UInt8

from simforcing.data.footage import CameraPrior, background, build_group, group_episodes, working_size
from simforcing.data.open import open_dataset
from simforcing.data.overlay import write_sheet
from simforcing.data.resize import resize_camera
from simforcing.data.validate import describe
from simforcing.recipes.output import require_writable
from simforcing.sim.calibrate import (
    CalibrateConfig,
    Group,
    Hypothesis,
    appearance_of,
    fit_group,
    group_fit,
    judge,
    polish,
)
from simforcing.sim.model import RobotModel
from simforcing.sim.refine import Refined
from simforcing.sim.replay import Layouts, TrackingLimits, replay
from simforcing.sim.robot import Robot
from simforcing.sim.robots import ROBOTS, robot_named
from simforcing.sim.workers import in_order, usable_processes
from simforcing.types import Camera, Episode, EpisodeSet, Resize, check_seed
from simforcing.types.calibration import Appearance, Calibration, EpisodeFit, GroupFit, write_calibration
from simforcing.types.cameras import camera_to_json, pinhole_intrinsics, read_start
from simforcing.types.files import read_json
from simforcing.types.progress import Report, throttled

FIRST_GUESS_FOVY_RAD = 1.0  # where the search begins; it finds 0.6 to 1.6
FIT_EPISODES = 12  # of a group that its camera is fitted to; all are judged
Groups = Literal["auto", "one", "each"]


@dataclass(frozen=True, kw_only=True)
class CalibrateOptions:
    """What is calibrated, and what is known before.

    Args:
        view: camera of the set; default the first.
        robot, robot_path: name of the robot (default: as the set declares) and its model file or folder.
        start: a camera to start from, in the robot's base frame; its size may be another one of the same view.
        fovy_deg: vertical field of view, where it is known; else that of the start or the stored cameras is kept, and
            without any it is fitted.
        free_focal: fit it although it is given.
        aspect: width over height of the picture that the camera took, where the stored one was squashed.
        lags: lags that are tried.
        groups: auto (by their backgrounds) | one (all episodes share the camera) | each (none do).
        stored_cameras: start from the cameras that the set holds; only the residual is then fitted.
        masks: use the set's masks of the robot instead of change.
        min_iou: episodes below it are left out.
    """

    view: str | None = None
    robot: str | None = None
    robot_path: Path | None = None
    start: Camera | None = None
    fovy_deg: float | None = None
    free_focal: bool = False
    aspect: float | None = None
    lags: tuple[int, ...] = (-1, 0, 1, 2, 3)
    groups: Groups = "auto"
    stored_cameras: bool = True
    masks: bool = False
    min_iou: float = CalibrateConfig.min_iou
    seed: int = 0

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if not self.lags or any(abs(lag) > 20 for lag in self.lags):
            raise ValueError(f"lags {self.lags}: at least one, between -20 and 20 frames")
        if self.fovy_deg is not None and not 1 < self.fovy_deg < 170:
            raise ValueError(f"fovy_deg {self.fovy_deg}: must lie between 1 and 170")
        if self.aspect is not None and not 0.1 < self.aspect < 10:
            raise ValueError(f"aspect {self.aspect}: width over height between 0.1 and 10, such as 1.333 or 1.778")
        if not 0 <= self.min_iou <= 1:
            raise ValueError(f"min_iou {self.min_iou}: must lie between 0 and 1")


def calibrate(
    source: str,
    out: Path,
    options: CalibrateOptions,
    *,
    processes: int | None = None,
    overwrite: bool = False,
    report: Report,
) -> Calibration:
    """Fit every group of episodes and write `out` (JSON) and a sheet of overlays beside it (PNG).

    Raises:
        ValueError: no robot, view or layout is known, no episode can be replayed, or `out` is there already.
        OSError: the file cannot be written.
        RuntimeError: OpenGL is missing, or a process died.
    """
    out = Path(out)
    if out.suffix != ".json":
        raise ValueError(f"{out}: expected a file name that ends in .json; the sheet is written beside it as .png")
    if existing := [path for path in (out, out.with_suffix(".png")) if path.exists() and not overwrite]:
        raise ValueError(f"{existing[0]} exists already; choose another name, or --overwrite")
    usable_processes(processes)
    require_writable(out.parent)
    data = open_dataset(source)
    for line in describe(data):
        report(line)
    scene = _Scene(data, options)
    for name, reason in scene.left_out.items():
        report(f"{data.root}: episode {name} is left out: {reason}")
    if not scene.qpos:
        raise ValueError(f"{data.root}: no episode can be replayed; the first: {next(iter(scene.left_out.values()))}")
    groups = scene.groups()
    one = len(groups) == 1
    shared = "one group" if one else f"{len(groups)} groups, each"
    report(f"{data.root}: {len(scene.qpos)} episodes in {shared} of one camera")
    where = "from the given cameras" if scene.has_starts else "all around the robot; from seconds to minutes a group"
    report(f"{data.root}: searching {where}" + ("" if one else ", then once more from what the others found"))
    best = _fit(scene, groups, processes, report)
    if any(best):
        report(f"{data.root}: refining on more frames")
    best = _polish(scene, groups, best, processes)
    report(f"{data.root}: scoring {len(scene.qpos)} episodes")
    fits = _judge(scene, groups, best, processes)
    calibration = Calibration(
        data=data.root,
        fingerprint=data.fingerprint,
        view=scene.view,
        robot=scene.robot.name,
        groups=tuple(fits),
        seed=options.seed,
        settings=scene.settings(),
        left_out=scene.left_out,
    )
    write_calibration(out, calibration)
    write_sheet(out.with_suffix(".png"), scene.by_name, calibration, robot=scene.robot, qpos=scene.qpos)
    report(f"{out}: written; look at {out.with_suffix('.png')}")
    return calibration


def read_camera(path: Path) -> Camera:
    """A camera to start from; see `types.cameras.read_start`."""
    return read_start(read_json(path), str(path))


def table(calibration: Calibration) -> list[str]:
    """A line for each group and episode."""
    lines = []
    for group in calibration.groups:
        accepted = sum(fit.accepted for fit in group.episodes)
        line = f"group {group.name}: {accepted} of {len(group.episodes)} episodes accepted"
        if group.camera is not None and group.camera.pose is not None and group.camera.intrinsics is not None:
            x, y, z = group.camera.pose[:3, 3]
            fovy = 2 * np.degrees(np.arctan(group.camera.size[0] / 2 / group.camera.intrinsics[1, 1]))
            line += (
                f"; lag {group.lag}, camera at ({x:.3f}, {y:.3f}, {z:.3f}) m, field of view {fovy:.1f} deg;"
                f" +- {100 * (group.position_deviation_m or 0):.1f} cm,"
                f" {np.degrees(group.rotation_deviation_rad or 0):.1f} deg,"
                f" {100 * (group.focal_deviation or 0):.1f} % of the focal length"
            )
        lines.append(line)
        for fit in group.episodes:
            score = "no score" if fit.iou is None else f"IoU {fit.iou:.2f} [{fit.iou_low:.2f}, {fit.iou_high:.2f}]"
            lag = "" if fit.lag is None else f", lag {fit.lag}"
            verdict = "accepted" if fit.accepted else f"left out: {fit.reason}"
            lines.append(f"  {fit.name}: {score}{lag}, {verdict}")
    return lines


class _Scene:
    """The set, its robot and view, and every episode's configurations."""

    def __init__(self, data: EpisodeSet, options: CalibrateOptions) -> None:
        self.data, self.options = data, options
        name = options.robot or data.robot
        if name is None:
            raise ValueError(f"{data.root}: no robot is declared; name one with --robot; choices: {', '.join(ROBOTS)}")
        self.robot = _sendable(robot_named(name, options.robot_path))
        self.view = options.view or data.episodes[0].views[0].name
        self.left_out = {item.name: item.reason for item in data.rejected}
        self.qpos: dict[str, Float[np.ndarray, "f q"]] = {}
        self.by_name: dict[str, Episode] = {}
        self.backgrounds: dict[str, UInt8[np.ndarray, "_ _ 3"]] = {}
        model, layouts = RobotModel(self.robot), Layouts.of(data)
        for episode in data.episodes:
            try:
                episode.view(self.view)
                qpos = replay(model, episode, layouts, TrackingLimits()).qpos
                self.backgrounds[episode.name] = background(episode, self.view)  # also tells damaged videos
                self.qpos[episode.name], self.by_name[episode.name] = qpos, episode
            except ValueError as error:
                self.left_out[episode.name] = str(error).removeprefix(f"episode {episode.name}: ")
        free_focal = options.free_focal or not (options.fovy_deg is not None or self._starts_have_focal())
        self.config = CalibrateConfig(free_focal=free_focal, min_iou=options.min_iou, seed=options.seed)

    def settings(self) -> dict[str, object]:
        """The options, for the record."""
        value: dict[str, object] = asdict(replace(self.options, start=None))
        value["start"] = None if self.options.start is None else camera_to_json(self.options.start)
        value["robot_path"] = None if self.options.robot_path is None else str(self.options.robot_path)
        return value

    def groups(self) -> list[list[Episode]]:
        """Episodes by camera, as the options say."""
        episodes = list(self.by_name.values())
        if self.options.groups == "each":
            return [[episode] for episode in episodes]
        if self.options.groups == "auto":
            return group_episodes(episodes, self.view, self.backgrounds)
        if len(sizes := {episode.view(self.view).frames.size for episode in episodes}) > 1:
            raise ValueError(f"{self.data.root}: frames of {len(sizes)} sizes are not of one camera; use --groups auto")
        return [episodes]

    def group(self, number: int, episodes: list[Episode], starts: tuple[Camera, ...] = ()) -> Group:
        """Episodes of one camera as what is fitted or judged; `starts` replaces what the options and the set say."""
        stored = episodes[0].view(self.view).frames.size
        size = working_size(stored)
        own = self._starts(episodes, size)
        template = self._template(stored, size)
        if starts and not self.config.free_focal:
            starts = tuple(replace(start, intrinsics=(own or (template,))[0].intrinsics) for start in starts)
        prior = CameraPrior(
            template=template,
            lags=self.options.lags,
            starts=starts or own,
            pixel_aspect=self._pixel_aspect(stored),
        )
        return build_group(
            str(number),
            episodes,
            self.view,
            robot=self.robot,
            qpos=self.qpos,
            prior=prior,
            with_masks=self.options.masks,
        )

    def _pixel_aspect(self, stored: tuple[int, int]) -> float:
        ratio = stored[1] / stored[0]
        return ratio / (self.options.aspect or ratio)

    def _template(self, stored: tuple[int, int], size: tuple[int, int]) -> Camera:
        """Of the small pictures, with the given field of view or a first guess, and no pose."""
        taken = (1000, round(1000 * (self.options.aspect or stored[1] / stored[0])))
        fovy_rad = FIRST_GUESS_FOVY_RAD if self.options.fovy_deg is None else float(np.deg2rad(self.options.fovy_deg))
        return Camera(size=size, intrinsics=pinhole_intrinsics(taken, fovy_rad=fovy_rad, stored=size))

    @property
    def has_starts(self) -> bool:
        """Whether any camera is given to start from."""
        return bool(self._given(list(self.by_name.values())))

    def _given(self, episodes: list[Episode]) -> list[Camera]:
        """The start of the options, else the different cameras that the set holds for these episodes."""
        if self.options.start is not None:
            return [self.options.start]
        if not self.options.stored_cameras:
            return []
        stored = (episode.view(self.view).camera for episode in episodes)
        return list(dict.fromkeys(camera for camera in stored if camera is not None and camera.pose is not None))

    def _starts_have_focal(self) -> bool:
        given = self._given(list(self.by_name.values()))
        return self.has_starts and all(camera.intrinsics is not None for camera in given)

    def _starts(self, episodes: list[Episode], size: tuple[int, int]) -> tuple[Camera, ...]:
        """For the small pictures; a given field of view replaces the focal lengths and leaves the centre."""
        template = self._template(episodes[0].view(self.view).frames.size, size)
        starts = []
        for camera in self._given(episodes):
            small = resize_camera(camera, Resize(height=size[0], width=size[1]))
            if small.intrinsics is None:
                small = replace(template, pose=camera.pose)
            elif self.options.fovy_deg is not None and template.intrinsics is not None:
                intrinsics = small.intrinsics.copy()
                intrinsics[:2, :2] = template.intrinsics[:2, :2]
                small = replace(small, intrinsics=intrinsics)
            starts.append(small)
        return tuple(starts)


def _fit(
    scene: _Scene, groups: list[list[Episode]], processes: int | None, report: Report
) -> list[tuple[Hypothesis, Refined] | None]:
    """The best camera of every group: from its own starts, then from where the other groups found theirs."""
    best: list[tuple[Hypothesis, Refined] | None] = [None] * len(groups)
    progress = throttled(report, "done", "searches")

    def run(jobs: Iterator["_FitJob"], numbers: list[int], done: int, total: int) -> None:
        with closing(in_order(jobs, _fit_group, num_processes=processes)) as results:
            for number, result in zip(numbers, results, strict=True):
                best[number] = max((fit for fit in (best[number], result) if fit), key=_score, default=None)
                done += 1
                progress(done, total)

    numbers = list(range(len(groups)))
    total = len(groups) * (2 if len(groups) > 1 else 1)
    run((_FitJob(scene.group(i, groups[i][:FIT_EPISODES]), scene.config) for i in numbers), numbers, 0, total)
    if len(groups) > 1:
        # Cameras of one laboratory stand in similar places: what one group found is a start for the others.
        found = [None if fit is None else fit[0].camera for fit in best]

        def others(number: int) -> tuple[Camera, ...]:
            size = working_size(groups[number][0].view(scene.view).frames.size)
            return tuple(c for i, c in enumerate(found) if i != number and c is not None and c.size == size)

        again = [i for i in numbers if others(i)]
        jobs = (_FitJob(scene.group(i, groups[i][:FIT_EPISODES], others(i)), scene.config) for i in again)
        run(jobs, again, len(groups), len(groups) + len(again))
    return best


def _sendable(robot: Robot) -> Robot:
    """The same robot, able to be sent to other processes: a function of a user's file that finds a model is not."""
    path = robot.model_path()
    return robot if path is None else replace(robot, model=partial(Path, str(path)))


def _polish(
    scene: _Scene, groups: list[list[Episode]], best: list[tuple[Hypothesis, Refined] | None], processes: int | None
) -> list[tuple[Hypothesis, Refined] | None]:
    """Every group's camera on more of its frames."""
    numbers = [number for number, found in enumerate(best) if found is not None]
    jobs = (
        _PolishJob(scene.group(i, groups[i][:FIT_EPISODES]), scene.config, found)
        for i in numbers
        if (found := best[i]) is not None
    )
    polished = list(best)
    with closing(in_order(jobs, _polish_group, num_processes=processes)) as results:
        for number, result in zip(numbers, results, strict=True):
            polished[number] = result
    return polished


def _judge(
    scene: _Scene, groups: list[list[Episode]], best: list[tuple[Hypothesis, Refined] | None], processes: int | None
) -> list[GroupFit]:
    """Verdicts of all episodes of every group, a few episodes a job."""
    pieces = [
        (number, group[i : i + FIT_EPISODES])
        for number, group in enumerate(groups)
        for i in range(0, len(group), FIT_EPISODES)
        if best[number] is not None
    ]
    jobs = (
        _JudgeJob(scene.group(n, episodes), scene.config, fit[0], episodes[0] is groups[n][0])
        for n, episodes in pieces
        if (fit := best[n])
    )
    verdicts: dict[int, tuple[EpisodeFit, ...]] = {}
    looks: dict[int, Appearance | None] = {}
    with closing(in_order(jobs, _judge_group, num_processes=processes)) as results:
        for (number, _), (fits, appearance) in zip(pieces, results, strict=True):
            verdicts[number] = verdicts.get(number, ()) + fits
            looks.setdefault(number, appearance)
    records = []
    for number, (group, fit) in enumerate(zip(groups, best, strict=True)):
        if fit is None:
            reason = "no camera was found: the robot is never seen to move as its states say"
            if scene.options.start is not None:
                reason += ", or the given start is far off: try without it"
            lost = tuple(EpisodeFit(name=episode.name, accepted=False, reason=reason) for episode in group)
            records.append(GroupFit(name=str(number), camera=None, lag=0, episodes=lost))
            continue
        height, width = group[0].view(scene.view).frames.size
        camera = resize_camera(fit[0].camera, Resize(height=height, width=width))
        record = group_fit(str(number), *fit, verdicts[number], camera)
        records.append(replace(record, appearance=looks[number]))
    return records


@dataclass(frozen=True)
class _FitJob:
    group: Group
    config: CalibrateConfig


@dataclass(frozen=True)
class _PolishJob:
    group: Group
    config: CalibrateConfig
    best: tuple[Hypothesis, Refined]


@dataclass(frozen=True)
class _JudgeJob:
    group: Group
    config: CalibrateConfig
    hypothesis: Hypothesis
    was_fitted: bool


def _fit_group(job: _FitJob) -> tuple[Hypothesis, Refined] | None:
    return fit_group(job.group, job.config)


def _polish_group(job: _PolishJob) -> tuple[Hypothesis, Refined]:
    return polish(job.group, job.config, job.best)


def _score(fit: tuple[Hypothesis, Refined]) -> float:
    return fit[1].score


def _judge_group(job: _JudgeJob) -> tuple[tuple[EpisodeFit, ...], Appearance | None]:
    appearance = appearance_of(job.group, job.config, job.hypothesis) if job.was_fitted else None
    return judge(job.group, job.config, job.hypothesis, was_fitted=job.was_fitted), appearance
