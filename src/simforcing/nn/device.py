"""Devices by name, refused in one line where they are not there."""

import torch


def find_device(name: str, local_rank: int | None = None) -> torch.device:
    """The device of that name; under torchrun each local rank gets its own GPU. ValueError lists what is there."""
    present = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    if torch.backends.mps.is_available():
        present.append("mps")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        name = f"cuda:{local_rank or 0}"
    if name not in present:
        raise ValueError(f"device {name!r} is not available; choices: auto, {', '.join(present)}")
    return torch.device(name)
