"""Any field of a Run by its dotted name: every choice of the method is a value that a command can set."""

import json
from typing import Any

from simforcing.recipes.run import Run
from simforcing.types import from_json, to_json

FIXED = ("recipe", "spec.fingerprint", "variants_fingerprint", "start.path", "start.sha256")


def with_settings(run: Run, settings: tuple[str, ...]) -> Run:
    """The run with `dotted.name=value` settings applied in order, then checked as a whole.

    A value is JSON (numbers, true, null, lists) or else a word.

    Raises:
        ValueError: no such field (the choices are listed), a value of another type, or parts that do not fit.
    """
    if not settings:
        return run
    tree = to_json(run)
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(f"setting {setting!r}: expected name=value, as in objective.distill.target=value")
        if name in FIXED:
            raise ValueError(f"setting {setting!r}: {name} is what the run was made from; it cannot be set")
        try:
            _set(tree, name.split("."), text, setting)
        except ArithmeticError as error:
            raise ValueError(f"setting {setting!r}: {error}") from None
    return from_json(Run, tree, "setting")


def _set(tree: dict[str, Any], names: list[str], text: str, setting: str) -> None:
    for name in names[:-1]:
        inner = tree.get(name)
        if not isinstance(inner, dict):
            raise ValueError(f"setting {setting!r}: {name!r} has no fields here; fields: {_fields(tree)}")
        tree = inner
    if names[-1] not in tree or names[-1] == "type":
        raise ValueError(f"setting {setting!r}: no field {names[-1]!r}; fields: {_fields(tree)}")
    tree[names[-1]] = _parsed(text, tree[names[-1]])


def _fields(tree: dict[str, Any]) -> str:
    return ", ".join(name for name in tree if name != "type")


def _refused(text: str) -> float:
    raise ArithmeticError(f"{text} is no number that a run can have")


def _parsed(text: str, current: Any) -> Any:
    if isinstance(current, str) and text != "null":
        return text  # a word stays one, also where it reads like a number or a truth value
    try:
        return json.loads(text, parse_constant=_refused)
    except ValueError:
        return text
