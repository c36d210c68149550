"""Episodes of a paired set as arrays, and their rendered robot put on another background without rendering again.

A set stores the robot on one background and its mask, but no coverage: at the outline that is estimated from how far a
pixel lies between the background and the robot's colour beside it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8
from scipy.ndimage import binary_dilation, binary_erosion, distance_transform_edt, gaussian_filter

from simforcing.data.backgrounds import BackgroundKind, clean_plate, mean_image, plain, plate_rows
from simforcing.data.footage import chosen_frames
from simforcing.data.lerobot import episode_names
from simforcing.data.pair_fields import background_path, paired_record
from simforcing.data.pair_streams import PICTURED, REAL, SIM
from simforcing.data.resize import resize_frames, resize_nearest
from simforcing.data.sim_background import background_picture
from simforcing.data.windows import MASK_LEVEL
from simforcing.types import Episode, EpisodeSet, FrameSource, Resize

COLOUR_DEVIATION = 40.0  # grey levels by which a robot's colour at its outline differs from that beside it
SHARE_DEVIATION = 0.2  # of the covered share by which a blurred mask is off
MASK_BLUR_PX = 0.6


@dataclass(frozen=True)
class PairFrames:
    """Real and sim frames of one episode, the sim's mask, and the background (of that kind) that the sim stands on.

    Args:
        numbers: which frames of the episode these are, rising; None: all.
        num_frames: of the whole episode, where these are some.
        mean: of all real frames, where these are some and it was asked for.
    """

    name: str
    real: UInt8[np.ndarray, "f h w 3"]
    sim: UInt8[np.ndarray, "f h w 3"]
    mask: Bool[np.ndarray, "f h w"]
    background: UInt8[np.ndarray, "h w 3"]
    kind: BackgroundKind
    numbers: Int[np.ndarray, " f"] | None = None
    num_frames: int = 0
    mean: UInt8[np.ndarray, "h w 3"] | None = None

    def __post_init__(self) -> None:
        if self.numbers is None:
            object.__setattr__(self, "num_frames", len(self.real))

    def at(self, numbers: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """Where frames of the episode, which must be among these, are in the arrays."""
        if self.numbers is None:
            return numbers
        assert np.isin(numbers, self.numbers).all(), "frames that were not read"
        return np.searchsorted(self.numbers, numbers)

    def on(self, kind: BackgroundKind) -> "PairFrames":
        """The same with the robot on another background of the same episode; the stored one comes back as it is."""
        if kind == self.kind:
            return self
        background = self._background(kind)
        sim = _blended(self.sim, background, self.coverage, self.background)
        return replace(self, sim=sim, background=background, kind=kind)

    def cut_out(self) -> "PairFrames":
        """Real pixels where the sim's robot is, on its background: a sim with perfect looks, through this camera."""
        inside = self.mask[..., None]
        return replace(self, sim=np.where(inside, self.real, self.background).astype(np.uint8))

    def moved(self, down_px: int, right_px: int) -> "PairFrames":
        """The sim as a camera shows it that is turned by so many pixels; what comes into view is background."""
        shape = self.mask.shape[1:]
        rows, columns = (np.arange(n) - step for n, step in zip(shape, (down_px, right_px), strict=True))
        known = ((rows >= 0) & (rows < shape[0]))[:, None] & ((columns >= 0) & (columns < shape[1]))[None]
        at = np.ix_(rows.clip(0, shape[0] - 1), columns.clip(0, shape[1] - 1))
        mask = self.mask[:, *at] & known
        coverage = self.coverage[:, *at] * known
        moved_sim = np.where(known[..., None], self.sim[:, *at], self.background)
        moved_background = np.where(known[..., None], self.background[at], self.background)
        sim = _blended(moved_sim, self.background, coverage, moved_background)
        return replace(self, sim=sim, mask=mask)

    @cached_property
    def coverage(self) -> Float[np.ndarray, "f h w"]:
        """How much of each pixel the robot covers, 0 .. 1, estimated."""
        return np.stack([_coverage(sim, mask, self.background) for sim, mask in zip(self.sim, self.mask, strict=True)])

    def _background(self, kind: BackgroundKind) -> UInt8[np.ndarray, "h w 3"]:
        if kind == "mean":
            assert self.mean is not None or self.numbers is None, "a mean that was not asked for"
            return mean_image(self.real) if self.mean is None else self.mean
        if kind != "plate":
            return plain(kind, self.background.shape[:2])
        rows = self.at(np.array(plate_rows(self.num_frames)))
        covered = np.stack([binary_dilation(mask) for mask in self.mask[rows]])
        return clean_plate(self.real[rows], covered)


class PairReader:
    """Reads episodes of a paired set in one size.

    Args:
        size: (height, width); None: as stored, both sides taken to the nearest of `multiple`.

    Raises ValueError where the set is no paired one, or its record cannot be used.
    """

    def __init__(self, data: EpisodeSet, size: tuple[int, int] | None = None, *, multiple: int = 1) -> None:
        self.data, self.root = data, Path(data.root)
        record = paired_record(data)
        if record is None:
            raise ValueError(f"{data.root}: no paired set (streams {REAL} and {SIM}); `simforcing simulate` makes one")
        self.record: dict[str, Any] = record
        self.stored = height, width = data.episodes[0].view(REAL).frames.size
        self.size = size or (_near(height, multiple), _near(width, multiple))
        self._names = episode_names(self.root)

    def read(
        self, episode: Episode, numbers: Int[np.ndarray, " f"] | None = None, *, with_mean: bool = False
    ) -> PairFrames:
        """Frames of one episode, resized where a size was asked for. ValueError where a frame cannot be read.

        Args:
            numbers: frames that are kept, rising; None: all. No other ones are held, however long the episode is.
            with_mean: also take the mean of all real frames.
        """
        sim = episode.view(SIM)
        if sim.masks is None:
            raise ValueError(f"{self.root}: episode {episode.name}: the sim has no mask")
        every = np.arange(episode.num_frames)
        kept = every if numbers is None else numbers
        stored = sim.frames.size
        resize = None if self.size == stored else Resize(height=self.size[0], width=self.size[1])

        def pictures(source: FrameSource, rows: Int[np.ndarray, " n"]) -> Iterator[UInt8[np.ndarray, "h w 3"]]:
            for frame in chosen_frames(source, rows):
                yield frame if resize is None else resize_frames(frame[None], resize)[0]

        masks = (mask[None, ..., 0] > MASK_LEVEL for mask in chosen_frames(sim.masks, kept))
        background = self._background(episode, stored)
        real: list[np.ndarray] = []
        mean = None
        if with_mean and numbers is not None:
            mean = mean_image(_keeping(pictures(episode.view(REAL).frames, every), set(numbers.tolist()), real))
        else:
            real += pictures(episode.view(REAL).frames, kept)
        return PairFrames(
            name=episode.name,
            real=np.stack(real),
            sim=np.stack(list(pictures(sim.frames, kept))),
            mask=np.concatenate([mask if resize is None else resize_nearest(mask, resize) for mask in masks]),
            background=background if resize is None else resize_frames(background[None], resize)[0],
            kind=self.record["background"]["kind"],
            numbers=numbers,
            num_frames=episode.num_frames,
            mean=mean,
        )

    def _background(self, episode: Episode, size: tuple[int, int]) -> UInt8[np.ndarray, "h w 3"]:
        declared = self.record["background"]
        if declared["kind"] not in PICTURED:
            return np.full((*size, 3), declared["value"], np.uint8)
        index = self._names.index(episode.name)
        path = background_path(declared, self.root, index)
        picture = background_picture(declared, self.root, index, episode.name)
        if picture.shape[:2] != size:
            raise ValueError(f"{path}: a background of {picture.shape[:2]} pixels, the frames have {size}")
        return picture


def _keeping(
    frames: Iterator[UInt8[np.ndarray, "h w 3"]], wanted: set[int], kept: list[np.ndarray]
) -> Iterator[UInt8[np.ndarray, "h w 3"]]:
    """All frames, of which the wanted ones are put aside."""
    for number, frame in enumerate(frames):
        if number in wanted:
            kept.append(frame)
        yield frame


def _near(side: int, multiple: int) -> int:
    return max(1, round(side / multiple)) * multiple


def _coverage(
    sim: UInt8[np.ndarray, "h w 3"], mask: Bool[np.ndarray, "h w"], background: UInt8[np.ndarray, "h w 3"]
) -> Float[np.ndarray, "h w"]:
    """1 inside, 0 outside; at the outline the likeliest share by two clues, each with its own deviation.

    One is the way from the background's colour to the robot's inside, the other the mask blurred by half a pixel.
    """
    inside = np.asarray(binary_erosion(mask, border_value=1), bool)
    if not inside.any():
        return mask.astype(np.float32)
    outline = binary_dilation(mask) & ~inside
    rows, columns = np.asarray(distance_transform_edt(~inside, return_distances=False, return_indices=True))
    behind = background.astype(np.float32)
    robot = sim[rows, columns] - behind
    by_colour, by_mask = 1.0 / COLOUR_DEVIATION**2, 1.0 / SHARE_DEVIATION**2
    weighed = ((sim - behind) * robot).sum(axis=-1) * by_colour + gaussian_filter(
        mask.astype(np.float32), MASK_BLUR_PX
    ) * by_mask
    share = weighed / (np.square(robot).sum(axis=-1) * by_colour + by_mask)
    return np.where(outline, share.clip(0.0, 1.0), mask).astype(np.float32)


def _blended(
    sim: UInt8[np.ndarray, "f h w 3"],
    background: UInt8[np.ndarray, "h w 3"],
    coverage: Float[np.ndarray, "f h w"],
    before: UInt8[np.ndarray, "h w 3"],
) -> UInt8[np.ndarray, "f h w 3"]:
    """Pictures that stood on `before`, on `background`: the uncovered share of each pixel is exchanged."""
    change = background.astype(np.float32) - before
    free = 1.0 - coverage[..., None]
    exchanged = np.where(free == 1.0, background, sim + free * change + 0.5)
    return exchanged.clip(0, 255).astype(np.uint8)
