"""The world model as a Gymnasium environment: actions in, frames and the robot's state out (docs/environment.md)."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, UInt8

from simforcing.data.action_files import checked_table
from simforcing.generation.chunks import Chunk
from simforcing.generation.episode_starts import EpisodeStarts
from simforcing.generation.given import as_numbers, warn_of_guidance
from simforcing.generation.rollout import Predictor
from simforcing.generation.sampler import SamplerConfig
from simforcing.generation.session import Session, follows_given, frames_of, needs_sim
from simforcing.generation.start import Start
from simforcing.generation.state import rest_row
from simforcing.generation.world_model import WorldModel, ready_start
from simforcing.types import Layout, NetworkInput
from simforcing.types.config import check_choices

try:
    import gymnasium
    from gymnasium import spaces
except ModuleNotFoundError:
    raise ModuleNotFoundError("environments need gymnasium; pip install 'simforcing[sim]'") from None

Observation = dict[str, Any]
Info = dict[str, Any]
RewardFn = Callable[[Observation, Float[np.ndarray, "m a"], Observation, Info], float | tuple[float, bool]]
ANY = float(np.finfo(np.float32).max)  # a bound that nothing reaches; Gymnasium advises against infinity


@dataclass(frozen=True, kw_only=True)
class EnvironmentConfig:
    """How a world model is stepped.

    Args:
        num_actions: robot actions of a step. Four lead to one latent frame of a model whose control and video rates
            agree; where a step ends inside a latent frame its last command holds to the frame's end, and what comes
            after the step is dropped and predicted again by the next one: an approximation.
        window: in what a step is predicted, see `Session`: the whole window that the model was trained on, the last
            action held to its end, or the shortest one, which is faster and often worse (docs/environment.md).
        max_steps: steps until an episode is truncated; None: never.
        reward_fn: (observation, action, next observation, info) -> reward, or (reward, terminated); None: reward 0.
        render_sim: rendered pictures show the simulation beside the video, where the model makes one.
        sampler: fields of SamplerConfig that replace the stored ones, such as {"num_steps": 4}.
    """

    num_actions: int = 4
    window: Literal["short", "whole"] = "whole"
    max_steps: int | None = 50
    reward_fn: RewardFn | None = None
    render_sim: bool = False
    sampler: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choices(self)
        known = [part.name for part in fields(SamplerConfig)]
        for name in self.sampler:
            if name not in known:
                raise ValueError(f"sampler has no field {name!r}; choices: {', '.join(known)}")
        if self.max_steps is not None and self.max_steps < 1:
            raise ValueError(f"max_steps is {self.max_steps}; expected at least 1, or None")


@dataclass(frozen=True, kw_only=True)
class Begun:
    """An episode as it begins: where, with which noise, and what is seen of it."""

    start: Start
    seed: int
    observation: Observation
    info: Info


class World:
    """A model with its starts, spaces and rules: what one environment and a vector of them have in common.

    Args:
        model: a trained model, or what `WorldModel.from_pretrained` takes.
        starts: where episodes begin; a data set's path: the first frame of each of its episodes; None: the data set
            that the model was trained on.

    Raises:
        ValueError: starts, or a number of actions, that the model cannot use.
    """

    def __init__(
        self,
        model: WorldModel | str | Path,
        starts: Sequence[Start] | str | Path | None,
        config: EnvironmentConfig,
    ) -> None:
        world = model if isinstance(model, WorldModel) else WorldModel.from_pretrained(model)
        self.config, self.spec = config, world.spec
        self.predictor = world.predictor.using(**config.sampler) if config.sampler else world.predictor
        if not 1 <= config.num_actions <= self.spec.num_actions:
            raise ValueError(f"num_actions is {config.num_actions}; this model takes 1 to {self.spec.num_actions}")
        self.num_frames = frames_of(config.num_actions, self.spec)
        if follows_given(self.predictor):
            raise ValueError("sim_source is 'true', but an environment is given no rendered simulation; choices: self")
        warn_of_guidance(self.predictor.sampler.sim_guidance)
        self.starts = _starts(starts, self.predictor)
        first = self.starts[0]
        self.has_state = self.spec.state is not None and first.state is not None
        self._ready(first)
        if self.spec.state is not None and not self.has_state:
            warnings.warn(f"{first.name}: no state, which the model was trained with", stacklevel=3)
        self.action_space = _action_space(config.num_actions, self.spec.action)
        self.observation_space = self._observation_space()
        self._has_warned = False
        factor = self.predictor.bundle.autoencoder.temporal_factor
        if self.num_frames % factor:
            warnings.warn(
                f"a step of {config.num_actions} action(s) makes {self.num_frames} frame(s), and the model predicts"
                f" {factor} at a time: approximate, as the last action is held to their end",
                stacklevel=3,
            )

    def begin(self, rng: np.random.Generator, seed: int | None, index: Any = None) -> Begun:
        """An episode from start `index`, by default a random one; its noise is of `seed`, by default a random one.

        Raises:
            ValueError: no such start, or one that the model cannot use.
        """
        drawn = int(rng.integers(len(self.starts))), int(rng.integers(2**31))
        chosen = drawn[0] if index is None else index
        if not isinstance(chosen, int | np.integer) or not 0 <= chosen < len(self.starts):
            raise ValueError(
                f"start {chosen!r} does not exist; there are {len(self.starts)}: 0 .. {len(self.starts) - 1}"
            )
        start = self._ready(self.starts[int(chosen)])
        count = self.num_frames
        frames = np.repeat(np.stack(start.images)[:, None], count, axis=1)
        state = None if start.state is None else np.repeat(start.state[None], count, axis=0)
        noise_seed = drawn[1] if seed is None else seed
        return Begun(
            start=start,
            seed=noise_seed,
            observation=self._observation(frames, state, np.zeros(count)),
            info={"start": int(chosen), "name": start.name, "task": start.task, "seed": noise_seed, "num_steps": 0},
        )

    def session(self, episodes: Sequence[Begun]) -> Session:
        """Episodes as they begin, to be stepped together."""
        starts, seeds = [episode.start for episode in episodes], [episode.seed for episode in episodes]
        return Session(self.predictor, starts, seeds, window=self.config.window)

    def observe(self, chunk: Chunk) -> Observation:
        """What a step returns."""
        return self._observation(chunk.frames, chunk.state, chunk.time_s)

    def read(self, action: Any) -> Float[np.ndarray, "m a"]:
        """A step's actions; numbers outside the training's range are said once.

        Raises:
            ValueError: another shape, NaN, or numbers far outside of what the layout declares.
        """
        given = as_numbers(action, "action")
        layout, space = self.spec.action.layout, self.action_space
        if given.shape != space.shape:
            raise ValueError(
                f"action of shape {list(given.shape)}; a step takes {list(space.shape or ())}:"
                f" {self.config.num_actions} rows of layout {layout.name} ({', '.join(layout.slices)})"
            )
        values = checked_table(given, layout, "action")
        outside = np.argwhere((values < space.low) | (values > space.high)).tolist()
        if outside and not self._has_warned:
            self._has_warned = True
            at = tuple(outside[0])
            warnings.warn(
                f"action {at[0]}, number {at[1]} is {values[at]:g}, outside {space.low[at]:g} .. {space.high[at]:g}"
                f" of layout {layout.name}; said once",
                stacklevel=4,
            )
        return values

    def rest(self, state: Float[np.ndarray, " s"] | None = None) -> Float[np.ndarray, "m a"]:
        """A step's actions that ask the robot to stay. ValueError where they set what no state tells."""
        return np.tile(rest_row(state, self.spec), (self.config.num_actions, 1)).astype(np.float32)

    def judge(self, before: Observation, action: np.ndarray, after: Observation, info: Info) -> tuple[float, bool]:
        """(reward, whether the episode has come to its end)."""
        if self.config.reward_fn is None:
            return 0.0, False
        given = self.config.reward_fn(before, action, after, info)
        try:
            reward, terminated = given if isinstance(given, tuple) else (given, False)
            value = float(reward)
        except (TypeError, ValueError):
            value, terminated = np.nan, False
        if not np.isfinite(value):
            raise ValueError(
                f"reward_fn returned {given!r:.80}; expected a finite number, or (number, whether it ends)"
            )
        return value, bool(terminated)

    def is_truncated(self, num_steps: int) -> bool:
        """Whether an episode of so many steps is cut."""
        return self.config.max_steps is not None and num_steps >= self.config.max_steps

    def picture(self, start: Start) -> UInt8[np.ndarray, "h w 3"]:
        """The current pictures of all views in a row, each with its simulation where the model makes one."""
        shown = [*start.images]
        if self.config.render_sim and needs_sim(self.predictor) and start.sim:
            shown = [picture for pair in zip(start.images, start.sim, strict=True) for picture in pair]
        return np.concatenate(shown, axis=1)

    def metadata(self) -> dict[str, Any]:
        """Gymnasium's: one picture is rendered per step, so `render_fps` is the rate of steps."""
        fps = self.spec.fps
        return {"render_modes": ["rgb_array"], "render_fps": fps / self.num_frames, "fps": fps}

    def _ready(self, start: Start) -> Start:
        """A start as the model reads it, with a picture of the simulation where this sampler needs one."""
        ready = ready_start(start, self.predictor, "to WorldModel.start, which makes starts")
        if self.has_state and ready.state is None:
            raise ValueError(f"{start.name}: no state, which this environment's observations hold")
        return ready

    def _observation(
        self,
        frames: UInt8[np.ndarray, "v m h w 3"],
        state: Float[np.ndarray, "m s"] | None,
        time_s: Float[np.ndarray, " m"],
    ) -> Observation:
        views = dict(zip(self.spec.views, (np.array(view) for view in frames), strict=True))
        seen: Observation = {"frames": views if len(views) > 1 else views[self.spec.views[0]]}
        if self.has_state:
            assert state is not None
            seen["state"] = np.array(state, np.float32)
        return seen | {"time_s": np.array(time_s, np.float64)}

    def _observation_space(self) -> spaces.Space:
        count, size = self.num_frames, self.spec.resize
        video = {name: spaces.Box(0, 255, (count, size.height, size.width, 3), np.uint8) for name in self.spec.views}
        parts: dict[str, spaces.Space] = {
            "frames": spaces.Dict(dict(video)) if len(video) > 1 else video[self.spec.views[0]],
            "time_s": spaces.Box(0, ANY, (count,), np.float64),
        }
        if self.has_state:
            parts["state"] = spaces.Box(-ANY, ANY, (count, self.spec.stored_state_dim), np.float32)
        return spaces.Dict(parts)


class WorldModelEnv(gymnasium.Env[Observation, np.ndarray]):
    """Closed loop with a world model: `gymnasium.make("simforcing/WorldModel-v0", model=..., starts=...)`.

    Noise and the choice of starts come from a generator of their own, which `reset(seed=)` seeds; `np_random` is left
    to Gymnasium and wrappers.

    Args:
        model, starts: see `World`.
        render_mode: "rgb_array": the last frame.
        how: fields of EnvironmentConfig.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012 - Gymnasium's own; replaced per model

    def __init__(
        self,
        model: WorldModel | str | Path,
        starts: Sequence[Start] | str | Path | None = None,
        *,
        render_mode: str | None = None,
        **how: Any,
    ) -> None:
        self.world = World(model, starts, EnvironmentConfig(**how))
        self.metadata, self.render_mode = self.world.metadata(), check_render_mode(render_mode)
        self.action_space, self.observation_space = self.world.action_space, self.world.observation_space
        self._rng: np.random.Generator | None = None
        self._session: Session | None = None
        self._observation: Observation = {}
        self._info: Info = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, Info]:
        """Begin an episode; options: {"start": number of a start}, by default a random one.

        The observation holds the given picture as often as a step has frames. With a seed the noise is that of
        `Predictor.predict` with the same seed. ValueError for an unknown option or start.
        """
        super().reset(seed=seed)
        if seed is not None or self._rng is None:
            self._rng = np.random.default_rng(abs(self.np_random_seed))  # -1: np_random was set by hand
        chosen = check_options(options, ("start",)).get("start")
        begun = self.world.begin(self._rng, seed, chosen)
        self._session = self.world.session([begun])
        self._observation, self._info = begun.observation, begun.info
        return begun.observation, dict(begun.info)

    def step(self, action: np.ndarray) -> tuple[Observation, float, bool, bool, Info]:
        """Go on under m actions; observation, reward, terminated, truncated, info. ValueError for unusable actions."""
        if self._session is None:
            raise gymnasium.error.ResetNeeded("reset must be called before step")
        values = self.world.read(action)
        (chunk,) = self._session.step(values[None])
        before, self._observation = self._observation, self.world.observe(chunk)
        self._info = stepped(self._info, chunk)
        reward, terminated = self.world.judge(before, values, self._observation, self._info)
        truncated = self.world.is_truncated(self._info["num_steps"])
        return self._observation, reward, terminated, truncated, dict(self._info)

    def render(self) -> UInt8[np.ndarray, "h w 3"] | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The last frame of every view, with its simulation beside it where `render_sim`; None without a mode."""
        if self.render_mode is None:
            return None
        if self._session is None:
            raise gymnasium.error.ResetNeeded("reset must be called before render")
        return self.world.picture(self._session.starts[0])


def stepped(info: Info, chunk: Chunk) -> Info:
    """What is known after a step: which start and noise, steps so far, and the simulation's frames where there are."""
    sim = {} if chunk.sim_frames is None else {"sim_frames": np.array(chunk.sim_frames)}
    return {**info, "num_steps": info["num_steps"] + 1, **sim}


def check_options(options: dict[str, Any] | None, known: Sequence[str]) -> dict[str, Any]:
    """The options of a reset. ValueError names one that does not exist."""
    for name in options or {}:
        if name not in known:
            raise ValueError(f"reset has no option {name!r}; choices: {', '.join(known)}")
    return options or {}


def check_render_mode(mode: str | None) -> str | None:
    """ValueError for a mode that does not exist."""
    if mode not in (None, "rgb_array"):
        raise ValueError(f"render_mode {mode!r} does not exist; choices: rgb_array, or None")
    return mode


def _starts(given: Sequence[Start] | str | Path | None, predictor: Predictor) -> Sequence[Start]:
    """The starts, of which there is at least one."""
    if given is None:
        given = predictor.bundle.about.get("data")
        if not given:
            raise ValueError("this model does not say what data it was trained on; give starts")
    if isinstance(given, str | Path):
        spec = predictor.spec
        return EpisodeStarts.of(given, spec if needs_sim(predictor) else replace(spec, sim_views=()))
    if not given:
        raise ValueError("no starts; an environment needs at least one")
    return given


def _action_space(count: int, action: NetworkInput) -> spaces.Box:
    """Rows of stored commands, between the bounds that the layout declares, else those of training."""
    low, high = _bounds(action)
    return spaces.Box(np.tile(low, (count, 1)), np.tile(high, (count, 1)), dtype=np.float32)


def _bounds(action: NetworkInput) -> tuple[Float[np.ndarray, " a"], Float[np.ndarray, " a"]]:
    layout, normaliser = action.layout, action.normaliser
    low, high = np.full(layout.dim, -1.0), np.full(layout.dim, 1.0)  # unused numbers, and rotations' directions
    seen = np.array(normaliser.offset), np.array(normaliser.scale)
    for name, columns in layout.slices.items():
        part = layout.part(name)
        if part.low is not None and part.high is not None:
            low[columns], high[columns] = part.low, part.high
        elif _is_same(layout, normaliser.layout, name):
            there = normaliser.layout.slices[name]
            reach = seen[1][there] * (3 if normaliser.kind == "mean_std" else 1)
            low[columns], high[columns] = seen[0][there] - reach, seen[0][there] + reach
        elif part.rotation in ("euler_xyz", "axis_angle"):
            low[columns], high[columns] = -np.pi * abs(part.scale), np.pi * abs(part.scale)
    return low.astype(np.float32), high.astype(np.float32)


def _is_same(stored: Layout, read: Layout, name: str) -> bool:
    """Whether the network reads a part's numbers as they are stored."""
    return name in read.slices and read.part(name) == stored.part(name)
