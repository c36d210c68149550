"""What a run tells: means over steps, the JSONL log (and TensorBoard), the progress bar, and the environment."""

import errno
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from torch import Tensor

from simforcing.nn.protocols import Loss
from simforcing.types.files import write_text
from simforcing.types.version import package_version

LINE_EVERY_S = 10.0


class Meter:
    """Sums of loss, terms and gradient norm since the last record, kept on the device; remembers the first bad step."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.prepare({"terms": [], "count": 0})

    def prepare(self, description: dict[str, Any]) -> None:
        """Take the names and the count of a checkpoint; the sums are copied in afterwards."""
        self.terms: list[str] = list(description["terms"])
        self.count: int = description["count"]
        self.sums = torch.zeros(len(self.terms) + 2, device=self.device)
        self.first_bad = torch.zeros(len(self.terms) + 2, device=self.device)

    def description(self) -> dict[str, Any]:
        return {"terms": self.terms, "count": self.count}

    def values(self, loss: Loss, *, stop_requested: bool) -> Tensor:
        """[terms..., loss, stop], in one tensor that is averaged with the gradients."""
        if list(loss.terms) != self.terms:
            if self.terms:
                raise ValueError(
                    f"the objective's terms changed from {self.terms} to {list(loss.terms)} during the run"
                )
            self.prepare({"terms": list(loss.terms), "count": 0})
        stop = torch.full((), float(stop_requested), device=self.device)
        return torch.stack(
            [*(term.detach().float() for term in loss.terms.values()), loss.total.detach().float(), stop]
        )

    def add(self, values: Tensor, grad_norm: Tensor, step: int) -> None:
        now = torch.cat([values[:-1], grad_norm.float().reshape(1)])
        self.sums += now
        self.count += 1
        self.first_bad = torch.where(now.isfinite() | (self.first_bad > 0), self.first_bad, step)

    def stop_requested(self, values: Tensor) -> bool:
        return bool(values[-1] > 0)

    def fault(self) -> str | None:
        """What was the first number that is not finite, and at which step; None where all is well."""
        steps = self.first_bad.tolist()
        bad = [(step, index) for index, step in enumerate(steps) if step > 0]
        if not bad:
            return None
        step, index = min(bad)
        names = [*(f"loss term {name!r}" for name in self.terms), "the loss", "the gradient's norm"]
        return f"step {int(step)}: {names[index]} is not finite"

    def take(self) -> tuple[float, dict[str, float], float]:
        """Means of loss, terms and gradient norm since the last call."""
        *terms, loss, grad_norm = (self.sums / self.count).tolist()
        self.sums.zero_()
        self.count = 0
        return loss, dict(zip(self.terms, terms, strict=True)), grad_norm


class JsonlLog:
    """`log.jsonl`: one record a line, cut back to the step that a run continues from.

    A record holds step, loss, terms, lr and grad_norm, validation where it was done, and timing apart from the rest,
    so that without `timing` the log of a resumed run equals that of an uninterrupted one.
    """

    def __init__(self, path: Path, step: int, warn: Callable[[str], None] | None = None) -> None:
        self.path = path
        truncate_log(path, step, warn)
        self._file = path.open("ab", buffering=0)  # nothing is left in a buffer for `close` to fail on

    def write(self, record: dict[str, Any]) -> None:
        """Append one line, all of it or nothing. OSError, in one line, where the disk is full."""
        line = (json.dumps(record, allow_nan=False) + "\n").encode()
        before = os.fstat(self._file.fileno()).st_size
        try:
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._file.truncate(before)
            raise OSError(
                f"{self.path}: record of step {record['step']} not written ({error.strerror});"
                " older ones are as they were"
            ) from error

    def flush_to_disk(self) -> None:
        """Called before a checkpoint: a checkpoint's steps are always in the log."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class TensorBoardLog:
    """The same numbers for TensorBoard; ValueError says what to install where it is missing."""

    def __init__(self, folder: Path, step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ValueError("tensorboard is not installed; pip install 'simforcing[tensorboard]'") from error
        self._writer = SummaryWriter(str(folder), purge_step=step + 1)

    def write(self, record: dict[str, Any]) -> None:
        for name, value in _scalars(record):
            self._writer.add_scalar(name, value, record["step"])

    def flush_to_disk(self) -> None:
        """Called before a checkpoint, as JsonlLog's."""
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def read_log(path: Path, warn: Callable[[str], None] | None = None) -> list[dict[str, Any]]:
    """Records of a log; a last line that a killed process left half written is dropped.

    Args:
        warn: told, in one line, where lines before the last are no records; they are left out too.
    """
    if not path.is_file():
        return []
    records, damaged = [], []
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    for number, line in enumerate(lines, 1):
        record = _record(line)
        if record is not None:
            records.append(record)
        elif number < len(lines):
            damaged.append(number)
    if damaged and warn is not None:
        more = f" and {len(damaged) - 1} more" if len(damaged) > 1 else ""
        warn(f"{path}: line {damaged[0]}{more} is no record and is left out")
    return records


def _record(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    step = value.get("step") if isinstance(value, dict) else None
    return value if isinstance(step, int) and not isinstance(step, bool) else None


def truncate_log(path: Path, step: int, warn: Callable[[str], None] | None = None) -> None:
    """Drop, atomically, records after `step` and lines that are no records."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = [json.dumps(record) + "\n" for record in read_log(path, warn) if record["step"] <= step]
    write_text(path, "".join(kept))


class ProgressBar:
    """Steps, clips/s, loss and time left: a bar on a terminal, elsewhere a line every ten seconds."""

    def __init__(self, num_steps: int, batch_size: int, *, shown: bool) -> None:
        self.num_steps, self.batch_size, self.shown = num_steps, batch_size, shown
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._loss = ""
        self._start = 0
        self._begun_s = self._line_s = time.monotonic()

    @contextmanager
    def running(self, start: int) -> Iterator[None]:
        """Show the bar inside; `start` steps were done by an earlier call."""
        self._start = start
        self._begun_s = self._line_s = time.monotonic()
        if not (self.shown and self.console.is_terminal):
            yield
            return
        columns = (
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}  {task.fields[loss]}  left"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self.console, refresh_per_second=4) as bar:
            self._bar = bar
            self._task = bar.add_task("", total=self.num_steps, completed=start, speed="", loss="")
            yield

    def advance(self, step: int, loss: float | None = None) -> None:
        """`step` steps are done; `loss` where it is known."""
        if loss is not None:
            self._loss = f"loss {loss:.4g}"
        if not self.shown:
            return
        now_s = time.monotonic()
        seconds_per_step = (now_s - self._begun_s) / max(1, step - self._start)
        speed = f"{self.batch_size / max(seconds_per_step, 1e-9):.1f} clips/s"
        if self._bar is not None:
            self._bar.update(self._task, completed=step, speed=speed, loss=self._loss)
        elif now_s - self._line_s >= LINE_EVERY_S or step == self.num_steps:
            self._line_s = now_s
            left = _minutes((self.num_steps - step) * seconds_per_step)
            self.console.print(f"step {step}/{self.num_steps}  {speed}  {self._loss}  {left} left", markup=False)

    def say(self, line: str) -> None:
        """One line beside the bar, shown even where the bar is not (warnings)."""
        self.console.print(line, markup=False)


def describe_environment(device: torch.device, num_processes: int) -> dict[str, Any]:
    """What bit-identical results depend on: processor, threads, versions."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu_model()
    return {
        "device": f"{device.type}: {name}",
        "num_processes": num_processes,
        "num_threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "simforcing": package_version(),
        "python": platform.python_version(),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _scalars(record: dict[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    out: list[tuple[str, float]] = []
    for key, value in record.items():
        if isinstance(value, dict):
            out += _scalars(value, f"{prefix}{key}/")
        elif key != "step" and value is not None:
            out.append((prefix + key, float(value)))
    return out


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
