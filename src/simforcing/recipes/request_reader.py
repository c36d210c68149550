"""A request's files as the pictures, state and commands that a model reads, or one line on why they are not."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from simforcing.data.action_files import checked_table, read_table, table_from_json
from simforcing.data.conditions import conditions_of
from simforcing.data.open import open_dataset
from simforcing.data.picture_files import read_picture, same_aspect
from simforcing.data.video import VideoFrames
from simforcing.data.windows import action_rows, state_at
from simforcing.generation.episode_starts import start_of
from simforcing.generation.familiarity import stored_familiarity, warn_of_unfamiliar
from simforcing.generation.given import fitted_camera, fitted_picture, stored_size, warn_of_range
from simforcing.generation.rollout import Predictor
from simforcing.generation.segment import Segmenter, segmenter_named
from simforcing.generation.session import follows_given, frames_of, needs_sim
from simforcing.generation.sim_start import WORDS, camera_in, with_simulation
from simforcing.generation.start import Start, read_start
from simforcing.recipes.requests import Request, RequestFields, name_of
from simforcing.types import DataSpec, Episode, EpisodeSet, Layout
from simforcing.types.episodes import ResizePolicy
from simforcing.types.spec import FPS_TOLERANCE

Picture = UInt8[np.ndarray, "_ _ 3"]  # several in one signature, of unlike sizes
WAYS = (
    "--sim-image; --segment to cut the robot out of the picture; --camera to render it; --sim-guidance 0 to do without"
)


class RequestReader:
    """Reads requests for one model under one sampler.

    Args:
        resize: for pictures of another aspect than the model's; None: they are refused.
        data: data set of episodes where a request names none; None: the one that the model was trained on.
        opened: that data set, where it is open already.
    """

    def __init__(
        self,
        predictor: Predictor,
        *,
        resize: ResizePolicy | None = None,
        data: str | None = None,
        opened: EpisodeSet | None = None,
    ) -> None:
        self.predictor, self.spec = predictor, predictor.spec
        self._resize: ResizePolicy | None = resize
        self._data = opened.root if opened is not None else data or predictor.bundle.about.get("data")
        self._sets: dict[str, EpisodeSet] = {} if opened is None else {opened.root: opened}
        self._segmenters: dict[str, Segmenter] = {}
        self._familiar = stored_familiarity(predictor.bundle.about, predictor.bundle.source)

    @property
    def roots(self) -> list[str]:
        """Of the data sets that requests were taken from."""
        return [data.root for data in self._sets.values()]

    def read(self, item: RequestFields) -> Request:
        """The request, checked as far as it can be without generating.

        It warns of pictures and commands unlike those of the training. ValueError in one line.
        """
        name = name_of(item)
        episode, data = self._episode(item)
        if not item.image and episode is None:
            raise ValueError("no picture; give an image, or an episode whose first frame is taken")
        if item.actions is None and episode is None:
            raise ValueError("no actions; give a file of them, or an episode whose actions are taken")
        action = self._action(item, episode)
        start, videos = self._start(item, episode, data)
        truth = episode if not item.image and item.actions is None else None
        origin = () if truth is None or data is None else (data.fingerprint, truth.name)
        request = Request(
            name=name,
            start=start,
            action=action,
            seed=item.seed,
            truth=truth,
            origin=origin,
            sim_video=videos,
        )
        self._check_sim(request)
        self._check_first_window(request)
        if truth is None:
            self._warn(request)
        return request

    def _episode(self, item: RequestFields) -> tuple[Episode | None, EpisodeSet | None]:
        """The episode that a request names, in a set whose numbers mean what the model's do."""
        if item.episode is None:
            return None, None
        source = item.data or self._data
        if source is None:
            raise ValueError(f"episode {item.episode!r} of which data set? give --data")
        if source not in self._sets:
            self._sets[source] = open_dataset(source)
        data = self._sets[source]
        found = [episode for episode in data.episodes if episode.name == item.episode]
        if not found:
            listed = ", ".join(episode.name for episode in data.episodes[:20])
            raise ValueError(f"{source}: no episode {item.episode!r}; episodes: {listed}")
        if not item.image:
            replace(self.spec, sim_views=()).check(replace(data, episodes=(found[0],)))
        elif data.action_layout != self.spec.action.layout or not _same_rate(found[0].fps, self.spec.fps):
            theirs = "an undeclared layout" if data.action_layout is None else f"layout {data.action_layout.name}"
            raise ValueError(
                f"{source}: actions are of {theirs} at {found[0].fps:g} frames/s; this model reads"
                f" {self.spec.action.layout.name} at {self.spec.fps:g}"
            )
        return found[0], data

    def _action(self, item: RequestFields, episode: Episode | None) -> Float[np.ndarray, "k a"]:
        spec, layout = self.spec, self.spec.action.layout
        rate = spec.num_actions / (spec.num_frames - 1) * spec.fps
        if item.actions is None:
            assert episode is not None
            action = episode_action(episode, spec)
        elif isinstance(item.actions, str):
            action = read_table(Path(item.actions), layout, "action", fps=rate)
        else:
            action = table_from_json(item.actions, layout, "action", fps=rate)
        frames_of(len(action), spec)
        return action

    def _start(
        self, item: RequestFields, episode: Episode | None, data: EpisodeSet | None
    ) -> tuple[Start, tuple[VideoFrames, ...]]:
        """Pictures, state and words, of the episode what is not given otherwise; and the renderings that are given."""
        spec = self.spec
        state = self._state(item.state)
        if not item.image:
            assert episode is not None
            start = start_of(episode, spec)
            start = start if state is None else replace(start, state=state, history=None)
        else:
            start = Start(images=self._pictures(item.image, "image", spec.views), state=state)
            same_state = data is not None and spec.state is not None and data.state_layout == spec.state.layout
            if state is None and episode is not None and same_state:
                values, known = state_at(episode, 0.0, spec.stored_state_dim)
                start = replace(start, state=values if known.all() else None)
        task = item.task if item.task is not None else "" if episode is None else episode.task
        start = self._filmed(replace(start, task=task, name=name_of(item)), item)
        require_used(item, has_sim=start.sim is not None, needs_sim=needs_sim(self.predictor), with_maps=spec.with_maps)
        videos = self._videos(item)
        if item.sim_image:
            given = self._pictures(item.sim_image, "sim image", spec.sim_views)
            sim = self._fitted(given, item.sim_image)
            start = replace(start, images=self._fitted(start.images, item.image), sim=sim)
        elif videos:
            sim = tuple(video.read(0, 1)[0] for video in videos)
            start = replace(start, images=self._fitted(start.images, item.image), sim=sim)
        else:
            start = self._simulated(start, item)
        return read_start(start, spec), videos

    def _filmed(self, start: Start, item: RequestFields) -> Start:
        """The start with the cameras that are given, as its pictures in the model's aspect have them."""
        if not item.camera:
            return start
        paths = self._of_views(item.camera, "camera", self.spec.views)
        fitted = self._fitted(start.images, item.image)
        cameras = [
            fitted_camera(camera_in(path), start.images[view], fitted[view], self._resize, f"{path}: the camera")
            for view, path in enumerate(paths)
        ]
        return replace(start, cameras=tuple(cameras))

    def _of_views(self, given: Sequence[str], what: str, views: Sequence[str]) -> list[str]:
        """A path for each view, in their order."""
        paths = dict(zip(views, given, strict=False))
        if any(item.partition("=")[0] in views for item in given if "=" in item):
            paths = dict(_of_view(item, what, views) for item in given)
        if len(given) != len(views) or set(paths) != set(views):
            raise ValueError(
                f"{len(given)} {what}s; this model reads one of each view: {', '.join(views) or 'none'}"
                f" (in this order, or as view=path)"
            )
        return [paths[view] for view in views]

    def _pictures(self, given: Sequence[str], what: str, views: Sequence[str]) -> tuple[Picture, ...]:
        """A picture of each view, as it is."""
        return tuple(read_picture(Path(path)) for path in self._of_views(given, what, views))

    def _videos(self, item: RequestFields) -> tuple[VideoFrames, ...]:
        """The rendering of each view of the simulation; empty where none is given."""
        if not item.sim_video:
            return ()
        paths = self._of_views(item.sim_video, "sim video", self.spec.sim_views)
        videos = tuple(VideoFrames(path) for path in paths)
        for video, view in zip(videos, self.spec.views, strict=True):
            rows, columns = stored_size(self.predictor.bundle, view)
            own = (self.spec.resize.height, self.spec.resize.width)
            if video.size != own and not same_aspect(video.size, (rows, columns)):
                raise ValueError(
                    f"{video.path}: a sim video of {video.size[0]}x{video.size[1]}; the model was trained on"
                    f" {rows}x{columns}: another aspect"
                )
        return videos

    def _fitted(self, pictures: Sequence[Picture], names: Sequence[str]) -> tuple[Picture, ...]:
        """Pictures of the model's views in the aspect that it was trained on, or in its own size already."""
        bundle, words = self.predictor.bundle, names or [""] * len(pictures)
        return tuple(
            fitted_picture(picture, bundle, view, self._resize, f"{word}: picture" if word else "picture")
            for picture, view, word in zip(pictures, self.spec.views, words, strict=True)
        )

    def _state(self, value: Any) -> Float[np.ndarray, " s"] | None:
        """A measured state from a file or as numbers."""
        if value is None:
            return None
        if self.spec.state is None:
            raise ValueError("a state is given; this model reads none")
        layout: Layout = self.spec.state.layout
        table = (
            read_table(Path(value), layout, "state")
            if isinstance(value, str)
            else table_from_json(value, layout, "state")
        )
        if len(table) != 1:
            raise ValueError(f"{len(table)} rows of state; expected the one that was measured at the picture")
        return table[0]

    def _simulated(self, start: Start, item: RequestFields) -> Start:
        """In the model's aspect, with the simulation's first pictures where they are needed: cut out, or rendered."""
        images = self._fitted(start.images, item.image)
        if start.sim is not None or not needs_sim(self.predictor):
            return replace(start, images=images)
        bundle, background = self.predictor.bundle, self._background(item.background)
        if item.segment is not None:  # masks and points are of the picture as it is
            if item.segment not in self._segmenters:
                self._segmenters[item.segment] = segmenter_named(item.segment).build()
            segmenter = self._segmenters[item.segment]
            cut = with_simulation(start, bundle, segmenter=segmenter, background=background)
            assert cut.sim is not None
            return replace(start, images=images, sim=self._fitted(cut.sim, item.image))
        if not isinstance(background, str | None):
            background = fitted_picture(
                background, bundle, self.spec.views[0], self._resize, f"{item.background}: picture"
            )
        try:
            return with_simulation(replace(start, images=images), bundle, background=background)
        except ValueError as error:
            raise ValueError(f"{error} ({WAYS})") from None

    @staticmethod
    def _background(word: str | None) -> Picture | str | None:
        """One of the words, or a picture."""
        return word if word is None or word in WORDS else read_picture(Path(word))

    def _check_sim(self, request: Request) -> None:
        """ValueError where the model's video is conditioned by a simulation that the request cannot begin or give."""
        if not needs_sim(self.predictor):
            return
        if request.start.sim is None:
            raise ValueError(f"no first picture of the simulation, which this model's video follows: {WAYS}")
        expected = 1 + frames_of(len(request.action), self.spec)
        for video in request.sim_video:
            if video.num_frames != expected:
                raise ValueError(
                    f"{video.path}: a sim video of {video.num_frames} frames; {len(request.action)} actions lead to"
                    f" {expected}, the first picture's among them"
                )
        given = bool(request.sim_video) or request.has_truth(self.spec.sim_views)
        if follows_given(self.predictor) and not given:
            raise ValueError(
                "--sim-source true needs the simulation of these very actions: --sim-video, or an episode of pairs"
                " under its own"
            )

    def _check_first_window(self, request: Request) -> None:
        """ValueError where the model cannot read the first window, as of a form that needs a state."""
        spec, autoencoder = self.spec, self.predictor.bundle.autoencoder
        conditions_of([request.first_window(spec)], spec, autoencoder.temporal_factor, autoencoder.spatial_factor)

    def _warn(self, request: Request) -> None:
        """Of what the model has not seen the like of."""
        warn_of_range(request.action, self.spec.action, f"{request.name}: action")
        warn_of_unfamiliar(request.start, self._familiar, self.predictor.bundle)


def episode_action(episode: Episode, spec: DataSpec) -> Float[np.ndarray, "k a"]:
    """Commands of a whole episode, as many as lead to whole frames. ValueError where some do not exist."""
    rows = action_rows(episode, 0, episode.num_frames)
    per_window, frames = spec.num_actions, spec.num_frames - 1
    whole = per_window // int(np.gcd(per_window, frames))
    rows = rows[: len(rows) // whole * whole]
    if not len(rows):
        raise ValueError(f"episode {episode.name}: no actions in its {episode.num_frames} frames")
    if episode.action_valid is not None and not episode.action_valid[rows].all():
        number = int(np.argmin(episode.action_valid[rows].all(axis=1)))
        raise ValueError(f"episode {episode.name}: action {number} does not hold all numbers; only windows can be read")
    return checked_table(episode.action[rows], spec.action.layout, f"episode {episode.name}: action")


def require_used(item: RequestFields, *, has_sim: bool, needs_sim: bool, with_maps: bool) -> None:
    """ValueError where something is given that would change nothing: a wish that is not granted must be said.

    Args:
        has_sim: the simulation's first pictures are known, of an episode of pairs.
        needs_sim: a simulation conditions the video.
        with_maps: the network reads the camera itself.
    """
    camera = () if with_maps else item.camera
    ways = {"segment": item.segment, "camera": camera, "background": item.background, "sim_video": item.sim_video}
    given = [name for name, value in ways.items() if value not in (None, ())]
    if given and not needs_sim:
        raise ValueError(f"--{_option(given[0])} makes a simulation, and none conditions this video; leave it out")
    first = "sim_image" if item.sim_image else "sim_video" if item.sim_video else "segment" if item.segment else None
    over = {"sim_image": given, "sim_video": given[:-1], "segment": ["camera"] if camera else [], None: []}[first]
    if over:
        raise ValueError(f"--{_option(over[0])} and --{_option(first or '')} exclude each other: give one of them")
    if has_sim and given and first != "sim_video":
        raise ValueError(f"--{_option(given[0])}: the episode has its own simulation; leave it out, or give --image")


def _option(field: str) -> str:
    return field.replace("_", "-")


def _of_view(item: str, what: str, views: Sequence[str]) -> tuple[str, str]:
    view, _, path = item.partition("=")
    if view not in views:
        raise ValueError(f"{what} {item!r}: no view {view!r}; views: {', '.join(views)}")
    return view, path


def _same_rate(one: float, other: float) -> bool:
    return abs(one - other) <= FPS_TOLERANCE * other
