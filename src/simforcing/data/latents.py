"""Clips to network inputs: decoded windows, encoded once, held as latents (docs/paper-to-code.md)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from simforcing.data.conditions import conditions_of
from simforcing.data.prompts import prompt
from simforcing.data.text_cache import TextFeatures
from simforcing.models.text import encode_bytes
from simforcing.nn.batch import Batch, Conditions, join, map_tensors
from simforcing.nn.protocols import Autoencoder
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
    """Normalised latents of the clips' streams, on the CPU; a stream that is not present is zero.

    Each video is encoded by itself: its latents are the same bits whatever it is encoded together with.

    Args:
        num_frames: encode only that many, from the first; None: all.
        streams: which streams; None: all. A student's clips hold its views, then their simulation.
    """
    chosen = streams or slice(None)
    return torch.stack([_encode_clip(clip, autoencoder, num_frames, chosen) for clip in clips])


def _encode_clip(
    clip: Clip, autoencoder: Autoencoder, num_frames: int | None, streams: slice
) -> Float[Tensor, "v g c h w"]:
    videos = to_video(clip.frames[streams, :num_frames])
    size = (videos.shape[-2], videos.shape[-1])
    latents = torch.zeros(len(videos), *latent_shape(videos.shape[1], size, autoencoder))
    where = device_of(autoencoder)
    for i in np.flatnonzero(clip.view_present[streams]).tolist():
        latents[i] = autoencoder.encode(videos[i : i + 1].to(where))[0]
    return latents


def device_of(autoencoder: Autoencoder) -> torch.device:
    """Where an autoencoder computes."""
    return autoencoder.latent_statistics()[0].device


def latent_shape(num_frames: int, size: tuple[int, int], autoencoder: Autoencoder) -> tuple[int, int, int, int]:
    """(g, c, h, w) of a video of f frames of (height, width) pixels."""
    height, width = (side // autoencoder.spatial_factor for side in size)
    return 1 + (num_frames - 1) // autoencoder.temporal_factor, autoencoder.channels, height, width


@torch.no_grad()
def decode_latents(
    latents: Float[Tensor, "b v g c h w"], autoencoder: Autoencoder, *, chunk: int = 16
) -> UInt8[np.ndarray, "b v f h2 w2 3"]:
    """Pixels of every view."""
    flat, where = latents.flatten(0, 1), device_of(autoencoder)
    parts = [to_frames(autoencoder.decode(part.to(where))) for part in flat.split(chunk)]
    return np.concatenate(parts).reshape(*latents.shape[:2], *parts[0].shape[1:])


@dataclass(frozen=True, kw_only=True)
class Tables:
    """All that windows hold beside their latents.

    Args:
        conditions: what the model may see.
        stream_present: which of the spec's streams each window has.
        sim_text: token ids of the simulation's wording, where it is another one.
    """

    conditions: Conditions
    stream_present: Bool[Tensor, "n s"]
    sim_text: Int[Tensor, "n l"] | None


def tables_of(clips: Sequence[Clip], spec: DataSpec, autoencoder: Autoencoder) -> Tables:
    """What the clips hold beside their frames, which are not looked at."""
    sim_text = None
    if spec.sim_views and spec.sim_wording is not None and spec.sim_wording != spec.wording:
        sim_text = encode_bytes([prompt(clip.task, spec.sim_wording) for clip in clips])
    return Tables(
        conditions=conditions_of(clips, spec, autoencoder.temporal_factor, autoencoder.spatial_factor),
        stream_present=torch.from_numpy(np.stack([clip.view_present for clip in clips])),
        sim_text=sim_text,
    )


def join_tables(parts: Sequence[Tables]) -> Tables:
    """Tables of consecutive clips as one."""
    return Tables(
        conditions=join([part.conditions for part in parts]),
        stream_present=torch.cat([part.stream_present for part in parts]),
        sim_text=_joined("sim_text", [part.sim_text for part in parts]),
    )


class LatentWindows:
    """A BatchSource over encoded windows, held in memory; frame 0 is observed.

    Args:
        clean: latents of the views; of their simulation where a window has no other video.
        conditions: what the model may see.
        sim: latents of the simulation of each view, where the spec has them.
        has_real: which windows are pairs; None: all.
        sim_text: token ids of the simulation's wording, where it is another one.
        features: of a frozen text encoder, which the model reads in place of token ids.
    """

    def __init__(
        self,
        clean: Float[Tensor, "n v g c h w"],
        conditions: Conditions,
        sim: Float[Tensor, "n v g c h w"] | None = None,
        has_real: Bool[Tensor, " n"] | None = None,
        sim_text: Int[Tensor, "n l"] | None = None,
        features: TextFeatures | None = None,
    ) -> None:
        self.clean, self.conditions = clean, conditions
        self.sim, self.has_real, self.sim_text = sim, has_real, sim_text
        self.features = features

    @classmethod
    def encode(
        cls, clips: Sequence[Clip], autoencoder: Autoencoder, spec: DataSpec, *, progress: Progress | None = None
    ) -> "LatentWindows":
        """Decode and encode every clip once; pixels are dropped as soon as they are encoded."""
        latents, tables = [], []
        for start in range(0, len(clips), ENCODE_CHUNK):
            chunk = [clips[i] for i in range(start, min(start + ENCODE_CHUNK, len(clips)))]
            latents.append(encode_clips(chunk, autoencoder))
            tables.append(tables_of(chunk, spec, autoencoder))
            if progress is not None:
                progress(start + len(chunk), len(clips))
        return cls.assembled(torch.cat(latents), join_tables(tables), spec)

    @classmethod
    def assembled(cls, latents: Float[Tensor, "n s g c h w"], tables: Tables, spec: DataSpec) -> "LatentWindows":
        """Windows from latents of all streams of the spec, absent ones being zero."""
        if not spec.sim_views:
            return cls(latents, tables.conditions)
        num_views = len(spec.views)
        clean, sim = latents[:, :num_views], latents[:, num_views:]
        has_real = tables.stream_present[:, :num_views].any(dim=1)
        if has_real.all():
            return cls(clean, tables.conditions, sim, sim_text=tables.sim_text)
        clean = torch.where(has_real.view(-1, 1, 1, 1, 1, 1), clean, sim)
        return cls(clean, tables.conditions, sim, has_real, tables.sim_text)

    @classmethod
    def joined(cls, parts: Sequence["LatentWindows"]) -> "LatentWindows":
        """Windows of several sets as one source, in the order of the parts.

        Raises:
            ValueError: latents or conditions of different kinds, both named.
        """
        assert all(part.features is None for part in parts), "text features are given to the joined windows"
        if len(parts) == 1:
            return parts[0]
        for part in parts[1:]:
            if part.clean.shape[1:] != parts[0].clean.shape[1:]:
                raise ValueError(
                    f"latents of {list(part.clean.shape[1:])} cannot join those of {list(parts[0].clean.shape[1:])}"
                )
        has_real = None
        if any(part.has_real is not None for part in parts):
            flags = [torch.ones(p.num_windows, dtype=torch.bool) if p.has_real is None else p.has_real for p in parts]
            has_real = torch.cat(flags)
        return cls(
            torch.cat([part.clean for part in parts]),
            join([part.conditions for part in parts]),
            _joined("sim", [part.sim for part in parts]),
            has_real,
            _joined("sim_text", [part.sim_text for part in parts]),
        )

    def with_features(self, features: TextFeatures) -> "LatentWindows":
        """The same windows for a model that reads features of a frozen text encoder.

        Raises:
            ValueError: features of another number of windows, or the simulation has a wording of its own.
        """
        if len(features.index) != self.num_windows:
            raise ValueError(f"text features of {len(features.index)} windows for {self.num_windows}")
        if self.sim_text is not None:
            raise ValueError("text features are of one wording; give the simulation of pairs the wording of the video")
        return LatentWindows(self.clean, self.conditions, self.sim, self.has_real, features=features)

    @property
    def num_windows(self) -> int:
        return self.clean.shape[0]

    def batch(self, indices: Sequence[int]) -> Batch:
        index = torch.as_tensor(indices)
        clean = self.clean[index]
        conditions = map_tensors(self.conditions, lambda tensor: tensor[index])
        if self.features is not None:
            conditions = replace(conditions, text=None, text_features=self.features.of(index))
        return Batch(
            clean=clean,
            observed=first_frame_observed(clean),
            conditions=conditions,
            sim=None if self.sim is None else self.sim[index],
            has_real=None if self.has_real is None else self.has_real[index],
            sim_text=None if self.sim_text is None else self.sim_text[index],
        )


def _joined(name: str, values: Sequence[Tensor | None]) -> Tensor | None:
    """Of all parts, or of none."""
    present = [value for value in values if value is not None]
    if len(present) not in (0, len(values)):
        raise ValueError(f"{name} is given for {len(present)} of {len(values)} parts; expected all or none")
    return torch.cat(present) if present else None


def first_frame_observed(latents: Float[Tensor, "b v g c h w"]) -> Bool[Tensor, "b g"]:
    """The plain case: latent frame 0 is given, the rest is predicted."""
    observed = torch.zeros(latents.shape[0], latents.shape[2], dtype=torch.bool)
    observed[:, 0] = True
    return observed
