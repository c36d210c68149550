"""Checkpoints come back exactly, or are refused by name."""

import os
import resource
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from simforcing.nn import tensor_file
from simforcing.nn.strict import copy_strictly
from simforcing.training import checkpoint as module
from simforcing.training.checkpoint import (
    DamagedCheckpointError,
    list_checkpoints,
    load_weights,
    named_differences,
    newest_checkpoint,
    read_checkpoint,
    remove_old_checkpoints,
    save_checkpoint,
    sole_owner,
)


def tensors(step: int = 1) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    weight = torch.randn(4, 3, generator=generator)
    return {
        "model.weight": weight,
        "model.count": torch.tensor(step),
        "model.half": weight.bfloat16(),
        "ema.weight": weight.t().contiguous().t() * 2,
    }


def save(folder: Path, step: int = 1) -> Path:
    return save_checkpoint(folder, step, tensors(step), {"metadata": {"fps": 5.0}})


def test_what_was_written_comes_back_bit_for_bit(tmp_path):
    path = save(tmp_path, 12)
    checkpoint = read_checkpoint(path)
    assert checkpoint.step == 12
    assert checkpoint.description["metadata"] == {"fps": 5.0}
    assert checkpoint.tensors.keys() == tensors().keys()
    for name, value in tensors(12).items():
        assert torch.equal(checkpoint.tensors[name], value)
        assert checkpoint.tensors[name].dtype == value.dtype
    assert load_file(path).keys() == tensors().keys()  # an ordinary safetensors file
    assert os.listdir(tmp_path) == [path.name]


def test_the_average_stands_in_for_the_weights_unless_raw_ones_are_asked_for(tmp_path):
    checkpoint = read_checkpoint(save(tmp_path))
    assert torch.equal(checkpoint.weights()["weight"], tensors()["ema.weight"])
    assert torch.equal(checkpoint.weights(ema=False)["weight"], tensors()["model.weight"])
    assert checkpoint.weights().keys() == {"weight", "count", "half"}


def test_every_flipped_byte_is_noticed(tmp_path):
    path = save(tmp_path)
    whole = path.read_bytes()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(DamagedCheckpointError, match=path.name):
            read_checkpoint(path)


def test_every_shortened_file_is_noticed(tmp_path):
    path = save(tmp_path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedCheckpointError, match=path.name):
            read_checkpoint(path)


def test_a_damaged_newest_file_is_named_once_and_the_one_before_is_taken(tmp_path):
    save(tmp_path, 1)
    bad = save(tmp_path, 2)
    bad.write_bytes(bad.read_bytes()[:-1])
    (tmp_path / "step_000000003.safetensors.partial").write_bytes(b"half")
    warnings: list[str] = []
    checkpoint = newest_checkpoint(tmp_path, warnings.append)
    assert checkpoint is not None
    assert checkpoint.step == 1
    assert len(warnings) == 1
    assert str(bad) in warnings[0]
    assert "\n" not in warnings[0]


def test_starting_over_in_silence_is_refused_when_all_files_are_damaged(tmp_path):
    assert newest_checkpoint(tmp_path / "absent", print) is None
    save(tmp_path).write_bytes(b"")
    with pytest.raises(ValueError, match="all 1 checkpoints are damaged"):
        newest_checkpoint(tmp_path, lambda line: None)


def test_foreign_safetensors_files_are_refused(tmp_path):
    from safetensors.torch import save_file

    save_file({"weight": torch.ones(2)}, tmp_path / "step_000000001.safetensors")
    with pytest.raises(DamagedCheckpointError, match="without the checksum"):
        read_checkpoint(tmp_path / "step_000000001.safetensors")


def test_tensors_that_are_no_checkpoint_are_refused(tmp_path):
    path = tmp_path / "step_000000001.safetensors"
    for text in ("", "[1]", '{"step": 1}', "{"):
        tensor_file.write_tensors(path, {"weight": torch.ones(2)}, text)
        with pytest.raises(DamagedCheckpointError, match="not a checkpoint"):
            read_checkpoint(path)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_state_that_is_not_finite_is_never_written(tmp_path, value):
    bad = {**tensors(), "exp_avg.weight": torch.tensor([1.0, value])}
    with pytest.raises(FloatingPointError, match=r"NaN or infinity in exp_avg\.weight"):
        save_checkpoint(tmp_path, 3, bad, {})
    assert list(tmp_path.iterdir()) == []


def test_large_finite_numbers_whose_sum_overflows_are_written(tmp_path):
    big = {"model.weight": torch.full((4,), 3e38)}
    assert torch.equal(
        read_checkpoint(save_checkpoint(tmp_path, 1, big, {})).tensors["model.weight"], big["model.weight"]
    )


def test_tied_and_sliced_tensors_are_stored_under_each_name(tmp_path):
    base = torch.arange(12.0)
    shared = {"model.a": base, "model.b": base, "model.c": base[2:5], "model.d": base.view(3, 4).t()}
    back = read_checkpoint(save_checkpoint(tmp_path, 1, shared, {})).tensors
    assert all(torch.equal(back[name], value) for name, value in shared.items())


def test_only_the_newest_are_kept(tmp_path):
    for step in (5, 10, 1000, 15):
        save(tmp_path, step)
    remove_old_checkpoints(tmp_path, 2)
    assert [int(path.stem.split("_")[1]) for path in list_checkpoints(tmp_path)] == [15, 1000]


def test_a_full_disk_is_one_line_and_costs_no_older_file(tmp_path, monkeypatch):
    old = save(tmp_path, 1)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(tensor_file.shutil, "disk_usage", lambda folder: usage(100, 99, 1))
    with pytest.raises(OSError, match="the disk is full") as caught:
        save(tmp_path, 2)
    assert "\n" not in str(caught.value)
    assert list_checkpoints(tmp_path) == [old] == list(tmp_path.iterdir())
    read_checkpoint(old)


def test_a_write_that_the_system_refuses_half_way_leaves_nothing_behind(tmp_path):
    """A process whose files may not exceed 4 kB stands in for a disk that fills up during the write."""
    old = save(tmp_path, 1)
    script = (
        "import sys, torch; from pathlib import Path; from simforcing.training.checkpoint import save_checkpoint\n"
        "try: save_checkpoint(Path(sys.argv[1]), 2, {'model.w': torch.zeros(100000)}, {})\n"
        "except OSError as error: print(error)"
    )
    source = str(Path(module.__file__).parents[2])
    result = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": source, "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
        capture_output=True,
        text=True,
    )
    assert "not written" in result.stdout, result.stderr
    assert len(result.stdout.splitlines()) == 1
    assert list(tmp_path.iterdir()) == [old]
    read_checkpoint(old)


def test_strict_loading_lists_every_fault_and_copies_nothing():
    target = {"a": torch.zeros(2), "b": torch.zeros(3), "c": torch.zeros(1), "d": torch.zeros(1)}
    source = {"a": torch.ones(2), "b": torch.ones(4), "x": torch.ones(1), "d": torch.ones(1).double()}
    with pytest.raises(ValueError, match="4 tensors do not fit") as caught:
        copy_strictly(source, target, "run/step")
    for part in ("run/step", "missing c", "extra x", "b has shape [4], expected [3]", "d has dtype torch.float64"):
        assert part in str(caught.value)
    assert all(not value.any() for value in target.values())


def test_weights_load_from_a_file_or_a_run_directory_and_only_into_their_model(tmp_path):
    model = nn.Linear(3, 4, bias=False)
    empty = tmp_path / "empty"
    empty.mkdir()
    average = torch.randn(4, 3)
    for step in (1, 2):
        save_checkpoint(
            tmp_path / "checkpoints", step, {"model.weight": torch.zeros(4, 3), "ema.weight": step * average}, {}
        )
    assert load_weights(model, tmp_path).step == 2
    assert torch.equal(model.weight, 2 * average)
    load_weights(model, tmp_path / "checkpoints" / "step_000000001.safetensors", ema=False)
    assert not model.weight.any()
    with pytest.raises(ValueError, match="missing bias"):
        load_weights(nn.Linear(3, 4), tmp_path)
    with pytest.raises(ValueError, match="holds no checkpoint"):
        load_weights(model, empty)


def test_differences_name_the_field_and_both_values():
    then = {"lr": 0.1, "deep": {"size": [2, 2], "same": 1}, "gone": None}
    now = {"lr": 0.2, "deep": {"size": [2, 3], "same": 1}, "new": "x"}
    assert named_differences(then, now) == [
        "deep.size was [2, 2], is [2, 3]",
        "gone was None, is 'absent'",
        "lr was 0.1, is 0.2",
        "new was 'absent', is 'x'",
    ]
    assert named_differences(then, then) == []


def test_two_owners_of_one_run_directory_are_refused(tmp_path):
    with sole_owner(tmp_path), pytest.raises(ValueError, match="another process"), sole_owner(tmp_path):
        pass
    with sole_owner(tmp_path):
        pass
