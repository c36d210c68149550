"""Rotary positions on one or three axes, adjacent channels paired, angles in float64 (method.md section 3)."""

import torch
from jaxtyping import Complex, Float
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


def unit_rotors(angles: Float[Tensor, "n half"], dtype: torch.dtype) -> Complex[Tensor, "n 1 half"]:
    """exp(i angle) for `rotate`, broadcast over heads, of the complex type whose parts have that (real) dtype."""
    rotors = torch.polar(torch.ones_like(angles), angles)
    return rotors.to(torch.complex128 if dtype == torch.float64 else torch.complex64)[:, None]


def rotate(x: Float[Tensor, "b n heads e"], rotors: Complex[Tensor, "n 1 half"]) -> Float[Tensor, "b n heads e"]:
    """Turn each adjacent pair of channels, as one complex number, by its angle; the input's dtype out."""
    pairs = x.unflatten(-1, (-1, 2)).to(rotors.real.dtype)
    return torch.view_as_real(torch.view_as_complex(pairs) * rotors).flatten(-2).to(x.dtype)
