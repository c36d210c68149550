"""Clips in, predicted frames out: the given frame and the actions are all that is read of a clip."""

import hashlib
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from simforcing.data.conditions import conditions_of
from simforcing.data.latents import decode_latents, encode_clips, first_frame_observed
from simforcing.generation.sampler import SamplerConfig, draw_noise, sample
from simforcing.models.bundle import Bundle
from simforcing.models.prepared import compile_passes
from simforcing.nn.batch import map_tensors
from simforcing.nn.device import find_device
from simforcing.types import Clip, DataSpec
from simforcing.types.spec import Wording


@dataclass(frozen=True, kw_only=True)
class Generated:
    """Latents of clips: of their views, and of the simulation that conditioned them, where one did."""

    latents: Float[Tensor, "b v g c h w"]
    sim: Float[Tensor, "b v g c h w"] | None


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
        compile: bool = False,
    ) -> None:
        """
        Args:
            view: whose frames `predict` returns.
            compile: compile the network's layers, for many clips of one shape on a GPU (docs/generation.md).
        """
        self.bundle, self.sampler, self.view = bundle, sampler, view
        self.spec = bundle.spec
        self.device, self.dtype = find_device(device), dtype
        self._own_sim: dict[str, Tensor] = {}  # the last one made, shared by all that `using` makes of this
        bundle.model.to(self.device)
        bundle.autoencoder.to(self.device)
        if compile:
            compile_passes(bundle.model)

    def predict(self, clips: Sequence[Clip], seeds: Sequence[int]) -> list[UInt8[np.ndarray, "f h w 3"]]:
        """All frames of each clip, the given one through the autoencoder too.

        Args:
            clips: only frame 0, actions, state, task and which views are present are read (with `sim_source` "true",
                all frames of the simulation too).
            seeds: of each clip's noise; a clip's video depends on its own seed alone.
        """
        return list(self.decode(self.generate(clips, seeds).latents)[:, self.view])

    def predict_sim(self, clips: Sequence[Clip], seeds: Sequence[int]) -> list[UInt8[np.ndarray, "f h w 3"]]:
        """The model's own simulation of each clip, from its given sim frame: what conditions the real video.

        Raises:
            ValueError: the model knows no simulation.
        """
        if not self.has_sim:
            raise ValueError("this model was not trained on pairs, so it makes no simulation; recipe student does")
        return list(self.decode(self.sim_latents(clips, seeds))[:, self.view])

    def decode(self, latents: Float[Tensor, "b v g c h w"]) -> UInt8[np.ndarray, "b v f h2 w2 3"]:
        """Frames of latents."""
        return decode_latents(latents, self.bundle.autoencoder)

    @property
    def has_sim(self) -> bool:
        """Whether the model generates simulation beside real video."""
        return bool(self.spec.sim_views)

    def using(self, **changes: Any) -> "Predictor":
        """The same model with another sampler: fields of SamplerConfig by name."""
        other = copy(self)
        other.sampler = replace(self.sampler, **changes)
        return other

    def windows_of(self, num_frames: int, num_actions: int) -> "Predictor":
        """The same model on windows of another length than it was trained on."""
        other = copy(self)
        other.spec = replace(self.spec, num_frames=num_frames, num_actions=num_actions)
        return other

    def generate(self, clips: Sequence[Clip], seeds: Sequence[int]) -> Generated:
        """Latents of all views: of the simulation first, where it conditions the real video."""
        spec, sim = self.spec, None
        if self.bundle.model.config.sim_condition and self.sampler.sim_guidance != 0:
            if self.sampler.sim_source == "true":
                sim = encode_clips(clips, self.bundle.autoencoder, streams=sim_streams(spec))
            else:
                sim = self.sim_latents(clips, seeds)
        latents = self._sampled(clips, seeds, slice(len(spec.views)), spec.wording, sim)
        return Generated(latents=latents, sim=sim)

    def sim_latents(self, clips: Sequence[Clip], seeds: Sequence[int]) -> Float[Tensor, "b v g c h w"]:
        """Latents of the model's own simulation, without the condition path; seeds as for the real video.

        The last ones are kept: rows of other guidance on the same clips do not make them again.
        """
        spec = self.spec
        how = replace(self.sampler, sim_guidance=0.0, sim_source="self")
        asked = digest(clips, [*seeds, how, spec.num_frames, spec.num_actions])
        if asked not in self._own_sim:
            latents = self._sampled(clips, seeds, sim_streams(spec), spec.sim_wording or spec.wording, None)
            self._own_sim.clear()
            self._own_sim[asked] = latents
        return self._own_sim[asked]

    def _sampled(
        self, clips: Sequence[Clip], seeds: Sequence[int], streams: slice, wording: Wording, sim: Tensor | None
    ) -> Float[Tensor, "b v g c h w"]:
        """Latents from the given frame of these streams of the clips."""
        autoencoder, spec = self.bundle.autoencoder, self.spec
        first = encode_clips(clips, autoencoder, streams=streams, num_frames=1)
        num_latents = 1 + (spec.num_frames - 1) // autoencoder.temporal_factor
        shape = (first.shape[1], num_latents, *first.shape[3:])
        given = torch.cat([first, first.new_zeros(first.shape[0], shape[0], num_latents - 1, *shape[2:])], dim=2)
        factors = autoencoder.temporal_factor, autoencoder.spatial_factor
        conditions = conditions_of(clips, replace(spec, wording=wording), *factors)
        moved = map_tensors(conditions, lambda tensor: tensor.to(self.device))
        noise = draw_noise(shape, seeds).to(self.device)
        observed = first_frame_observed(given).to(self.device)
        args = (given.to(self.device), observed, moved, noise, self.sampler)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.dtype == "bfloat16"):
            latents = sample(self.bundle.model, *args, sim=None if sim is None else sim.to(self.device))
        return latents.float().cpu()

    def reconstruct(self, clips: Sequence[Clip]) -> list[UInt8[np.ndarray, "f h w 3"]]:
        """The clips' own frames through the autoencoder: what no prediction can exceed by much."""
        latents = encode_clips(clips, self.bundle.autoencoder, streams=slice(len(self.spec.views)))
        return list(self.decode(latents)[:, self.view])


def digest(clips: Sequence[Clip], others: Sequence[Any]) -> str:
    """Of all that a prediction reads of clips, by value: clips are arrays that their owner may change."""
    found = hashlib.sha256(repr(others).encode())
    for clip in clips:
        read = (clip.frames[:, 0], clip.view_present, clip.action, clip.action_valid, clip.action_time_s, clip.state)
        for array in (*read, clip.state_valid, clip.history, clip.history_valid):
            found.update(b"-" if array is None else np.ascontiguousarray(array).tobytes())
        found.update(repr((clip.task, clip.cameras)).encode())
    return found.hexdigest()


def sim_streams(spec: DataSpec) -> slice:
    """Which streams of a clip are the simulation of its views."""
    return slice(len(spec.views), len(spec.streams))
