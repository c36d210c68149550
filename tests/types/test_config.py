"""Configs to JSON and back: exact, strict about fields and types, unions by class name."""

import json
from dataclasses import dataclass
from typing import Literal

import pytest

from simforcing.types import Resize, check_choices, from_json, to_json


@dataclass(frozen=True, kw_only=True)
class Euler:
    num_steps: int = 20


@dataclass(frozen=True, kw_only=True)
class Heun:
    num_steps: int = 10
    is_last_euler: bool = True


@dataclass(frozen=True, kw_only=True)
class Sampler:
    solver: Euler | Heun
    views: tuple[str, ...]
    size: tuple[int, int]
    guidance: float | None = None
    mask: Literal["full", "causal"] = "full"
    weights: dict[str, float] | None = None


SAMPLER = Sampler(solver=Heun(), views=("a", "b"), size=(4, 6), guidance=0.6, weights={"x": 1.0})


def test_a_config_survives_json_text_exactly() -> None:
    assert from_json(Sampler, json.loads(json.dumps(to_json(SAMPLER)))) == SAMPLER


def test_the_same_fields_under_another_class_name_are_another_choice() -> None:
    value = to_json(SAMPLER)
    value["solver"] = {"type": "Euler", "num_steps": 10}
    assert from_json(Sampler, value).solver == Euler(num_steps=10)


def test_a_whole_number_is_a_float_but_a_float_and_a_bool_are_no_integers() -> None:
    assert from_json(float, 3) == 3.0
    assert isinstance(from_json(float, 3), float)
    for value in (3.0, True, "3"):
        with pytest.raises(ValueError, match="expected int"):
            from_json(int, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"solver": {"type": "Adams"}}, r"config.solver: type 'Adams' is not one of Euler, Heun"),
        ({"mask": "dense"}, r"config.mask: 'dense' is not one of 'full', 'causal'"),
        ({"size": [1, 2, 3]}, r"config.size: expected 2 items, found 3"),
        ({"views": "front"}, r"config.views: expected a list"),
        ({"steps": 3}, r"Sampler has no field 'steps'; fields: solver"),
        ({"guidance": "high"}, r"config.guidance: 'high' fits none of"),
        ({"weights": {"x": "heavy"}}, r"config.weights"),
    ],
)
def test_a_wrong_field_is_named_with_what_was_expected(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_json(Sampler, {**to_json(SAMPLER), **change})


def test_a_missing_field_and_a_foreign_class_are_refused() -> None:
    value = to_json(SAMPLER)
    del value["views"]
    with pytest.raises(ValueError, match="Sampler needs field 'views'"):
        from_json(Sampler, value)
    with pytest.raises(ValueError, match="expected a Euler, found a 'Heun'"):
        from_json(Euler, to_json(Heun()))


def test_checks_of_the_class_run_when_it_is_read() -> None:
    with pytest.raises(ValueError, match="'stretch' is not one of"):
        from_json(Resize, {"height": 4, "width": 4, "policy": "stretch"})


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="a config cannot hold"):
        to_json({"x": object()})


def test_a_misspelt_choice_is_refused_with_the_choices():
    @dataclass(frozen=True, kw_only=True)
    class Choice:
        kind: Literal["one", "two"] = "one"
        size: int = 0

    check_choices(Choice())
    with pytest.raises(ValueError, match="Choice: unknown kind 'oen'; choices: one, two"):
        check_choices(Choice(kind="oen"))  # type: ignore[arg-type]
