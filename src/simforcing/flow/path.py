"""The straight path between clean and noise, and its exact inversions (docs/paper-to-code.md)."""

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor


def interpolate(
    clean: Float[Tensor, "*s"], noise: Float[Tensor, "*s"], sigma: Float[Tensor, "..."]
) -> Float[Tensor, "*s"]:
    """z_sigma = (1 - sigma) * clean + sigma * noise. Exact at both ends: sigma 0 gives `clean` itself."""
    return (1 - sigma) * clean + sigma * noise


def velocity_target(clean: Float[Tensor, "*s"], noise: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """velocity = noise - clean = d z_sigma / d sigma."""
    return noise - clean


def clean_from_velocity(
    noisy: Float[Tensor, "*s"], velocity: Float[Tensor, "*s"], sigma: Float[Tensor, "..."]
) -> Float[Tensor, "*s"]:
    """z_hat = z_sigma - sigma * velocity_hat."""
    return noisy - sigma * velocity


def velocity_from_clean(
    noisy: Float[Tensor, "*s"], clean: Float[Tensor, "*s"], sigma: Float[Tensor, "..."]
) -> Float[Tensor, "*s"]:
    """velocity_hat = (z_sigma - z_hat) / sigma; zero where sigma is 0 (a given frame never moves)."""
    given = sigma == 0
    return torch.where(given, torch.zeros_like(noisy), (noisy - clean) / torch.where(given, 1.0, sigma))


def frame_sigma(sigma: Float[Tensor, " b"], observed: Bool[Tensor, "b g"]) -> Float[Tensor, "b g"]:
    """One noise level per latent frame: the clip's sigma where it is predicted, 0 where the frame is given."""
    return torch.where(observed, torch.zeros_like(sigma)[:, None], sigma[:, None])


def per_frame(level: Shaped[Tensor, "b g"]) -> Shaped[Tensor, "b 1 g 1 1 1"]:
    """A level per latent frame, shaped to broadcast over latents "b v g c h w"."""
    return level[:, None, :, None, None, None]
