"""A lazy sequence of clips: windows of episodes that are decoded when they are asked for."""

from collections.abc import Sequence
from typing import overload

from simforcing.data.spec import window_of
from simforcing.data.windows import read_clip, window_starts
from simforcing.types import Clip, DataSpec, Episode


class Clips(Sequence[Clip]):
    """Every `stride`-th window of the episodes, in order."""

    def __init__(self, episodes: Sequence[Episode], spec: DataSpec, *, stride: int) -> None:
        self.spec = spec
        self._window = window_of(spec)
        self.keys = [(episode, start) for episode in episodes for start in window_starts(episode, self._window, stride)]

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, index: int) -> Clip: ...
    @overload
    def __getitem__(self, index: slice) -> list[Clip]: ...
    def __getitem__(self, index: int | slice) -> Clip | list[Clip]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        episode, start = self.keys[index]
        return read_clip(episode, start, self._window, self.spec.action.layout.dim, self.spec.stored_state_dim)
