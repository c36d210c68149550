"""Normalisation and adaptive modulation of tokens (docs/paper-to-code.md)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


def at_least_float32(x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """Half precision is widened where the published network computes in float32; float64 stays."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def modulated_layer_norm(
    x: Float[Tensor, "b n d"], scale: Float[Tensor, "q s d"], shift: Float[Tensor, "q s d"], eps: float
) -> Float[Tensor, "b n d"]:
    """LN(x) * (1 + scale) + shift in float32, one (scale, shift) for each of s equal runs of tokens; q is b or 1."""
    b, n, d = x.shape
    s = scale.shape[1]
    normed = F.layer_norm(at_least_float32(x), (d,), eps=eps).view(b, s, n // s, d)
    return torch.addcmul(shift.unsqueeze(2), normed, scale.unsqueeze(2) + 1).view(b, n, d).to(x.dtype)


def gated_residual(
    x: Float[Tensor, "b n d"], update: Float[Tensor, "b n d"], gate: Float[Tensor, "q s d"]
) -> Float[Tensor, "b n d"]:
    """x + gate * update, one gate for each of s equal runs of tokens; q is b or 1."""
    b, n, d = x.shape
    runs = (b, gate.shape[1], n // gate.shape[1], d)
    return torch.addcmul(x.view(runs), update.view(runs), gate.unsqueeze(2).to(x.dtype)).view(b, n, d)


class RmsNorm(nn.Module):
    """RMS norm with one gain over all `width` channels (q and k: across all heads)."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        # by hand on eager CPUs alone: compilers and GPU kernels fuse the plain formula themselves (docs/benchmarks.md)
        if x.device.type == "cpu" and not torch.compiler.is_compiling():
            return RmsNormOnCpu.apply(x, self.weight, self.eps)
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class RmsNormOnCpu(torch.autograd.Function):
    """F.rms_norm with its derivative by hand: torch fuses it on GPUs only and walks 14 times over x elsewhere.

    With r = (mean(x^2) + eps)^(-1/2), y = x r and g the gradient of y * weight:
    dx = r (g weight - y mean(g weight y)).
    """

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide = at_least_float32(x)
        mean_square = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).square() / x.shape[-1]
        r = (mean_square + eps).rsqrt()
        y = wide * r
        ctx.save_for_backward(y, r, weight)
        return (y * weight).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, g: Tensor) -> tuple[Tensor, Tensor, None]:
        y, r, weight = ctx.saved_tensors
        wide, gain = g.to(y.dtype), weight.to(y.dtype)
        gy = wide * y
        mean = (gy @ gain / y.shape[-1]).unsqueeze(-1)
        dx = torch.addcmul(wide * gain, y, mean, value=-1).mul_(r)
        return dx.to(g.dtype), gy.flatten(0, -2).sum(0).to(weight.dtype), None
