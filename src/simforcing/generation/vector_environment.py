"""Many closed loops at once: a Gymnasium vector environment that steps all clips in one batch of the network."""

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array
from jaxtyping import Bool, Float, UInt8

from simforcing.generation.environment import (
    EnvironmentConfig,
    Info,
    Observation,
    World,
    check_options,
    check_render_mode,
    stepped,
)
from simforcing.generation.session import Session
from simforcing.generation.start import Start
from simforcing.generation.state import still_row
from simforcing.generation.world_model import WorldModel


class WorldModelVectorEnv(VectorEnv[Observation, np.ndarray, np.ndarray]):
    """`gymnasium.make_vec("simforcing/WorldModel-v0", num_envs=n, model=..., starts=...)`.

    Each clip does what a single environment with its seed does, up to the rounding of a larger batch.

    Args:
        num_envs: clips.
        model, starts: see `World`.
        render_mode: "rgb_array": the last frame of each clip.
        autoreset_mode: how clips that have ended begin anew, Gymnasium's three modes.
        how: fields of EnvironmentConfig.
    """

    def __init__(
        self,
        num_envs: int,
        model: WorldModel | str | Path,
        starts: Sequence[Start] | str | Path | None = None,
        *,
        render_mode: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        **how: Any,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs is {num_envs}; expected at least 1")
        self.num_envs, self.world = num_envs, World(model, starts, EnvironmentConfig(**how))
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {**self.world.metadata(), "autoreset_mode": self.autoreset_mode}
        self.render_mode = check_render_mode(render_mode)
        self.single_action_space = self.world.action_space
        self.single_observation_space = self.world.observation_space
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._rngs: list[np.random.Generator] = []
        self._session: Session | None = None
        self._observations: list[Observation] = [{}] * num_envs
        self._infos: list[Info] = [{}] * num_envs
        self._has_ended = np.zeros(num_envs, bool)
        self._last = np.zeros((num_envs, self.world.spec.action.layout.dim), np.float32)  # each clip's last command

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Begin all episodes, or those of options["reset_mask"].

        Args:
            seed: s seeds the clips with s, s + 1, ...; or one for each clip.
            options: {"start": a number, or one for each clip; "reset_mask": which clips}.

        Raises:
            ValueError: an unknown option, or as many seeds, starts or flags as there are not clips.
        """
        count = self.num_envs
        seeds = (
            [int(seed) + i for i in range(count)] if isinstance(seed, int | np.integer) else self._each("seeds", seed)
        )
        chosen = check_options(options, ("start", "reset_mask"))
        mask = np.asarray(self._each("reset_mask", chosen.get("reset_mask", True)), bool)
        starts = self._each("starts", chosen.get("start"))
        super().reset(seed=next((s for s in seeds if s is not None), None))
        if not self._rngs:
            base = abs(self.np_random_seed or 0)
            self._rngs = [np.random.default_rng((base, i)) for i in range(count)]
        if self._session is None and not mask.all():
            raise ResetNeeded("the first reset must begin all clips; reset_mask leaves some out")
        begun = {}
        for i in np.flatnonzero(mask).tolist():
            if seeds[i] is not None:
                self._rngs[i] = np.random.default_rng(seeds[i])
            begun[i] = self.world.begin(self._rngs[i], seeds[i], starts[i])
        if self._session is None:
            self._session = self.world.session([begun[i] for i in range(count)])
        for i, episode in begun.items():
            self._session.restart(i, episode.start, episode.seed)
            self._observations[i], self._infos[i] = episode.observation, episode.info
            self._has_ended[i] = False
        return self._batch(), self._joined(mask)

    def step(self, actions: np.ndarray) -> tuple[Observation, np.ndarray, np.ndarray, np.ndarray, Info]:
        """Go on under m actions of each clip. ValueError for unusable actions, naming the clip."""
        if self._session is None:
            raise ResetNeeded("reset must be called before step")
        count, is_new = self.num_envs, self._has_ended.copy()
        if self.autoreset_mode is AutoresetMode.DISABLED and is_new.any():
            raise ResetNeeded(f"clips {np.flatnonzero(is_new).tolist()} have ended; reset them with reset_mask")
        values = self._read(actions, is_new)
        self._last = values[:, -1]
        rewards, terminated = np.zeros(count), np.zeros(count, bool)
        if not is_new.all():  # clips that begin anew are stepped along with the others, and not looked at
            chunks = self._session.step(values)
            for i in np.flatnonzero(~is_new).tolist():
                before, self._observations[i] = self._observations[i], self.world.observe(chunks[i])
                self._infos[i] = stepped(self._infos[i], chunks[i])
                outcome = self.world.judge(before, values[i], self._observations[i], self._infos[i])
                rewards[i], terminated[i] = outcome
        for i in np.flatnonzero(is_new).tolist():
            self._restart(i)
        truncated = np.array([self.world.is_truncated(info["num_steps"]) for info in self._infos])
        self._has_ended = terminated | truncated
        infos: Info = {}
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            for i in np.flatnonzero(self._has_ended).tolist():
                final = {"final_obs": self._observations[i], "final_info": self._infos[i]}
                infos = self._add_info(infos, final, i)
                self._restart(i)
            self._has_ended = np.zeros(count, bool)
        return self._batch(), rewards, terminated, truncated, self._joined(np.ones(count, bool), infos)

    def render(self) -> tuple[UInt8[np.ndarray, "h w 3"], ...] | None:
        """The last frame of each clip; None without a mode."""
        if self.render_mode is None:
            return None
        if self._session is None:
            raise ResetNeeded("reset must be called before render")
        return tuple(self.world.picture(start) for start in self._session.starts)

    def _restart(self, index: int) -> None:
        """A new random episode of one clip."""
        assert self._session is not None
        begun = self.world.begin(self._rngs[index], None)
        self._session.restart(index, begun.start, begun.seed)
        self._observations[index], self._infos[index] = begun.observation, begun.info

    def _read(self, actions: Any, is_new: Bool[np.ndarray, " n"]) -> Float[np.ndarray, "n m a"]:
        """The actions of each clip; one that has ended stays where its last command left it."""
        values, layout = np.asarray(actions), self.world.spec.action.layout
        if values.shape != self.action_space.shape:
            raise ValueError(
                f"actions of shape {list(values.shape)}; a step takes {list(self.action_space.shape or ())}"
            )
        read = []
        for i, action in enumerate(values):
            try:
                still = np.tile(still_row(layout, self._last[i]), (len(action), 1))
                read.append(still if is_new[i] else self.world.read(action))
            except ValueError as error:
                raise ValueError(f"clip {i}: {error}") from None
        return np.stack(read)

    def _each(self, what: str, given: Any) -> list[Any]:
        """One value for each clip. ValueError where there are more or fewer."""
        if given is None or isinstance(given, int | np.integer | bool):
            return [given] * self.num_envs
        if len(given) != self.num_envs:
            raise ValueError(f"{len(given)} {what} for {self.num_envs} clips; give one for each, or one for all")
        return list(given)

    def _batch(self) -> Observation:
        space = self.single_observation_space
        out = concatenate(space, self._observations, create_empty_array(space, self.num_envs))
        assert isinstance(out, dict)
        return deepcopy(out)

    def _joined(self, mask: Bool[np.ndarray, " n"], infos: Info | None = None) -> Info:
        joined = infos or {}
        for i in np.flatnonzero(mask).tolist():
            joined = self._add_info(joined, self._infos[i], i)
        return joined
