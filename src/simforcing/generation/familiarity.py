"""How much a picture looks like those that a model was trained on: a few numbers of them, and a warning beside them.

Three things are known of a picture: its colours on a coarse grid, how much detail it has at each scale, and how well
the autoencoder gives it back. Distances are Mahalanobis distances from the training pictures, in their own spread.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch.nn import functional

from simforcing.data.latents import device_of, to_video
from simforcing.data.resize import resize_frames
from simforcing.generation.start import Start
from simforcing.models.bundle import Bundle
from simforcing.nn.protocols import Autoencoder
from simforcing.types import DataSpec, Episode, from_json

GRID = 6  # cells along each side
SHRINKAGE = 0.2  # of correlations towards none, so that few pictures do not make many directions look impossible
MARGIN = 1.1  # of the largest value among training pictures that the measure was not fitted on
DETAIL_MARGIN = 1.6  # likewise: pictures that no video file has smoothed are still like them
MIN_PICTURES = 8
MAX_EPISODES = 256


@dataclass(frozen=True, kw_only=True)
class Distance:
    """Distance from a cloud of vectors, over the square root of their length: about 1 is usual.

    Args:
        mean, scale: of each number.
        correlation: between them, row by row, shrunk towards none.
        limit: of what is still like them.
    """

    mean: tuple[float, ...]
    scale: tuple[float, ...]
    correlation: tuple[tuple[float, ...], ...]
    limit: float = float("inf")

    @classmethod
    def fit(cls, values: Float[np.ndarray, "n d"], margin: float = MARGIN) -> "Distance":
        """Of these vectors; the limit comes from halves that are measured against each other."""
        halves = (values[::2], values[1::2])
        left_out = [cls._of(halves[1 - i])(halves[i]) for i in range(2)]
        return replace(cls._of(values), limit=round(margin * float(np.concatenate(left_out).max()), 3))

    @classmethod
    def _of(cls, values: Float[np.ndarray, "n d"]) -> "Distance":
        mean, scale = values.mean(axis=0), values.std(axis=0) + 1e-3
        correlation = np.cov((values - mean) / scale, rowvar=False, bias=True)
        shrunk = (1 - SHRINKAGE) * correlation + SHRINKAGE * np.eye(len(mean))
        rows = tuple(tuple(row) for row in shrunk.round(3).tolist())
        return cls(mean=tuple(mean.round(4).tolist()), scale=tuple(scale.round(4).tolist()), correlation=rows)

    def __call__(self, values: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """How far each vector is."""
        off = (values - np.array(self.mean)) / np.array(self.scale)
        squares = (off * np.linalg.solve(np.array(self.correlation), off.T).T).sum(axis=1)
        return np.sqrt(squares / values.shape[1])


@dataclass(frozen=True, kw_only=True)
class Familiarity:
    """What is kept of one view's training pictures.

    Args:
        colours, detail: of the coarse colours, and of detail and the autoencoder's error.
        num_pictures: that it was measured on.
    """

    colours: Distance
    detail: Distance
    num_pictures: int

    def fault(self, picture: UInt8[np.ndarray, "h w 3"], autoencoder: Autoencoder) -> str | None:
        """Why a picture, in the model's size, is unlike the training's, with figures; None where it is like them."""
        grid = math.isqrt(len(self.colours.mean) // 3)  # that it was measured on
        found = {
            "colours and where they are": (float(self.colours(_colours(picture[None], grid))[0]), self.colours.limit),
            "detail": (float(self.detail(_detail(picture[None], autoencoder))[0]), self.detail.limit),
        }
        faults = [
            f"{name} {value:.1f} spreads from theirs (at most {limit:.1f} among them)"
            for name, (value, limit) in found.items()
            if value > limit
        ]
        return "; ".join(faults) or None


def measure_familiarity(pictures: Sequence[UInt8[np.ndarray, "h w 3"]], autoencoder: Autoencoder) -> Familiarity | None:
    """Of one view's training pictures, in the model's size; None of too few of them."""
    if len(pictures) < MIN_PICTURES:
        return None
    stacked = np.stack(pictures)
    return Familiarity(
        colours=Distance.fit(_colours(stacked)),
        detail=Distance.fit(_detail(stacked, autoencoder), DETAIL_MARGIN),
        num_pictures=len(pictures),
    )


def familiarity_of(episodes: Sequence[Episode], spec: DataSpec, autoencoder: Autoencoder) -> dict[str, Familiarity]:
    """By view, of the first and middle frames of these episodes, spread evenly over them."""
    found = {}
    for name in spec.views:
        pictures = []
        sources = [view.frames for episode in episodes for view in episode.views if view.name == name]
        for i in np.unique(np.linspace(0, len(sources) - 1, min(MAX_EPISODES, len(sources))).astype(int)).tolist():
            for at in sorted({0, sources[i].num_frames // 2}):
                pictures.append(resize_frames(sources[i].read(at, at + 1), spec.resize)[0])
        measured = measure_familiarity(pictures, autoencoder)
        if measured is not None:
            found[name] = measured
    return found


def stored_familiarity(about: dict[str, Any], where: str) -> dict[str, Familiarity]:
    """By view, as a bundle records it; empty where it does not. ValueError, naming the field, where it is damaged."""
    stored = about.get("familiarity", {})
    return {name: from_json(Familiarity, value, f"{where}: about.familiarity.{name}") for name, value in stored.items()}


def warn_of_unfamiliar(start: Start, known: Mapping[str, Familiarity], bundle: Bundle) -> None:
    """Warn of each picture of a start, in the model's size, that is unlike the training's of its view.

    Args:
        known: `stored_familiarity` of the bundle.
    """
    for view, picture in zip(bundle.spec.views, start.images, strict=True):
        fault = known[view].fault(picture, bundle.autoencoder) if view in known else None
        if fault is not None:
            warnings.warn(f"{start.name}: view {view} is unlike the training's pictures: {fault}", stacklevel=5)


def _colours(pictures: UInt8[np.ndarray, "n h w 3"], grid: int = GRID) -> Float[np.ndarray, "n d"]:
    """Mean colours of a coarse grid's cells, in grey levels."""
    bands = [np.array_split(np.arange(side), grid) for side in pictures.shape[1:3]]
    cells = [
        pictures[:, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].mean(axis=(1, 2), dtype=np.float64)
        for rows in bands[0]
        for columns in bands[1]
    ]
    return np.concatenate(cells, axis=1)


@torch.no_grad()
def _detail(pictures: UInt8[np.ndarray, "n h w 3"], autoencoder: Autoencoder) -> Float[np.ndarray, "n d"]:
    """Logarithms of what is lost by halving again and again, and of what the autoencoder loses."""
    video = to_video(pictures).to(device_of(autoencoder))
    lost, fine = [], video
    while min(fine.shape[-2:]) >= 4:
        coarse = functional.avg_pool2d(fine, 2)
        shown = functional.interpolate(coarse, size=fine.shape[-2:], mode="nearest")
        lost.append((fine - shown).square().mean(dim=(1, 2, 3)))
        fine = coarse
    back = [autoencoder.decode(autoencoder.encode(one[None, None]))[0, 0] for one in video]
    lost.append((torch.stack(back) - video).square().mean(dim=(1, 2, 3)))
    # grey levels squared, with a floor so that a plain picture is finite
    return np.log10(127.5**2 * torch.stack(lost, dim=1).double().cpu().numpy() + 0.1)
