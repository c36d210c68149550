"""Strict loading: tensors fit by name, shape and dtype, or everything that does not is listed and nothing is copied."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn


def name_faults(given: Iterable[str], wanted: Iterable[str]) -> list[str]:
    """Every missing and every extra name, one phrase each."""
    have, need = list(given), list(wanted)
    missing = [f"missing {name}" for name in need if name not in set(have)]
    return missing + [f"extra {name}" for name in have if name not in set(need)]


def tensor_faults(given: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> list[str]:
    """Every missing, extra, reshaped and retyped tensor, one phrase each; empty where the two agree."""
    shared = [name for name in wanted if name in given]
    faults = name_faults(given, wanted)
    faults += [
        f"{name} has shape {list(given[name].shape)}, expected {list(wanted[name].shape)}"
        for name in shared
        if given[name].shape != wanted[name].shape
    ]
    faults += [
        f"{name} has dtype {given[name].dtype}, expected {wanted[name].dtype}"
        for name in shared
        if given[name].dtype != wanted[name].dtype
    ]
    return faults


def refuse(faults: list[str], where: str) -> None:
    """ValueError in one line, if there is any fault."""
    if faults:
        raise ValueError(f"{where}: {len(faults)} tensors do not fit: {'; '.join(faults)}")


def copy_strictly(given: Mapping[str, Tensor], target: Mapping[str, Tensor], where: str) -> None:
    """Copy tensors by name, in place, only if names, shapes and dtypes all agree.

    Raises:
        ValueError: one line that lists every fault; nothing is copied then.
    """
    refuse(tensor_faults(given, target), where)
    with torch.no_grad():
        for name, value in target.items():
            value.copy_(given[name])


def load_strictly(module: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """`copy_strictly` into a module's parameters and buffers."""
    copy_strictly(tensors, module.state_dict(), where)
