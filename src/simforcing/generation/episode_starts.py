"""The first moments of a data set's episodes as starts, each decoded when it is asked for."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import overload

import numpy as np

from simforcing.data.open import open_dataset
from simforcing.data.spec import window_of
from simforcing.data.windows import read_clip
from simforcing.generation.start import Start
from simforcing.types import DataSpec, Episode


def start_of(episode: Episode, spec: DataSpec, frame: int = 0) -> Start:
    """An episode at one of its frames: pictures, words, state with those before it, cameras, and simulation if it has.

    Raises:
        ValueError: a view of the model that the episode lacks, or a frame that cannot be decoded.
    """
    clip = read_clip(
        episode, frame, replace(window_of(spec), num_frames=2), spec.action.layout.dim, spec.stored_state_dim
    )
    num_views = len(spec.views)
    if not clip.view_present[:num_views].all():
        missing = spec.views[int(np.argmin(clip.view_present[:num_views]))]
        raise ValueError(f"episode {episode.name}: no view {missing}, which the model reads")
    has_sim = bool(spec.sim_views) and bool(clip.view_present[num_views:].all())
    has_state = bool(spec.stored_state_dim) and bool(clip.state_valid.all())
    has_history = has_state and clip.history_valid is not None and bool(clip.history_valid.all())
    return Start(
        images=tuple(clip.frames[:num_views, 0]),
        task=episode.task,
        state=clip.state if has_state else None,
        sim=tuple(clip.frames[num_views:, 0]) if has_sim else None,
        history=clip.history if has_history else None,
        cameras=clip.cameras,
        name=f"{episode.name}, frame {frame}" if frame else episode.name,
    )


class EpisodeStarts(Sequence[Start]):
    """Starts of a data set's episodes, at their first frames."""

    def __init__(self, episodes: Sequence[Episode], spec: DataSpec) -> None:
        self.episodes, self.spec = list(episodes), spec

    @classmethod
    def of(cls, path: str | Path, spec: DataSpec, *, with_sim: bool) -> "EpisodeStarts":
        """Those of a set's episodes that have all of the model's views, and states where the model reads them.

        Args:
            with_sim: the simulation's views are needed too.

        Raises:
            ValueError: a data set that means something else by its numbers than the model, or that has no such episode.
        """
        spec = spec if with_sim else replace(spec, sim_views=())
        data = open_dataset(path, cameras=spec.streams)
        spec.check(data)
        usable = [
            episode
            for episode in data.episodes
            if set(spec.streams) <= {view.name for view in episode.views}
            and (spec.state is None or episode.state is not None)
        ]
        if not usable:
            raise ValueError(
                f"{data.root}: no episode with all of {', '.join(spec.streams)}"
                f"{'' if spec.state is None else ' and a state'}; episodes: {len(data.episodes)}"
            )
        return cls(usable, spec)

    def __len__(self) -> int:
        return len(self.episodes)

    @overload
    def __getitem__(self, index: int) -> Start: ...
    @overload
    def __getitem__(self, index: slice) -> list[Start]: ...
    def __getitem__(self, index: int | slice) -> Start | list[Start]:
        if isinstance(index, slice):
            return [start_of(episode, self.spec) for episode in self.episodes[index]]
        return start_of(self.episodes[index], self.spec)
