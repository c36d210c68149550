"""Latent motion: differences of adjacent latent frames (docs/paper-to-code.md)."""

from jaxtyping import Float
from torch import Tensor


def motion(clean: Float[Tensor, "*b g c h w"]) -> Float[Tensor, "*b g1 c h w"]:
    """motion = z[1:] - z[:-1] along the latent frame axis; of a static latent it is zero."""
    return clean[..., 1:, :, :, :] - clean[..., :-1, :, :, :]
