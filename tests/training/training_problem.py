"""A small real problem for the trainer: flow matching of structured latents; also a script that a test can kill.

python training_problem.py RUN_DIR [field=value ...]
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from simforcing.nn.batch import Batch, Conditions, Draws
from simforcing.nn.protocols import Loss
from simforcing.training.trainer import TrainerConfig, train

SHAPE = (1, 3, 4, 2, 2)  # v g c h w
METADATA = {"layout": "joint", "fps": 5.0, "size": [2, 2]}


class SmallModel(nn.Module):
    """Velocity from noisy latents, action and sigma; a buffer counts the calls, so that buffers matter too."""

    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()
        size = 48
        self.first = nn.Linear(size + 6 + 1, 96)
        self.drop = nn.Dropout(dropout)
        self.last = nn.Linear(96, size)
        self.register_buffer("num_calls", torch.zeros((), dtype=torch.int64))

    def forward(self, noisy: Tensor, action: Tensor, sigma: Tensor) -> Tensor:
        if self.training:
            self.num_calls += 1
        x = torch.cat([noisy.flatten(1), action.flatten(1), sigma[:, None]], 1)
        return self.last(self.drop(torch.nn.functional.gelu(self.first(x)))).view_as(noisy)


class SmallData:
    """Window i, made from its index alone."""

    def __init__(self, num_windows: int = 23, delay_s: float = 0.0) -> None:
        self.num_windows = num_windows
        self.delay_s = delay_s

    def batch(self, indices: Sequence[int]) -> Batch:
        time.sleep(self.delay_s)
        index = torch.tensor(list(indices), dtype=torch.float32)
        size = len(index)
        grid = torch.arange(48, dtype=torch.float32)
        action = torch.sin(index[:, None] + torch.arange(6)).view(size, 2, 3)
        conditions = Conditions(
            action=action,
            action_valid=torch.ones_like(action, dtype=torch.bool),
            action_frame=(1.0, 2.0),
            view_present=torch.ones(size, 1, dtype=torch.bool),
        )
        clean = torch.sin(0.1 * grid * (1 + index[:, None] % 5)).view(size, *SHAPE)
        return Batch(clean=clean, observed=torch.zeros(size, 3, dtype=torch.bool), conditions=conditions)


def flow_objective(model: nn.Module, batch: Batch, draws: Draws) -> Loss:
    sigma = draws.uniform.view(-1, 1, 1, 1, 1, 1)
    noisy = (1 - sigma) * batch.clean + sigma * draws.noise
    error = (model(noisy, batch.conditions.action, draws.uniform) - (draws.noise - batch.clean)) ** 2
    first, rest = error[:, :, 0].mean(), error[:, :, 1:].mean()
    return Loss(total=first + rest, terms={"first": first.detach(), "rest": rest.detach()})


def small_model(dropout: float = 0.1) -> SmallModel:
    torch.manual_seed(0)
    return SmallModel(dropout)


def small_config(**changes: object) -> TrainerConfig:
    values = {
        "num_steps": 24,
        "batch_size": 4,
        "learning_rate": 1e-2,
        "ema_decay": 0.9,
        "checkpoint_every": 5,
        "log_every": 3,
        "validate_every": 8,
        "seed": 7,
    }
    return TrainerConfig(**{**values, **changes})


def validate(model: nn.Module, step: int) -> dict[str, float]:
    torch.rand(3)  # a validation that draws must not change the training
    return {"weight": float(model.last.weight.sum()), "step": float(step)}


def train_small(run_dir: Path, fields: dict[str, object]) -> None:
    """Train the small problem; `delay_s` and `dropout` are the problem's, all other fields the trainer's."""
    torch.set_num_threads(1)
    delay_s, dropout = fields.pop("delay_s", 0.0), fields.pop("dropout", 0.1)
    model, data, config = small_model(dropout), SmallData(delay_s=delay_s), small_config(**fields)
    train(model, flow_objective, data, config, run_dir, validate=validate, metadata=METADATA)


def train_small_in_a_process(run_dir: Path, told: Path, environment: dict[str, str], fields: dict[str, object]) -> None:
    """train_small as the main function of a new process, whose standard error goes to the file `told`."""
    os.environ.update(environment)
    os.dup2(os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    train_small(run_dir, fields)


if __name__ == "__main__":
    arguments = dict(argument.split("=", 1) for argument in sys.argv[2:])
    train_small(Path(sys.argv[1]), {name: json.loads(value) for name, value in arguments.items()})
