"""The log is cut back exactly, and progress is told without a terminal too."""

import json
import os
import sys

import pytest
import torch

from simforcing.training import log as module
from simforcing.training.log import JsonlLog, Meter, ProgressBar, TensorBoardLog, describe_environment, read_log


def lines(path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_a_log_is_cut_back_to_the_step_a_run_continues_from(tmp_path):
    path = tmp_path / "log.jsonl"
    first = JsonlLog(path, 0)
    for step in (1, 3, 6, 9):
        first.write({"step": step, "loss": 0.1 + 0.2})
    first.close()
    second = JsonlLog(path, 6)
    assert lines(path) == [1, 3, 6]
    second.write({"step": 7, "loss": 1.0})
    second.close()
    assert lines(path) == [1, 3, 6, 7]
    assert read_log(path)[0]["loss"] == 0.1 + 0.2
    assert os.listdir(tmp_path) == ["log.jsonl"]


@pytest.mark.parametrize("cut", [1, 5, 12])
def test_a_half_written_last_line_is_dropped(tmp_path, cut):
    path = tmp_path / "log.jsonl"
    whole = '{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.5}\n'
    path.write_text(whole[:-cut] if cut > 1 else whole[:-2])
    assert [record["step"] for record in read_log(path)] == [1]
    JsonlLog(path, 5).close()
    assert path.read_text() == '{"step": 1, "loss": 2.0}\n'


def test_lines_that_are_no_records_cost_themselves_alone_and_one_warning(tmp_path):
    path = tmp_path / "log.jsonl"
    bad = (
        "\x00\x07",
        '{"step": 2, "lo',
        "3",
        "[]",
        "null",
        '{"loss": 1}',
        '{"step": "4"}',
        '{"step": true}',
        "[" * 99_999,
    )
    path.write_text('{"step": 1}\n' + "\n".join(bad) + '\n{"step": 5}\n{"step": 6')
    told: list[str] = []
    assert [record["step"] for record in read_log(path, told.append)] == [1, 5]
    assert told == [f"{path}: line 2 and {len(bad) - 1} more is no record and is left out"]
    JsonlLog(path, 5, told.append).close()
    assert len(told) == 2
    assert path.read_text() == '{"step": 1}\n{"step": 5}\n'
    assert read_log(path, told.append)[-1] == {"step": 5}
    assert len(told) == 2


def test_a_new_run_starts_with_an_empty_log(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"step": 1}\n')
    JsonlLog(tmp_path / "log.jsonl", 0).close()
    assert (tmp_path / "log.jsonl").read_text() == ""


def test_without_a_terminal_progress_is_a_line_now_and_then(capfd, monkeypatch):
    clock = {"now": 0.0}
    monkeypatch.setattr(module.time, "monotonic", lambda: clock["now"])
    bar = ProgressBar(100, 8, shown=True)
    with bar.running(20):
        for step in range(21, 101):
            clock["now"] += 0.5
            bar.advance(step, 1.25 if step == 30 else None)
    told = capfd.readouterr().err.splitlines()
    assert told == [
        "step 40/100  16.0 clips/s  loss 1.25  0:30 left",
        "step 60/100  16.0 clips/s  loss 1.25  0:20 left",
        "step 80/100  16.0 clips/s  loss 1.25  0:10 left",
        "step 100/100  16.0 clips/s  loss 1.25  0:00 left",
    ]


def test_progress_that_is_switched_off_says_only_what_must_be_said(capfd):
    bar = ProgressBar(2, 8, shown=False)
    with bar.running(0):
        bar.advance(1, 1.0)
        bar.say("warning: [odd] brackets stay")
        bar.advance(2, 1.0)
    assert capfd.readouterr().err == "warning: [odd] brackets stay\n"


def test_missing_tensorboard_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ValueError, match=r"pip install 'simforcing\[tensorboard\]'"):
        TensorBoardLog(tmp_path, 0)


def test_tensorboard_gets_every_number(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    board = TensorBoardLog(tmp_path, 0)
    board.write(
        {"step": 3, "loss": 0.5, "terms": {"flow": 0.25}, "validation": {"psnr": None}, "timing": {"step_s": 1.0}}
    )
    board.close()
    events = accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert set(events.Tags()["scalars"]) == {"loss", "terms/flow", "timing/step_s"}
    assert [(event.step, event.value) for event in events.Scalars("terms/flow")] == [(3, 0.25)]


def test_the_first_number_that_is_not_finite_is_named_with_its_step():
    meter = Meter(torch.device("cpu"))
    meter.prepare({"terms": ["flow", "motion"], "count": 0})
    nan = float("nan")
    meter.add(torch.tensor([1.0, 2.0, 3.0, 0.0]), torch.tensor(1.0), 4)
    assert meter.fault() is None
    meter.add(torch.tensor([1.0, nan, nan, 0.0]), torch.tensor(nan), 5)
    meter.add(torch.tensor([nan, nan, nan, 0.0]), torch.tensor(nan), 6)
    assert meter.fault() == "step 5: loss term 'motion' is not finite"


def test_environment_names_what_the_last_bits_depend_on():
    environment = describe_environment(torch.device("cpu"), 2)
    assert environment["torch"] == torch.__version__
    assert environment["num_threads"] == torch.get_num_threads()
    assert environment["num_processes"] == 2
    assert len(environment["device"]) > len("cpu: ")
    json.dumps(environment)
