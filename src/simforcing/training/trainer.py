"""One trainer for all stages: what is learnt is the objective's, what it is learnt from is the batch source's.

Order and random numbers are functions of (seed, step, position), the state is in the checkpoint, so a run that is
killed at any moment and started again ends with the same bits. FSDP, LoRA and torch.compile wrap from outside.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from simforcing.models.mixture import Mixture
from simforcing.nn.batch import map_tensors
from simforcing.nn.protocols import BatchSource, Objective
from simforcing.training.checkpoint import (
    CHECKPOINT_FOLDER,
    Checkpoint,
    checkpoint_path,
    copy_strictly,
    list_checkpoints,
    named_differences,
    newest_checkpoint,
    remove_old_checkpoints,
    save_checkpoint,
    sole_owner,
)
from simforcing.training.distributed import World, join_world
from simforcing.training.draws import draw, seed_model, window_indices
from simforcing.training.interrupt import Interrupted, StopRequest, stop_requests
from simforcing.training.log import JsonlLog, Meter, ProgressBar, TensorBoardLog, describe_environment
from simforcing.training.optim import Optimiser, Schedule
from simforcing.types import to_json

LOG_NAME = "log.jsonl"
Validate = Callable[[nn.Module, int], dict[str, float]]


@dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    """How long, how fast and how often. A run is continued only with the config that it was started with.

    Args:
        num_steps: updates in all; the schedule is stretched to it.
        batch_size: clips per update over all processes.
        warmup_fraction: share of `num_steps` in which the rate rises linearly.
        final_lr_fraction: the cosine ends at this share of `learning_rate`.
        ema_decay: decay of the averaged weights, None for no average.
        checkpoint_every: steps between checkpoints; the last step always has one.
        keep_checkpoints: so many of the newest stay.
        log_every: steps per record; its loss is the mean over them.
        validate_every: validation after so many steps, 0 for after the last one only.
        dtype: `bfloat16` computes under autocast with float32 weights.
        recompute: keep no activations inside a layer, compute them again in the backward pass: less memory, more time.
        device: auto, cpu, cuda, cuda:<index> or mps.
        tensorboard: write `tensorboard/` beside the JSONL log.
    """

    num_steps: int
    batch_size: int
    learning_rate: float
    warmup_fraction: float = 0.05
    final_lr_fraction: float = 0.01
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    ema_decay: float | None = None
    checkpoint_every: int = 500
    keep_checkpoints: int = 2
    log_every: int = 20
    validate_every: int = 0
    seed: int = 0
    dtype: Literal["float32", "bfloat16"] = "float32"
    recompute: bool = False
    device: str = "cpu"
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for name in ("num_steps", "batch_size", "checkpoint_every", "keep_checkpoints", "log_every"):
            _require(name, getattr(self, name), getattr(self, name) >= 1, "at least 1")
        for name in ("learning_rate", "clip_norm"):
            _require(name, getattr(self, name), 0 < getattr(self, name) < float("inf"), "above 0 and finite")
        for name in ("seed", "validate_every", "weight_decay"):
            _require(name, getattr(self, name), getattr(self, name) >= 0, "at least 0")
        _require("warmup_fraction", self.warmup_fraction, 0 <= self.warmup_fraction < 1, "in [0, 1)")
        _require("final_lr_fraction", self.final_lr_fraction, 0 <= self.final_lr_fraction <= 1, "in [0, 1]")
        _require("betas", self.betas, all(0 <= beta < 1 for beta in self.betas), "in [0, 1)")
        _require("ema_decay", self.ema_decay, self.ema_decay is None or 0 <= self.ema_decay < 1, "in [0, 1), or None")
        _require("dtype", self.dtype, self.dtype in ("float32", "bfloat16"), "float32 or bfloat16")

    @property
    def schedule(self) -> Schedule:
        return Schedule(
            peak=self.learning_rate,
            num_steps=self.num_steps,
            warmup_fraction=self.warmup_fraction,
            final_fraction=self.final_lr_fraction,
        )


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """Where a finished run lies. `loss` is the last record's; `wall_s` counts this call alone."""

    run_dir: Path
    checkpoint: Path
    log: Path
    step: int
    loss: float
    wall_s: float


def train(
    model: nn.Module,
    objective: Objective,
    data: BatchSource,
    config: TrainerConfig,
    run_dir: Path,
    *,
    validate: Validate | None = None,
    metadata: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> TrainResult:
    """Train `model` in place, or continue the run that lies in `run_dir`, to its last step.

    Args:
        objective: loss as a mean over the clips of its batch.
        data: windows by index; each process asks for its share of the global batch.
        run_dir: gets `log.jsonl` and `checkpoints/`.
        validate: called on rank 0 with the model (averaged weights, eval mode, no gradients) and the steps done;
            its numbers go into the log.
        metadata: JSON values with all that is needed to use the weights later; stored in every checkpoint.
        progress: show the bar (or lines).

    Raises ValueError where the run in `run_dir` had another config or metadata (both values are named),
    FloatingPointError where the loss is no longer finite, OSError where a checkpoint cannot be written,
    Interrupted after SIGINT or SIGTERM.
    """
    begun_s = time.monotonic()
    run_dir = Path(run_dir)
    with ExitStack() as stack:
        world = stack.enter_context(join_world(config.device))
        if world.is_first:
            stack.enter_context(sole_owner(run_dir))
        stack.enter_context(torch.random.fork_rng([world.device] if world.device.type == "cuda" else []))
        run = _Run(model, objective, data, config, run_dir, world)
        bar = ProgressBar(config.num_steps, config.batch_size, shown=progress and world.is_first)
        run.resume(_as_json(metadata or {}), bar.say)
        stop = stack.enter_context(stop_requests())
        logs = stack.enter_context(run.open_logs(bar.say))
        stack.enter_context(bar.running(run.step))
        run.to_the_end(logs, bar, validate, stop)
    return TrainResult(
        run_dir=run_dir,
        checkpoint=checkpoint_path(run.folder, run.step),
        log=run_dir / LOG_NAME,
        step=run.step,
        loss=run.last_loss,
        wall_s=time.monotonic() - begun_s,
    )


class _Run:
    """The state of one run on one process, and what moves it on by a step."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        data: BatchSource,
        config: TrainerConfig,
        run_dir: Path,
        world: World,
    ) -> None:
        self.objective, self.data, self.config, self.run_dir, self.world = objective, data, config, run_dir, world
        self.folder = run_dir / CHECKPOINT_FOLDER
        self.share = world.share_of(config.batch_size)
        self.model = model.to(world.device).train()
        # torch.compile's wrapper prefixes every name; checkpoints hold the names of the model itself.
        self.module: nn.Module = getattr(model, "_orig_mod", model)
        for part in self.module.modules():
            if isinstance(part, Mixture):
                part.recompute = config.recompute
        self.optimiser = Optimiser(
            self.module,
            config.schedule,
            betas=config.betas,
            weight_decay=config.weight_decay,
            clip_norm=config.clip_norm,
            ema_decay=config.ema_decay,
        )
        self.step = 0
        self.last_loss = float("nan")
        self.meter = Meter(world.device)
        self.description: dict[str, Any] = {}
        self.mark_s, self.mark_step, self.data_s = time.monotonic(), 0, 0.0

    def resume(self, metadata: dict[str, Any], say: Callable[[str], None]) -> None:
        """Continue from the newest whole checkpoint, on every rank alike; without one, start with rank 0's weights."""
        environment = describe_environment(self.world.device, self.world.size)
        self.description = {"config": _as_json(self.config), "metadata": metadata, "environment": environment}
        failure: str | None = None
        if self.world.is_first:
            if self.config.dtype == "bfloat16" and self.world.device.type == "cpu":
                say("warning: bfloat16 on a CPU without matrix units is hundreds of times slower than float32")
            try:
                self._restore(newest_checkpoint(self.folder, lambda line: say(f"warning: {line}")), say)
            except ValueError as error:
                failure = str(error)
        failure, self.step, self.last_loss, meter = self.world.share_from_first(
            (failure, self.step, self.last_loss, self.meter.description())
        )
        if failure is not None:
            raise ValueError(failure)
        if not self.world.is_first:
            self.meter.prepare(meter)
        self.world.copy_from_first(list(self._tensors().values()))
        self.optimiser.set_step(self.step)
        if self.step == 0:
            self.optimiser.restart_average()
        self.mark_step = self.step

    def _restore(self, checkpoint: Checkpoint | None, say: Callable[[str], None]) -> None:
        if checkpoint is None:
            return
        then = checkpoint.description
        for part in ("config", "metadata"):
            if faults := named_differences(then[part], self.description[part]):
                raise ValueError(
                    f"{self.run_dir}: this run was started with another {part} ({'; '.join(faults)});"
                    " choose another run directory, or the old values to continue"
                )
        if changes := named_differences(then["environment"], self.description["environment"]):
            say(f"warning: continued in another environment, the last bits may differ: {'; '.join(changes)}")
        self.step, self.last_loss = checkpoint.step, then["last_loss"]
        self.meter.prepare(then["meter"])
        copy_strictly(checkpoint.tensors, self._tensors(), str(checkpoint.path))
        say(f"continued from {checkpoint.path} at step {self.step} of {self.config.num_steps}")

    @contextmanager
    def open_logs(self, say: Callable[[str], None]) -> Iterator[list[JsonlLog | TensorBoardLog]]:
        """The log files of rank 0, cut back to the step reached; none on other ranks."""
        logs: list[JsonlLog | TensorBoardLog] = []
        if self.world.is_first:
            logs.append(JsonlLog(self.run_dir / LOG_NAME, self.step, lambda line: say(f"warning: {line}")))
            if self.config.tensorboard:
                logs.append(TensorBoardLog(self.run_dir / "tensorboard", self.step))
        try:
            yield logs
        finally:
            for log in logs:
                log.close()

    def to_the_end(
        self,
        logs: list[JsonlLog | TensorBoardLog],
        bar: ProgressBar,
        validate: Validate | None,
        stop: StopRequest,
    ) -> None:
        """Steps, records and checkpoints until the last step or a stop request."""
        config = self.config
        while self.step < config.num_steps:
            stopping = self._train_step(stop)
            last = self.step == config.num_steps
            validates = validate is not None and (last or _falls_on(self.step, config.validate_every))
            if validates or last or self.step == 1 or _falls_on(self.step, config.log_every):
                self._write_record(logs, validate if validates else None)
                bar.advance(self.step, self.last_loss)
            else:
                bar.advance(self.step)
            if stopping or last or _falls_on(self.step, config.checkpoint_every):
                self._save(logs)
            if stopping and not last:
                if self.world.is_first:
                    bar.say(f"stopped and saved at step {self.step} of {config.num_steps}; the same command continues")
                raise Interrupted(stop.exit_code)

    def _train_step(self, stop: StopRequest) -> bool:
        """One update. Returns whether any process was asked to stop."""
        config, world = self.config, self.world
        begun_s = time.monotonic()
        indices = window_indices(self.data.num_windows, config.batch_size, config.seed, self.step)
        batch = self.data.batch([indices[position] for position in self.share])
        draws = draw(batch, config.seed, self.step, self.share)
        batch, draws = (map_tensors(value, lambda x: x.to(world.device)) for value in (batch, draws))
        self.data_s += time.monotonic() - begun_s
        seed_model(config.seed, self.step, world.rank, world.device)
        self.optimiser.zero_gradients()
        with torch.autocast(world.device.type, torch.bfloat16, enabled=config.dtype == "bfloat16"):
            loss = self.objective(self.model, batch, draws)
        loss.total.backward()
        values = self.meter.values(loss, stop_requested=stop.is_made)
        world.average([*self.optimiser.gradients(), values])
        norm = self.optimiser.clip()
        self.meter.add(values, norm, self.step + 1)
        # Reading a number makes an accelerator wait, so there only where the number is needed; a CPU never waits.
        reads = world.device.type == "cpu" or self._reads_after(self.step + 1)
        if reads:
            self._require_finite()
        self.optimiser.step(self.step)
        self.step += 1
        if world.size == 1:
            return stop.is_made
        return reads and self.meter.stop_requested(values)  # all ranks stop after the same step

    def _reads_after(self, step: int) -> bool:
        config = self.config
        every = (config.log_every, config.checkpoint_every, config.validate_every)
        return step in (1, config.num_steps) or any(_falls_on(step, interval) for interval in every)

    def _require_finite(self) -> None:
        if fault := self.meter.fault():
            good = list_checkpoints(self.folder)
            where = f"last good checkpoint: {good[-1]}" if good else "there is no checkpoint yet"
            raise FloatingPointError(f"{fault}; stopped, {where}")

    def _write_record(self, logs: list[JsonlLog | TensorBoardLog], validate: Validate | None) -> None:
        step_s = (time.monotonic() - self.mark_s) / (self.step - self.mark_step)
        data_s = self.data_s / (self.step - self.mark_step)
        loss, terms, grad_norm = self.meter.take()
        self.last_loss = loss
        rate = self.optimiser.schedule.rate(self.step - 1)
        record: dict[str, Any] = {"step": self.step, "loss": loss, "terms": terms, "lr": rate, "grad_norm": grad_norm}
        if validate is not None:
            if self.world.is_first:
                record["validation"] = self._validate(validate)
            self.world.wait()
        speed = self.config.batch_size / step_s
        record["timing"] = {"clips_per_s": speed, "step_s": step_s, "data_s": data_s, "time_s": time.time()}
        for log in logs:
            log.write(record)
        self.mark_s, self.mark_step, self.data_s = time.monotonic(), self.step, 0.0

    def _validate(self, validate: Validate) -> dict[str, float | None]:
        modes = [(module, module.training) for module in self.model.modules()]
        try:
            with self.optimiser.averaged_weights(), torch.no_grad():
                values = validate(self.model.eval(), self.step)
        finally:
            for module, training in modes:
                module.training = training
        return {name: float(value) if math.isfinite(value) else None for name, value in values.items()}

    def _save(self, logs: list[JsonlLog | TensorBoardLog]) -> None:
        if self.world.is_first:
            for log in logs:
                log.flush_to_disk()
            self._require_finite()
            description = {**self.description, "meter": self.meter.description(), "last_loss": self.last_loss}
            save_checkpoint(self.folder, self.step, self._tensors(), description)
            remove_old_checkpoints(self.folder, self.config.keep_checkpoints)
        self.world.wait()

    def _tensors(self) -> dict[str, Tensor]:
        """Everything that the next step depends on, live, by the names of a checkpoint."""
        weights = {f"model.{name}": value for name, value in self.module.state_dict().items()}
        return {**weights, **self.optimiser.state(), "log.sums": self.meter.sums}


def _falls_on(step: int, interval: int) -> bool:
    return interval > 0 and step % interval == 0


def _as_json(value: Any) -> Any:
    # Through text, so that what is compared on resume is what a file gives back (tuples are lists there).
    try:
        return json.loads(json.dumps(to_json(value), allow_nan=False))
    except ValueError as error:
        raise ValueError(f"config and metadata must be JSON values without NaN: {error}") from error


def _require(name: str, value: object, holds: bool, expected: str) -> None:
    if not holds:
        raise ValueError(f"{name} is {value!r}, expected {expected}")
