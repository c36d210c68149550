"""Two gloo processes train as one does."""

import os
import signal
import socket
import subprocess
import sys

import pytest
import torch
import training_problem
from training_problem import train_small

from simforcing.training.checkpoint import list_checkpoints, read_checkpoint
from simforcing.training.distributed import World, find_device
from simforcing.training.log import read_log

CPU = torch.device("cpu")


# Sums over clips are taken in another order: measured 1.0e-7 on losses and norms, 7.6e-8 on weights, after 24 steps.
RELATIVE = 2e-6


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    """A run of one process, without dropout inside the model (whose masks differ by rank)."""
    run_dir = tmp_path_factory.mktemp("one")
    train_small(run_dir, {"dropout": 0.0})
    return run_dir


def assert_nearly_same_run(a, b) -> None:
    left, right = read_log(a / "log.jsonl"), read_log(b / "log.jsonl")
    assert [record["step"] for record in left] == [record["step"] for record in right]
    errors = [abs(x["loss"] / y["loss"] - 1) for x, y in zip(left, right, strict=True)]
    errors += [abs(x["terms"]["rest"] / y["terms"]["rest"] - 1) for x, y in zip(left, right, strict=True)]
    errors += [abs(x["grad_norm"] / y["grad_norm"] - 1) for x, y in zip(left, right, strict=True)]
    assert max(errors) < RELATIVE
    weights = [read_checkpoint(list_checkpoints(run / "checkpoints")[-1]).weights() for run in (a, b)]
    for name, value in weights[0].items():
        torch.testing.assert_close(value, weights[1][name], rtol=RELATIVE, atol=RELATIVE)


def two_ranks() -> list[dict[str, str]]:
    """What torchrun would put into the environment of two processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    return [{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]


def test_torchrun_with_two_processes_gives_the_losses_of_one(one_process, tmp_path, project_root):
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    result = subprocess.run(
        [*launcher, training_problem.__file__, str(tmp_path), "dropout=0"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(project_root / "src")},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert_nearly_same_run(one_process, tmp_path)
    environment = read_checkpoint(list_checkpoints(tmp_path / "checkpoints")[-1]).description["environment"]
    assert environment["num_processes"] == 2


def test_two_processes_stop_together_when_one_is_asked_and_one_alone_goes_on(one_process, tmp_path, start_training):
    ranks = [start_training(tmp_path, rank, dropout=0.0, delay_s=0.05) for rank in two_ranks()]
    ranks[0].wait_for_records(3)
    ranks[1].send(signal.SIGTERM)
    ended = [rank.wait() for rank in ranks]
    assert [code for code, _ in ended] == [143, 143], ended
    assert [told.count("stopped and saved at step") for _, told in ended] == [1, 0]
    assert 6 <= read_checkpoint(list_checkpoints(tmp_path / "checkpoints")[-1]).step < 24
    code, told = start_training(tmp_path, dropout=0.0).wait()
    assert code == 0, told
    assert "num_processes was 2, is 1" in told
    assert_nearly_same_run(one_process, tmp_path)


def test_a_refusal_ends_both_processes(one_process, tmp_path, start_training):
    train_small(tmp_path, {"dropout": 0.0, "num_steps": 3})
    for fields, message in (({"num_steps": 4}, "num_steps was 3, is 4"), ({"batch_size": 5}, "not divisible by 2")):
        ranks = [start_training(tmp_path, rank, dropout=0.0, **fields) for rank in two_ranks()]
        for code, told in [rank.wait() for rank in ranks]:
            assert code == 1
            assert message in told


def test_shares_are_a_partition_of_the_global_batch():
    shares = [World(rank=rank, size=4, device=CPU).share_of(12) for rank in range(4)]
    assert [position for share in shares for position in share] == list(range(12))
    assert {len(share) for share in shares} == {3}


def test_a_batch_that_cannot_be_shared_evenly_is_refused():
    with pytest.raises(ValueError, match=r"batch_size 10 is not divisible by 4 processes; .* as 12"):
        World(rank=0, size=4, device=CPU).share_of(10)


def test_alone_nothing_is_changed_by_averaging_or_sharing():
    world, value = World(device=CPU), torch.arange(3.0)
    world.average([value])
    world.copy_from_first([value])
    world.wait()
    assert torch.equal(value, torch.arange(3.0))
    assert world.share_from_first({"a": 1}) == {"a": 1}


def test_auto_is_a_device_that_exists():
    torch.zeros(1, device=find_device("auto"))
    with pytest.raises(ValueError, match="device 'tpu' is not available; choices: auto, cpu"):
        find_device("tpu")
