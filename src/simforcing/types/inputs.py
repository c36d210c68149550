"""Stored numbers to what a network reads: rotations that never jump, then normalised; the stored layout travels along.

An absolute rotation written as three angles jumps by 2 pi where it passes the edge of its range (the roll of every
DROID episode does), so networks read absolute rotations as the first two columns of their matrix (`matrix_6d`).
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float
from scipy.spatial.transform import Rotation

from simforcing.types.conversions import convert_actions
from simforcing.types.layouts import ROTATION_SIZES, Layout, Part
from simforcing.types.normalisers import Normaliser, NormaliserKind
from simforcing.types.rotations import write_rotations


@dataclass(frozen=True, kw_only=True)
class NetworkInput:
    """How one kind of stored numbers (actions or states) becomes a network's input.

    Args:
        layout: of the stored numbers.
        normaliser: fitted on `continuous(layout)`.
    """

    layout: Layout
    normaliser: Normaliser

    def __post_init__(self) -> None:
        if self.normaliser.layout != continuous(self.layout):
            raise ValueError(
                f"normaliser of layout {self.normaliser.layout.name} does not belong to layout {self.layout.name}"
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
        form = continuous(layout)
        valid = np.ones(values.shape, bool) if valid is None else valid
        rewritten = _rewritten(values, layout, form, valid)
        return cls(
            layout=layout,
            normaliser=Normaliser.fit(rewritten, form, kind, valid=_valid_in(valid, layout, form)),
        )

    @property
    def dim(self) -> int:
        """How many numbers the network reads per step."""
        return self.normaliser.layout.dim

    def read(
        self, values: Float[np.ndarray, "k a"], valid: Bool[np.ndarray, "k a"]
    ) -> tuple[Float[np.ndarray, "k n"], Bool[np.ndarray, "k n"]]:
        """Normalised numbers in float32, zero where they mean nothing, and which of them mean something.

        A rotation means something where all of its stored numbers do. ValueError where the width is not the layout's.
        """
        form = self.normaliser.layout
        normalised = self.normaliser.normalise(_rewritten(values, self.layout, form, valid))
        known = _valid_in(valid, self.layout, form)
        return normalised * known, known

    def rewrite(self, values: Float[np.ndarray, "k a"]) -> Float[np.ndarray, "k n"]:
        """Stored numbers in the network's form, before normalisation."""
        return _rewritten(values, self.layout, self.normaliser.layout, np.ones(values.shape, bool))


def continuous(layout: Layout) -> Layout:
    """The same parts with absolute rotations as `matrix_6d` and without unused numbers; else `layout` itself."""
    parts = tuple(_continuous_part(part) for part in layout.parts if part.kind != "unused")
    return layout if parts == layout.parts else Layout(name=f"{layout.name} for networks", parts=parts)


def _continuous_part(part: Part) -> Part:
    if part.kind != "rotation" or part.mode == "delta" or part.rotation == "matrix_6d":
        return part
    return replace(part, rotation="matrix_6d", size=ROTATION_SIZES["matrix_6d"], scale=1.0, low=None, high=None)


def _rewritten(
    values: Float[np.ndarray, "k a"], layout: Layout, form: Layout, valid: Bool[np.ndarray, "k a"]
) -> Float[np.ndarray, "k n"]:
    """The stored numbers in another form; a rotation that is not valid, which may be none at all, becomes identity."""
    if form == layout:
        return np.asarray(values, np.float64)
    stored = np.array(values, np.float64)
    for name, columns in layout.slices.items():
        part = layout.part(name)
        if part.rotation is not None:
            missing = ~valid[:, columns].all(axis=1)
            stored[missing, columns] = write_rotations(Rotation.identity(1), part.rotation)[0] * part.scale
    return convert_actions(stored, layout, form)


def _valid_in(valid: Bool[np.ndarray, "k a"], layout: Layout, form: Layout) -> Bool[np.ndarray, "k n"]:
    """Which numbers of the form mean something: a rewritten rotation does where all of its stored numbers do."""
    known = np.zeros((len(valid), form.dim), bool)
    for name, columns in form.slices.items():
        stored = valid[:, layout.slices[name]]
        same_form = stored.shape[1] == form.part(name).size
        known[:, columns] = stored if same_form else stored.all(axis=1, keepdims=True)
    return known
