"""The first moments of a data set's episodes as starts, each decoded when it is asked for."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import overload

from simforcing.data.open import open_dataset
from simforcing.data.spec import window_of
from simforcing.data.windows import read_clip
from simforcing.generation.start import Start, start_of_clip
from simforcing.types import DataSpec, Episode, EpisodeSet


def start_of(episode: Episode, spec: DataSpec) -> Start:
    """An episode at its first frame: pictures, words, state with those before it, cameras, and simulation if it has.

    Raises:
        ValueError: a view of the model that the episode lacks, or a frame that cannot be decoded.
    """
    window = replace(window_of(spec), num_frames=2)
    return start_of_clip(read_clip(episode, 0, window, spec.action.layout.dim, spec.stored_state_dim), spec)


class EpisodeStarts(Sequence[Start]):
    """Starts of a data set's episodes, at their first frames."""

    def __init__(self, episodes: Sequence[Episode], spec: DataSpec) -> None:
        self.episodes, self.spec = list(episodes), spec

    @classmethod
    def of(cls, path: str | Path, spec: DataSpec) -> "EpisodeStarts":
        """Those of a set's episodes that have all of the model's views, and states where the model reads them.

        With the simulation where episodes store it, and then of them alone; else without.

        Raises:
            ValueError: a data set that means something else by its numbers than the model, or that has no such episode.
        """
        plain = replace(spec, sim_views=())
        data = _opened(path, spec)
        plain.check(data)
        for wanted in (spec, plain):
            usable = [
                episode
                for episode in data.episodes
                if set(wanted.streams) <= {view.name for view in episode.views}
                and (spec.state is None or episode.state is not None)
            ]
            if usable:
                return cls(usable, wanted)
        raise ValueError(
            f"{data.root}: no episode with all of {', '.join(spec.views)}"
            f"{'' if spec.state is None else ' and a state'}; episodes: {len(data.episodes)}"
        )

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


def _opened(path: str | Path, spec: DataSpec) -> EpisodeSet:
    """A set with the model's views, and those of its simulation where they are stored."""
    try:
        return open_dataset(path, cameras=spec.streams)
    except ValueError:
        if not spec.sim_views:
            raise
        return open_dataset(path, cameras=spec.views)
