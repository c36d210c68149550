"""How far a paired set's sim motion tells its real motion, in a latent space: what networks see of pair agreement.

Sums of products are kept by clip, so that any group of clips has its correlation and its interval over episodes:
signed (Pearson over channels, cells and differences), in magnitude (of |motion| over cells and differences), and R2 of
the raw sim motion. `edge_agreement` holds the cue that needs no network; verdicts are in `agreement_verdict`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from simforcing.data.backgrounds import BackgroundKind
from simforcing.data.latents import to_video
from simforcing.data.pair_frames import PairFrames
from simforcing.evaluation.frames import MOVING_THRESHOLD
from simforcing.evaluation.intervals import Interval, bootstrap_statistic
from simforcing.flow.motion import motion
from simforcing.nn.protocols import Autoencoder

MEASURES = ("signed", "magnitude", "explained", "energy")
SIGNED, MAGNITUDE = 0, 1
ENCODE_FRAMES = 16  # images in a network at a time
DIRECTIONS = ((0, 1), (1, 0), (0, -1), (-1, 0))

# number, sums of x and y, of their squares and of their products; of both kinds of correlation, by clip
Sums = Float[np.ndarray, "n 2 6"]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a real clip is compared with.

    Args:
        background: of the sim.
        shift: real frame i stands beside sim frame i - shift.
        moved_px: the sim is moved so far, as by a camera that is turned.
        source: sim | other (the sim of another episode) | cut-out (real pixels in the sim's mask).
        region: moving (cells where the sim's robot moves) | all.
    """

    background: BackgroundKind
    shift: int = 0
    moved_px: int = 0
    source: str = "sim"
    region: str = "moving"


@dataclass(frozen=True, kw_only=True)
class AgreementConfig:
    """What is compared.

    Args:
        clip_frames: frames of a clip at most; a multiple of the autoencoder's temporal factor, plus one, is used.
        max_clips: clips of an episode, evenly spread.
        shifts: by whole frames; 0 is always compared.
        backgrounds: that the sim is put on beside its own.
        moved_px: how far wrong cameras are turned.
        step: differences are of latents so many latent frames apart.
        seed: of the intervals.
    """

    clip_frames: int = 17
    max_clips: int = 6
    shifts: tuple[int, ...] = (-2, -1, 0, 1, 2)
    backgrounds: tuple[BackgroundKind, ...] = ("white", "grey", "mean", "plate")
    moved_px: tuple[int, ...] = (2, 4, 8)
    step: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if any(abs(shift) > 20 for shift in self.shifts):
            raise ValueError(f"shifts {self.shifts}: of at most 20 frames")
        for name in ("clip_frames", "max_clips", "step"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)}: must be at least 1")


@dataclass(frozen=True)
class ClipMotion:
    """Latent motion of clips, and the cells of each difference where the sim's robot moves."""

    values: Float[Tensor, "n d c h w"]
    moving: Bool[np.ndarray, "n d h w"]


class EpisodeMotion:
    """One episode's real motion, and what it is compared with, encoded once each.

    Raises ValueError where the episode is too short for a clip at every shift.
    """

    def __init__(self, pair: PairFrames, autoencoder: Autoencoder, config: AgreementConfig) -> None:
        self.pair, self.config = pair, config
        self._autoencoder = autoencoder
        self.starts, self.num_frames = clip_starts(pair.num_frames, autoencoder.temporal_factor, config)
        self._real = self._motion(pair.real, 0)
        self._sim: dict[tuple[str, int, int], ClipMotion] = {}

    def sums(self, setting: Setting, other: "EpisodeMotion | None" = None) -> Sums:
        """Of every clip; `other` is the episode whose sim is taken for source `other`."""
        sim = other.sim(setting) if other is not None else self.sim(setting)
        count = min(len(self._real), len(sim.values))
        differences = min(self._real.shape[1], sim.values.shape[1])
        rows = []
        for x, y, moving in zip(self._real[:count], sim.values[:count], sim.moving[:count], strict=True):
            region = moving[:differences] if setting.region == "moving" else np.ones_like(moving[:differences])
            rows.append(clip_sums(x[:differences], y[:differences], region))
        return np.stack(rows)

    def sim(self, setting: Setting) -> ClipMotion:
        """The sim's motion, kept for the next question; one of a lag at a time is of the stored background alone."""
        key = (setting.source if setting.source == "cut-out" else setting.background, setting.shift, setting.moved_px)
        if key not in self._sim:
            self._sim[key] = self._encoded(setting)
        return self._sim[key]

    def _encoded(self, setting: Setting) -> ClipMotion:
        shown = self.pair.on(setting.background)
        moving = np.stack([self._moving(shown, start - setting.shift) for start in self.starts])
        if setting.source == "cut-out":
            shown = shown.cut_out()
        if not setting.moved_px:
            return ClipMotion(self._motion(shown.sim, setting.shift), moving)
        values = []
        for i, start in enumerate(self.starts):
            down, right = (setting.moved_px * step for step in DIRECTIONS[i % len(DIRECTIONS)])
            moved = shown.moved(down, right)
            values.append(self._motion(moved.sim, setting.shift, [start]))
            moving[i] = self._moving(moved, start - setting.shift)
        return ClipMotion(torch.cat(values), moving)

    def _motion(
        self, frames: UInt8[np.ndarray, "f h w 3"], shift: int, starts: Sequence[int] | None = None
    ) -> Float[Tensor, "n d c h2 w2"]:
        chosen = [start - shift for start in (self.starts if starts is None else starts)]
        windows = [frames[self._window(start)] for start in chosen]
        return torch.stack([motion_of(window, self._autoencoder, self.config.step) for window in windows])

    def _window(self, start: int) -> Int[np.ndarray, " f"]:
        return self.pair.at(np.arange(start, start + self.num_frames))

    def _moving(self, pair: PairFrames, start: int) -> Bool[np.ndarray, "d h2 w2"]:
        """Cells with a pixel in which the robot comes, goes or changes between the frames of a difference."""
        factor, side, step = self._autoencoder.temporal_factor, self._autoencoder.spatial_factor, self.config.step
        window = self._window(start)
        mask, sim = pair.mask[window], pair.sim[window].astype(np.int16)
        ends = np.arange(0, self.num_frames, factor)
        cells = []
        for last in ends[step:]:
            first = max(0, last - (step + 1) * factor + 1)
            seen = mask[first : last + 1]
            change = np.abs(np.diff(sim[first : last + 1], axis=0)).max(axis=(0, -1)) > MOVING_THRESHOLD
            changed = seen.any(axis=0) & (~seen.all(axis=0) | change)
            height, width = changed.shape
            cells.append(changed.reshape(height // side, side, width // side, side).any(axis=(1, 3)))
        return np.stack(cells)


def clip_starts(num_frames: int, factor: int, config: AgreementConfig) -> tuple[list[int], int]:
    """Where clips of the real video start, and how many frames they have; room for every shift is left at both ends.

    Raises ValueError for an episode too short for one.
    """
    margin = max(abs(shift) for shift in (*config.shifts, 0))
    room = num_frames - 2 * margin
    length = (min(room, config.clip_frames) - 1) // factor * factor + 1
    if length < config.step * factor + 1:
        needed = config.step * factor + 1 + 2 * margin
        raise ValueError(f"{num_frames} frames, at least {needed} are needed for shifts of {margin} frames")
    count = (room - 1) // (length - 1)
    chosen = np.unique(np.linspace(0, count - 1, min(count, config.max_clips)).round().astype(int))
    return [margin + int(i) * (length - 1) for i in chosen], length


def clip_frames(num_frames: int, factor: int, config: AgreementConfig) -> Int[np.ndarray, " f"]:
    """All frames that an episode's clips need, at every shift. Raises like `clip_starts`."""
    starts, length = clip_starts(num_frames, factor, config)
    margin = max(abs(shift) for shift in (*config.shifts, 0))
    return np.unique([np.arange(start - margin, start + length + margin) for start in starts])


@torch.no_grad()
def motion_of(
    frames: UInt8[np.ndarray, "f h w 3"], autoencoder: Autoencoder, step: int = 1
) -> Float[Tensor, "d c h2 w2"]:
    """Latent motion of one clip, as a model is given it: differences of latents `step` latent frames apart."""
    video = to_video(frames)[None]
    if autoencoder.temporal_factor == 1:
        latents = torch.cat([autoencoder.encode(part) for part in video.split(ENCODE_FRAMES, dim=1)], dim=1)
    else:
        latents = autoencoder.encode(video)
    return (motion(latents) if step == 1 else latents[:, step:] - latents[:, :-step])[0]


def clip_sums(
    real: Float[Tensor, "d c h w"], sim: Float[Tensor, "d c h w"], region: Bool[np.ndarray, "d h w"]
) -> Float[np.ndarray, "2 6"]:
    """The sums of one clip inside a region, in float64."""
    inside = torch.from_numpy(region)
    x, y = (values.double().movedim(1, -1)[inside] for values in (real, sim))
    return np.stack([_sums(x.flatten(), y.flatten()), _sums(x.norm(dim=-1), y.norm(dim=-1))])


def _sums(x: Float[Tensor, " n"], y: Float[Tensor, " n"]) -> Float[np.ndarray, " 6"]:
    values = (x.sum(), y.sum(), x.square().sum(), y.square().sum(), (x * y).sum())
    return np.array([float(len(x)), *(float(value) for value in values)])


def measure(name: str, sums: Float[np.ndarray, "*r 2 6"]) -> Float[np.ndarray, "*r"]:
    """One of MEASURES from added sums; NaN where nothing moves.

    explained: 1 - sum (real - sim)^2 / sum real^2; energy: sum sim^2 / sum real^2.
    """
    if name not in MEASURES:
        raise ValueError(f"unknown measure {name!r}; choices: {', '.join(MEASURES)}")
    number, x, y, xx, yy, xy = np.moveaxis(sums[..., MAGNITUDE if name == "magnitude" else SIGNED, :], -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        if name == "explained":
            return np.asarray((2 * xy - yy) / xx)
        if name == "energy":
            return np.asarray(yy / xx)
        variance_x, variance_y = xx - x * x / number, yy - y * y / number
        return np.asarray((xy - x * y / number) / np.sqrt(variance_x * variance_y))


def interval(name: str, sums: Sums, clusters: Sequence[str], seed: int) -> Interval:
    """The measure over all clips, with its interval over clusters."""
    return bootstrap_statistic(
        sums.reshape(len(sums), -1), clusters, lambda added: measure(name, added.reshape(-1, 2, 6)), seed=seed
    )
