"""What makes a robot's pictures beside the options: its compiled model, MuJoCo's version, the library that renders."""

# MuJoCo ships no stubs:
# pyright: reportAttributeAccessIssue=false, reportInvalidTypeForm=false

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from simforcing.sim.model import RobotModel
from simforcing.sim.robot import Robot
from simforcing.types import to_json


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where pictures of a robot come from.

    Args:
        model: fingerprint of the compiled model (shapes, limits, colours, light) and of the robot's description.
        model_path: where it was read; None where it is built in. Where it lies changes no picture.
        mujoco: version.
        gl: library that renders.
    """

    model: str
    model_path: str | None
    mujoco: str
    gl: str

    @property
    def decisive(self) -> tuple[str, ...]:
        """All that can change a picture."""
        return self.model, self.mujoco, self.gl


def provenance_of(robot: Robot, path: Path | None = None) -> Provenance:
    """Read and compile the robot's model. Raises ValueError where it cannot be.

    Args:
        path: what the user gave for it, such as the Python file that describes the robot.
    """
    found = robot.model_path() or path
    return Provenance(
        model=model_fingerprint(RobotModel(robot)),
        model_path=None if found is None else str(found),
        mujoco=mujoco.__version__,
        gl=os.environ.get("MUJOCO_GL", "default"),
    )


def model_fingerprint(robot: RobotModel) -> str:
    """The same wherever the model's files lie; another one where any number of the model differs.

    A renderer changes its model's size of pictures: take a model that none has used.
    """
    digest = hashlib.sha256()
    description = to_json(replace(robot.robot, model=""))
    digest.update(json.dumps(description, sort_keys=True).encode())
    for name, value in _numbers("", robot.model):
        digest.update(name.encode())
        digest.update(value.tobytes())
    return digest.hexdigest()[:32]


def _numbers(prefix: str, part: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Every array and number of a model and of its structures, but file paths and their sizes."""
    for name in sorted(dir(part)):
        if name.startswith("_") or "path" in name or name == "nbuffer":
            continue
        value = getattr(part, name)
        if isinstance(value, np.ndarray | int | float | bytes):
            yield prefix + name, np.asarray(value)
        elif type(value).__module__.startswith("mujoco") and not callable(value):
            yield from _numbers(f"{prefix}{name}.", value)
