"""Exact conversions between layouts, through one canonical form per part in float64, and action spaces over layouts.

Translation: metres; rotation: scipy rotations; joint: radians; gripper: openness, 0 closed .. 1 open. A delta in the
base frame is from the left (p' = p + d, R' = dR R), in the end effector's from the right (p' = p + R d, R' = R dR).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float
from scipy.spatial.transform import Rotation

from simforcing.types.layouts import GripperSense, Layout, Part, Side
from simforcing.types.rotations import read_rotations, write_rotations

# Stored value when closed, stored value when open.
GRIPPER_ENDS: dict[GripperSense, tuple[float, float]] = {
    "open_0_closed_1": (1.0, 0.0),
    "closed_0_open_1": (0.0, 1.0),
    "open_-1_closed_1": (1.0, -1.0),
    "closed_-1_open_1": (-1.0, 1.0),
}


@dataclass(frozen=True, kw_only=True)
class StartState:
    """What was measured before the first action: what absolute targets and increments are joined by.

    Args:
        valid: which numbers were measured; None: all.
    """

    values: Float[np.ndarray, " s"]
    layout: Layout
    valid: Bool[np.ndarray, " s"] | None = None

    def known(self, name: str) -> Bool[np.ndarray, " n"]:
        """Which numbers of a part were measured; a rotation, as a whole or not at all."""
        columns = self.layout.slices[name]
        known = np.ones(self.layout.dim, bool)[columns] if self.valid is None else self.valid[columns]
        return known & known.all() if self.layout.part(name).rotation is not None else known


def convert_actions(
    values: Float[np.ndarray, "k a"], source: Layout, target: Layout, *, start: StartState | None = None
) -> Float[np.ndarray, "k a2"]:
    """The same commands written in another layout, float64.

    Increments are chained: action i of a delta layout starts where action i-1 led, action 0 at `start`. Nothing is
    resampled or dropped; only a discrete gripper rounds (open above one half). Unused numbers become 0.

    Args:
        values: consecutive actions (or states, whose layouts are absolute) in layout `source`.
        start: needed wherever a part changes between absolute and delta, or between frames.

    Raises ValueError, naming both layouts and the part, where no exact conversion exists.
    """
    if values.shape[1] != source.dim:
        raise ValueError(f"{values.shape[1]} numbers per action, but layout {source.name} has {source.dim}")
    for name in source.slices:
        if name not in target.slices:
            raise _cannot(source, target, name, f"layout {target.name} has no such part")
    conversion = _Conversion(np.asarray(values, np.float64), source, target, start)
    out = np.zeros((len(values), target.dim))
    for name, columns in target.slices.items():
        if name not in source.slices:
            raise _cannot(source, target, name, f"layout {source.name} has no such part")
        out[:, columns] = conversion.part(name)
    return out


def _cannot(source: Layout, target: Layout, name: str, reason: str) -> ValueError:
    return ValueError(f"layout {source.name} cannot be converted to {target.name}: part {name}: {reason}")


class _Conversion:
    """One call's source values, read part by part."""

    def __init__(
        self, values: Float[np.ndarray, "k a"], source: Layout, target: Layout, start: StartState | None
    ) -> None:
        self.values, self.source, self.target, self.start = values, source, target, start
        if start is not None and start.values.shape != (start.layout.dim,):
            raise ValueError(
                f"start state of shape {start.values.shape} does not fit layout {start.layout.name}"
                f" with {start.layout.dim} numbers"
            )

    def part(self, name: str) -> Float[np.ndarray, "k n"]:
        """One part's columns, in the target's form."""
        old, new = self.source.part(name), self.target.part(name)
        self._check(name, old, new)
        if old.kind == "rotation":
            assert new.rotation is not None
            return write_rotations(self._rotations(name, old, new), new.rotation) * new.scale
        if old.kind == "translation":
            return self._translations(name, old, new) * new.scale
        return _write_scalar(self._scalars(name, old, new), new)

    def _check(self, name: str, old: Part, new: Part) -> None:
        if old.kind != "rotation" and old.size != new.size:
            raise self._fault(name, f"it has {old.size} numbers there and {new.size} here")
        if old.unit != new.unit:
            raise self._fault(name, f"unit {old.unit} is not {new.unit}")
        if old.rate_hz != new.rate_hz:
            raise self._fault(name, f"rate {old.rate_hz} Hz is not {new.rate_hz} Hz, and nothing is resampled")
        if old.kind not in ("translation", "rotation"):
            return
        for part in (old, new):
            if part.mode == "absolute" and part.frame == "end_effector":
                raise self._fault(name, "an absolute pose in the end effector's own frame has no meaning")
        if old.frame != new.frame and not {old.frame, new.frame} <= {"base", "end_effector"}:
            raise self._fault(name, f"frame {old.frame} to {new.frame} needs the base's pose, which no layout holds")

    def _fault(self, name: str, reason: str) -> ValueError:
        return _cannot(self.source, self.target, name, reason)

    def _column(self, name: str) -> Float[np.ndarray, "k n"]:
        return self.values[:, self.source.slices[name]] / self.source.part(name).scale

    def _rotations(self, name: str, old: Part, new: Part) -> Rotation:
        assert old.rotation is not None
        stored = read_rotations(self._column(name), old.rotation)
        if (old.mode, old.frame) == (new.mode, new.frame):
            return stored
        absolute = self._absolute_rotations(name)
        if new.mode == "absolute":
            return absolute
        previous = _shifted(self._start_rotation(name), absolute)
        return absolute * previous.inv() if new.frame == "base" else previous.inv() * absolute

    def _absolute_rotations(self, name: str) -> Rotation:
        part = self.source.part(name)
        assert part.rotation is not None
        stored = read_rotations(self._column(name), part.rotation)
        if part.mode == "absolute":
            return stored
        current = self._start_rotation(name)
        chained = []
        for i in range(len(self.values)):
            current = stored[i] * current if part.frame == "base" else current * stored[i]
            chained.append(current)
        return Rotation.concatenate(chained)

    def _translations(self, name: str, old: Part, new: Part) -> Float[np.ndarray, "k n"]:
        stored = self._column(name)
        if (old.mode, old.frame) == (new.mode, new.frame):
            return stored
        steps = self._base_steps(name, old, stored)
        if new.mode == "absolute":
            return self._start_column(name) + np.cumsum(steps, axis=0)
        return self._previous_rotations(name).inv().apply(steps) if new.frame == "end_effector" else steps

    def _base_steps(self, name: str, old: Part, stored: Float[np.ndarray, "k n"]) -> Float[np.ndarray, "k n"]:
        """Increments in the base frame."""
        if old.mode == "absolute":
            return np.diff(stored, axis=0, prepend=self._start_column(name)[None])
        return self._previous_rotations(name).apply(stored) if old.frame == "end_effector" else stored

    def _previous_rotations(self, name: str) -> Rotation:
        """Orientation before each action, which turns the end effector's translations into the base frame."""
        rotation = name.replace("translation", "rotation")
        if rotation not in self.source.slices:
            raise self._fault(name, f"the end effector's frame is unknown without a part {rotation}")
        return _shifted(self._start_rotation(rotation), self._absolute_rotations(rotation))

    def _scalars(self, name: str, old: Part, new: Part) -> Float[np.ndarray, "k n"]:
        stored = _read_scalar(self._column(name), old)
        if old.mode == new.mode:
            return stored
        start = _read_scalar(self._start_column(name)[None], self._start_part(name))[0]
        if new.mode == "absolute":
            return start + np.cumsum(stored, axis=0)
        return np.diff(stored, axis=0, prepend=start[None])

    def _start_part(self, name: str) -> Part:
        if self.start is None:
            raise self._fault(name, "absolute and delta, or two frames, are joined by a start state; none was given")
        layout = self.start.layout
        if name not in layout.slices:
            raise self._fault(name, f"the start state's layout {layout.name} has no such part")
        part = layout.part(name)
        if part.mode != "absolute" or part.frame == "end_effector":
            raise self._fault(name, f"the start state's layout {layout.name} holds it as {part.mode} in {part.frame}")
        own = self.source.part(name)
        if part.rotation is None and part.size != own.size:
            raise self._fault(name, f"the start state's layout {layout.name} has {part.size} numbers, not {own.size}")
        if not self.start.known(name).any():
            raise self._fault(name, f"the start state, of layout {layout.name}, was not measured")
        return part

    def _start_column(self, name: str) -> Float[np.ndarray, " n"]:
        part = self._start_part(name)
        assert self.start is not None
        return np.asarray(self.start.values, np.float64)[self.start.layout.slices[name]] / part.scale

    def _start_rotation(self, name: str) -> Rotation:
        part = self._start_part(name)
        assert part.rotation is not None
        return read_rotations(self._start_column(name)[None], part.rotation)[0]


def _shifted(start: Rotation, rotations: Rotation) -> Rotation:
    """The rotation in force before each step: start, then all but the last."""
    return Rotation.concatenate([start, rotations])[: len(rotations)]


def _read_scalar(stored: Float[np.ndarray, "k n"], part: Part) -> Float[np.ndarray, "k n"]:
    """Joints as they are; grippers as openness (a delta keeps no offset)."""
    if part.gripper is None:
        return stored
    closed, opened = GRIPPER_ENDS[part.gripper]
    return (stored - (closed if part.mode == "absolute" else 0.0)) / (opened - closed)


def _write_scalar(canonical: Float[np.ndarray, "k n"], part: Part) -> Float[np.ndarray, "k n"]:
    if part.gripper is None:
        return canonical * part.scale
    closed, opened = GRIPPER_ENDS[part.gripper]
    if part.discrete and part.mode == "absolute":
        canonical = (canonical > 0.5).astype(np.float64)
    return (canonical * (opened - closed) + (closed if part.mode == "absolute" else 0.0)) * part.scale


def on_side(layout: Layout, side: Side) -> Layout:
    """A one-arm layout as the left or right arm of a two-arm robot."""
    if side == "single":
        return layout
    parts = tuple(replace(part, side=side) if part.side == "single" else part for part in layout.parts)
    return Layout(name=f"{layout.name}_{side}", parts=parts)


@dataclass(frozen=True, kw_only=True)
class ActionSpace:
    """Every part that some embodiment has, once, by name; an absent part is zero and not valid.

    A joint part is as wide as the widest arm's; a narrower arm fills its first numbers, a planar translation two.
    """

    layout: Layout

    @classmethod
    def of(cls, name: str, layouts: Sequence[Layout]) -> "ActionSpace":
        """The union of several layouts; where two write a part differently the first one's form is the space's."""
        parts: dict[str, Part] = {}
        for layout in layouts:
            for part_name in layout.slices:
                part = layout.part(part_name)
                known = parts.setdefault(part_name, part)
                if part.kind != "rotation" and part.size > known.size:
                    parts[part_name] = replace(known, size=part.size)
        return cls(layout=Layout(name=name, parts=tuple(parts.values())))

    @property
    def dim(self) -> int:
        """Width of the space."""
        return self.layout.dim

    def embed(
        self, values: Float[np.ndarray, "k a"], layout: Layout, *, start: StartState | None = None
    ) -> tuple[Float[np.ndarray, "k d"], Bool[np.ndarray, "k d"]]:
        """One embodiment's actions in the space, float64, and which numbers exist.

        Raises ValueError where the space lacks a part, or writes it in a form that cannot be converted.
        """
        columns, own = self._columns(layout), self._own_parts(layout)
        out = np.zeros((len(values), self.dim))
        valid = np.zeros((len(values), self.dim), bool)
        out[:, columns] = convert_actions(values, layout, own, start=start)
        valid[:, columns] = True
        return out, valid

    def extract(
        self, values: Float[np.ndarray, "k d"], layout: Layout, *, start: StartState | None = None
    ) -> Float[np.ndarray, "k a"]:
        """The inverse of `embed`: the numbers that `layout` names, in its own form."""
        if values.shape[1] != self.dim:
            raise ValueError(f"{values.shape[1]} numbers per action, action space {self.layout.name} has {self.dim}")
        return convert_actions(values[:, self._columns(layout)], self._own_parts(layout), layout, start=start)

    def _own_parts(self, layout: Layout) -> Layout:
        """The space's form of exactly the parts that `layout` has, in its order."""
        parts = []
        for name in layout.slices:
            part = self.layout.part(name)
            own = layout.part(name)
            if own.size > part.size and own.kind != "rotation":
                raise ValueError(
                    f"layout {layout.name}: part {name} has {own.size} numbers,"
                    f" action space {self.layout.name} has {part.size}"
                )
            parts.append(part if part.kind == "rotation" else replace(part, size=own.size))
        return Layout(name=self.layout.name, parts=tuple(parts))

    def _columns(self, layout: Layout) -> list[int]:
        own, slices = self._own_parts(layout), self.layout.slices
        return [slices[name].start + i for name in own.slices for i in range(own.part(name).size)]
