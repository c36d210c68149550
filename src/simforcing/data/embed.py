"""Several embodiments in one set: every episode's actions and states written into one action space, with validity."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Bool

from simforcing.data.open import require_layout
from simforcing.types import Episode, EpisodeSet, Layout
from simforcing.types.conversions import ActionSpace, StartState


def join_sets(sets: Sequence[EpisodeSet], name: str) -> EpisodeSet:
    """One set over the union `name` of the sets' action layouts; an embodiment's absent parts are 0 and not valid.

    States are joined likewise where every set declares their layout, else left out with a warning line. An episode
    name that two sets share is preceded by its set's number.

    Raises ValueError where no set is given, one declares no action layout, or two write a part in forms that cannot be
    converted.
    """
    if not sets:
        raise ValueError("no data set is given to join")
    space = ActionSpace.of(name, [require_layout(data) for data in sets])
    state_layouts = [data.state_layout for data in sets if data.state_layout is not None]
    state_space = ActionSpace.of(f"{name}_state", state_layouts) if len(state_layouts) == len(sets) else None
    embedded = [embed_set(data, space, state_space) for data in sets]
    counts = Counter(episode.name for data in embedded for episode in data.episodes)
    robots = {data.robot for data in embedded}
    return EpisodeSet(
        root=" + ".join(data.root for data in embedded),
        kind="joined",
        episodes=tuple(
            replace(episode, name=f"{i}/{episode.name}") if counts[episode.name] > 1 else episode
            for i, data in enumerate(embedded)
            for episode in data.episodes
        ),
        rejected=tuple(item for data in embedded for item in data.rejected),
        warnings=tuple(line for data in embedded for line in data.warnings),
        action_layout=space.layout,
        state_layout=None if state_space is None else state_space.layout,
        robot=robots.pop() if len(robots) == 1 else None,
        fingerprint=hashlib.sha256("\0".join(data.fingerprint for data in sets).encode()).hexdigest()[:32],
    )


def embed_set(data: EpisodeSet, space: ActionSpace, state_space: ActionSpace | None = None) -> EpisodeSet:
    """The set with its actions (and states, where there is a space for them) in these spaces.

    Raises ValueError where a space lacks a part or writes it in a form that cannot be converted.
    """
    layout = require_layout(data)
    dropped = state_space is None and any(episode.state is not None for episode in data.episodes)
    lines = (f"{data.root}: states are left out: no space is given for them",) if dropped else ()
    return replace(
        data,
        episodes=tuple(_embedded(episode, layout, data.state_layout, space, state_space) for episode in data.episodes),
        warnings=(*data.warnings, *lines),
        action_layout=space.layout,
        state_layout=None if state_space is None else state_space.layout,
    )


def _embedded(
    episode: Episode, layout: Layout, state_layout: Layout | None, space: ActionSpace, state_space: ActionSpace | None
) -> Episode:
    start = None
    if episode.state is not None and state_layout is not None:
        start = StartState(values=episode.state[0], layout=state_layout)
    action, exists = space.embed(episode.action, layout, start=start)
    action_valid = exists & _stored_valid(episode.action_valid, len(action), layout, space)
    state, state_valid = None, None
    if state_space is not None and episode.state is not None and state_layout is not None:
        values, exists = state_space.embed(episode.state, state_layout)
        state_valid = exists & _stored_valid(episode.state_valid, len(values), state_layout, state_space)
        state = (values * state_valid).astype(np.float32)
    return replace(
        episode,
        action=(action * action_valid).astype(np.float32),
        action_valid=action_valid,
        state=state,
        state_time_s=None if state is None else episode.state_time_s,
        state_valid=state_valid,
    )


def _stored_valid(
    valid: Bool[np.ndarray, "k a"] | None, num_rows: int, layout: Layout, space: ActionSpace
) -> Bool[np.ndarray, "k d"]:
    """An episode's own flags in the space; a part that changes its width is valid where all of its numbers are."""
    out = np.ones((num_rows, space.dim), bool)
    if valid is None:
        return out
    for name, columns in layout.slices.items():
        target, stored = space.layout.slices[name], valid[:, columns]
        if layout.part(name).kind == "rotation" and stored.shape[1] != target.stop - target.start:
            out[:, target] = stored.all(axis=1, keepdims=True)
        else:
            out[:, target.start : target.start + stored.shape[1]] = stored
    return out
