"""Embeddings of noise levels, and the small projections around them (docs/paper-to-code.md)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

SINUSOID_WIDTH = 256
SIGMA_SCALE = 1000.0  # a network sees 1000 sigma


def sinusoid(x: Float[Tensor, "*s"], width: int = SINUSOID_WIDTH, base: float = 10000.0) -> Float[Tensor, "*s d"]:
    """Cosines, then sines, of x * base^(-2i / width), in float32."""
    half = width // 2
    frequency = torch.exp(-math.log(base) * torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angle = x.float()[..., None] * frequency
    return torch.cat([angle.cos(), angle.sin()], dim=-1)


class SigmaEmbedding(nn.Module):
    """e = Linear SiLU Linear of sinusoid(1000 sigma), and its projection Linear(SiLU(e)) to six modulation vectors."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(SINUSOID_WIDTH, width)
        self.second = nn.Linear(width, width)
        self.modulation = nn.Linear(width, 6 * width)

    def forward(
        self, sigma: Float[Tensor, "_q s"], joined: Float[Tensor, "_b s d"] | None = None
    ) -> tuple[Float[Tensor, "b s d"], Float[Tensor, "b s 6 d"]]:
        """The embedding e (for the head) and the six vectors shared by all blocks; `joined` is added to e.

        Where the one has a single row, it holds for all rows of the other.
        """
        features = sinusoid(SIGMA_SCALE * sigma).to(self.first.weight.dtype)
        e = self.second(nn.functional.silu(self.first(features)))
        if joined is not None:
            e = e + joined
        return e, self.modulation(nn.functional.silu(e)).unflatten(-1, (6, -1))


class Mlp(nn.Module):
    """Linear, tanh-GELU, Linear."""

    def __init__(self, width_in: int, width_hidden: int, width_out: int) -> None:
        super().__init__()
        self.first = nn.Linear(width_in, width_hidden)
        self.second = nn.Linear(width_hidden, width_out)

    def forward(self, x: Float[Tensor, "*b i"]) -> Float[Tensor, "*b o"]:
        return self.second(tanh_gelu(self.first(x)))


def tanh_gelu(x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """x / 2 * (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    # by hand on eager CPUs alone: compilers and GPU kernels fuse the plain formula themselves (docs/benchmarks.md)
    if x.device.type == "cpu" and x.dtype == torch.float32 and not torch.compiler.is_compiling():
        return TanhGeluOnCpu.apply(x)
    return nn.functional.gelu(x, approximate="tanh")


class TanhGeluOnCpu(torch.autograd.Function):
    """The same number through the sigmoid, x s with s = sigmoid(x (A + B x^2)): torch's tanh is slow on CPUs.

    Its derivative is s (1 + (1 - s) x (A + 3 B x^2)).
    """

    A = math.sqrt(8 / math.pi)
    B = 0.044715 * A

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return _gelu_sigmoid(x).mul_(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        s = _gelu_sigmoid(x)  # again: kept, it would double the memory of an MLP
        slope = torch.addcmul(x.new_tensor(TanhGeluOnCpu.A), x, x, value=3 * TanhGeluOnCpu.B).mul_(x)
        return slope.addcmul_(slope, s, value=-1).add_(1).mul_(s).mul_(g)


def _gelu_sigmoid(x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """s = sigmoid(x (A + B x^2))."""
    return torch.addcmul(x.new_tensor(TanhGeluOnCpu.A), x, x, value=TanhGeluOnCpu.B).mul_(x).sigmoid_()
