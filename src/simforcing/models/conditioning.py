"""How simulation latents join the video tokens: one zero-initialised map per layer (docs/paper-to-code.md)."""

from jaxtyping import Float
from torch import Tensor, nn


class SimInjection(nn.Module):
    """gate * conv(z_sim) for every layer. A Conv3d whose kernel is its stride (1, p, p) is one linear map of patches.

    Weights and biases start at zero: a network that was just built is exactly the unconditioned one.
    """

    def __init__(self, per_patch: int, width: int, num_layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(per_patch, width) for _ in range(num_layers))
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, tokens: Float[Tensor, "b n p"], gate: Float[Tensor, " b"]) -> list[Float[Tensor, "b n d"]]:
        """What is added to the video tokens in each layer; the gate multiplies the bias too."""
        return [gate[:, None, None] * layer(tokens) for layer in self.layers]
