"""What videos are asked for: pictures and commands as files, episodes or JSON, all checked before the first is made."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from simforcing.data.resize import resize_frames
from simforcing.data.video import VideoFrames
from simforcing.generation.session import frames_of, held
from simforcing.generation.start import Start, clip_from
from simforcing.types import Clip, DataSpec, Episode, check_seed
from simforcing.types.cameras import camera_to_json
from simforcing.types.episodes import ResizePolicy
from simforcing.types.files import read_json
from simforcing.types.progress import Report

NAME = re.compile(r"[A-Za-z0-9_-]+")
MAX_NAME = 120  # letters: file systems end at 255, with endings and folders of data sets
MOST_NAMED = 20
PATHS = ("image", "sim_image", "sim_video", "camera")  # fields of a file for each view
TO_SIMULATION = ("sim_image", "segment", "camera", "sim_video")  # ways of which a request takes one
FILES = ("mask", "appearance")  # segmenters that are named by a file


@dataclass(frozen=True, kw_only=True)
class RequestFields:
    """One video as somebody asks for it; every field may stand in a requests file.

    Args:
        image: picture of each view, in the model's order or as view=path; none: the first frame of `episode`.
        actions: file of commands, or the rows themselves; none: those of `episode`.
        data, episode: an episode whose commands, words, state and pictures are taken where nothing else is given.
        task: what the robot is told to do.
        state: file of the measured state at the picture, or its numbers.
        sim_image: first picture of the simulation of each view.
        segment: how the robot is found in the picture, to make that simulation.
        camera: file of each view's camera, to render that simulation instead.
        sim_video: video of the whole simulation of each view, which is followed in place of the model's own.
        background: what the simulated robot stands on: a word, or a picture of the scene without the robot.
        name: of the videos; letters, digits, _ and -.
        seed: of the noise; none: the command's plus the request's number.
    """

    image: tuple[str, ...] = ()
    actions: Any = None
    data: str | None = None
    episode: str | None = None
    task: str | None = None
    state: Any = None
    sim_image: tuple[str, ...] = ()
    segment: str | None = None
    camera: tuple[str, ...] = ()
    sim_video: tuple[str, ...] = ()
    background: str | None = None
    name: str | None = None
    seed: int | None = None


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What one call asks for: episodes of a data set, or pictures and commands.

    Args:
        one: a single request, or what requests of a file leave open.
        requests: file of many (.json: a list of objects, or .jsonl), with the fields of a request; paths in it are
            relative to it.
        resize: what happens to pictures of another aspect than the model's; None: they are refused.
        episodes: by name; beside a picture, the one whose commands are taken.
        max_clips: at most so many clips of episodes.
        rollout: whole episodes, not their windows.
    """

    one: RequestFields = RequestFields()
    requests: Path | None = None
    resize: ResizePolicy | None = None
    episodes: tuple[str, ...] = ()
    max_clips: int | None = None
    rollout: bool = False

    def __post_init__(self) -> None:
        one = self.one
        if self.max_clips is not None and self.max_clips < 1:
            raise ValueError(f"max_clips is {self.max_clips}; it must be at least 1")
        if self.requests is not None:
            for name, value in (("image", one.image), ("actions", one.actions), ("episode", self.episodes)):
                if value not in (None, ()):
                    raise ValueError(f"--requests and --{name} exclude each other: the file says it of each request")
        if not self.is_own:
            return
        if len(self.episodes) > 1:
            raise ValueError(f"{len(self.episodes)} episodes beside a picture or actions; give one, or --requests")
        if self.rollout or self.max_clips is not None:
            raise ValueError(
                "--rollout and --max-clips are for episodes alone; brought actions are followed to their end"
            )

    @property
    def is_own(self) -> bool:
        """Whether anything is brought that a data set's own clips do without."""
        one = self.one
        left = ("data", "episode", "name", "seed")
        brought = [getattr(one, field.name) for field in fields(one) if field.name not in left]
        return self.requests is not None or any(value not in (None, ()) for value in brought)


@dataclass(frozen=True, kw_only=True)
class Request:
    """One video to make, checked.

    Args:
        start: in the model's size.
        action: any number of commands.
        seed: None: by the request's number.
        truth: the episode whose start and commands these are.
        origin: of that episode: its name, and the fingerprint of its data set.
        sim_video: of each view of the simulation, as long as the video; empty: none is given.
    """

    name: str
    start: Start
    action: Float[np.ndarray, "k a"]
    seed: int | None = None
    truth: Episode | None = None
    origin: tuple[str, ...] = ()
    sim_video: tuple[VideoFrames, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 of all that the model reads."""
        start, found = self.start, hashlib.sha256()
        parts = [*start.images, *(start.sim or ()), start.state, start.history, self.action]
        for part in parts:
            found.update(b"none" if part is None else np.ascontiguousarray(part).tobytes())
        for video in self.sim_video:
            found.update(Path(video.path).read_bytes())
        cameras = [None if camera is None else camera_to_json(camera) for camera in start.cameras]
        found.update(json.dumps([start.task, start.sim is None, cameras, self.origin]).encode())
        return found.hexdigest()

    def first_window(self, spec: DataSpec) -> Clip:
        """The window that its video begins with, the last command held where there are fewer than it takes."""
        action = held(self.action[: spec.num_actions], spec.num_actions, spec.action.layout)
        return clip_from(self.start, action, spec)

    def has_truth(self, views: Sequence[str]) -> bool:
        """Whether the true frames of these views are known."""
        return self.truth is not None and set(views) <= {view.name for view in self.truth.views}

    def frames(self, spec: DataSpec, views: Sequence[str]) -> UInt8[np.ndarray, "v f h w 3"] | None:
        """The true frames of these views, as far as the commands reach; None where they are not known."""
        if self.truth is None or not self.has_truth(views):
            return None
        stop = 1 + frames_of(len(self.action), spec)
        read = [self.truth.view(name).frames.read(0, stop) for name in views]
        return np.stack([resize_frames(frames, spec.resize) for frames in read])

    def simulation(self, spec: DataSpec) -> UInt8[np.ndarray, "v f h w 3"]:
        """The rendering that is given, or the episode's own, which a reader of requests saw to."""
        if self.sim_video:
            read = [video.read(0, video.num_frames) for video in self.sim_video]
            return np.stack([resize_frames(frames, spec.resize) for frames in read])
        own = self.frames(spec, spec.sim_views)
        assert own is not None, "sim_source true, and no simulation"
        return own


def stored_requests(asked: Asked) -> list[tuple[str, RequestFields | ValueError]]:
    """(place, fields) of every request, paths made relative to the working folder; what cannot be read is its error.

    Raises:
        ValueError: no file, or no list of requests in it.
    """
    path = asked.requests
    if path is None:
        episode = asked.episodes[0] if asked.episodes else asked.one.episode
        return [("the request", replace(asked.one, episode=episode))]
    values = _json_lines(path) if path.suffix == ".jsonl" else read_json(path)
    if not isinstance(values, list) or not values:
        raise ValueError(
            f"{path}: expected a list of requests, found {'none' if values == [] else type(values).__name__}"
        )
    found = []
    for number, value in enumerate(values):
        try:
            item = _of_json(value, path.parent, asked.one)
            found.append((f"request {number}" + (f" ({item.name})" if item.name else ""), item))
        except ValueError as error:
            found.append((f"request {number}", error))
    return found


def require_all(path: Path | None, errors: Sequence[tuple[str, ValueError]], count: int, report: Report) -> None:
    """ValueError where a request cannot be used; of several, every one gets its line first."""
    if not errors:
        return
    place, error = errors[0]
    if path is None:
        raise ValueError(str(error))
    for where, reason in errors:
        report(f"{path}: {where}: {' '.join(str(reason).split())}")
    raise ValueError(
        f"{path}: {len(errors)} of {count} requests cannot be used, nothing was generated; first, {place}: {error}"
    )


def named(requests: Sequence[Request]) -> dict[str, int]:
    """Name -> number. ValueError where two share one."""
    numbers: dict[str, int] = {}
    for number, request in enumerate(requests):
        if request.name in numbers:
            raise ValueError(
                f"requests {numbers[request.name]} and {number} are both called {request.name!r}; give each a name"
            )
        numbers[request.name] = number
    return numbers


def name_of(item: RequestFields) -> str:
    """The request's own name, or one of its files' and episode's. ValueError for one that is no file name."""
    if item.name is not None:
        if not NAME.fullmatch(item.name) or len(item.name) > MAX_NAME:
            raise ValueError(
                f"name {item.name[:MAX_NAME]!r}: expected letters, digits, _ and - only, at most {MAX_NAME}"
            )
        return item.name
    first = item.image[0] if item.image else None
    words = [item.episode if first is None else Path(first.rpartition("=")[2]).stem]
    words.append(Path(item.actions).stem if isinstance(item.actions, str) else item.episode if first else None)
    return "-".join(re.sub(r"[^A-Za-z0-9_-]", "_", word) for word in words if word)[:MAX_NAME] or "request"


def _json_lines(path: Path) -> list[Any]:
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: no requests can be read ({getattr(error, 'strerror', None) or error})") from None
    values = []
    for number, line in enumerate(lines, 1):
        try:
            values += [json.loads(line)] if line.strip() else []
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: line {number} is no JSON ({error})") from None
    return values


def _of_json(value: Any, folder: Path, common: RequestFields) -> RequestFields:
    """A request of a file; what it leaves open is as the command says."""
    names = [field.name for field in fields(RequestFields)]
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, found {type(value).__name__}")
    if unknown := [name for name in value if name not in names]:
        raise ValueError(f"no field {unknown[0]!r}; fields: {', '.join(names)}")
    _check_types(value)
    own = dict(value)
    for name in PATHS:
        own[name] = _placed_pictures(value.get(name) or (), folder, name)
    for name in ("actions", "state"):
        own[name] = str(folder / value[name]) if isinstance(value.get(name), str) else value.get(name)
    if own.get("data") and (folder / own["data"]).exists():
        own["data"] = str(folder / own["data"])
    if own.get("background") and (folder / own["background"]).is_file():
        own["background"] = str(folder / own["background"])
    kind, _, path = (own.get("segment") or "").partition(":")
    if kind in FILES:
        own["segment"] = f"{kind}:{folder / path}"
    replaced: tuple[str, ...] = ()
    if any(own.get(name) for name in TO_SIMULATION):  # its own way replaces the command's
        replaced = (*TO_SIMULATION, "background") if own["sim_image"] or own["sim_video"] else TO_SIMULATION
    left_open = [name for name in names if own.get(name) in (None, ()) and name not in replaced]
    inherited = {name: getattr(common, name) for name in left_open}
    return RequestFields(**(own | inherited))


def _check_types(value: dict[str, Any]) -> None:
    """ValueError where a field of a request is of another type than it must."""
    for name in ("data", "episode", "task", "segment", "background", "name"):
        if not isinstance(value.get(name), str | None):
            raise ValueError(f"{name} is {value[name]!r}; expected text")
    seed = value.get("seed")
    if isinstance(seed, bool) or not isinstance(seed, int | None):
        raise ValueError(f"seed is {seed!r}; expected a whole number")
    if seed is not None:
        check_seed(seed)


def _placed_pictures(value: Any, folder: Path, name: str) -> tuple[str, ...]:
    if isinstance(value, dict):
        value = [f"{view}={path}" for view, path in value.items()]
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list | tuple) or not all(isinstance(item, str) for item in listed):
        raise ValueError(f"{name} is {value!r}; expected a path, a list of them, or an object of paths by view")
    placed = []
    for item in listed:
        view, separator, path = item.rpartition("=")
        placed.append(f"{view}{separator}{folder / path}")
    return tuple(placed)


def swapped(requests: Sequence[Request]) -> list[Request]:
    """Each request's picture under the next one's commands, as many as both have.

    Raises:
        ValueError: a single request, or two that agree in their commands throughout.
    """
    if len(requests) < 2:
        raise ValueError("swapped actions need at least two requests: each takes the commands of the next one")
    out = []
    for number, request in enumerate(requests):
        other = requests[(number + 1) % len(requests)]
        count = min(len(request.action), len(other.action))
        if np.array_equal(request.action[:count], other.action[:count]):
            raise ValueError(f"{request.name} and {other.name} have the same actions; nothing to swap")
        out.append(replace(request, name=f"{request.name}.swapped", action=other.action[:count], truth=None, origin=()))
    return out
