"""What the command line says about errors that no command handles itself is one true line."""

import sys

import pytest

from simforcing import cli


def fail_with(error: BaseException, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(cli.tyro.extras, "subcommand_cli_from_dict", fail)
    monkeypatch.setattr(sys, "argv", ["simforcing", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["train", "data"], "interrupted; the same command goes on where it stopped"),
        (
            ["train", "data", "--overwrite"],
            "interrupted; the same command without --overwrite goes on where it stopped",
        ),
        (["simulate", "a", "b", "--overwrite"], "interrupted; the same command goes on where it stopped"),
        (["evaluate", "run"], "interrupted; the same command starts again"),
        (["convert", "a", "b"], "interrupted; the same command starts again"),
        ([], "interrupted"),
    ],
)
def test_an_interrupted_command_says_what_it_does_next(
    arguments: list[str], line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert fail_with(KeyboardInterrupt(), arguments, monkeypatch) == 130
    assert capsys.readouterr().err == f"simforcing: {line}\n"


def test_too_little_memory_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    error = MemoryError("Unable to allocate 4.00 TiB\nfor an array")
    assert fail_with(error, ["train", "data"], monkeypatch) == 1
    assert capsys.readouterr().err == "simforcing: out of memory (Unable to allocate 4.00 TiB for an array)\n"
    assert fail_with(MemoryError(), ["train", "data"], monkeypatch) == 1
    assert capsys.readouterr().err == "simforcing: out of memory\n"
