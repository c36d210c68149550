"""Stands in for torchvision, which cannot be imported beside this torch: the names that LeRobot's data sets touch."""

from torchvision import io, transforms

__all__ = ["io", "set_video_backend", "transforms"]


def set_video_backend(backend: str) -> None:
    if backend != "pyav":
        raise ValueError(f"this stand-in decodes with pyav alone, not {backend!r}")
