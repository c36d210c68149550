"""A rollout under way: chunk after chunk, each from the last pictures of the one before, in memory that stays the same.

What is carried from chunk to chunk is the last frame of every view, the last frame of the model's own simulation, and
the state; they are encoded again, as a first picture is (method, sections 1 and 6).
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, SupportsIndex

import numpy as np
from jaxtyping import Float

from simforcing.data.action_files import checked_table
from simforcing.data.windows import TIME_SLACK
from simforcing.generation.chunks import Chunk, Rollout, Video
from simforcing.generation.rollout import Predictor
from simforcing.generation.start import Start, clip_from, read_start
from simforcing.generation.state import carry_state, still_row
from simforcing.types import Clip, DataSpec, Layout, check_seed


@dataclass(frozen=True, kw_only=True)
class _Live:
    """One clip of a session, now.

    Args:
        start: the current pictures, state, and states before it.
        past: states at the frames before, as far back as a history reaches or more, oldest first; None without a state.
        num_frames: generated so far.
    """

    start: Start
    seed: int
    past: Float[np.ndarray, "p s"] | None
    num_chunks: int = 0
    num_frames: int = 0


class Session:
    """One clip or several at once, each under its own commands, for as long as commands come.

    The noise of chunk i is drawn from (seed, i), so a clip's video depends on its own seed and not on the others.
    Chunk 0 is what `Predictor.predict` makes of the same start, commands and seed.

    Args:
        starts: of each clip.
        seeds: of each clip's noise.
        window: what predicts fewer commands than a window of the model: the "whole" window that it was trained on, the
            last command held to its end, or the "short"est window of whole latent frames that holds them, which is
            faster and worse (docs/generation.md).

    Raises:
        ValueError: a start that is not what the model reads, or without a first picture of the simulation where the
            model's own simulation conditions its video.
    """

    def __init__(
        self,
        predictor: Predictor,
        starts: Sequence[Start],
        seeds: Sequence[SupportsIndex],
        *,
        window: Literal["short", "whole"] = "whole",
    ) -> None:
        if not starts or len(starts) != len(seeds):
            raise ValueError(
                f"{len(starts)} starts and {len(seeds)} seeds; as many of both are needed, and at least one"
            )
        self.predictor, self.spec, self.window = predictor, predictor.spec, window
        self._live = [self._begin(start, seed) for start, seed in zip(starts, seeds, strict=True)]

    def restart(self, index: int, start: Start, seed: SupportsIndex) -> None:
        """Begin one of the clips anew, from another start; the others go on. ValueError as for a new session."""
        self._live[index] = self._begin(start, seed)

    @property
    def starts(self) -> tuple[Start, ...]:
        """Where each clip is now: its current pictures, in the model's size, and its state."""
        return tuple(live.start for live in self._live)

    @property
    def time_s(self) -> tuple[float, ...]:
        """How long each clip has run."""
        return tuple(live.num_frames / self.spec.fps for live in self._live)

    def step(self, actions: Float[np.ndarray, "b k a"], sim_video: Sequence[Video] | None = None) -> list[Chunk]:
        """Go on under the next k commands of each clip, at most a window of the model.

        Where fewer commands than a window do not fill the one that predicts them, the last command holds and the
        surplus frames are dropped.

        Args:
            actions: in the layout of `spec.action.layout`.
            sim_video: the simulation of the frames to come, rendered, which conditions them with `sim_source` "true".

        Raises:
            ValueError: commands that the model does not read, or a missing or superfluous simulation; the session
                stays as it was.
        """
        actions = self._read(actions)
        num_frames = frames_of(actions.shape[1], self.spec)
        window = shortest_window(self.predictor, num_frames) if self.window == "short" else self.predictor
        clips = [
            self._clip(live, action, window.spec, None if sim_video is None else sim_video[i])
            for i, (live, action) in enumerate(zip(self._live, actions, strict=True))
        ]
        seeds = [chunk_seed(live.seed, live.num_chunks) for live in self._live]
        made = window.generate(clips, seeds)
        frames = window.decode(made.latents)[:, :, 1 : 1 + num_frames]
        sims: Sequence[Video | None] = [None] * len(clips)
        if sim_video is not None:
            sims = list(sim_video)
        elif made.sim is not None:
            sims = list(window.decode(made.sim)[:, :, 1 : 1 + num_frames])
        states = [self._states(live.start, action) for live, action in zip(self._live, actions, strict=True)]
        first = [live.num_frames + 1 for live in self._live]
        chunks = [
            Chunk(frames=real, sim_frames=sim, state=state, time_s=np.arange(at, at + num_frames) / self.spec.fps)
            for real, sim, state, at in zip(frames, sims, states, first, strict=True)
        ]
        self._live = [self._after(live, chunk) for live, chunk in zip(self._live, chunks, strict=True)]
        return chunks

    def _begin(self, start: Start, seed: SupportsIndex) -> _Live:
        own_seed = read_seed(seed)
        ready = read_start(start, self.spec)
        if needs_sim(self.predictor) and ready.sim is None:
            raise ValueError(
                f"{start.name}: no first picture of the simulation, which conditions this model's video; give one"
                " (generation/sim_start.py makes it from the picture), or sim_guidance 0"
            )
        return _Live(start=ready, seed=own_seed, past=states_before(ready, self.spec))

    def _read(self, actions: Float[np.ndarray, "b k a"]) -> Float[np.ndarray, "b k a"]:
        """The commands of each clip in float32."""
        layout, num_actions = self.spec.action.layout, self.spec.num_actions
        if actions.ndim != 3 or len(actions) != len(self._live):
            raise ValueError(
                f"actions of shape {list(actions.shape)}; this session reads [{len(self._live)}, k, {layout.dim}]:"
                f" its clips, commands, and layout {layout.name} ({', '.join(layout.slices)})"
            )
        if not 1 <= actions.shape[1] <= num_actions:
            raise ValueError(f"{actions.shape[1]} actions; one step of this model takes 1 to {num_actions}")
        pairs = zip(self._live, actions, strict=True)
        return np.stack([checked_table(action, layout, f"{live.start.name}: action") for live, action in pairs])

    def _clip(self, live: _Live, action: np.ndarray, spec: DataSpec, sim_video: Video | None) -> Clip:
        """The window that begins now, the last command held to its end."""
        clip = clip_from(live.start, held(action, spec.num_actions, spec.action.layout), spec)
        wanted = follows_given(self.predictor)
        if wanted != (sim_video is not None):
            raise ValueError(
                f"{live.start.name}: sim_video is {'missing' if wanted else 'given'}; it is read with sim_source true"
                " and a sim_guidance other than 0, and only then"
            )
        if sim_video is not None:
            shape = (len(spec.sim_views), frames_of(len(action), spec), *clip.frames.shape[2:])
            if sim_video.shape != shape or sim_video.dtype != np.uint8:
                raise ValueError(
                    f"{live.start.name}: sim_video is {sim_video.dtype} {list(sim_video.shape)}; these commands need"
                    f" uint8 {list(shape)}: the frames after the first picture"
                )
            rows = np.minimum(np.arange(spec.num_frames - 1), len(sim_video[0]) - 1)
            clip.frames[len(spec.views) :, 1:] = sim_video[:, rows]
        return clip

    def _states(self, start: Start, action: np.ndarray) -> Float[np.ndarray, "f s"] | None:
        """The state at each frame that these commands lead to."""
        return carry_state(start.state, action, self.spec, 1 + frames_of(len(action), self.spec))

    def _after(self, live: _Live, chunk: Chunk) -> _Live:
        """The clip at the end of a chunk."""
        start, state, past = live.start, chunk.state, live.past
        if state is not None and past is not None and start.state is not None:
            past = np.concatenate([past, start.state[None], state[:-1]])[-frames_back(self.spec)[0] :]
        moved = replace(
            start,
            images=tuple(frame.copy() for frame in chunk.frames[:, -1]),
            sim=None if chunk.sim_frames is None else tuple(frame.copy() for frame in chunk.sim_frames[:, -1]),
            state=start.state if state is None else state[-1].copy(),  # the chunk is the caller's
            history=None if past is None else past[[-back for back in frames_back(self.spec)]],
        )
        num_frames = live.num_frames + chunk.frames.shape[1]
        return _Live(start=moved, seed=live.seed, past=past, num_chunks=live.num_chunks + 1, num_frames=num_frames)


def roll_out(
    predictor: Predictor,
    starts: Sequence[Start],
    actions: Float[np.ndarray, "b k a"],
    seeds: Sequence[int],
    sim_video: Sequence[Video] | None = None,
) -> list[Rollout]:
    """Videos as long as the commands, chunk after chunk.

    Args:
        sim_video: of each clip, a rendering of the whole simulation, the first picture too, for `sim_source` "true".

    Raises:
        ValueError: as a session does, or commands that end between two frames, before anything is generated.
    """
    spec, per_window = predictor.spec, predictor.spec.num_actions
    frames_of(actions.shape[1], spec)
    session = Session(predictor, starts, seeds)
    begun: tuple[Start, ...] = session.starts
    made: list[list[Chunk]] = [[] for _ in begun]
    for at in range(0, actions.shape[1], per_window):
        part = actions[:, at : at + per_window]
        frames = slice(1 + frames_of(at, spec), 1 + frames_of(at + part.shape[1], spec))
        chunks = session.step(part, None if sim_video is None else [video[:, frames] for video in sim_video])
        for mine, chunk in zip(made, chunks, strict=True):
            mine.append(chunk)
    return [
        Rollout.joined(start, mine, views=spec.views, seed=seed, sampler=predictor.sampler)
        for start, mine, seed in zip(begun, made, seeds, strict=True)
    ]


def needs_sim(predictor: Predictor) -> bool:
    """Whether the model's video is conditioned by a simulation under this sampler."""
    return predictor.bundle.model.config.sim_condition and predictor.sampler.sim_guidance != 0


def follows_given(predictor: Predictor) -> bool:
    """Whether that simulation must be given, a rendering of all frames, as this sampler does not make its own."""
    return needs_sim(predictor) and predictor.sampler.sim_source == "true"


def frames_back(spec: DataSpec) -> list[int]:
    """How many frames before a window each state of the history was measured, oldest first; one, if none is read."""
    times_s = spec.history_span_s * np.arange(spec.num_history, 0, -1) / max(spec.num_history, 1)
    return np.ceil(times_s * spec.fps - TIME_SLACK).astype(int).clip(1).tolist() or [1]


def states_before(start: Start, spec: DataSpec) -> Float[np.ndarray, "p s"] | None:
    """At the frames before a start: the states given, each until the next; without any the robot stood still."""
    back = frames_back(spec)
    if start.state is None:
        return None
    if start.history is None:
        return np.repeat(start.state[None], back[0], axis=0)
    return np.repeat(start.history, -np.diff([*back, 0]), axis=0)


def read_seed(seed: Any) -> int:
    """The seed as an integer of Python. ValueError where it is none, or none that a generator takes."""
    try:
        read = operator.index(seed)
    except TypeError:
        raise ValueError(f"seed is {seed!r}; expected an integer") from None
    check_seed(read)
    return read


def chunk_seed(seed: int, index: int) -> int:
    """Seed of the noise of chunk `index`; of the first one the seed itself."""
    return seed if index == 0 else int(np.random.SeedSequence((seed, index)).generate_state(1)[0])


def frames_of(num_actions: int, spec: DataSpec) -> int:
    """Frames that so many commands lead to. ValueError where that is no whole number."""
    frames, rest = divmod(num_actions * (spec.num_frames - 1), spec.num_actions)
    if rest:
        raise ValueError(
            f"{num_actions} actions end between two frames: this model's windows hold {spec.num_actions} actions in"
            f" {spec.num_frames - 1} frames"
        )
    return frames


def shortest_window(predictor: Predictor, num_frames: int) -> Predictor:
    """The predictor on the shortest window of whole latent frames that holds so many frames after the given one."""
    spec, factor = predictor.spec, predictor.bundle.autoencoder.temporal_factor
    frames = factor * -(-num_frames // factor)
    actions, rest = divmod(frames * spec.num_actions, spec.num_frames - 1)
    if rest or frames >= spec.num_frames - 1:
        return predictor
    return predictor.windows_of(1 + frames, actions)


def held(action: Float[np.ndarray, "k a"], count: int, layout: Layout) -> Float[np.ndarray, "k2 a"]:
    """The commands, then what keeps the robot where they leave it: last targets again, increments of nothing."""
    if len(action) == count:
        return action
    return np.concatenate([action, np.repeat(still_row(layout, action[-1])[None], count - len(action), axis=0)])
