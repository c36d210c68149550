"""What one process does for one episode of a paired set: replay, render, encode, and leave a finished part.

A part is a folder with a video per stream, `tables.safetensors` and `outcome.json`; it gets its name when all of it is
there. Nothing here imports torch: processes start quickly. Sets are put together by `pairs`.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image
from safetensors.numpy import load_file, save_file

from simforcing.data.backgrounds import BackgroundKind, clean_plate, mean_image, plain, plate_rows
from simforcing.data.convert import rows_per_frame
from simforcing.data.depth_video import DepthWriter
from simforcing.data.lerobot_episode import EncodedVideo
from simforcing.data.lerobot_stats import ImageStats
from simforcing.data.pair_parts import OUTCOME_FILE, flush, seal
from simforcing.data.pair_streams import DEPTH, MASK, PICTURED, REAL, SIM
from simforcing.data.resize import resize_frames
from simforcing.data.validate import table_fault
from simforcing.data.variants import variant_tables
from simforcing.data.video import VideoFrames, VideoWriter
from simforcing.sim.perturb import NoVariantError, PerturbConfig, Perturber, Variant
from simforcing.sim.replay import Layouts, Replay, TrackingLimits, replay
from simforcing.sim.studio import Studio, seen_at, shown_rows, studio_of
from simforcing.types import Camera, Episode, FrameSource, Resize, from_json, to_json
from simforcing.types.files import read_json, whole_file, write_json

CHUNK = 32  # frames in memory at a time; even, as every second frame is a keyframe
BACKGROUND_FILE = "background.png"


@dataclass(frozen=True, kw_only=True)
class Rendering:
    """How every episode of a paired set is rendered.

    Args:
        robot, robot_path: name of the robot and where its model lies.
        view: the source's camera that is paired.
        size: (height, width) of all frames.
        layouts: what the source's numbers mean.
        num_variants: perturbed variants of each episode.
        perturb: their amplitudes.
        seed: of the variants.
        limits: beyond what a replay is refused.
    """

    robot: str
    robot_path: str | None
    view: str
    size: tuple[int, int]
    background: BackgroundKind
    with_depth: bool
    with_track: bool
    layouts: Layouts
    num_variants: int
    perturb: PerturbConfig
    seed: int
    limits: TrackingLimits = field(default_factory=TrackingLimits)


@dataclass(frozen=True, kw_only=True)
class PairJob:
    """One episode.

    Args:
        index: its place in the source: with the seed it decides the variants.
        camera: of the rendered frames, in the robot's base frame.
        lag: frame i shows the state of row i - lag.
        folder: where finished parts lie.
    """

    index: int
    episode: Episode
    camera: Camera
    lag: int
    rendering: Rendering
    folder: Path

    @property
    def part(self) -> Path:
        """Where this episode's part lies once it is finished."""
        return self.folder / f"{self.index:06d}"


@dataclass(frozen=True, kw_only=True)
class VariantOutcome:
    """One perturbed variant: how many proposals were rejected before it, by kind; why there is none, where so."""

    rejected: dict[str, int]
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of an episode.

    Args:
        reason: why it was left out, in one line; empty where it was not.
        source: what the motion was replayed from.
        position_error_m, rotation_error_rad: largest errors of the replay.
        files: size and hash of each other file of the part.
    """

    name: str
    num_frames: int = 0
    reason: str = ""
    source: str = ""
    position_error_m: float = 0.0
    rotation_error_rad: float = 0.0
    variants: tuple[VariantOutcome, ...] = ()
    files: dict[str, str] = field(default_factory=dict)


def render_pair(job: PairJob) -> Outcome:
    """Make the part of one episode, unless it is there. Raises RuntimeError without OpenGL, OSError on a full disk."""
    if job.part.is_dir():
        return read_outcome(job.part)
    partial = job.folder / f"{job.part.name}.{os.getpid()}.partial"
    _remake(partial)
    try:
        outcome = _PartWriter(job, partial).write()
        outcome = replace(outcome, files=seal(partial))
    except ValueError as error:
        _remake(partial)
        reason = " ".join(str(error).split()).removeprefix(f"episode {job.episode.name}: ")
        outcome = Outcome(name=job.episode.name, reason=reason)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        reason = error.strerror or " ".join(str(error).split())
        message = f"{job.folder}: episode {job.episode.name} cannot be written ({reason}); finished episodes are kept"
        raise OSError(error.errno or 0, message) from error
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    write_json(partial / OUTCOME_FILE, to_json(outcome))
    os.replace(partial, job.part)
    flush(job.folder)
    return outcome


def read_outcome(part: Path) -> Outcome:
    """What a finished part says. ValueError where it is damaged."""
    return from_json(Outcome, read_json(part / OUTCOME_FILE), str(part))


def read_tables(part: Path) -> dict[str, np.ndarray]:
    """The tables of a finished part by name: `action`, `state`, `joint`, `sim_joint_rad`, `0/action` and so on."""
    return load_file(part / "tables.safetensors")


def encoded(
    part: Path, name: str, tables: dict[str, np.ndarray], size: tuple[int, int], num_frames: int
) -> EncodedVideo:
    """One stream of a finished part."""
    if name.endswith(DEPTH):
        return EncodedVideo(path=part / f"{name}.mkv", num_frames=num_frames, size=size)
    prefix = f"stats/{name}/"
    stats = {key.removeprefix(prefix): value for key, value in tables.items() if key.startswith(prefix)}
    return EncodedVideo(path=part / f"{name}.mp4", num_frames=num_frames, size=size, stats=stats)


def unseen(covered: list[tuple[bool, bool]]) -> str | None:
    """Why such pictures are of no use, in words, given of each frame whether any and whether all of it is robot."""
    usual = "is the pose inverted (it is camera to base), in millimetres or with other axes than OpenCV's,"
    usual += " or the focal length not in pixels?"
    if not any(some for some, _ in covered):
        return f"the robot is in view in no frame; check the camera: {usual}"
    if all(full for _, full in covered):
        return f"the robot fills every frame; check the camera: {usual}"
    return None


def _remake(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


class _PartWriter:
    """One episode's work."""

    def __init__(self, job: PairJob, folder: Path) -> None:
        self.job, self.folder, self.rendering, self.episode = job, folder, job.rendering, job.episode
        self.frames = job.episode.view(job.rendering.view).frames
        path = job.rendering.robot_path
        self.studio: Studio = studio_of(job.rendering.robot, None if path is None else Path(path), job.rendering.size)
        self.perturber = Perturber(self.studio.robot, job.rendering.perturb) if job.rendering.num_variants else None
        self.rows = shown_rows(job.episode.num_frames, job.lag)
        self.tables: dict[str, np.ndarray] = {}
        self._open: list[_Stream | DepthWriter] = []

    def write(self) -> Outcome:
        """Everything but the outcome itself."""
        try:
            return self._write()
        except BaseException:
            for stream in self._open:
                stream.abort()
            raise

    def _write(self) -> Outcome:
        motion = replay(self.studio.robot, self.episode, self.rendering.layouts, self.rendering.limits)
        self._copy_tables()
        background = self._background(motion.qpos[self.rows])
        if self.rendering.background in PICTURED:
            Image.fromarray(background).save(self.folder / BACKGROUND_FILE)
        self._encode(REAL, self._real())
        self._render("", motion, background)
        drawn = self._variants(motion, background)
        with whole_file(self.folder / "tables.safetensors") as path:
            save_file({key: np.ascontiguousarray(value) for key, value in self.tables.items()}, path)
        return Outcome(
            name=self.episode.name,
            num_frames=self.episode.num_frames,
            source=motion.source,
            position_error_m=float(motion.position_error_m.max()),
            rotation_error_rad=float(motion.rotation_error_rad.max()),
            variants=drawn,
        )

    def _copy_tables(self) -> None:
        """The source's own numbers, one row per frame."""
        episode, layouts = self.episode, self.rendering.layouts
        assert layouts.action is not None
        self.tables["action"] = rows_per_frame(episode.action, episode.action_time_s, episode, layouts.action)
        measured = (("state", episode.state, layouts.state), ("joint", episode.joint, layouts.joint))
        for name, values, layout in measured:
            if values is not None and layout is not None and episode.state_time_s is not None:
                self.tables[name] = rows_per_frame(values, episode.state_time_s, episode, layout)

    def _real(self) -> Iterator[UInt8[np.ndarray, "h w 3"]]:
        """The real frames in the size of the set, one by one."""
        height, width = self.rendering.size
        for frame in _each(self.frames, self.episode.num_frames):
            if self.frames.size in ((height, width), (height + 1, width), (height, width + 1), (height + 1, width + 1)):
                yield frame[:height, :width]  # a last odd row or column is left out, as by convert
            else:
                yield resize_frames(frame[None], Resize(height=height, width=width))[0]

    def _background(self, qpos: Float[np.ndarray, "f q"]) -> UInt8[np.ndarray, "h w 3"]:
        kind = self.rendering.background
        if kind == "mean":
            return mean_image(self._real())
        if kind != "plate":
            return plain(kind, self.rendering.size)
        chosen = plate_rows(self.episode.num_frames)
        wanted = set(chosen)
        frames = np.stack([frame for i, frame in enumerate(self._real()) if i in wanted])
        covered = np.stack([picture.coverage > 0 for picture in self.studio.pictures(qpos[chosen], self.job.camera)])
        return clean_plate(frames, covered)

    def _variants(self, motion: Replay, background: UInt8[np.ndarray, "h w 3"]) -> tuple[VariantOutcome, ...]:
        """All variants; where none of one's proposals is possible no further one is tried."""
        drawn = []
        for draw in range(self.rendering.num_variants):
            drawn.append(self._draw(motion, draw, background))
            if drawn[-1].reason:
                break
        return tuple(drawn)

    def _draw(self, motion: Replay, draw: int, background: UInt8[np.ndarray, "h w 3"]) -> VariantOutcome:
        """One variant's streams and tables; why there is none where none is possible."""
        assert self.perturber is not None
        try:
            variant = self.perturber.variant(
                motion, seed=self.rendering.seed, episode=self.job.index, draw=draw, fault=partial(self._fault, motion)
            )
        except NoVariantError as error:
            return VariantOutcome(rejected=error.rejected, reason=f"{error}; no further one is tried")
        self.tables |= {f"{draw}/{key}": value for key, value in self._variant_tables(motion, variant).items()}
        self._render(f"{draw}_", variant, background)
        return VariantOutcome(rejected=variant.rejected)

    def _variant_tables(self, motion: Replay, variant: Variant) -> dict[str, np.ndarray]:
        poses = (self.studio.tool_poses(motion.qpos), self.studio.tool_poses(variant.qpos))
        return variant_tables(self.studio.robot.robot, self.rendering.layouts, self.tables, (motion, variant), poses)

    def _fault(self, motion: Replay, variant: Variant) -> str | None:
        """Whether a table of a variant leaves the range of its layout, in which its parent's is."""
        layouts = self.rendering.layouts
        for name, values in self._variant_tables(motion, variant).items():
            layout = getattr(layouts, name)
            if table_fault(values, layout, name) is not None and table_fault(self.tables[name], layout, name) is None:
                return f"{name} layout"
        return None

    def _render(self, prefix: str, motion: Replay | Variant, background: UInt8[np.ndarray, "h w 3"]) -> None:
        """The sim streams of one motion, and what belongs to them in tables."""
        key = prefix.replace("_", "/")
        self.tables[f"{key}sim_joint_rad"] = motion.joint_rad.astype(np.float32)
        self.tables[f"{key}sim_openness"] = motion.openness.astype(np.float32)
        qpos = motion.qpos[self.rows]
        if self.rendering.with_track:
            pixels, valid = seen_at(self.studio.tool_poses(qpos), self.job.camera)
            self.tables[f"{key}sim_track"] = pixels.reshape(len(qpos), -1).astype(np.float32)
            self.tables[f"{key}sim_track_valid"] = valid
        num_frames, size = len(qpos), self.rendering.size
        streams = [
            _Stream(self.folder / f"{prefix}{name}.mp4", self.episode.fps, size, num_frames) for name in (SIM, MASK)
        ]
        depth = None
        if self.rendering.with_depth:
            depth = DepthWriter(self.folder / f"{prefix}{DEPTH}.mkv", self.episode.fps, size)
        self._open = [*streams, *([] if depth is None else [depth])]
        covered = []  # per frame: none, some or all of it
        for picture in self.studio.pictures(qpos, self.job.camera):
            covered.append((bool(picture.mask.any()), bool(picture.mask.all())))
            streams[0].write(picture.over(background))
            streams[1].write(np.repeat(picture.mask[..., None], 3, axis=2) * np.uint8(255))
            if depth is not None:
                depth.write(picture.depth_m[None])
        if not prefix and (reason := unseen(covered)) is not None:  # a variant may leave the view
            raise ValueError(reason)
        for stream, name in zip(streams, (SIM, MASK), strict=True):
            self._keep_stats(f"{prefix}{name}", stream)
        if depth is not None:
            depth.close()

    def _encode(self, name: str, frames: Iterator[UInt8[np.ndarray, "h w 3"]]) -> None:
        path = self.folder / f"{name}.mp4"
        stream = _Stream(path, self.episode.fps, self.rendering.size, self.episode.num_frames)
        self._open = [stream]
        for frame in frames:
            stream.write(frame)
        self._keep_stats(name, stream)

    def _keep_stats(self, name: str, stream: "_Stream") -> None:
        self.tables |= {f"stats/{name}/{key}": value for key, value in stream.close().items()}


class _Stream:
    """Frames to one video, a chunk at a time, and their statistics."""

    def __init__(self, path: Path, fps: float, size: tuple[int, int], num_frames: int) -> None:
        self._writer, self._stats = VideoWriter(path, fps, size), ImageStats(num_frames)
        self._waiting: list[np.ndarray] = []

    def write(self, frame: UInt8[np.ndarray, "h w 3"]) -> None:
        self._waiting.append(frame)
        if len(self._waiting) == CHUNK:
            self._flush()

    def close(self) -> dict[str, np.ndarray]:
        """Finish the file; returns the statistics."""
        self._flush()
        self._writer.close()
        return self._stats.result()

    def abort(self) -> None:
        """Give the file up."""
        self._writer.abort()

    def _flush(self) -> None:
        if self._waiting:
            frames = np.stack(self._waiting)
            self._waiting = []
            self._stats.add(frames)
            self._writer.write(frames)


def _each(frames: FrameSource, num_frames: int) -> Iterator[UInt8[np.ndarray, "h w 3"]]:
    """Frames of any source one by one, of a video without decoding any of them twice."""
    if isinstance(frames, VideoFrames):
        yield from frames.each(num_frames)
        return
    for start in range(0, num_frames, CHUNK):
        yield from frames.read(start, min(start + CHUNK, num_frames))
