"""Laws of a run: same seed, same numbers; stop and resume changes nothing; nothing wrong is continued or written."""

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from training_problem import METADATA, SmallData, flow_objective, small_config, small_model, validate

from simforcing.nn.protocols import Loss
from simforcing.training.checkpoint import list_checkpoints, load_weights, read_checkpoint
from simforcing.training.interrupt import Interrupted
from simforcing.training.log import read_log
from simforcing.training.trainer import TrainerConfig, train


def run(
    run_dir: Path, *, model: nn.Module | None = None, data=None, objective=flow_objective, metadata=METADATA, **changes
):
    return train(
        model or small_model(),
        objective,
        data or SmallData(),
        small_config(**changes),
        run_dir,
        validate=validate,
        metadata=metadata,
        progress=False,
    )


def records(run_dir: Path) -> list[dict]:
    """The log without its timings."""
    return [
        {key: value for key, value in record.items() if key != "timing"} for record in read_log(run_dir / "log.jsonl")
    ]


def final_tensors(run_dir: Path) -> dict[str, torch.Tensor]:
    return read_checkpoint(list_checkpoints(run_dir / "checkpoints")[-1]).tensors


def assert_same_run(a: Path, b: Path) -> None:
    assert records(a) == records(b)
    left, right = final_tensors(a), final_tensors(b)
    assert left.keys() == right.keys()
    assert [name for name in left if not torch.equal(left[name], right[name])] == []


class StopsAfter(SmallData):
    """Data that breaks (or asks the process to stop) when the batch of one step is read."""

    def __init__(self, step: int, number: int | None = None) -> None:
        super().__init__()
        self.step, self.number, self.count = step, number, 0

    def batch(self, indices):
        self.count += 1
        if self.count == self.step + 1:
            if self.number is None:
                raise RuntimeError("the machine broke down")
            os.kill(os.getpid(), self.number)
        return super().batch(indices)


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> Path:
    """An uninterrupted run."""
    run_dir = tmp_path_factory.mktemp("straight")
    run(run_dir)
    return run_dir


def test_the_model_learns(tmp_path):
    run(tmp_path, num_steps=300, log_every=50, checkpoint_every=300)
    losses = [record["loss"] for record in records(tmp_path)]
    assert losses[-1] < 0.8 * losses[0]


def test_same_seed_gives_the_same_run_and_another_seed_another(straight, tmp_path):
    run(tmp_path / "same")
    run(tmp_path / "other", seed=8)
    assert_same_run(straight, tmp_path / "same")
    assert records(straight)[0] != records(tmp_path / "other")[0]


def test_the_callers_random_state_does_not_matter_and_is_left_alone(straight, tmp_path):
    torch.manual_seed(123)
    model = small_model()
    torch.manual_seed(99)
    expected = torch.rand(3, generator=torch.Generator().manual_seed(99))
    run(tmp_path / "again", model=model)
    assert torch.equal(torch.rand(3), expected)
    assert_same_run(straight, tmp_path / "again")


@pytest.mark.parametrize("step", [1, 5, 6, 13, 23])
def test_a_run_that_broke_and_was_started_again_equals_a_straight_one(straight, tmp_path, step):
    with pytest.raises(RuntimeError, match="broke down"):
        run(tmp_path, data=StopsAfter(step))
    result = run(tmp_path)
    assert result.step == 24
    assert_same_run(straight, tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_step_saves_and_says_how_to_continue(straight, tmp_path, capfd, number):
    handler = signal.getsignal(number)
    with pytest.raises(Interrupted) as caught:
        run(tmp_path, data=StopsAfter(7, number))
    assert caught.value.code == 128 + number
    assert signal.getsignal(number) is handler
    assert list_checkpoints(tmp_path / "checkpoints")[-1].name == "step_000000008.safetensors"
    lines = capfd.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert "saved at step 8 of 24; the same command continues" in lines[0]
    run(tmp_path)
    assert_same_run(straight, tmp_path)


def test_a_finished_run_is_not_trained_again(straight, tmp_path):
    class NoData(SmallData):
        def batch(self, indices):
            raise AssertionError("read a batch")

    run(tmp_path)
    model = small_model()
    result = run(tmp_path, model=model, data=NoData())
    assert result.step == 24
    assert result.loss == records(tmp_path)[-1]["loss"]
    assert result.checkpoint.exists()
    assert torch.equal(model.first.weight, final_tensors(straight)["model.first.weight"])
    assert_same_run(straight, tmp_path)


def test_a_damaged_newest_checkpoint_costs_only_its_own_steps(straight, tmp_path, capfd):
    with pytest.raises(RuntimeError):
        run(tmp_path, data=StopsAfter(12))
    newest = list_checkpoints(tmp_path / "checkpoints")[-1]
    damaged = bytearray(newest.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    newest.write_bytes(damaged)
    run(tmp_path)
    warnings = [line for line in capfd.readouterr().err.splitlines() if line.startswith("warning")]
    assert len(warnings) == 1
    assert str(newest) in warnings[0]
    assert_same_run(straight, tmp_path)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"learning_rate": 0.02}, ["learning_rate was 0.01, is 0.02"]),
        ({"num_steps": 30, "ema_decay": None}, ["num_steps was 24, is 30", "ema_decay was 0.9, is None"]),
        ({"metadata": {**METADATA, "fps": 10.0}}, ["metadata", "fps was 5.0, is 10.0"]),
    ],
)
def test_a_run_is_not_continued_with_other_settings(straight, changes, named):
    before = {path: path.read_bytes() for path in straight.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match="choose another run directory") as caught:
        run(straight, **changes)
    for part in named:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)
    assert {path: path.read_bytes() for path in straight.rglob("*") if path.is_file()} == before


def test_another_model_is_refused_with_every_tensor_that_does_not_fit(straight):
    model = small_model()
    model.last = nn.Linear(16, 48)
    model.extra = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="do not fit") as caught:
        run(straight, model=model)
    for part in (
        "model.last.weight has shape [48, 96], expected [48, 16]",
        "missing model.extra.bias",
        "ema.extra.bias",
    ):
        assert part in str(caught.value)


def test_a_change_of_environment_warns_in_one_line(tmp_path, capfd):
    with pytest.raises(RuntimeError):
        run(tmp_path, data=StopsAfter(12))
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        run(tmp_path)
    finally:
        torch.set_num_threads(before)
    warnings = [line for line in capfd.readouterr().err.splitlines() if line.startswith("warning")]
    assert len(warnings) == 1
    assert f"num_threads was {before}, is {before + 1}" in warnings[0]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_stops_the_run_and_is_never_saved(tmp_path, value):
    def objective(model, batch, draws):
        loss = flow_objective(model, batch, draws)
        if model.num_calls == 8:
            return Loss(total=loss.total * value, terms={**loss.terms, "rest": loss.terms["rest"] * value})
        return loss

    with pytest.raises(FloatingPointError, match="step 8: loss term 'rest' is not finite") as caught:
        run(tmp_path, objective=objective)
    assert "last good checkpoint" in str(caught.value)
    assert "step_000000005.safetensors" in str(caught.value)
    assert [path.name for path in list_checkpoints(tmp_path / "checkpoints")] == ["step_000000005.safetensors"]
    assert all(value.isfinite().all() for value in final_tensors(tmp_path).values())


def test_a_gradient_that_is_not_finite_stops_the_run(tmp_path):
    def objective(model, batch, draws):
        loss = flow_objective(model, batch, draws)
        return Loss(total=loss.total + (model.last.bias[0] * 0).sqrt(), terms=loss.terms)  # slope of sqrt at 0

    with pytest.raises(FloatingPointError, match=r"step 1: the gradient's norm is not finite.*no checkpoint yet"):
        run(tmp_path, objective=objective)


def test_terms_must_stay_the_same(tmp_path):
    def objective(model, batch, draws):
        loss = flow_objective(model, batch, draws)
        return replace(loss, terms={"first": loss.terms["first"]}) if model.num_calls == 3 else loss

    with pytest.raises(ValueError, match="terms changed"):
        run(tmp_path, objective=objective)


def test_records_hold_means_over_their_steps(tmp_path):
    run(tmp_path / "each", log_every=1)
    run(tmp_path / "some")
    each = {record["step"]: record for record in records(tmp_path / "each")}
    assert list(each) == list(range(1, 25))
    previous = 0
    for record in records(tmp_path / "some"):
        steps = range(previous + 1, record["step"] + 1)
        previous = record["step"]
        for read in (lambda r: r["loss"], lambda r: r["terms"]["rest"], lambda r: r["grad_norm"]):
            assert read(record) == pytest.approx(sum(read(each[s]) for s in steps) / len(steps), rel=1e-6)
        assert record["lr"] == each[record["step"]]["lr"] == small_config().schedule.rate(record["step"] - 1)
    assert previous == 24


def test_validation_sees_the_average_in_eval_mode_and_its_numbers_are_logged(tmp_path):
    seen = []

    def check(model: nn.Module, step: int) -> dict[str, float]:
        seen.append((step, model.training, torch.is_grad_enabled(), model.first.weight.clone()))
        return {"psnr": float("inf") if step == 8 else 30.0}

    model = small_model()
    model.drop.eval()
    result = train(
        model, flow_objective, SmallData(), small_config(), tmp_path, validate=check, metadata=METADATA, progress=False
    )
    assert [entry[:3] for entry in seen] == [(step, False, False) for step in (8, 16, 24)]
    assert torch.equal(seen[-1][3], read_checkpoint(result.checkpoint).section("ema")["first.weight"])
    assert not torch.equal(seen[-1][3], model.first.weight)
    assert model.training
    assert model.drop.training
    logged = {record["step"]: record["validation"] for record in records(tmp_path) if "validation" in record}
    assert logged == {8: {"psnr": None}, 16: {"psnr": 30.0}, 24: {"psnr": 30.0}}


def test_a_checkpoint_says_all_that_is_needed_to_use_it(straight):
    path = list_checkpoints(straight / "checkpoints")[-1]
    model = small_model()
    checkpoint = load_weights(model, straight)
    assert checkpoint.path == path
    assert checkpoint.description["metadata"] == METADATA
    assert checkpoint.description["config"]["learning_rate"] == 0.01
    assert {"device", "num_threads", "torch", "simforcing"} <= checkpoint.description["environment"].keys()
    assert torch.equal(model.first.weight, checkpoint.tensors["ema.first.weight"])


def test_only_so_many_checkpoints_are_kept(tmp_path):
    run(tmp_path, checkpoint_every=2, keep_checkpoints=3)
    assert [int(path.stem[5:]) for path in list_checkpoints(tmp_path / "checkpoints")] == [20, 22, 24]


def test_a_full_disk_stops_the_run_in_one_line_and_keeps_the_older_checkpoint(tmp_path, monkeypatch):
    from collections import namedtuple

    from simforcing.nn import tensor_file

    usage = namedtuple("usage", "total used free")

    def disk_usage(folder):
        return usage(100, 100, 0) if list_checkpoints(folder) else usage(10**9, 0, 10**9)

    monkeypatch.setattr(tensor_file.shutil, "disk_usage", disk_usage)
    with pytest.raises(OSError, match="the disk is full") as caught:
        run(tmp_path)
    assert "\n" not in str(caught.value)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step_000000005.safetensors"]


def test_training_runs_in_a_thread_that_gets_no_signals(straight, tmp_path):
    thread = threading.Thread(target=run, args=(tmp_path,))
    thread.start()
    thread.join()
    assert_same_run(straight, tmp_path)


def test_two_processes_do_not_train_in_one_directory(tmp_path, start_training):
    start_training(tmp_path, delay_s=0.2).wait_for_records(1)
    with pytest.raises(ValueError, match="another process is training"):
        run(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_steps": 0}, "num_steps is 0, expected at least 1"),
        ({"learning_rate": -1.0}, "learning_rate is -1.0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"warmup_fraction": 1.0}, r"warmup_fraction is 1.0, expected in \[0, 1\)"),
        ({"ema_decay": 1.0}, "ema_decay is 1.0"),
        ({"seed": -1}, "seed is -1"),
        ({"betas": (0.9, 1.0)}, "betas is"),
        ({"weight_decay": -0.1}, "weight_decay is -0.1"),
    ],
)
def test_settings_without_meaning_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        small_config(**changes)


def test_an_absent_device_is_refused_with_the_choices(tmp_path):
    with pytest.raises(ValueError, match=r"device 'cuda:77' is not available; choices: auto, cpu"):
        run(tmp_path, device="cuda:77")


def test_metadata_that_is_no_json_is_refused(tmp_path):
    with pytest.raises(ValueError, match="without NaN"):
        run(tmp_path, metadata={"scale": float("nan")})


def test_bfloat16_on_a_cpu_warns_and_computes_under_autocast(tmp_path, capfd):
    seen = []

    def objective(model, batch, draws):
        model.last.register_forward_hook(lambda module, args, out: seen.append(out.dtype)) if not seen else None
        return flow_objective(model, batch, draws)

    run(tmp_path, num_steps=2, objective=objective, dtype="bfloat16")
    assert seen[0] == torch.bfloat16
    assert final_tensors(tmp_path)["model.last.weight"].dtype == torch.float32
    assert "warning: bfloat16 on a CPU" in capfd.readouterr().err


def test_config_survives_json():
    from simforcing.types import from_json, to_json

    config = small_config(dtype="bfloat16")
    assert from_json(TrainerConfig, to_json(config)) == config
