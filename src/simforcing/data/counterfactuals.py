"""Counterfactual sets: several true videos from each start, told apart by the columns `start` and `branch`."""

from pathlib import Path

from simforcing.data.lerobot import episode_names, read_columns
from simforcing.types import Episode, EpisodeSet

COLUMNS = ("start", "branch")


def counterfactual_groups(data: EpisodeSet) -> dict[str, list[Episode]]:
    """Start -> its branches in order, as far as they were accepted; starts with fewer than two are left out.

    Raises:
        ValueError: the set has no such columns.
    """
    rows = read_columns(Path(data.root), COLUMNS)
    episodes = {episode.name: episode for episode in data.episodes}
    groups: dict[str, list[tuple[int, Episode]]] = {}
    for name, row in zip(episode_names(data.root), rows, strict=True):
        episode = episodes.get(name)
        if episode is not None:
            groups.setdefault(f"start {row['start'][0]}", []).append((row["branch"][0], episode))
    ordered = {start: [e for _, e in sorted(group, key=lambda item: item[0])] for start, group in groups.items()}
    return {start: group for start, group in ordered.items() if len(group) > 1}
