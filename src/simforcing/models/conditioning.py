"""How simulation latents join the video tokens: one zero-initialised map per layer (docs/paper-to-code.md)."""

from jaxtyping import Float
from torch import Tensor, nn

from simforcing.nn.attention import repeat_batch


class SimInjection(nn.Module):
    """gate * conv(z_sim) for every layer. A Conv3d whose kernel is its stride (1, p, p) is one linear map of patches.

    Weights and biases start at zero: a network that was just built is exactly the unconditioned one.
    """

    def __init__(self, per_patch: int, width: int, num_layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(per_patch, width) for _ in range(num_layers))
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, tokens: Float[Tensor, "b n p"], gate: Float[Tensor, " r"]) -> list[Float[Tensor, "r n d"]]:
        """What is added to the video tokens in each layer; the gate multiplies the bias too.

        What branches of the same clips share is mapped once and gated for each of them (row j is clip j mod b).
        """
        return [gate[:, None, None] * repeat_batch(layer(tokens), len(gate)) for layer in self.layers]
