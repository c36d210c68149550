"""What one part of the system needs from another, on one page."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from simforcing.nn.batch import Batch, Draws


@runtime_checkable
class Autoencoder(Protocol):
    """Pixels in [-1, 1] to normalised latents and back; f = temporal_factor * (g - 1) + 1, frame 0 encoded alone."""

    @property
    def temporal_factor(self) -> int: ...

    @property
    def spatial_factor(self) -> int: ...

    @property
    def channels(self) -> int: ...

    def latent_statistics(self) -> tuple[Float[Tensor, " c"], Float[Tensor, " c"]]:
        """(mean_c, std_c) of the raw latents z. A method: buffers are no static attributes, which isinstance needs."""
        ...

    def encode(self, video: Float[Tensor, "b f 3 h w"]) -> Float[Tensor, "b g c h2 w2"]:
        """Latents (z - mean_c) / std_c."""
        ...

    def decode(self, latents: Float[Tensor, "b g c h2 w2"]) -> Float[Tensor, "b f 3 h w"]:
        """Video clamped to [-1, 1]."""
        ...


@runtime_checkable
class BatchSource(Protocol):
    """Windows by index; the trainer decides the order."""

    @property
    def num_windows(self) -> int: ...

    def batch(self, indices: Sequence[int]) -> Batch: ...


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A scalar to minimise and its named terms (detached scalars for the log)."""

    total: Float[Tensor, ""]
    terms: dict[str, Float[Tensor, ""]]


@runtime_checkable
class Objective(Protocol):
    """One training step's loss, a function of (model, batch, draws) alone."""

    def __call__(self, model: nn.Module, batch: Batch, draws: Draws) -> Loss: ...
