"""Layouts: what they promise about widths, names and ranges, and that they describe the real data."""

import re
from pathlib import Path

import pytest

from simforcing.data.lerobot_format import read_declaration
from simforcing.types import LAYOUTS, Layout, Part, from_json, layout_named, to_json


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=str)
def test_a_registered_layout_survives_json_and_its_columns_tile_its_width(layout: Layout) -> None:
    assert from_json(Layout, to_json(layout)) == layout
    unused = sum(part.size for part in layout.parts if part.kind == "unused")
    columns = [column for columns in layout.slices.values() for column in range(layout.dim)[columns]]
    assert sorted(set(columns)) == sorted(columns)
    assert len(columns) + unused == layout.dim
    for part in layout.parts:
        assert part.kind == "unused" or (part.low is not None and part.high is not None and part.low < part.high)


def test_two_arms_have_fourteen_numbers_with_named_sides() -> None:
    aloha = layout_named("aloha")
    assert aloha.dim == 14
    assert list(aloha.slices) == ["left_joint", "left_gripper", "right_joint", "right_gripper"]


def test_an_unknown_layout_lists_the_choices() -> None:
    with pytest.raises(ValueError, match=r"unknown layout 'bridg'; choices: .*bridge.*droid"):
        layout_named("bridg")
    with pytest.raises(ValueError, match=r"no part 'joint'; parts: translation, rotation, gripper"):
        layout_named("bridge").part("joint")


def test_a_layout_may_not_name_a_part_twice_but_may_pad_twice() -> None:
    pad, hand = Part(kind="unused", size=1), Part(kind="gripper", size=1, gripper="open_0_closed_1")
    assert Layout(name="padded", parts=(pad, hand, pad)).slices == {"gripper": slice(1, 2)}
    with pytest.raises(ValueError, match="part names repeat"):
        Layout(name="twice", parts=(hand, hand))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "joint", "size": 0}, "size 0"),
        ({"kind": "rotation", "size": 3}, "rotation form None"),
        ({"kind": "rotation", "size": 3, "rotation": "quaternion_wxyz"}, "has 4 numbers, not 3"),
        ({"kind": "joint", "size": 1, "gripper": "open_0_closed_1"}, "gripper sense"),
        ({"kind": "joint", "size": 1, "scale": 0.0}, "scale must not be 0"),
        ({"kind": "joint", "size": 1, "discrete": True}, "only a gripper part"),
        ({"kind": "joint", "size": 1, "rate_hz": 0.0}, "rate_hz 0.0 must be above 0"),
    ],
)
def test_a_part_that_contradicts_itself_is_refused(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Part(**fields)


def test_the_document_lists_every_registered_layout_with_its_width(project_root: Path) -> None:
    text = (project_root / "docs" / "layouts.md").read_text()
    listed = {name: int(width) for name, width in re.findall(r"^\| `(\w+)` \| (\d+) \|", text, re.MULTILINE)}
    assert listed == {layout.name: layout.dim for layout in LAYOUTS.values()}


def test_the_documents_own_declaration_can_be_read(project_root: Path, tmp_path: Path) -> None:
    text = (project_root / "docs" / "layouts.md").read_text()
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "simforcing.json").write_text(re.findall(r"```json\n(.*?)```", text, re.DOTALL)[0])
    declaration = read_declaration(tmp_path)
    assert declaration.action_layout is not None
    assert (declaration.action_layout.dim, declaration.fps) == (7, 10.0)
