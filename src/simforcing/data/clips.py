"""A lazy sequence of clips: windows of episodes that are decoded when they are asked for."""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, overload

from simforcing.data.prompts import prompt
from simforcing.data.spec import window_of
from simforcing.data.windows import read_clip, window_starts
from simforcing.types import Clip, DataSpec, Episode


class Clips(Sequence[Clip]):
    """Every `stride`-th window of the episodes, in order, with all streams of the spec.

    Args:
        stride: frames between the starts of windows.
        with_masks: read masks, too.
        with_frames: decode video; else frames are black, and all else is read as usual.
        fingerprint: of the set that the episodes are of, which caches tell them apart by.
    """

    def __init__(
        self,
        episodes: Sequence[Episode],
        spec: DataSpec,
        *,
        stride: int,
        with_masks: bool = False,
        with_frames: bool = True,
        fingerprint: str | None = None,
    ) -> None:
        self.spec, self.fingerprint = spec, fingerprint
        self._window = window_of(spec, with_masks=with_masks, with_frames=with_frames)
        self.keys = [(episode, start) for episode in episodes for start in window_starts(episode, self._window, stride)]

    def reading(self, rows: Sequence[int] | None = None, **changes: Any) -> "Clips":
        """The same windows, or those rows, read in another way: `changes` are fields of WindowSpec."""
        other = copy(self)
        other._window = replace(self._window, **changes)
        if rows is not None:
            other.keys = [self.keys[row] for row in rows]
        return other

    @property
    def prompts(self) -> list[str]:
        """What a text encoder reads for each window."""
        return [prompt(episode.task, self.spec.wording) for episode, _ in self.keys]

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
