"""A run that is killed with SIGKILL at any moment ends with the bits of one that was not."""

import random
import signal
import time
from pathlib import Path

import pytest
import torch

from simforcing.training.checkpoint import list_checkpoints, read_checkpoint
from simforcing.training.log import read_log

# A checkpoint after every second step: about half of a run's time is spent in writing, so kills fall there too.
FIELDS = {"checkpoint_every": 2, "log_every": 1, "delay_s": 0.002}


def state(run_dir: Path) -> tuple[list[dict], dict[str, torch.Tensor]]:
    records = read_log(run_dir / "log.jsonl")
    for record in records:
        del record["timing"]
    return records, read_checkpoint(list_checkpoints(run_dir / "checkpoints")[-1]).tensors


def killed_run_equals_straight_run(start_training, folder: Path, num_kills: int, num_steps: int) -> None:
    fields = {**FIELDS, "num_steps": num_steps}
    straight, killed = folder / "straight", folder / "killed"
    assert start_training(straight, **fields).wait(600)[0] == 0
    moments = random.Random(num_kills)
    for _ in range(num_kills):
        training = start_training(killed, **fields)
        training.wait_for_records(1)
        time.sleep(moments.uniform(0, 0.25))
        training.send(signal.SIGKILL)
        assert training.wait()[0] == -signal.SIGKILL
    code, told = start_training(killed, **fields).wait(600)
    assert code == 0, told
    assert "continued from" in told
    assert "warning" not in told
    (records, tensors), (expected_records, expected) = state(killed), state(straight)
    assert records == expected_records
    assert tensors.keys() == expected.keys()
    assert [name for name in expected if not torch.equal(tensors[name], expected[name])] == []
    assert not list((killed / "checkpoints").glob("*.partial"))


def test_three_kills_change_no_bit(tmp_path, start_training):
    killed_run_equals_straight_run(start_training, tmp_path, num_kills=3, num_steps=120)


@pytest.mark.slow
def test_fifty_kills_change_no_bit(tmp_path, start_training):
    killed_run_equals_straight_run(start_training, tmp_path, num_kills=50, num_steps=3000)
