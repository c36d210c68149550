"""Decodes every frame that a run will read, once, before training starts: a broken video costs its episode, by name."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from simforcing.types import Episode, EpisodeSet, Rejected

CHUNK = 64  # frames in memory at a time


def verify_videos(
    data: EpisodeSet, views: Sequence[str], progress: Callable[[int, int], None] | None = None
) -> EpisodeSet:
    """The set without the episodes of which a frame in these views cannot be decoded.

    Raises:
        ValueError: no episode is left; the first reason is named.
    """
    kept: list[Episode] = []
    rejected: list[Rejected] = []
    for done, episode in enumerate(data.episodes, 1):
        fault = _fault(episode, views)
        if fault is None:
            kept.append(episode)
        else:
            rejected.append(Rejected(name=episode.name, reason=fault))
        if progress is not None:
            progress(done, len(data.episodes))
    if not kept:
        raise ValueError(f"{data.root}: no episode is left; {rejected[0].name}: {rejected[0].reason}")
    return replace(data, episodes=tuple(kept), rejected=(*data.rejected, *rejected))


def _fault(episode: Episode, views: Sequence[str]) -> str | None:
    for view in episode.views:
        if view.name not in views:
            continue
        for start in range(0, episode.num_frames, CHUNK):
            try:
                view.frames.read(start, min(start + CHUNK, episode.num_frames))
            except ValueError as error:
                return str(error)
    return None
