"""Calibration files: what is written is what is read, and a wrong field is named with what was expected."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from simforcing.types import Camera
from simforcing.types.calibration import Calibration, EpisodeFit, GroupFit, read_calibration, write_calibration
from simforcing.types.version import package_version

number = st.floats(-10, 10, allow_nan=False)
optional = st.none() | number
text = st.text(max_size=8)
# Fields alone: records are built in the test, as checking types draws random numbers, which strategies must not.
fit = st.fixed_dictionaries(
    {
        "name": text,
        "accepted": st.booleans(),
        "iou": optional,
        "iou_low": optional,
        "iou_high": optional,
        "lag": st.none() | st.integers(-3, 3),
        "reason": text,
    }
)
group = st.fixed_dictionaries(
    {
        "name": text,
        "lag": st.integers(-3, 3),
        "position_deviation_m": optional,
        "rotation_deviation_rad": optional,
        "focal_deviation": optional,
    }
)
whole = st.fixed_dictionaries(
    {
        "data": text,
        "fingerprint": text,
        "view": text,
        "robot": text,
        "seed": st.integers(0, 2**31),
        "settings": st.dictionaries(text, st.none() | st.booleans() | number | text | st.lists(number, max_size=2)),
    }
)


def camera(seed: int = 0) -> Camera:
    rng = np.random.default_rng(seed)
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = Rotation.from_rotvec(rng.normal(size=3)).as_matrix(), rng.normal(size=3)
    focal, centre = rng.uniform(20, 200, 2), rng.normal(30, 5, 2)
    intrinsics = np.array([[focal[0], 0, centre[0]], [0, focal[1], centre[1]], [0, 0, 1]])
    return Camera(size=(48, 64), intrinsics=intrinsics, pose=pose)


@given(
    fits=st.lists(fit, max_size=5, unique_by=lambda item: item["name"]),
    groups=st.lists(group, min_size=3, max_size=3),
    fields=whole,
    has_camera=st.booleans(),
)
def test_what_is_written_is_what_is_read(
    tmp_path: Path, fits: list[dict], groups: list[dict], fields: dict, has_camera: bool
) -> None:
    built = []
    for index, values in enumerate(groups):
        members = tuple(EpisodeFit(**item) for item in fits[2 * index : 2 * index + 2])
        known = has_camera or any(member.accepted for member in members)
        built.append(GroupFit(camera=camera(index) if known else None, episodes=members, **values))
    calibration = Calibration(groups=tuple(built), version=package_version(), **fields)
    write_calibration(tmp_path / "calibration.json", calibration)
    assert read_calibration(tmp_path / "calibration.json") == calibration


def stored(path: Path) -> dict[str, Any]:
    """A small valid file's content."""
    fits = (EpisodeFit(name="a", accepted=True, iou=0.8), EpisodeFit(name="b", accepted=False, reason="not in view"))
    group = GroupFit(name="kitchen", camera=camera(), lag=1, episodes=fits, focal_deviation=0.0)
    write_calibration(
        path,
        Calibration(data="d", fingerprint="f", view="v", robot="r", groups=(group,), seed=0, settings={"starts": 3}),
    )
    return json.loads(path.read_text())


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("robot",), 3, "calibration.robot: expected str, found 3"),
        (("seed",), None, "calibration.seed: expected int, found None"),
        (("settings",), [], r"calibration.settings: expected an object, found \[\]"),
        (("speed",), 1, "Calibration has no field 'speed'"),
        (("groups",), {}, "expected an object with a list of groups"),
        (("groups", 0, "lag"), 1.5, r"groups\[0\].lag: expected int, found 1.5"),
        (("groups", 0, "lag"), True, r"groups\[0\].lag: expected int, found True"),
        (("groups", 0, "focal_deviation"), float("inf"), "focal_deviation is inf, expected a finite number"),
        (("groups", 0, "camera", "pose"), [[1, 2]], r"groups\[0\].camera.pose: expected 4 rows of 4 finite numbers"),
        (("groups", 0, "camera"), None, "episode a is accepted, but the group has no complete camera"),
        (("groups", 0, "episodes"), None, r"groups\[0\].episodes: expected a list, found None"),
        (("groups", 0, "episodes", 0, "accepted"), "yes", r"episodes\[0\].accepted: expected bool, found 'yes'"),
        (("groups", 0, "episodes", 1, "iou"), float("nan"), "episode b: iou is nan, expected a finite number"),
        (("groups", 0, "episodes", 1, "name"), "a", "episode 'a' is in it more than once"),
        (("groups", 0), "x", r"groups\[0\]: expected a GroupFit object, found 'x'"),
    ],
)
def test_a_wrong_field_is_named_with_what_was_expected(
    tmp_path: Path, place: tuple[str | int, ...], value: Any, message: str
) -> None:
    path = tmp_path / "calibration.json"
    content = stored(path)
    target: Any = content
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = value
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message) as caught:
        read_calibration(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["data", "fingerprint", "view", "robot", "seed", "settings"])
def test_a_missing_field_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / "calibration.json"
    content = stored(path)
    del content[name]
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=f"Calibration needs field '{name}'"):
        read_calibration(path)
