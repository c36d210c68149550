"""Fits a DataSpec: what a model will read of a data set, with normalisers from the training episodes alone."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from simforcing.data.open import require_layout
from simforcing.data.windows import WindowSpec, action_rows, state_at, window_starts
from simforcing.types import Clip, DataSpec, Episode, EpisodeSet, Layout, NetworkInput
from simforcing.types.conversions import StartState
from simforcing.types.inputs import ActionForm, Commands
from simforcing.types.normalisers import NormaliserKind


def fit_spec(
    data: EpisodeSet,
    training: Sequence[Episode],
    *,
    window: WindowSpec,
    normaliser: NormaliserKind = "min_max",
    action_form: ActionForm = "stored",
) -> DataSpec:
    """Statistics and shapes of the training episodes.

    Args:
        action_form: what the network reads commands as; other forms than the stored one are fitted on the windows
            themselves, each converted from its own first state.

    Raises:
        ValueError: no declared action layout (the choices are listed), no episode long enough for a window, several
            video rates, windows with different numbers of actions, or commands that cannot be written in that form.
    """
    layout = require_layout(data)
    rates = sorted({episode.fps for episode in training})
    if len(rates) != 1:
        raise ValueError(f"{data.root}: video rates {', '.join(f'{r:g}' for r in rates)} Hz; a run needs one")
    starts = [(episode, start) for episode in training for start in window_starts(episode, window)]
    if not starts:
        longest = max(episode.num_frames for episode in training)
        raise ValueError(
            f"{data.root}: no training episode fits a window of {window.num_frames} frames (longest: {longest})"
            f" with a view among {', '.join(window.views)}"
        )
    num_actions = len(action_rows(*starts[0], window.num_frames))
    for episode, start in starts:
        found = len(action_rows(episode, start, window.num_frames))
        if found != num_actions:
            raise ValueError(
                f"{data.root}: episode {episode.name} has {found} actions in the window at frame {start},"
                f" others have {num_actions}; a run needs one number (uneven time stamps?)"
            )
    if action_form == "stored":
        action = _fitted([(episode.action, episode.action_valid) for episode in training], layout, normaliser)
    else:
        windows = [commands_at(episode, start, window.num_frames, data.state_layout) for episode, start in starts]
        try:
            action = NetworkInput.fit_windows(windows, layout, normaliser, action_form)
        except ValueError as error:
            raise ValueError(f"{data.root}: {error}") from None
    states = [(episode.state, episode.state_valid) for episode in training if episode.state is not None]
    return DataSpec(
        views=window.views,
        num_frames=window.num_frames,
        fps=rates[0],
        num_actions=num_actions,
        resize=window.resize,
        action=action,
        # an episode without states is read as zeros that are marked as not valid
        state=_fitted(states, data.state_layout, normaliser) if states and data.state_layout is not None else None,
        robot=data.robot,
        fingerprint=data.fingerprint,
    )


def _fitted(
    tables: Sequence[tuple[np.ndarray, np.ndarray | None]], layout: Layout, normaliser: NormaliserKind
) -> NetworkInput:
    """Statistics of several episodes' numbers, as far as valid."""
    values = np.concatenate([table for table, _ in tables])
    valid = np.concatenate([np.ones(table.shape, bool) if known is None else known for table, known in tables])
    return NetworkInput.fit(values, layout, normaliser, valid=valid)


def commands_at(episode: Episode, start: int, num_frames: int, state_layout: Layout | None) -> Commands:
    """The commands of a window and the state measured at its first frame, without decoding a frame."""
    rows = action_rows(episode, start, num_frames)
    values = episode.action[rows]
    valid = np.ones(values.shape, bool) if episode.action_valid is None else episode.action_valid[rows]
    if state_layout is None:
        return Commands(values, valid)
    state, known = state_at(episode, start / episode.fps, state_layout.dim)
    return Commands(values, valid, StartState(values=state, layout=state_layout, valid=known))


def action_numbers(episodes: Sequence[Episode], spec: DataSpec) -> list[Float[np.ndarray, "k n"]]:
    """The episodes' commands in the form that the network reads, before normalisation: of adjacent windows where that
    form depends on where a window starts."""
    if spec.action.form == "stored":
        tables = [Commands(e.action, np.ones(e.action.shape, bool)) for e in episodes]
    else:
        window, layout = window_of(spec), None if spec.state is None else spec.state.layout
        keys = [(e, start) for e in episodes for start in window_starts(e, window, spec.num_frames - 1)]
        tables = [commands_at(episode, start, spec.num_frames, layout) for episode, start in keys]
    return [spec.action.rewrite(table) for table in tables]


def window_of(spec: DataSpec, *, with_masks: bool = False, with_frames: bool = True) -> WindowSpec:
    """The windows that a model of this spec reads: its views, then their simulation."""
    return WindowSpec(
        num_frames=spec.num_frames,
        views=spec.streams,
        resize=spec.resize,
        with_masks=with_masks,
        with_frames=with_frames,
        num_history=spec.num_history,
        history_span_s=spec.history_span_s,
    )


def present_views(clip: Clip, spec: DataSpec) -> Bool[np.ndarray, " v"]:
    """Which of the network's views a clip shows: the real ones, or where it has none their simulation."""
    real, sim = np.split(clip.view_present, [len(spec.views)])
    return real if real.any() or not len(sim) else sim
