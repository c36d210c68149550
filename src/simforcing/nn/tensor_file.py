"""Safetensors files that are whole or not there, and that are refused in one line when damaged."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from simforcing.types.files import whole_file


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors (on the CPU, contiguous, none sharing memory) atomically.

    Raises:
        OSError: one line naming the file, where the disk is full or not writable; an older file stays as it was.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as partial:
        _require_space(path.parent, tensors)
        try:
            save_file(dict(tensors), partial, metadata=dict(metadata) if metadata else None)
        except SafetensorError as error:
            raise OSError(str(error)) from error
        partial.chmod(_default_mode())  # safetensors writes for the owner alone


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Every tensor of a file. ValueError, in one line, where it is missing or damaged."""
    if not Path(path).is_file():
        raise ValueError(f"{path}: no such file")
    try:
        return load_file(path)
    except (SafetensorError, OSError, KeyError) as error:
        raise ValueError(f"{path}: damaged: {error}") from None


def _require_space(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    needed = sum(value.numel() * value.element_size() for value in tensors.values())
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(f"the disk is full: {needed / 1e6:.1f} MB needed, {free / 1e6:.1f} MB free")


def _default_mode() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
