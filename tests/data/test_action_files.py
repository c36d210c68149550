"""Commands and states from files: one table whatever the format, and one line for each way to be wrong."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simforcing.data.action_files import DECLARED, ENDINGS, read_table, table_from_json
from simforcing.data.lerobot_format import number_names
from simforcing.types import layout_named

LAYOUT = layout_named("bridge")
NAMES = number_names(LAYOUT)


@pytest.fixture
def table(rng: np.random.Generator) -> np.ndarray:
    """Five increments within the layout's range."""
    return rng.uniform(0, 0.05, (5, 7)).astype(np.float32)


def write_csv(path: Path, rows: list[list]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


@pytest.mark.parametrize("rate", [10**400, float("nan"), float("inf")], ids=["large", "nan", "inf"])
def test_a_rate_that_is_no_number_is_refused_in_one_line(table: np.ndarray, rate: float):
    with pytest.raises(ValueError, match=r"^action fps is .{3,40}; expected a number$"):
        table_from_json({"fps": rate, "values": table.tolist()}, LAYOUT, "action", fps=5.0)


def test_every_format_gives_the_same_table(table: np.ndarray, tmp_path: Path):
    np.save(tmp_path / "a.npy", table.astype(np.float64))
    rows = table.astype(float).tolist()
    order = [3, 0, 6, 1, 2, 5, 4]
    write_csv(tmp_path / "plain.csv", rows)
    write_csv(tmp_path / "named.csv", [[NAMES[i] for i in order], *[[row[i] for i in order] for row in rows]])
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    columns = {NAMES[i]: [row[i] for row in rows] for i in order}
    declared = {"layout": "bridge", "fps": 5, "units": {"translation": "m"}}
    (tmp_path / "columns.json").write_text(json.dumps(declared | columns))
    (tmp_path / "values.json").write_text(json.dumps(declared | {"values": rows}))
    for name in ("a.npy", "plain.csv", "named.csv", "rows.json", "columns.json", "values.json"):
        found = read_table(tmp_path / name, LAYOUT, "action", fps=5.0)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, table, err_msg=name)


def test_one_state_may_be_a_flat_list_or_named_numbers(tmp_path: Path):
    flat = table_from_json([0.1] * 7, LAYOUT, "state")
    named = table_from_json(dict.fromkeys(NAMES, 0.1), LAYOUT, "state")
    np.testing.assert_array_equal(flat, named)
    np.save(tmp_path / "state.npy", np.full(7, 0.1))
    np.testing.assert_array_equal(flat, read_table(tmp_path / "state.npy", LAYOUT, "state"))
    assert flat.shape == (1, 7)


@pytest.mark.parametrize(
    ("declared", "line"),
    [
        ({"layout": "droid"}, "actions are of layout 'droid'; this model reads bridge"),
        ({"fps": 10}, "actions come at 10 Hz; this model reads 5 Hz"),
        ({"units": {"translation": "mm"}}, "give translation in 'mm'; layout bridge reads m"),
        ({"units": {"elbow": "rad"}}, "units name part 'elbow'; layout bridge has translation, rotation, gripper"),
    ],
)
def test_what_a_file_declares_must_be_what_the_model_reads(declared: dict, line: str, table: np.ndarray):
    with pytest.raises(ValueError, match=line):
        table_from_json(declared | {"values": table.tolist()}, LAYOUT, "a.json: action", fps=5.0)


def test_numbers_of_another_unit_are_out_of_range(table: np.ndarray):
    table[2, 1] = 30  # mm
    with pytest.raises(ValueError, match=r"translation\[1\] of row 2 is 30, .*; is it of another layout or unit\?"):
        table_from_json(table.tolist(), LAYOUT, "action")


def test_a_number_that_is_none_is_named_by_row_and_column(table: np.ndarray, tmp_path: Path):
    table[3, 4] = np.nan
    np.save(tmp_path / "a.npy", table)
    with pytest.raises(ValueError, match=r"a\.npy: action row 3, column 4 \(pitch\) is nan"):
        read_table(tmp_path / "a.npy", LAYOUT, "action")
    write_csv(tmp_path / "a.csv", [[0.0] * 7, [0.0] * 5 + ["much", 0.0]])
    with pytest.raises(ValueError, match="action row 1, column 5 is 'much'; expected a number"):
        read_table(tmp_path / "a.csv", LAYOUT, "action")


@pytest.mark.parametrize(
    ("header", "line"),
    [
        ([*NAMES[:6], "grip"], "column 'grip' is unknown; layout bridge of this model has x, y, z"),
        (NAMES[:6], "column 'gripper' is missing"),
        ([*NAMES, "x"], "column 'x' is there twice"),
    ],
)
def test_columns_are_those_of_the_layout(header: list[str], line: str, tmp_path: Path):
    path = write_csv(tmp_path / "a.csv", [header, [0.0] * len(header)])
    with pytest.raises(ValueError, match=line):
        read_table(path, LAYOUT, "action")


def test_files_that_hold_no_table_are_refused_in_one_line(tmp_path: Path):
    (tmp_path / "a.npy").write_bytes(b"no array")
    np.save(tmp_path / "words.npy", np.array(["left", "right"]))
    np.save(tmp_path / "wide.npy", np.zeros((4, 8)))
    np.save(tmp_path / "flat.npy", np.zeros(5))
    np.save(tmp_path / "none.npy", np.zeros((0, 7)))
    (tmp_path / "a.csv").write_text("")
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "ragged.csv").write_text("0,0,0,0,0,0,0\n0,0\n")
    (tmp_path / "a.json").write_text('{"x": [1, 2], "y": [1]}')
    (tmp_path / "b.json").write_text("3")
    (tmp_path / "a.txt").write_text("1 2 3")
    for name in ("gone.npy", "gone.csv", "gone.json", *(path.name for path in tmp_path.iterdir())):
        with pytest.raises(ValueError, match=name.replace(".", r"\.")) as caught:
            read_table(tmp_path / name, LAYOUT, "action")
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=r"shape \[4, 8\]; layout bridge of this model reads \[k, 7\]: x, y, z, roll"):
        read_table(tmp_path / "wide.npy", LAYOUT, "action")


@settings(max_examples=150)
@given(ending=st.sampled_from(ENDINGS), content=st.one_of(st.binary(max_size=200), st.text(max_size=60)))
def test_any_file_is_a_table_or_one_line(ending: str, content: bytes | str, tmp_path: Path):
    read_or_refused(tmp_path / f"any{ending}", content if isinstance(content, bytes) else content.encode())


@settings(max_examples=150)
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*DECLARED, "values", *NAMES]), inner)
        ),
        max_leaves=12,
    )
)
def test_any_json_value_is_a_table_or_one_line(value: object, tmp_path: Path):
    read_or_refused(tmp_path / "any.json", json.dumps(value).encode())


def test_a_damaged_array_is_one_line(table: np.ndarray, tmp_path: Path):
    np.save(tmp_path / "whole.npy", table)
    whole = (tmp_path / "whole.npy").read_bytes()
    for at in range(0, len(whole), 3):
        read_or_refused(tmp_path / "cut.npy", whole[:at])
        read_or_refused(tmp_path / "bad.npy", whole[:at] + bytes([whole[at] ^ 0x15]) + whole[at + 1 :])


def read_or_refused(path: Path, content: bytes) -> None:
    """The file gives finite numbers of the layout's width, or one line that begins with its name."""
    path.write_bytes(content)
    try:
        found = read_table(path, LAYOUT, "action", fps=5.0)
    except ValueError as error:
        line = str(error)
    else:
        assert found.shape[1] == LAYOUT.dim
        assert np.isfinite(found).all()
        return
    assert line.startswith(str(path))
    assert "\n" not in line
