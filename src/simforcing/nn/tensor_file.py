"""Safetensors files that are whole or not there, and that are refused in one line when damaged.

The header's `simforcing` entry is a text of the writer's, its `sha256` covers that text and all tensors.
"""

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from simforcing.types.files import whole_file

TEXT, CHECKSUM = "simforcing", "sha256"


def write_tensors(path: Path, tensors: Mapping[str, Tensor], text: str = "") -> None:
    """Write tensors (on the CPU, contiguous, none sharing memory) and a text atomically, with a checksum over both.

    Raises:
        OSError: one line naming the file, where the disk is full or not writable; an older file stays as it was.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as partial:
        _require_space(path.parent, tensors)
        try:
            save_file(dict(tensors), partial, metadata={TEXT: text, CHECKSUM: checksum(tensors, text)})
        except SafetensorError as error:
            raise OSError(str(error)) from error
        partial.chmod(_default_mode())  # safetensors writes for the owner alone


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Every tensor of a file that `write_tensors` wrote. ValueError, in one line, where it is missing or damaged."""
    return read_described(path)[0]


def read_described(path: Path) -> tuple[dict[str, Tensor], str]:
    """(tensors, text) of a file that `write_tensors` wrote. ValueError, in one line, where it is missing or damaged."""
    if not Path(path).is_file():
        raise ValueError(f"{path}: no such file")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise ValueError(f"{path}: damaged: {error}") from None
    if TEXT not in header or CHECKSUM not in header:
        raise ValueError(f"{path}: damaged: a safetensors file without the checksum that this package writes")
    if checksum(tensors, header[TEXT]) != header[CHECKSUM]:
        raise ValueError(f"{path}: damaged: its contents do not match their checksum")
    return tensors, header[TEXT]


def read_text(path: Path) -> str:
    """The text of a file that `write_tensors` wrote, without reading (or checking) its tensors. ValueError as above."""
    try:
        with safe_open(path, framework="pt") as file:
            return (file.metadata() or {})[TEXT]
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise ValueError(f"{path}: damaged: {error}") from None


def read_checksum(path: Path) -> str:
    """The checksum in a file's header, which two files of equal contents share. ValueError as above."""
    try:
        with safe_open(path, framework="pt") as file:
            return (file.metadata() or {})[CHECKSUM]
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise ValueError(f"{path}: damaged: {error}") from None


def checksum(tensors: Mapping[str, Tensor], text: str = "") -> str:
    """SHA-256 over a text and the names, dtypes, shapes and bytes of tensors on the CPU."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name} {value.dtype} {list(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _require_space(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    needed = sum(value.numel() * value.element_size() for value in tensors.values())
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(f"the disk is full: {needed / 1e6:.1f} MB needed, {free / 1e6:.1f} MB free")


def _default_mode() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
