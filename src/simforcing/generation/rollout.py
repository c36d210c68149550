"""Clips in, predicted frames out: the given frame and the actions are all that is read of a clip."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from simforcing.data.conditions import conditions_of
from simforcing.data.latents import decode_latents, encode_clips, first_frame_observed
from simforcing.generation.sampler import SamplerConfig, draw_noise, sample
from simforcing.models.bundle import Bundle
from simforcing.nn.batch import map_tensors
from simforcing.nn.device import find_device
from simforcing.types import Clip


class Predictor:
    """A bundle with a sampler, as the callables that an evaluation needs."""

    def __init__(
        self,
        bundle: Bundle,
        sampler: SamplerConfig,
        *,
        view: int = 0,
        device: str = "cpu",
        dtype: Literal["float32", "bfloat16"] = "float32",
    ) -> None:
        self.bundle, self.sampler, self.view = bundle, sampler, view
        self.device, self.dtype = find_device(device), dtype
        bundle.model.to(self.device)

    def predict(self, clips: Sequence[Clip], seeds: Sequence[int]) -> list[UInt8[np.ndarray, "f h w 3"]]:
        """All frames of each clip, the given one through the autoencoder too.

        Args:
            clips: only frame 0, actions, state, task and which views are present are read.
            seeds: of each clip's noise; a clip's video depends on its own seed alone.
        """
        latents = self.latents(clips, seeds)
        frames = decode_latents(latents, self.bundle.autoencoder)
        return list(frames[:, self.view])

    def latents(self, clips: Sequence[Clip], seeds: Sequence[int]) -> Float[Tensor, "b v g c h w"]:
        """Predicted latents of all views."""
        autoencoder, spec = self.bundle.autoencoder, self.bundle.spec
        first = encode_clips(clips, autoencoder, num_frames=1)
        num_latents = 1 + (spec.num_frames - 1) // autoencoder.temporal_factor
        shape = (first.shape[1], num_latents, *first.shape[3:])
        given = torch.cat([first, first.new_zeros(first.shape[0], shape[0], num_latents - 1, *shape[2:])], dim=2)
        conditions = conditions_of(clips, spec, autoencoder.temporal_factor)
        moved = map_tensors(conditions, lambda tensor: tensor.to(self.device))
        noise = draw_noise(shape, seeds).to(self.device)
        observed = first_frame_observed(given).to(self.device)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.dtype == "bfloat16"):
            latents = sample(self.bundle.model, given.to(self.device), observed, moved, noise, self.sampler)
        return latents.float().cpu()

    def reconstruct(self, clips: Sequence[Clip]) -> list[UInt8[np.ndarray, "f h w 3"]]:
        """The clips' own frames through the autoencoder: what no prediction can exceed by much."""
        latents = encode_clips(clips, self.bundle.autoencoder)
        return list(decode_latents(latents, self.bundle.autoencoder)[:, self.view])
