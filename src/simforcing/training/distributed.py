"""Data parallel training under torchrun: which rank this is, what it trains on, and averages over ranks.

Gloo on the CPU, NCCL on CUDA. A single process needs none of it and pays nothing.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from simforcing.nn.device import find_device

BUCKET_NUMBERS = 16 * 1024 * 1024  # 64 MiB of float32 are copied at a time
TIMEOUT = timedelta(hours=2)  # rank 0 validates and writes while the others wait


@dataclass(frozen=True, kw_only=True)
class World:
    """This process among all: `rank` of `size`, computing on `device`."""

    rank: int = 0
    size: int = 1
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Rank 0 alone writes files, validates and talks."""
        return self.rank == 0

    def share_of(self, batch_size: int) -> range:
        """Positions of the global batch that this rank computes. ValueError where it cannot be divided evenly."""
        if batch_size % self.size:
            raise ValueError(
                f"batch_size {batch_size} is not divisible by {self.size} processes;"
                f" choose a multiple of {self.size}, as {_next_multiple(batch_size, self.size)}"
            )
        share = batch_size // self.size
        return range(self.rank * share, (self.rank + 1) * share)

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its mean over all ranks, in place, in a few flat messages."""
        if self.size == 1:
            return
        for bucket in _buckets(tensors):
            flat = torch.cat([value.reshape(-1) for value in bucket])
            dist.all_reduce(flat)
            flat /= self.size
            _scatter(flat, bucket)

    def copy_from_first(self, tensors: Sequence[Tensor]) -> None:
        """Give every rank the tensors of rank 0, in place."""
        if self.size > 1:
            for value in tensors:
                dist.broadcast(value, src=0)

    def share_from_first(self, value: Any) -> Any:
        """Rank 0's small Python value, on every rank."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def wait(self) -> None:
        """Return when every rank has come here."""
        if self.size > 1:
            dist.barrier()


@contextmanager
def join_world(device: str) -> Iterator[World]:
    """The world that torchrun describes in RANK, WORLD_SIZE and LOCAL_RANK; without them, this process alone.

    Args:
        device: `auto` (CUDA where there is one), `cpu`, `cuda`, `cuda:<index>` or `mps`.

    Raises ValueError for a device that is unknown or absent.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    rank, local_rank = int(os.environ.get("RANK", "0")), int(os.environ.get("LOCAL_RANK", "0"))
    here = find_device(device, local_rank if size > 1 else None)
    if size == 1:
        yield World(device=here)
        return
    owns_group = not dist.is_initialized()
    if owns_group:
        if here.type == "cuda":
            torch.cuda.set_device(here)
        dist.init_process_group("nccl" if here.type == "cuda" else "gloo", timeout=TIMEOUT)
    try:
        yield World(rank=rank, size=size, device=here)
    finally:
        if owns_group:
            dist.destroy_process_group()


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    count = 0
    for value in tensors:
        if bucket and (count + value.numel() > BUCKET_NUMBERS or value.dtype != bucket[0].dtype):
            yield bucket
            bucket, count = [], 0
        bucket.append(value)
        count += value.numel()
    if bucket:
        yield bucket


def _scatter(flat: Tensor, bucket: list[Tensor]) -> None:
    start = 0
    for value in bucket:
        value.copy_(flat[start : start + value.numel()].view_as(value))
        start += value.numel()


def _next_multiple(value: int, factor: int) -> int:
    return -(-value // factor) * factor
