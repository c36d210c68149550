"""Clips to network inputs: decoded windows, encoded once, held as latents (docs/paper-to-code.md)."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from simforcing.data.conditions import conditions_of
from simforcing.nn.batch import Batch, Conditions, join, map_tensors
from simforcing.nn.protocols import Autoencoder
from simforcing.nn.tensor_file import read_tensors, write_tensors
from simforcing.types import Clip, DataSpec

ENCODE_CHUNK = 64  # clips in memory at a time
Progress = Callable[[int, int], None]


def to_video(frames: UInt8[np.ndarray, "*b h w 3"]) -> Float[Tensor, "*b 3 h w"]:
    """Stored pixels to [-1, 1], channels before rows."""
    return torch.from_numpy(np.ascontiguousarray(frames)).movedim(-1, -3).float() / 127.5 - 1


def to_frames(video: Float[Tensor, "*b 3 h w"]) -> UInt8[np.ndarray, "*b h w 3"]:
    """[-1, 1] to 8 bits, rounded."""
    pixels = ((video.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
    return np.ascontiguousarray(pixels.movedim(-3, -1).cpu().numpy())


@torch.no_grad()
def encode_clips(
    clips: Sequence[Clip], autoencoder: Autoencoder, *, num_frames: int | None = None, streams: slice | None = None
) -> Float[Tensor, "b v g c h w"]:
    """Normalised latents of the clips' streams; a stream that is not present is zero.

    Each video is encoded by itself: its latents are the same bits whatever it is encoded together with.

    Args:
        num_frames: encode only that many, from the first; None: all.
        streams: which streams; None: all. A student's clips hold its views, then their simulation.
    """
    chosen = streams or slice(None)
    first = clips[0].frames[chosen][:1, :num_frames]
    template = torch.zeros_like(autoencoder.encode(to_video(first)))
    rows = []
    for clip in clips:
        present = clip.view_present[chosen].tolist()
        videos = to_video(clip.frames[chosen, :num_frames])
        rows += [
            autoencoder.encode(v[None]) if is_there else template for v, is_there in zip(videos, present, strict=True)
        ]
    return torch.cat(rows).unflatten(0, (len(clips), -1))


@torch.no_grad()
def decode_latents(
    latents: Float[Tensor, "b v g c h w"], autoencoder: Autoencoder, *, chunk: int = 16
) -> UInt8[np.ndarray, "b v f h2 w2 3"]:
    """Pixels of every view."""
    flat = latents.flatten(0, 1)
    parts = [to_frames(autoencoder.decode(part)) for part in flat.split(chunk)]
    return np.concatenate(parts).reshape(*latents.shape[:2], *parts[0].shape[1:])


class LatentWindows:
    """A BatchSource over encoded windows, held in memory; frame 0 is observed."""

    def __init__(self, clean: Float[Tensor, "n v g c h w"], conditions: Conditions) -> None:
        self.clean = clean
        self.conditions = conditions

    @classmethod
    def encode(
        cls, clips: Sequence[Clip], autoencoder: Autoencoder, spec: DataSpec, *, progress: Progress | None = None
    ) -> "LatentWindows":
        """Decode and encode every clip once; pixels are dropped as soon as they are encoded."""
        latents, conditions = [], []
        for start in range(0, len(clips), ENCODE_CHUNK):
            chunk = [clips[i] for i in range(start, min(start + ENCODE_CHUNK, len(clips)))]
            latents.append(encode_clips(chunk, autoencoder))
            conditions.append(conditions_of(chunk, spec, autoencoder.temporal_factor))
            if progress is not None:
                progress(start + len(chunk), len(clips))
        return cls(torch.cat(latents), join(conditions))

    @property
    def num_windows(self) -> int:
        return self.clean.shape[0]

    def batch(self, indices: Sequence[int]) -> Batch:
        index = torch.as_tensor(indices)
        clean = self.clean[index]
        return Batch(
            clean=clean,
            observed=first_frame_observed(clean),
            conditions=map_tensors(self.conditions, lambda tensor: tensor[index]),
        )

    def save(self, path: Path) -> None:
        """One safetensors file, atomically."""
        tensors = {f.name: getattr(self.conditions, f.name) for f in fields(self.conditions)}
        tensors["action_frame"] = torch.tensor(self.conditions.action_frame, dtype=torch.float64)
        kept = {name: tensor.contiguous() for name, tensor in tensors.items() if tensor is not None}
        write_tensors(path, {"clean": self.clean, **kept})

    @classmethod
    def load(cls, path: Path) -> "LatentWindows":
        """What `save` wrote. ValueError, in one line, where the file is damaged."""
        tensors: dict[str, Any] = dict(read_tensors(path))
        try:
            clean, frame = tensors.pop("clean"), tuple(tensors.pop("action_frame").tolist())
            return cls(clean, Conditions(action_frame=frame, **tensors))
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path}: not encoded windows ({error}); delete it to encode them again") from None


def first_frame_observed(latents: Float[Tensor, "b v g c h w"]) -> Bool[Tensor, "b g"]:
    """The plain case: latent frame 0 is given, the rest is predicted."""
    observed = torch.zeros(latents.shape[0], latents.shape[2], dtype=torch.bool)
    observed[:, 0] = True
    return observed
