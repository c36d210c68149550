"""Derivatives written by hand agree with torch's own; rotary positions agree in complex and real arithmetic."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from simforcing.nn.embed import TanhGeluOnCpu, tanh_gelu
from simforcing.nn.norm import RmsNorm, RmsNormOnCpu
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


def rms_norm_inputs() -> tuple[Tensor, Tensor, float]:
    return torch.randn(3, 5, 8).double().requires_grad_(), torch.rand(8).double().requires_grad_(), 1e-6


@pytest.mark.parametrize(
    ("function", "inputs"),
    [(RmsNormOnCpu, rms_norm_inputs), (TanhGeluOnCpu, lambda: (3 * torch.randn(3, 5, 8).double().requires_grad_(),))],
)
def test_derivatives_by_hand_are_those_of_finite_differences(function: type, inputs: Callable[[], tuple]):
    assert torch.autograd.gradcheck(function.apply, inputs())


@pytest.mark.parametrize("name", ["rms norm", "gelu"])
def test_a_repeat_has_the_same_bits(name: str):
    x = torch.randn(4, 33, 24).requires_grad_()
    function = RmsNorm(24, 1e-6) if name == "rms norm" else tanh_gelu
    first, second = outcome(function, x), outcome(function, x)
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))


@pytest.mark.parametrize("where", ["cpu", "compiler", "other device"])
def test_derivatives_by_hand_serve_eager_cpus_alone(where: str, monkeypatch: pytest.MonkeyPatch):
    called: list[str] = []
    for kind in (RmsNormOnCpu, TanhGeluOnCpu):
        apply = kind.apply
        monkeypatch.setattr(kind, "apply", lambda *a, n=kind.__name__, apply=apply: called.append(n) or apply(*a))
    if where == "compiler":
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    device = "meta" if where == "other device" else "cpu"
    tanh_gelu(RmsNorm(8, 1e-6).to(device)(torch.zeros(2, 8, device=device)))
    assert called == (["RmsNormOnCpu", "TanhGeluOnCpu"] if where == "cpu" else [])


def test_rotating_turns_every_pair_of_channels_by_its_angle():
    torch.manual_seed(0)
    x, angles = torch.randn(2, 5, 3, 8, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)
    even, odd = x.unflatten(-1, (4, 2)).unbind(-1)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    expected = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)
    torch.testing.assert_close(rotate(x, rotors(angles, torch.float64)), expected, rtol=0, atol=1e-14)
