"""Checkpoints: one safetensors file each, written atomically, verified by hash, loaded strictly.

Tensors are named `<section>.<name>`: `model` (parameters and buffers), `ema`, `exp_avg` and `exp_avg_sq` (AdamW),
`log` (running sums). The header's `simforcing` entry is JSON: format, step and what the trainer describes (config,
metadata, environment); its `sha256` covers that text and all tensors.
"""

import fcntl
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from simforcing.nn.strict import copy_strictly
from simforcing.nn.tensor_file import read_described, write_tensors
from simforcing.types.files import PARTIAL_SUFFIX

FORMAT = 1
CHECKPOINT_FOLDER = "checkpoints"
PATTERN = re.compile(r"step_(\d{9})\.safetensors")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A verified checkpoint in memory: `tensors` on the CPU, `description` as JSON values."""

    path: Path
    step: int
    tensors: dict[str, Tensor]
    description: dict[str, Any]

    def section(self, name: str) -> dict[str, Tensor]:
        """Tensors of one section, without its prefix (`model`, `ema`, `exp_avg`, `exp_avg_sq`, `log`)."""
        prefix = f"{name}."
        return {key.removeprefix(prefix): value for key, value in self.tensors.items() if key.startswith(prefix)}

    def weights(self, *, ema: bool = True) -> dict[str, Tensor]:
        """The model's state dict, averaged weights in place of the raw ones where the run kept them."""
        averaged = self.section("ema") if ema else {}
        return {**self.section("model"), **averaged}


class DamagedCheckpointError(ValueError):
    """A file that is no complete checkpoint; the message names the file and what is wrong with it."""


def checkpoint_path(folder: Path, step: int) -> Path:
    return folder / f"step_{step:09d}.safetensors"


def list_checkpoints(folder: Path) -> list[Path]:
    """Checkpoint files of a folder, oldest first; temporary files are no checkpoints."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if PATTERN.fullmatch(path.name))


def save_checkpoint(folder: Path, step: int, tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> Path:
    """Write one checkpoint under a temporary name, flush it to the disk, then rename it.

    Whenever the process or the machine dies, the folder holds the old files and either all of the new one or none.
    Raises OSError in one line where the disk is full or not writable (the temporary file is removed);
    FloatingPointError where a tensor holds NaN or infinity: such a state is never written.
    """
    path = checkpoint_path(folder, step)
    contiguous = _without_shared_memory(tensors)
    bad = [name for name, value in contiguous.items() if value.is_floating_point() and not _is_finite(value)]
    if bad:
        raise FloatingPointError(f"checkpoint at step {step} not written: NaN or infinity in {', '.join(bad[:5])}")
    text = json.dumps({"format": FORMAT, "step": step, **description}, sort_keys=True, allow_nan=False)
    write_tensors(path, contiguous, text)
    return path


def remove_old_checkpoints(folder: Path, keep: int) -> None:
    """Delete all but the newest `keep` checkpoints (called after a newer one is safely on the disk)."""
    for path in list_checkpoints(folder)[:-keep]:
        path.unlink(missing_ok=True)


def remove_partial_checkpoints(folder: Path) -> None:
    """Delete temporary files that a killed process left behind."""
    for path in folder.glob(f"step_*{PARTIAL_SUFFIX}"):
        path.unlink(missing_ok=True)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read and verify one file. Raises DamagedCheckpointError naming the file and the fault."""
    try:
        tensors, text = read_described(path)
    except ValueError as error:
        raise DamagedCheckpointError(str(error)) from error
    try:
        description = json.loads(text)
    except json.JSONDecodeError:
        description = None
    if not isinstance(description, dict) or not {"format", "step"} <= description.keys():
        raise DamagedCheckpointError(f"{path}: a file of tensors, but not a checkpoint")
    if description["format"] != FORMAT:
        raise ValueError(f"{path}: checkpoint format {description['format']}, this version reads {FORMAT}")
    return Checkpoint(path=path, step=description["step"], tensors=tensors, description=description)


def newest_checkpoint(folder: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint that is whole; damaged newer ones get one warning line each.

    Raises ValueError where there are files but none is whole: starting over would throw the run away in silence.
    """
    paths = list_checkpoints(folder)
    for path in reversed(paths):
        try:
            return read_checkpoint(path)
        except DamagedCheckpointError as error:
            warn(f"ignored {error}")
    if paths:
        raise ValueError(f"{folder}: all {len(paths)} checkpoints are damaged; move them away to start over")
    return None


def load_weights(model: nn.Module, path: Path, *, ema: bool = True) -> Checkpoint:
    """Load a checkpoint file, or the newest of a run directory, into a model, strictly; averaged weights by default."""
    if path.is_dir():
        paths = list_checkpoints(path / CHECKPOINT_FOLDER) or list_checkpoints(path)
        if not paths:
            raise ValueError(f"{path}: holds no checkpoint (expected checkpoints/step_*.safetensors)")
        path = paths[-1]
    checkpoint = read_checkpoint(path)
    copy_strictly(checkpoint.weights(ema=ema), model.state_dict(), str(path))
    return checkpoint


def named_differences(then: Mapping, now: Mapping, prefix: str = "") -> list[str]:
    """Fields of two JSON objects that differ, with both values, nested ones by dotted name."""
    out: list[str] = []
    for key in sorted({*then, *now}):
        name = f"{prefix}{key}"
        old, new = then.get(key), now.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            out += named_differences(old, new, f"{name}.")
        elif old != new or (key in then) != (key in now):
            out.append(f"{name} was {old if key in then else 'absent'!r}, is {new if key in now else 'absent'!r}")
    return out


@contextmanager
def sole_owner(run_dir: Path, lock: str = ".lock") -> Iterator[None]:
    """Hold one lock of a run directory (the system frees it however the process ends); ValueError where it is held."""
    run_dir.mkdir(parents=True, exist_ok=True)
    with (run_dir / lock).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{run_dir}: another process is training in this run directory") from None
        remove_partial_checkpoints(run_dir / CHECKPOINT_FOLDER)
        yield


def _is_finite(value: Tensor) -> bool:
    # A sum is one pass without a mask in memory. It may overflow for finite values: only then look at each.
    return bool(value.sum().isfinite()) or bool(value.isfinite().all())


def _without_shared_memory(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """On the CPU, contiguous, every name with its own memory (tied weights are stored under each name)."""
    out: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, value in tensors.items():
        value = value.detach().to("cpu").contiguous()
        address = value.untyped_storage().data_ptr()
        if address in seen or value.numel() != value.untyped_storage().nbytes() // value.element_size():
            value = value.clone()
        seen.add(address)
        out[name] = value
    return out
