"""What an episode tells about a robot's arms: joints, tool poses and grippers in canonical units, at any time.

Rows recorded at other times than asked for are interpolated: linear, joints the shorter way round, rotations along the
geodesic; before the first and after the last row the nearest one holds.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.spatial.transform import Rotation, Slerp

from simforcing.sim.kinematics import euler_from_matrix
from simforcing.sim.robot import Arm
from simforcing.types import Layout
from simforcing.types.conversions import StartState, convert_actions
from simforcing.types.layouts import Kind, absolute_layout

SAME_TIME_S = 1e-4
POSE: tuple[Kind, ...] = ("translation", "rotation")


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A table of an episode.

    Args:
        what: episode and table, for messages.
        layout: absolute: m, quaternion wxyz, rad, openness.
        valid: which numbers exist; None: all.
        is_commanded: rows are where actions lead, not what was measured.
    """

    what: str
    layout: Layout
    time_s: Float[np.ndarray, " m"]
    values: Float[np.ndarray, "m a"]
    valid: Bool[np.ndarray, "m a"] | None = None
    is_commanded: bool = False

    def has(self, arms: tuple[Arm, ...], *kinds: Kind) -> bool:
        """Whether it holds these parts of every arm."""
        return all(self._column(arm, kind) is not None for arm in arms for kind in kinds)

    def poses(self, arm: Arm, wanted_s: Float[np.ndarray, " f"]) -> Float[np.ndarray, "f 6"]:
        """An arm's tool: xyz (m) and extrinsic xyz Euler (rad)."""
        position, quaternion = (self._required(arm, kind) for kind in POSE)
        rows = _same_rows(self.time_s, wanted_s)
        if rows is not None:
            turned = Rotation.from_quat(quaternion[rows], scalar_first=True)
        else:
            rotations = Rotation.from_quat(quaternion, scalar_first=True)
            turned = Slerp(self.time_s, rotations)(np.clip(wanted_s, self.time_s[0], self.time_s[-1]))
        euler_rad = [euler_from_matrix(matrix) for matrix in turned.as_matrix()]
        return np.concatenate([_interpolate(self.time_s, position, wanted_s), euler_rad], axis=1)

    def joints(self, arm: Arm, wanted_s: Float[np.ndarray, " f"]) -> Float[np.ndarray, "f j"]:
        """An arm's joints (rad). Raises ValueError where their number is not the arm's."""
        column = self._required(arm, "joint")
        if column.shape[1] != len(arm.joints):
            raise ValueError(
                f"{self.what}: layout {self.layout.name} has {column.shape[1]} joints per arm, the robot's"
                f" {arm.side} arm {len(arm.joints)}: {', '.join(arm.joints)}"
            )
        if _same_rows(self.time_s, wanted_s) is None:
            column = np.unwrap(column, axis=0)
        return _interpolate(self.time_s, column, wanted_s)

    def openness(self, arm: Arm, wanted_s: Float[np.ndarray, " f"]) -> Float[np.ndarray, " f"] | None:
        """An arm's gripper within 0 .. 1, as fingers end at their stops; None where it is not held."""
        column = self._column(arm, "gripper")
        return None if column is None else np.clip(_interpolate(self.time_s, column, wanted_s)[:, 0], 0.0, 1.0)

    def _required(self, arm: Arm, kind: Kind) -> Float[np.ndarray, "m n"]:
        column = self._column(arm, kind)
        assert column is not None, f"{self.what}: no {kind}"
        return column

    def _column(self, arm: Arm, kind: Kind) -> Float[np.ndarray, "m n"] | None:
        columns = self.layout.slices.get(part_name(arm, kind))
        if columns is None or (self.valid is not None and not self.valid[:, columns].any()):
            return None
        if self.valid is not None and not self.valid[:, columns].all():
            row = int(np.argmin(self.valid[:, columns].all(axis=1)))
            raise ValueError(f"{self.what}: {part_name(arm, kind)} of row {row} is missing")
        return self.values[:, columns]


def part_name(arm: Arm, kind: Kind) -> str:
    """Name of a part in layouts."""
    return kind if arm.side == "single" else f"{arm.side}_{kind}"


def read_measured(
    what: str,
    values: Float[np.ndarray, "m a"],
    layout: Layout,
    time_s: Float[np.ndarray, " m"],
    valid: Bool[np.ndarray, "m a"] | None = None,
) -> Recording:
    """Measured rows, whose layout is absolute. Raises ValueError where it is not, or in another frame than the base."""
    absolute = absolute_layout(layout)
    canonical = convert_actions(values, layout, absolute)
    return Recording(
        what=what, layout=absolute, time_s=time_s, values=canonical, valid=_canonical_valid(valid, layout, absolute)
    )


def read_commanded(
    what: str,
    values: Float[np.ndarray, "k a"],
    layout: Layout,
    time_s: Float[np.ndarray, " k"],
    start: Float[np.ndarray, " s"],
    *,
    is_start_known: bool,
) -> Recording:
    """Commands as the states they lead to: row 0 is the start, action i is reached when action i + 1 is commanded.

    Increments are added up from `start`. Where the start is only estimated, absolute parts start at their first target.

    Args:
        start: in `absolute_layout(layout)`.
    """
    absolute = absolute_layout(layout)
    targets = convert_actions(values, layout, absolute, start=StartState(values=start, layout=absolute))
    first = start.copy()
    for name, columns in absolute.slices.items():
        part = layout.part(name)
        if part.mode == "absolute" and (part.kind == "gripper" or not is_start_known):
            first[columns] = targets[0, columns]
    step_s = float(np.median(np.diff(time_s))) if len(time_s) > 1 else 1.0
    return Recording(
        what=what,
        layout=absolute,
        time_s=np.append(time_s, time_s[-1] + step_s),
        values=np.concatenate([first[None], targets]),
        is_commanded=True,
    )


def _canonical_valid(
    valid: Bool[np.ndarray, "m a"] | None, layout: Layout, absolute: Layout
) -> Bool[np.ndarray, "m b"] | None:
    if valid is None:
        return None
    out = np.zeros((len(valid), absolute.dim), bool)
    for name, columns in absolute.slices.items():
        out[:, columns] = valid[:, layout.slices[name]].all(axis=1, keepdims=True)
    return out


def _same_rows(time_s: Float[np.ndarray, " m"], wanted_s: Float[np.ndarray, " f"]) -> Int[np.ndarray, " f"] | None:
    """The rows recorded at the wanted times (beyond the ends, the last one), or None where some lie in between."""
    inside = np.clip(wanted_s, time_s[0], time_s[-1])
    after = np.clip(np.searchsorted(time_s, inside), 1, max(1, len(time_s) - 1))
    rows = np.where(np.abs(time_s[after - 1] - inside) <= SAME_TIME_S, after - 1, np.minimum(after, len(time_s) - 1))
    return rows if (np.abs(time_s[rows] - inside) <= SAME_TIME_S).all() else None


def _interpolate(
    time_s: Float[np.ndarray, " m"], values: Float[np.ndarray, "m n"], wanted_s: Float[np.ndarray, " f"]
) -> Float[np.ndarray, "f n"]:
    rows = _same_rows(time_s, wanted_s)
    if rows is not None:
        return values[rows]
    return np.stack([np.interp(wanted_s, time_s, column) for column in values.T], axis=1)
