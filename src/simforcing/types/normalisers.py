"""Affine normalisation of actions and states, bound to the layout it was fitted on."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from jaxtyping import Bool, Float

from simforcing.types.layouts import Layout

NormaliserKind = Literal["min_max", "quantile", "mean_std"]
CONSTANT_RANGE = 1e-4  # a dimension that moves less than this is only shifted (docs/paper-to-code.md)
CLAMP = 5.0


@dataclass(frozen=True, kw_only=True)
class Normaliser:
    """normalised = clamp((x - offset) / scale, -5, 5), per dimension; the layout travels with the numbers."""

    kind: NormaliserKind
    layout: Layout
    offset: tuple[float, ...]
    scale: tuple[float, ...]

    def __post_init__(self) -> None:
        for name, values in (("offset", self.offset), ("scale", self.scale)):
            if len(values) != self.layout.dim:
                raise ValueError(
                    f"normaliser {name} has {len(values)} numbers, layout {self.layout.name} has {self.layout.dim}"
                )
        if not all(np.isfinite(self.offset)) or not all(np.isfinite(self.scale)) or 0.0 in self.scale:
            raise ValueError(f"normaliser of layout {self.layout.name}: offset and scale must be finite, scale not 0")

    @classmethod
    def fit(
        cls,
        values: Float[np.ndarray, "m a"],
        layout: Layout,
        kind: NormaliserKind = "min_max",
        *,
        valid: Bool[np.ndarray, "m a"] | None = None,
    ) -> "Normaliser":
        """Statistics over the training episodes, of the numbers that are valid (None: all).

        min_max: 2 (x - min) / (max - min) - 1;  quantile: the same with the 1 % and 99 % quantiles;
        mean_std: (x - mean) / std.
        A dimension whose range (std) is below 1e-4 becomes x - min (x - mean); one valid nowhere stays as it is.
        Raises ValueError for an unknown kind, a wrong width, or values that are not finite.
        """
        if values.ndim != 2 or values.shape[1] != layout.dim or len(values) == 0:
            raise ValueError(f"values of shape {values.shape} do not fit layout {layout.name} of {layout.dim} numbers")
        if not np.isfinite(values).all():
            raise ValueError(f"layout {layout.name}: values to normalise contain NaN or infinity")
        if kind not in get_args(NormaliserKind):
            raise ValueError(f"unknown normaliser {kind!r}; choices: {', '.join(get_args(NormaliserKind))}")
        x = values.astype(np.float64)
        if valid is None or valid.all():
            offset, scale = _statistics(x, kind)
        else:
            offset, scale = np.zeros(layout.dim), np.ones(layout.dim)
            for i in np.flatnonzero(valid.any(axis=0)):
                column = x[valid[:, i], i : i + 1]
                offset[i : i + 1], scale[i : i + 1] = _statistics(column, kind)
        return cls(kind=kind, layout=layout, offset=tuple(offset.tolist()), scale=tuple(scale.tolist()))

    def normalise(self, x: Float[np.ndarray, "*n a"]) -> Float[np.ndarray, "*n a"]:
        """Stored numbers -> float32, clamped to [-5, 5]. ValueError where the width is not the layout's."""
        self._check(x)
        scaled = (np.asarray(x, np.float64) - np.array(self.offset)) / np.array(self.scale)
        return np.clip(scaled, -CLAMP, CLAMP).astype(np.float32)

    def denormalise(self, x: Float[np.ndarray, "*n a"]) -> Float[np.ndarray, "*n a"]:
        """The inverse, exact where nothing was clamped (float32)."""
        self._check(x)
        return (np.asarray(x, np.float64) * np.array(self.scale) + np.array(self.offset)).astype(np.float32)

    def _check(self, x: np.ndarray) -> None:
        if x.shape[-1] != self.layout.dim:
            raise ValueError(
                f"{x.shape[-1]} numbers per step, but layout {self.layout.name} has {self.layout.dim}"
                f" ({', '.join(self.layout.slices)})"
            )


def _statistics(
    x: Float[np.ndarray, "m a"], kind: NormaliserKind
) -> tuple[Float[np.ndarray, " a"], Float[np.ndarray, " a"]]:
    """(offset, scale) of every column."""
    if kind == "mean_std":
        offset, scale = x.mean(axis=0), x.std(axis=0)
        return offset, np.where(scale < CONSTANT_RANGE, 1.0, scale)
    low, high = (x.min(axis=0), x.max(axis=0)) if kind == "min_max" else np.quantile(x, [0.01, 0.99], axis=0)
    constant = high - low < CONSTANT_RANGE
    return np.where(constant, low, (low + high) / 2), np.where(constant, 1.0, (high - low) / 2)
