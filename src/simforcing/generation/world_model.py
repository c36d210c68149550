"""The product in one class: a trained model that turns a first picture and commands into video (docs/generation.md)."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, SupportsIndex

import numpy as np
from jaxtyping import Float

from simforcing.data.resize import resize_frames
from simforcing.generation.chunks import Chunk, Rollout, Video
from simforcing.generation.familiarity import stored_familiarity, warn_of_unfamiliar
from simforcing.generation.given import (
    as_numbers,
    check_pictures,
    checked_actions,
    fitted_camera,
    fitted_picture,
    warn_of_guidance,
)
from simforcing.generation.rollout import Predictor
from simforcing.generation.sampler import SamplerConfig, stored_sampler
from simforcing.generation.segment import segmenter_named
from simforcing.generation.session import Session, follows_given, frames_of, needs_sim, read_seed, roll_out
from simforcing.generation.sim_start import with_simulation
from simforcing.generation.start import Picture, Start, read_start
from simforcing.models.bundle import Bundle, load_bundle
from simforcing.models.pretrained import model_folder
from simforcing.types import Camera, Layout
from simforcing.types.episodes import ResizePolicy


class WorldModel:
    """A trained model, ready to use.

    Raises:
        ValueError: a device that is not there.
    """

    def __init__(
        self,
        bundle: Bundle,
        sampler: SamplerConfig,
        *,
        device: str = "cpu",
        dtype: Literal["float32", "bfloat16"] = "float32",
        compile: bool = False,
    ) -> None:
        self.bundle, self.spec = bundle, bundle.spec
        self.predictor = Predictor(bundle, sampler, device=device, dtype=dtype, compile=compile)
        self._familiar = stored_familiarity(bundle.about, bundle.source)

    @classmethod
    def from_pretrained(cls, path: str | Path, **how: Any) -> "WorldModel":
        """A finished run's folder, a model that comes with the package by name, or a hub id (owner/name).

        Args:
            how: device, dtype, compile (`Predictor`).

        Raises:
            ValueError: nothing of that name (what there is is listed), a damaged model, or an unknown device.
        """
        bundle = load_bundle(model_folder(path))
        return cls(bundle, stored_sampler(bundle), **how)

    @property
    def views(self) -> tuple[str, ...]:
        """Cameras, in the order of the view axis."""
        return self.spec.views

    @property
    def action_layout(self) -> Layout:
        """What each number of a command means."""
        return self.spec.action.layout

    @property
    def state_layout(self) -> Layout | None:
        """What each number of a state means; None where the model reads none."""
        return None if self.spec.state is None else self.spec.state.layout

    @property
    def fps(self) -> float:
        """Frames per second."""
        return self.spec.fps

    @property
    def num_actions(self) -> int:
        """Commands of a window, the most that `predict` takes."""
        return self.spec.num_actions

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of frames in pixels."""
        return self.spec.resize.height, self.spec.resize.width

    def describe(self) -> str:
        """What the model reads and makes, in a few lines."""
        spec, sampler = self.spec, self.predictor.sampler
        lines = [
            f"{self.bundle.about.get('recipe', 'world model')}: {len(spec.views)} view(s) {', '.join(spec.views)} of"
            f" {self.size[0]}x{self.size[1]} px ({spec.resize.policy}) at {spec.fps:g} frames/s",
            f"window: {spec.num_frames} frames, the first given, {spec.num_actions} actions",
            f"actions: {_in_words(spec.action.layout)}",
            f"state: {'none' if self.state_layout is None else _in_words(self.state_layout)}",
            f"simulation: {', '.join(spec.sim_views) or 'none'}",
            f"robot: {spec.robot or 'not declared'}; task worded as {spec.wording}",
            f"sampler: {sampler.num_steps} steps, {sampler.solver}, sim_guidance {sampler.sim_guidance:g}",
        ]
        return "\n".join(lines)

    def start(
        self,
        images: np.ndarray | Sequence[np.ndarray],
        *,
        task: str = "",
        state: Float[np.ndarray, " s"] | Sequence[float] | None = None,
        sim: np.ndarray | Sequence[np.ndarray] | None = None,
        cameras: Sequence[Camera | None] = (),
        resize: ResizePolicy | None = None,
        **simulation: Any,
    ) -> Start:
        """A checked start of pictures, with a picture of the simulation where the model reads one.

        It warns of a picture unlike those of the training, and where no state is given to a model that reads one.

        Args:
            images: one, or one of each view, uint8 RGB of any size.
            sim: the simulation at that moment, likewise.
            cameras: of the images, one of each view, in the robot's base frame; for the simulation's picture, and for
                models that read maps.
            resize: how pictures of another aspect than the training's are brought to it; None: they are refused.
            simulation: how else the simulation's picture is made: see `generation.sim_start.with_simulation`. A
                `segmenter` may also be named, as on the command line; it and `background` see the images as they are.

        Raises:
            ValueError: pictures or a state that are not what the model reads, or no way to the simulation's picture.
        """
        raw = self._one_each(images, "image")
        pictures = self._fitted(raw, resize, "image")
        if len(cameras) not in (0, len(raw)):
            raise ValueError(f"{len(cameras)} cameras; give one of each view, or none: {', '.join(self.views)}")
        known = [
            None if camera is None else fitted_camera(camera, whole, fitted, resize, f"camera of view {view}")
            for view, camera, whole, fitted in zip(self.views, cameras, raw, pictures, strict=False)
        ]
        numbers = None if state is None else as_numbers(state, "state").copy()
        start = Start(images=pictures, task=task, state=numbers, cameras=tuple(known))
        if sim is not None:
            start = replace(start, sim=self._fitted(self._one_each(sim, "sim"), resize, "sim"))
        elif simulation.get("segmenter") is not None and needs_sim(self.predictor):
            start, simulation = self._cut_out(start, raw, resize, simulation), {}
        elif isinstance(simulation.get("background"), np.ndarray):
            behind = fitted_picture(simulation["background"], self.bundle, self.views[0], resize, "background")
            simulation = {**simulation, "background": behind}
        return self._ready(start, self.predictor, **simulation)

    def predict(
        self,
        start: Start | np.ndarray | Sequence[np.ndarray],
        actions: np.ndarray,
        *,
        seed: SupportsIndex = 0,
        sim_video: Any = None,
        **changes: Any,
    ) -> Rollout:
        """Video of one window at most.

        Args:
            start: from `start`, or pictures alone.
            actions: (k, a) in the layout `action_layout`, at most `num_actions`.
            sim_video: uint8 (views, 1 + frames, height, width, 3): a rendering of the whole simulation, the first
                picture too, which conditions the video in place of the model's own.
            changes: `task` and `state` for a start, and fields of SamplerConfig, such as num_steps or sim_guidance.

        Raises:
            ValueError: anything that the model does not read, in one line that names both sides.
        """
        given = as_numbers(actions, "action")
        if given.ndim and len(given) > self.num_actions:
            raise ValueError(f"{len(given)} actions; predict takes at most {self.num_actions}, rollout any number")
        return self.rollout(start, given, seed=seed, sim_video=sim_video, **changes)

    def rollout(
        self,
        start: Start | np.ndarray | Sequence[np.ndarray],
        actions: np.ndarray,
        *,
        seed: SupportsIndex = 0,
        sim_video: Any = None,
        **changes: Any,
    ) -> Rollout:
        """Video of any number of commands, chunk after chunk; arguments and errors as `predict`."""
        videos = None if sim_video is None else [sim_video]
        return self.rollouts([start], [actions], [seed], sim_video=videos, **changes)[0]

    def rollouts(
        self,
        starts: Sequence[Start | np.ndarray | Sequence[np.ndarray]],
        actions: np.ndarray | Sequence[np.ndarray],
        seeds: Sequence[SupportsIndex] | None = None,
        *,
        sim_video: Sequence[Any] | None = None,
        **changes: Any,
    ) -> list[Rollout]:
        """Many at once, each under its own commands (b, k, a); clip i has seed i where none are given.

        All is checked before anything is generated; `task` and `state` are those of every start.
        """
        commands = self._equally_many(actions, len(starts))
        num_frames = frames_of(commands.shape[1], self.spec)
        own_seeds = [read_seed(seed) for seed in (range(len(starts)) if seeds is None else seeds)]
        predictor = self._using(changes, with_video=sim_video is not None)
        begun = [self._as_start(start, changes) for start in starts]
        videos = None if sim_video is None else [self._rendering(video, 1 + num_frames) for video in sim_video]
        if videos is not None:
            if len(videos) != len(begun):
                raise ValueError(f"{len(videos)} sim_videos for {len(begun)} starts")
            begun = [replace(start, sim=tuple(video[:, 0])) for start, video in zip(begun, videos, strict=True)]
        return roll_out(predictor, [self._ready(start, predictor) for start in begun], commands, own_seeds, videos)

    def stream(
        self,
        start: Start | np.ndarray | Sequence[np.ndarray],
        actions: np.ndarray | Iterable[np.ndarray],
        *,
        seed: SupportsIndex = 0,
        **changes: Any,
    ) -> Iterator[Chunk]:
        """Chunks as they come, in memory that stays the same; arguments are checked at once.

        Args:
            actions: a table of commands, or anything that gives a few at a time, at most a window: it is asked for the
                next ones after a chunk was taken, so they may depend on it.
        """
        predictor = self._using(changes)
        if follows_given(predictor):
            raise ValueError("sim_source is 'true', but a stream is given no rendered simulation; choices: self")
        ready = self._ready(self._as_start(start, changes), predictor)
        session = Session(predictor, [ready], [seed])
        if isinstance(actions, np.ndarray):
            table, size = checked_actions(actions, self.spec), self.num_actions
            frames_of(len(table) % size, self.spec)
            actions = (table[at : at + size] for at in range(0, len(table), size))
        return (session.step(checked_actions(part, self.spec)[None])[0] for part in actions)

    def _using(self, changes: dict[str, Any], *, with_video: bool = False) -> Predictor:
        """The predictor with another sampler; words that are no field of it are refused."""
        known = [field.name for field in fields(SamplerConfig)]
        changed = {name: value for name, value in changes.items() if name not in ("task", "state")}
        if unknown := [name for name in changed if name not in known]:
            raise ValueError(f"unknown argument {unknown[0]!r}; choices: task, state, {', '.join(known)}")
        if with_video:
            changed["sim_source"] = "true"
        predictor = self.predictor.using(**changed) if changed else self.predictor
        w = predictor.sampler.sim_guidance
        warn_of_guidance(w)
        if "sim_guidance" in changed and w != 0 and not self.bundle.model.config.sim_condition:
            warnings.warn(f"sim_guidance is {w:g}, but this model has no simulation condition", stacklevel=4)
        return predictor

    def _as_start(self, start: Start | np.ndarray | Sequence[np.ndarray], changes: dict[str, Any]) -> Start:
        """Pictures as a start, and its task and state replaced where the call gives them."""
        if not isinstance(start, Start):
            start = Start(images=self._fitted(self._one_each(start, "image"), None, "image"))
        if "task" in changes:
            start = replace(start, task=changes["task"])
        if "state" in changes:  # states before another one say nothing
            state = None if changes["state"] is None else as_numbers(changes["state"], "state")
            start = replace(start, state=state, history=None)
        return start

    def _equally_many(self, actions: np.ndarray | Sequence[np.ndarray], num_starts: int) -> np.ndarray:
        """Commands of each start, in one array."""
        read = [checked_actions(rows, self.spec) for rows in actions]
        if not read or len(read) != num_starts:
            raise ValueError(f"{num_starts} starts and commands of {len(read)}; as many of both are needed")
        if len({len(rows) for rows in read}) > 1:
            raise ValueError(f"{[len(rows) for rows in read]} commands; rollouts of one call are equally long")
        return np.stack(read)

    def _one_each(self, images: np.ndarray | Sequence[np.ndarray], what: str) -> tuple[Any, ...]:
        """As many pictures as views."""
        given = [images] if isinstance(images, np.ndarray) and images.ndim == 3 else list(images)
        if len(given) != len(self.views):
            raise ValueError(f"{len(given)} {what}s; this model reads one of each view: {', '.join(self.views)}")
        return tuple(given)

    def _fitted(self, pictures: Sequence[Any], policy: ResizePolicy | None, what: str) -> tuple[Picture, ...]:
        """A picture of each view, in the aspect of the training's; copies, as cameras reuse their memory."""
        pairs = zip(self.views, pictures, strict=True)
        return tuple(fitted_picture(picture, self.bundle, view, policy, what).copy() for view, picture in pairs)

    def _cut_out(
        self, start: Start, raw: tuple[Picture, ...], policy: ResizePolicy | None, simulation: dict[str, Any]
    ) -> Start:
        """The start with the robot cut out of the pictures as they are, whose pixels masks and points are of."""
        given = simulation["segmenter"]
        segmenter = segmenter_named(given).build() if isinstance(given, str) else given
        cut = with_simulation(replace(start, images=raw), self.bundle, **{**simulation, "segmenter": segmenter})
        assert cut.sim is not None
        return replace(start, sim=self._fitted(cut.sim, policy, "sim"))

    def _ready(self, start: Start, predictor: Predictor, **simulation: Any) -> Start:
        """The start as the model reads it; it warns of what training has not seen the like of."""
        checked = ready_start(start, predictor, "arguments of WorldModel.start", **simulation)
        if self.spec.state is not None and start.state is None:
            warnings.warn(f"{start.name}: no state, which the model was trained with", stacklevel=4)
        warn_of_unfamiliar(checked, self._familiar, self.bundle)
        return checked

    def _rendering(self, video: Any, num_frames: int) -> Video:
        """A given simulation, of so many frames, in the model's size."""
        given, names = np.asarray(video), self.spec.sim_views
        if given.ndim != 5 or given.shape[:2] != (len(names), num_frames) or given.dtype != np.uint8:
            raise ValueError(
                f"sim_video is {given.dtype} {list(given.shape)}; this model reads uint8 [{len(names)}, {num_frames},"
                f" height, width, 3] beside these commands, the first picture too: {', '.join(names) or 'none'}"
            )
        for view, frames in zip(self.views, given, strict=True):
            fitted_picture(frames[0], self.bundle, view, None, "sim_video")
        return np.stack([resize_frames(view, self.spec.resize) for view in given])


def ready_start(start: Start, predictor: Predictor, hint: str, **simulation: Any) -> Start:
    """The start as a model reads it, with a picture of the simulation where this sampler needs one.

    Args:
        hint: where what is missing of a simulation can be given, for the message.
        simulation: how its picture is made, see `generation.sim_start.with_simulation`.

    Raises:
        ValueError: pictures or a state that are not what the model reads, no way to the simulation's picture, or one
            that is not needed.
    """
    bundle, spec = predictor.bundle, predictor.spec
    check_pictures(start, bundle)
    checked = read_start(start, spec)
    if needs_sim(predictor) and start.sim is None:
        try:
            return read_start(with_simulation(start, bundle, **simulation), spec)
        except ValueError as error:
            raise ValueError(f"{error} ({hint})") from None
    if simulation:
        raise ValueError(f"{', '.join(simulation)}: no picture of the simulation is made, as none is needed")
    return checked


def _in_words(layout: Layout) -> str:
    """A layout's parts with their sizes, modes and units."""
    parts = [f"{name} {part.size} ({part.mode}, {part.unit})" for name in layout.slices for part in [layout.part(name)]]
    return f"{layout.name}: {', '.join(parts)}"
