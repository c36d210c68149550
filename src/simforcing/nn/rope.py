"""Rotary positions on one or three axes, adjacent channels paired, angles in float64 (docs/paper-to-code.md)."""

import torch
from jaxtyping import Float
from torch import Tensor

BASE = 10000.0


def axis_widths(head_width: int) -> tuple[int, int, int]:
    """Channels for (frame, row, column): 44 + 42 + 42 of 128."""
    spatial = 2 * (head_width // 6)
    return head_width - 2 * spatial, spatial, spatial


def rotary_angles(position: Float[Tensor, " n"], width: int) -> Float[Tensor, "n half"]:
    """position * base^(-2i / width), one angle for each pair of channels, in float64."""
    frequency = BASE ** (-torch.arange(0, width, 2, dtype=torch.float64, device=position.device) / width)
    return position.double()[:, None] * frequency


def one_axis(position: Float[Tensor, " n"], head_width: int) -> Float[Tensor, "n half"]:
    """Angles of tokens on one axis, over all channels of a head."""
    return rotary_angles(position, head_width)


def three_axes(
    frame: Float[Tensor, " n"], row: Float[Tensor, " n"], column: Float[Tensor, " n"], head_width: int
) -> Float[Tensor, "n half"]:
    """Angles of tokens at (frame, row, column), each axis on its share of a head's channels."""
    widths = axis_widths(head_width)
    parts = [rotary_angles(p, w) for p, w in zip((frame, row, column), widths, strict=True)]
    return torch.cat(parts, dim=-1)


def rotors(angles: Float[Tensor, "n half"], dtype: torch.dtype) -> Float[Tensor, "n 1 half 2"]:
    """(cos, sin) of each angle for `rotate`, broadcast over heads."""
    return torch.stack([angles.cos(), angles.sin()], dim=-1).to(dtype)[:, None]


def rotate(x: Float[Tensor, "b n heads e"], by: Float[Tensor, "n 1 half 2"]) -> Float[Tensor, "b n heads e"]:
    """Turn each adjacent pair of channels by its angle; in the rotors' dtype inside, the input's out."""
    pairs = x.unflatten(-1, (-1, 2)).to(by.dtype)
    if torch.compiler.is_compiling():  # compilers fuse real arithmetic and have none for complex numbers
        (even, odd), (cos, sin) = pairs.unbind(-1), by.unbind(-1)
        turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1)
    else:
        turned = torch.view_as_real(torch.view_as_complex(pairs) * torch.view_as_complex(by))
    return turned.flatten(-2).to(x.dtype)
