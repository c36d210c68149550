"""Options of the command line reach what they are for, and a missing package is named with its extra."""

import dataclasses
import inspect
import sys
import tomllib
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from simforcing import cli
from simforcing.cli.options import Sampling
from simforcing.types import EpisodeSet

ROOT = Path(__file__).resolve().parents[2]
OTHERS = {"device": "cuda:7", "dtype": "bfloat16", "seed": 41, "overwrite": True}
CALLED = {
    "train": ("simforcing.recipes.train.train_on", ("data", Path("out"))),
    "generate": ("simforcing.recipes.generate.generate", ("run",)),
    "evaluate": ("simforcing.recipes.evaluate.evaluate_run", (Path("run"),)),
    "demo": ("simforcing.recipes.demo.demo", ()),
    "doctor": ("simforcing.recipes.doctor.run_checks", (Path("run"),)),
    "tabletop": ("simforcing.recipes.tabletop_sets.simulate_tabletop", (Path("out"),)),
    "convert": ("simforcing.data.convert.convert", ("source", Path("out"))),
}


class Reached(Exception):
    """Carries what a command called with."""


def call_of(monkeypatch: pytest.MonkeyPatch, command: str, options: dict[str, Any]) -> dict[str, Any]:
    """All named values that the command hands over, those within options and data sets included."""
    name, arguments = CALLED[command]

    def catch(*args: Any, **kwargs: Any) -> None:
        records = [value for value in (*args, *kwargs.values()) if dataclasses.is_dataclass(value)]
        values = dict(kwargs)
        for record in records:
            values |= {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
        raise Reached(values)

    monkeypatch.setattr(name, catch)
    with pytest.raises(Reached) as caught:
        cli.COMMANDS[command](*arguments, **options)
    return caught.value.args[0]


@pytest.mark.parametrize("command", CALLED)
def test_every_shared_option_that_a_command_shows_reaches_what_it_calls(command: str, monkeypatch: pytest.MonkeyPatch):
    parameters = inspect.signature(cli.COMMANDS[command]).parameters
    if "how" in parameters:
        kind = type(parameters["how"].default)
        shown = {field.name: OTHERS[field.name] for field in dataclasses.fields(kind)}
        options = {"how": kind(**shown)}
    else:
        shown = options = {name: OTHERS[name] for name in OTHERS if name in parameters}
    assert shown
    values = call_of(monkeypatch, command, options)
    assert {name: values[name] for name in shown} == shown


def test_the_commands_of_a_run_hand_over_the_view_and_the_number_of_steps(monkeypatch: pytest.MonkeyPatch):
    for command, steps in (("generate", {"sampling": Sampling(steps=3)}), ("evaluate", {"steps": 3})):
        values = call_of(monkeypatch, command, {"view": "wrist", "data": "other", **steps})
        assert (values["view"], values["num_steps"], values["data"]) == ("wrist", 3, "other")


def test_the_demo_computes_in_the_precision_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, square_set: EpisodeSet
):
    from simforcing.recipes import demo
    from simforcing.recipes.prediction import PredictionOptions

    seen: list[str] = []
    monkeypatch.setattr(demo, "open_dataset", lambda data: square_set)
    monkeypatch.setattr(demo, "describe", lambda data: [])
    monkeypatch.setattr(demo, "verified", lambda data, views, report: data)
    monkeypatch.setattr(demo, "streams_of", lambda recipe, data, options: ("front",))
    monkeypatch.setattr(demo, "planned", lambda recipe, data, options: options)
    monkeypatch.setattr(demo, "training_cost", lambda run, data: "")
    monkeypatch.setattr(demo, "num_processes", lambda run: 1)
    monkeypatch.setattr(demo, "side_by_side", lambda *args: nullcontext())
    monkeypatch.setattr(demo, "execute", lambda run, *args, **kwargs: seen.append(run.dtype))

    def evaluate(*args: Any, options: PredictionOptions, **kwargs: Any) -> None:
        raise Reached(options.dtype)

    monkeypatch.setattr(demo, "evaluate_run", evaluate)
    options = PredictionOptions(data="mine", dtype="bfloat16")
    with pytest.raises(Reached, match="bfloat16"):
        demo.demo(tmp_path, size=demo.SIZES["smoke"], options=options, report=lambda line: None)
    assert seen == ["bfloat16"]


def test_the_machine_check_refuses_options_of_a_run():
    with pytest.raises(ValueError, match="options are for a run"):
        cli.doctor(data="mine")


def test_extras_are_those_of_the_package():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for module, extra in cli.EXTRAS.items():
        requirements = " ".join(extras[extra])
        assert module in requirements, f"extra {extra} does not install {module}"


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("mujoco", "mujoco is missing: pip install 'simforcing[sim]'"),
        ("diffusers.models", "diffusers is missing: pip install 'simforcing[wan]'"),
    ],
)
def test_a_missing_package_is_one_line_and_code_1(
    module: str, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    assert code_of(lambda: raise_missing(module), monkeypatch) == 1
    assert capsys.readouterr().err == f"simforcing: {line}\n"


def test_a_missing_package_that_no_extra_has_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ModuleNotFoundError):
        code_of(lambda: raise_missing("simforcing.wings"), monkeypatch)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("no episode is left"), 2),
        (OSError("disk full"), 1),
        (FloatingPointError("NaN"), 1),
        (RuntimeError("a process died"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_the_exit_code_says_what_kind_of_failure_it_was(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    def fail() -> None:
        raise error

    assert code_of(fail, monkeypatch) == code
    assert len(capsys.readouterr().err.splitlines()) == 1


def raise_missing(module: str) -> None:
    raise ModuleNotFoundError(f"No module named {module!r}", name=module)


def code_of(command: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(cli, "COMMANDS", {"convert": cli.convert, "fail": command})
    monkeypatch.setattr(sys, "argv", ["simforcing", "fail"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return caught.value.code
