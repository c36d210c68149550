"""Commands and states from files that people write: npy, csv or json, read in a model's layout or refused.

Nothing is guessed: what a file says of its numbers (column names, layout, rate, units) must be what the model reads.
"""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile

import numpy as np
from jaxtyping import Float

from simforcing.data.lerobot_format import number_names
from simforcing.data.validate import range_fault
from simforcing.types import Layout
from simforcing.types.files import read_json
from simforcing.types.spec import FPS_TOLERANCE

ENDINGS = (".npy", ".csv", ".json")
MAX_FPS = 1e9  # beyond, an integer may be no float at all
DECLARED = ("layout", "fps", "units")


def read_table(path: Path, layout: Layout, what: str, *, fps: float | None = None) -> Float[np.ndarray, "k a"]:
    """Rows of numbers in this layout.

    Args:
        path: `.npy` (k x a, or one row), `.csv` (with a header of the layout's names in any order, or none) or
            `.json` (rows; or an object with `layout`, `fps`, `units` and the rows or named columns as `values`).
        what: the word for the rows in messages: action, state.
        fps: rate of the rows, which a file's own must equal; None: rows have none.

    Raises:
        ValueError: a missing or damaged file, or numbers that are not what the layout says; both sides are named.
    """
    path = Path(path)
    if path.suffix not in ENDINGS:
        raise ValueError(f"{path}: ending {path.suffix!r} is unknown; choices: {', '.join(ENDINGS)}")
    if path.suffix == ".npy":
        return checked_table(_read_npy(path), layout, f"{path}: {what}")
    if path.suffix == ".csv":
        return checked_table(_read_csv(path, layout, what), layout, f"{path}: {what}")
    return table_from_json(read_json(path), layout, f"{path}: {what}", fps=fps)


def table_from_json(value: Any, layout: Layout, where: str, *, fps: float | None = None) -> Float[np.ndarray, "k a"]:
    """The same of a JSON value that was read already; a flat list of numbers is one row."""
    if isinstance(value, dict):
        _check_declared(value, layout, where, fps)
        rest = {name: item for name, item in value.items() if name not in DECLARED}
        value = rest["values"] if set(rest) == {"values"} else rest
    if isinstance(value, dict):
        order = _order(list(value), layout, where)
        columns = [value[name] if isinstance(value[name], list) else [value[name]] for name in value]
        lengths = {name: len(column) for name, column in zip(value, columns, strict=True)}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"{where} columns differ in length: {', '.join(f'{n} {k}' for n, k in lengths.items())}")
        value = [[columns[at][row] for at in order] for row in range(len(columns[0]))]
    if isinstance(value, list) and value and not isinstance(value[0], list):
        value = [value]
    if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
        raise ValueError(f"{where} is a {type(value).__name__}; expected a list of rows, or an object of named columns")
    return checked_table(_numbers(value, where), layout, where)


def checked_table(values: np.ndarray, layout: Layout, where: str) -> Float[np.ndarray, "k a"]:
    """The numbers in float32.

    Raises:
        ValueError: another width, no rows, a number that is not finite (row and column are named), or one that is far
            outside of what the layout declares, as of another unit.
    """
    names = number_names(layout)
    if values.ndim != 2 or values.shape[1] != layout.dim or not len(values):
        raise ValueError(
            f"{where}s have shape {list(values.shape)}; layout {layout.name} of this model reads [k, {layout.dim}]:"
            f" {', '.join(names)}"
        )
    if bad := np.argwhere(~np.isfinite(values)).tolist():
        row, column = bad[0]
        raise ValueError(f"{where} row {row}, column {column} ({names[column]}) is {values[row, column]}")
    if (fault := range_fault(values, layout)) is not None:
        raise ValueError(f"{where} {fault}; is it of another layout or unit?")
    return values.astype(np.float32)


def _read_npy(path: Path) -> np.ndarray:
    try:
        values = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except (OSError, ValueError, EOFError, SyntaxError, TokenError, MemoryError, BadZipFile) as error:
        raise ValueError(f"{path}: no array of numbers can be read ({' '.join(str(error).split())})") from None
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiu":
        raise ValueError(f"{path}: holds {getattr(values, 'dtype', 'several arrays')}; expected one array of numbers")
    return np.atleast_2d(values.astype(np.float64))


def _read_csv(path: Path, layout: Layout, what: str) -> np.ndarray:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: no text can be read ({' '.join(str(error).split())})") from None
    try:
        rows = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text)) if any(row)]
    except csv.Error as error:
        raise ValueError(f"{path}: no table can be read ({error})") from None
    if not rows:
        raise ValueError(f"{path}: no rows")
    if all(map(_is_number, rows[0])):
        return _numbers(rows, f"{path}: {what}")
    order = _order(rows[0], layout, f"{path}: {what}")
    for number, row in enumerate(rows[1:]):
        if len(row) != len(rows[0]):
            raise ValueError(f"{path}: {what} row {number} has {len(row)} numbers, the header {len(rows[0])} names")
    return _numbers([[row[at] for at in order] for row in rows[1:]], f"{path}: {what}")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _order(found: Sequence[str], layout: Layout, where: str) -> list[int]:
    """Where in a file's columns each number of the layout stands. ValueError where names differ."""
    names = number_names(layout)
    listed = f"layout {layout.name} of this model has {', '.join(names)}"
    for name in found:
        if name not in names:
            raise ValueError(f"{where} column {name!r} is unknown; {listed}")
        if list(found).count(name) > 1:
            raise ValueError(f"{where} column {name!r} is there twice")
    for name in names:
        if name not in found:
            raise ValueError(f"{where} column {name!r} is missing; {listed}")
    return [list(found).index(name) for name in names]


def _numbers(rows: Sequence[Sequence[Any]], where: str) -> np.ndarray:
    """Rows of one length as floats. ValueError names row and column."""
    for number, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise ValueError(f"{where} row {number} has {len(row)} numbers, row 0 has {len(rows[0])}")
    width = len(rows[0]) if rows else 0
    values = np.zeros((len(rows), width))
    for number, column in np.ndindex(values.shape):
        cell = rows[number][column]
        try:
            if isinstance(cell, bool) or not isinstance(cell, int | float | str):
                raise ValueError
            values[number, column] = float(cell)
        except (ValueError, OverflowError):
            raise ValueError(f"{where} row {number}, column {column} is {cell!r:.40}; expected a number") from None
    return values


def _check_declared(value: dict[str, Any], layout: Layout, where: str, fps: float | None) -> None:
    """ValueError, naming both sides, where a file declares another layout, rate or unit than the model's."""
    name = value.get("layout", layout.name)
    if name != layout.name:
        raise ValueError(f"{where}s are of layout {name!r}; this model reads {layout.name}")
    rate = value.get("fps", fps)
    if "fps" in value and fps is None:
        raise ValueError(f"{where} has no rate, but the file declares fps {rate!r}")
    if isinstance(rate, bool) or not isinstance(rate, int | float | None):
        raise ValueError(f"{where} fps is {rate!r}; expected a number")
    if rate is not None and not abs(rate) < MAX_FPS:  # nor is NaN
        raise ValueError(f"{where} fps is {rate!r:.40}; expected a number")
    if rate is not None and fps is not None and abs(rate - fps) > FPS_TOLERANCE * fps:
        raise ValueError(f"{where}s come at {rate:g} Hz; this model reads {fps:g} Hz")
    units = value.get("units", {})
    if not isinstance(units, dict):
        raise ValueError(
            f"{where} units are {units!r}; expected an object of units by part: {', '.join(layout.slices)}"
        )
    for part, unit in units.items():
        if part not in layout.slices:
            raise ValueError(f"{where} units name part {part!r}; layout {layout.name} has {', '.join(layout.slices)}")
        if unit != layout.part(part).unit:
            raise ValueError(f"{where}s give {part} in {unit!r}; layout {layout.name} reads {layout.part(part).unit}")
