"""Derivatives written by hand agree with torch's own; rotary positions agree in complex and real arithmetic."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from simforcing.nn.embed import tanh_gelu
from simforcing.nn.norm import RmsNorm
from simforcing.nn.rope import rotate, rotors


def outcome(function, *inputs: Tensor) -> list[Tensor]:
    """Value and gradients under one fixed upstream gradient."""
    value = function(*inputs)
    upstream = torch.linspace(-1, 1, value.numel(), dtype=value.dtype).view_as(value)
    return [value.detach(), *torch.autograd.grad(value, inputs, upstream)]


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 1e-6), (torch.bfloat16, 1e-2)]
)
def test_rms_norm_and_its_gradients_are_torchs(dtype: torch.dtype, tolerance: float):
    torch.manual_seed(0)
    norm = RmsNorm(24, 1e-6).to(dtype)
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    x = torch.randn(3, 5, 24, dtype=dtype, requires_grad=True)
    ours = outcome(lambda x, _: norm(x), x, norm.weight)
    torchs = outcome(lambda x, w: F.rms_norm(x, (24,), w, 1e-6), x, norm.weight)
    for mine, reference in zip(ours, torchs, strict=True):
        assert mine.dtype == reference.dtype
        torch.testing.assert_close(mine, reference, rtol=0, atol=tolerance * float(reference.abs().max()))


def test_tanh_gelu_and_its_gradient_are_torchs_far_into_both_tails():
    x = torch.cat([torch.linspace(-12, 12, 4001), torch.tensor([-1e4, 1e4])]).requires_grad_()
    ours, torchs = (outcome(f, x) for f in (tanh_gelu, lambda x: F.gelu(x, approximate="tanh")))
    for mine, reference in zip(ours, torchs, strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-6, atol=2e-6)


def test_rotating_turns_every_pair_of_channels_by_its_angle():
    torch.manual_seed(0)
    x, angles = torch.randn(2, 5, 3, 8, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)
    even, odd = x.unflatten(-1, (4, 2)).unbind(-1)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    expected = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)
    torch.testing.assert_close(rotate(x, rotors(angles, torch.float64)), expected, rtol=0, atol=1e-14)
