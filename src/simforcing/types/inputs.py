"""Stored numbers to what a network reads: its form, rotations that never jump, normalised; the layout travels along.

An absolute rotation written as three angles jumps by 2 pi where it passes the edge of its range (the roll of every
DROID episode does), so networks read absolute rotations as the first two columns of their matrix (`matrix_6d`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.spatial.transform import Rotation

from simforcing.types.config import check_choices
from simforcing.types.conversions import StartState, convert_actions
from simforcing.types.layouts import ROTATION_SIZES, Layout, Part, absolute_layout, delta_layout
from simforcing.types.normalisers import Normaliser, NormaliserKind
from simforcing.types.rotations import write_rotations

ActionForm = Literal["stored", "delta", "absolute"]
_FORM_NAMES = {"delta": "increments", "absolute": "absolute targets"}


class Commands(NamedTuple):
    """Consecutive numbers of one window or table, which of them exist, and the state that they start from, if known."""

    values: Float[np.ndarray, "k a"]
    valid: Bool[np.ndarray, "k a"]
    start: StartState | None = None


@dataclass(frozen=True, kw_only=True)
class NetworkInput:
    """How one kind of stored numbers (actions or states) becomes a network's input.

    Args:
        layout: of the stored numbers.
        normaliser: fitted on `network_layout(layout, form)`.
        form: `stored`, or every command converted exactly to increments (m, rotation vectors) or to absolute targets,
            in the base frame; a window's chain starts at its first state.
    """

    layout: Layout
    normaliser: Normaliser
    form: ActionForm = "stored"

    def __post_init__(self) -> None:
        check_choices(self)
        if self.normaliser.layout != network_layout(self.layout, self.form):
            raise ValueError(
                f"normaliser of layout {self.normaliser.layout.name} does not belong to layout {self.layout.name}"
                f" in form {self.form}"
            )

    @classmethod
    def fit(
        cls,
        values: Float[np.ndarray, "m a"],
        layout: Layout,
        kind: NormaliserKind = "min_max",
        *,
        valid: Bool[np.ndarray, "m a"] | None = None,
    ) -> "NetworkInput":
        """Statistics of the training episodes' stored numbers, as far as valid. ValueError as `Normaliser.fit`."""
        valid = np.ones(values.shape, bool) if valid is None else valid
        return cls.fit_windows([Commands(values, valid)], layout, kind)

    @classmethod
    def fit_windows(
        cls,
        windows: Sequence[Commands],
        layout: Layout,
        kind: NormaliserKind = "min_max",
        form: ActionForm = "stored",
    ) -> "NetworkInput":
        """Statistics of what the network will read of these windows.

        Absolute targets of increments are chained from each window's measured first state. They differ from the chain
        of the whole episode by how far the robot lags behind its commands, so windows are converted one by one.

        Raises:
            ValueError: as `read` and `Normaliser.fit`.
        """
        target = network_layout(layout, form)
        written = [_written(window, layout, target) for window in windows]
        values, valid = (np.concatenate(arrays) for arrays in zip(*written, strict=True))
        normaliser = Normaliser.fit(values, target, kind, valid=valid)
        return cls(layout=layout, normaliser=normaliser, form=form)

    @property
    def dim(self) -> int:
        """How many numbers the network reads per step."""
        return self.normaliser.layout.dim

    def read(
        self,
        values: Float[np.ndarray, "k a"],
        valid: Bool[np.ndarray, "k a"],
        start: StartState | None = None,
    ) -> tuple[Float[np.ndarray, "k n"], Bool[np.ndarray, "k n"]]:
        """Normalised numbers in float32, zero where they mean nothing, and which of them mean something.

        A rotation means something where all of its stored numbers do; a number that is chained from step to step, where
        it is there at every step.

        Args:
            values: consecutive numbers of one window.
            start: the state at the window's start, which forms other than the stored one are joined by.

        Raises:
            ValueError: another width than the layout's; no state to start from, or no exact conversion (both layouts
                are named).
        """
        written, known = _written(Commands(values, valid, start), self.layout, self.normaliser.layout)
        return self.normaliser.normalise(written) * known, known

    def stay(
        self,
        values: Float[np.ndarray, "k a"],
        valid: Bool[np.ndarray, "k a"],
        start: StartState | None = None,
    ) -> Float[np.ndarray, "k n"] | None:
        """What the network reads where these commands are dropped; None: the zero normalised vector throughout.

        Absolute targets stay at the start pose; where the state does not hold a part, at its first target. Increments
        are the zero normalised vector. Grippers beside absolute targets keep their first command.
        """
        layout = self.normaliser.layout
        if all(part.kind == "gripper" or part.mode == "delta" for part in layout.parts):
            return None
        written, known = _written(Commands(values, valid, start), self.layout, layout)
        normalised = self.normaliser.normalise(start_row(written[0], layout, start)[None])
        for part in layout.parts:
            if part.mode == "delta":
                normalised[:, layout.slices[part.name]] = 0
        return normalised * known

    def rewrite(self, commands: Commands) -> Float[np.ndarray, "k n"]:
        """A window's stored numbers in the network's form, before normalisation. ValueError as `read`."""
        return _written(commands, self.layout, self.normaliser.layout)[0]


def start_row(first: Float[np.ndarray, " n"], layout: Layout, start: StartState | None) -> Float[np.ndarray, " n"]:
    """A row of targets that stays at the start: absolute poses and joints as measured, all else as in the first target.

    Where the state does not hold a part, its first target stands for it.
    """
    row = first.copy()
    for part in layout.parts:
        if start is not None and part.kind != "gripper" and part.mode == "absolute" and _holds(start, part):
            own = start.layout.only([part.name])
            there = np.asarray(start.values, np.float64)[None, start.layout.columns([part.name])]
            row[layout.slices[part.name]] = convert_actions(there, own, layout.only([part.name]))[0]
    return row


def network_layout(layout: Layout, form: ActionForm = "stored") -> Layout:
    """What a network reads of stored numbers: their form, without angles that jump."""
    if form == "stored":
        return continuous(layout)
    changed = delta_layout(layout) if form == "delta" else absolute_layout(layout)
    return continuous(replace(changed, name=f"{layout.name} as {_FORM_NAMES[form]}"))


def continuous(layout: Layout) -> Layout:
    """The same parts with absolute rotations as `matrix_6d` and without unused numbers; else `layout` itself."""
    parts = tuple(_continuous_part(part) for part in layout.parts if part.kind != "unused")
    return layout if parts == layout.parts else Layout(name=f"{layout.name} for networks", parts=parts)


def _continuous_part(part: Part) -> Part:
    if part.kind != "rotation" or part.mode == "delta" or part.rotation == "matrix_6d":
        return part
    return replace(part, rotation="matrix_6d", size=ROTATION_SIZES["matrix_6d"], scale=1.0, low=None, high=None)


def _written(
    commands: Commands, source: Layout, target: Layout
) -> tuple[Float[np.ndarray, "k n"], Bool[np.ndarray, "k n"]]:
    """The stored numbers in another form, 0 where they mean nothing, and which of them mean something."""
    if target == source:
        return np.asarray(commands.values, np.float64), commands.valid
    stored = np.array(commands.values, np.float64)
    if stored.shape[1] != source.dim:
        raise ValueError(f"{stored.shape[1]} numbers per step, but layout {source.name} has {source.dim}")
    known = np.zeros((len(stored), target.dim), bool)
    kept = []
    for name, columns in source.slices.items():
        part = source.part(name)
        there = _known(commands.valid[:, columns], part, target.part(name), commands.start)
        if not there.any():
            continue
        kept.append(name)
        known[:, target.slices[name]] = there
        if part.rotation is not None:  # what is missing may be no rotation at all
            missing = ~commands.valid[:, columns].all(axis=1)
            stored[missing, columns] = write_rotations(Rotation.identity(1), part.rotation)[0] * part.scale
    out = np.zeros(known.shape)
    old, new = source.only(kept), target.only(kept)
    out[:, target.columns(kept)] = convert_actions(stored[:, source.columns(kept)], old, new, start=commands.start)
    return out, known


def _known(there: Bool[np.ndarray, "k n"], old: Part, new: Part, start: StartState | None) -> Bool[np.ndarray, "_k _n"]:
    """Which numbers of a part mean something in its new form; one row or column stands for all."""
    if (old.mode, old.frame) != (new.mode, new.frame):  # every row rests on those before it
        there = np.asarray(there.all(axis=0))[None]
        if start is not None and old.rotation is None and old.name in start.layout.slices:
            measured = start.known(old.name)
            if measured.any() and len(measured) == old.size:
                there = there & measured
    return np.asarray(there.all(axis=1))[:, None] if old.rotation is not None and new != old else there


def _holds(start: StartState, part: Part) -> bool:
    """Whether the state knows where an absolute part is."""
    if part.name not in start.layout.slices or not start.known(part.name).all():
        return False
    own = start.layout.part(part.name)
    is_same_size = own.size == part.size or part.rotation is not None
    return own.mode == "absolute" and own.frame == part.frame and is_same_size
