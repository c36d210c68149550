"""Embeddings of noise levels, and the small projections around them (docs/paper-to-code.md)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

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

    def forward(self, sigma: Float[Tensor, "b s"]) -> tuple[Float[Tensor, "b s d"], Float[Tensor, "b s 6 d"]]:
        """The embedding e (for the head) and the six vectors shared by all blocks."""
        features = sinusoid(SIGMA_SCALE * sigma).to(self.first.weight.dtype)
        e = self.second(nn.functional.silu(self.first(features)))
        return e, self.modulation(nn.functional.silu(e)).unflatten(-1, (6, -1))


class Mlp(nn.Module):
    """Linear, tanh-GELU, Linear."""

    def __init__(self, width_in: int, width_hidden: int, width_out: int) -> None:
        super().__init__()
        self.first = nn.Linear(width_in, width_hidden)
        self.second = nn.Linear(width_hidden, width_out)

    def forward(self, x: Float[Tensor, "*b i"]) -> Float[Tensor, "*b o"]:
        return self.second(nn.functional.gelu(self.first(x), approximate="tanh"))
