"""Layouts: what each number of an action or a state means, as declared types.

A layout is a tuple of named parts (side, kind, frame, unit, rotation form, gripper sense, absolute or delta).
Conversions between layouts live in `conversions`; a layout alone never changes a number.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

Side = Literal["single", "left", "right"]
Kind = Literal["translation", "rotation", "joint", "gripper", "unused"]
Mode = Literal["absolute", "delta"]
Frame = Literal["base", "end_effector", "world", "joint"]
Unit = Literal["m", "rad", "fraction"]
RotationForm = Literal["euler_xyz", "axis_angle", "quaternion_wxyz", "quaternion_xyzw", "matrix_6d"]
GripperSense = Literal["open_0_closed_1", "closed_0_open_1", "open_-1_closed_1", "closed_-1_open_1"]

ROTATION_SIZES: dict[RotationForm, int] = {
    "euler_xyz": 3,
    "axis_angle": 3,
    "quaternion_wxyz": 4,
    "quaternion_xyzw": 4,
    "matrix_6d": 6,
}


@dataclass(frozen=True, kw_only=True)
class Part:
    """A run of numbers with one meaning.

    Args:
        kind: what it moves; `unused` is padding (stored, never read).
        size: how many numbers.
        side: which arm.
        mode: absolute target, or change since the previous step.
        frame: the frame that translation and rotation are expressed in.
        unit: unit of the true quantity; a stored number is `scale` times it.
        rotation: form of a rotation part. `euler_xyz` is extrinsic x, y, z (radians).
        gripper: sense of a gripper part.
        discrete: a gripper that is commanded to one of its two ends only; conversions threshold at half open.
        low, high: declared range of a stored number; values more than 5 % of the range outside reject the episode.
        rate_hz: control rate where it differs from the video's; it gives the times where a set stores none.
    """

    kind: Kind
    size: int
    side: Side = "single"
    mode: Mode = "absolute"
    frame: Frame = "base"
    unit: Unit = "m"
    scale: float = 1.0
    rotation: RotationForm | None = None
    gripper: GripperSense | None = None
    discrete: bool = False
    low: float | None = None
    high: float | None = None
    rate_hz: float | None = None

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"part {self.kind}: size {self.size} must be at least 1")
        if (self.kind == "rotation") != (self.rotation is not None):
            raise ValueError(f"part {self.kind}: rotation form {self.rotation!r}; exactly the rotation parts have one")
        if self.rotation is not None and self.size != ROTATION_SIZES[self.rotation]:
            raise ValueError(
                f"rotation form {self.rotation} has {ROTATION_SIZES[self.rotation]} numbers, not {self.size}"
            )
        if (self.kind == "gripper") != (self.gripper is not None):
            raise ValueError(f"part {self.kind}: gripper sense {self.gripper!r}; exactly the gripper parts have one")
        if self.scale == 0:
            raise ValueError(f"part {self.kind}: scale must not be 0")
        if self.rate_hz is not None and not 0 < self.rate_hz < 1e6:
            raise ValueError(f"part {self.kind}: rate_hz {self.rate_hz} must be above 0")
        if self.discrete and self.kind != "gripper":
            raise ValueError(f"part {self.kind}: only a gripper part can be discrete")

    @property
    def name(self) -> str:
        """Field name, unique within a layout: `left_joint`, `translation`."""
        return self.kind if self.side == "single" else f"{self.side}_{self.kind}"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """An ordered tuple of parts, with the name under which a data set declares it."""

    name: str
    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        names = [part.name for part in self.parts if part.kind != "unused"]
        if len(set(names)) != len(names):
            raise ValueError(f"layout {self.name}: part names repeat: {', '.join(names)}")

    @property
    def dim(self) -> int:
        """How many numbers one step has."""
        return sum(part.size for part in self.parts)

    @property
    def slices(self) -> dict[str, slice]:
        """Part name -> its columns (unused parts left out)."""
        out: dict[str, slice] = {}
        start = 0
        for part in self.parts:
            if part.kind != "unused":
                out[part.name] = slice(start, start + part.size)
            start += part.size
        return out

    @property
    def rate_hz(self) -> float | None:
        """Rate of the rows: the highest that a part declares (slower parts repeat); None where none does."""
        return max((part.rate_hz for part in self.parts if part.rate_hz is not None), default=None)

    def part(self, name: str) -> Part:
        """The part of that name; ValueError lists the choices."""
        for part in self.parts:
            if part.name == name and part.kind != "unused":
                return part
        raise ValueError(f"layout {self.name}: no part {name!r}; parts: {', '.join(self.slices)}")

    def only(self, names: Sequence[str]) -> "Layout":
        """The layout of some parts alone, in its own order."""
        return replace(self, parts=tuple(p for p in self.parts if p.kind != "unused" and p.name in names))

    def columns(self, names: Sequence[str]) -> list[int]:
        """Columns of some parts, in its own order."""
        return [i for name, span in self.slices.items() if name in names for i in range(span.start, span.stop)]


def absolute_layout(layout: Layout) -> Layout:
    """The canonical form of a layout's parts: absolute, in the base frame, m, quaternion wxyz, rad, openness."""
    return Layout(name=layout.name, parts=tuple(_canonical(layout.part(name), "absolute") for name in layout.slices))


def delta_layout(layout: Layout) -> Layout:
    """The same as changes since the previous step: in the base frame, m, rotation vectors, rad; grippers as above."""
    return Layout(name=layout.name, parts=tuple(_canonical(layout.part(name), "delta") for name in layout.slices))


def _canonical(part: Part, mode: Mode) -> Part:
    plain = replace(part, mode=mode, scale=1.0, low=None, high=None, discrete=False)
    if part.kind == "rotation":
        form: RotationForm = "quaternion_wxyz" if mode == "absolute" else "axis_angle"
        return replace(plain, size=ROTATION_SIZES[form], rotation=form, frame="base")
    if part.kind == "translation":
        return replace(plain, frame="base")
    return replace(plain, mode="absolute", gripper="closed_0_open_1") if part.kind == "gripper" else plain


def _translation(limit: float, *, size: int = 3, mode: Mode = "absolute", scale: float = 1.0) -> Part:
    return Part(kind="translation", size=size, mode=mode, unit="m", scale=scale, low=-limit * scale, high=limit * scale)


def _rotation(limit: float, form: RotationForm, *, mode: Mode = "absolute", scale: float = 1.0) -> Part:
    return Part(
        kind="rotation",
        size=ROTATION_SIZES[form],
        mode=mode,
        unit="rad",
        rotation=form,
        scale=scale,
        low=-limit * scale,
        high=limit * scale,
    )


def _gripper(sense: GripperSense, *, side: Side = "single", discrete: bool = False) -> Part:
    low = -1.0 if "-1" in sense else 0.0
    return Part(kind="gripper", size=1, side=side, unit="fraction", gripper=sense, discrete=discrete, low=low, high=1.0)


def _joint(size: int, limit: float, *, side: Side = "single") -> Part:
    return Part(kind="joint", size=size, side=side, frame="joint", unit="rad", low=-limit, high=limit)


def _unused(size: int) -> Part:
    return Part(kind="unused", size=size, unit="fraction")


PI = 3.141592653589793
# Reach of the arms named below, from their bases: WidowX 250s 0.65 m, Panda 0.86 m on a 0.33 m shoulder; rounded up.
WIDOWX_REACH_M = 1.0
PANDA_REACH_M = 1.25
# One 5 Hz step of BridgeData is clipped by its controller at 0.05 m and 0.25 rad; stored values exceed that slightly.
BRIDGE_STEP_M = 0.1
BRIDGE_STEP_RAD = 0.5


def _registry() -> dict[str, Layout]:
    open_up: GripperSense = "closed_0_open_1"
    pose = (_translation(WIDOWX_REACH_M), _rotation(PI, "euler_xyz"))
    step = (_translation(BRIDGE_STEP_M, mode="delta"), _rotation(BRIDGE_STEP_RAD, "euler_xyz", mode="delta"))
    named: dict[str, tuple[Part, ...]] = {
        "bridge": (*step, _gripper(open_up)),
        "bridge_state": (*pose, _gripper(open_up)),
        "bridge_lerobot_state": (*pose, _unused(1), _gripper(open_up)),
        "bridge_delta_axis_angle": (
            step[0],
            _rotation(BRIDGE_STEP_RAD, "axis_angle", mode="delta"),
            _gripper("closed_-1_open_1", discrete=True),
        ),
        "bridge_scaled": (
            _translation(0.05, mode="delta", scale=35.0),
            _rotation(0.25, "euler_xyz", mode="delta", scale=5.6),
            _gripper("open_-1_closed_1"),
            _unused(3),
        ),
        "tabletop": (*pose, _gripper(open_up)),
        "tabletop_joint": (_joint(6, 3.2), _gripper(open_up)),
        "droid": (_translation(PANDA_REACH_M), _rotation(PI, "euler_xyz"), _gripper("open_0_closed_1")),
        "droid_joint": (_joint(7, 3.8), _gripper("open_0_closed_1")),
        "language_table": (_translation(0.1, size=2, mode="delta"),),
        "libero": (
            _translation(0.05, mode="delta", scale=20.0),
            _rotation(0.5, "axis_angle", mode="delta", scale=2.0),
            _gripper("open_-1_closed_1", discrete=True),
        ),
        "aloha": (
            _joint(6, PI, side="left"),
            _gripper(open_up, side="left"),
            _joint(6, PI, side="right"),
            _gripper(open_up, side="right"),
        ),
    }
    return {name: Layout(name=name, parts=parts) for name, parts in named.items()}


LAYOUTS: dict[str, Layout] = _registry()


def layout_named(name: str) -> Layout:
    """A registered layout; ValueError lists the choices."""
    if name not in LAYOUTS:
        raise ValueError(f"unknown layout {name!r}; choices: {', '.join(sorted(LAYOUTS))}")
    return LAYOUTS[name]
