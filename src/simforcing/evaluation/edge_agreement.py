"""Do moving edges of the real frames run where those of the sim do? A cue without a network that no calibration uses.

Edges are unit gradients in double angle (v = (gx + i gy)^2 / |g|^2), so that a robot darker or brighter than what is
behind it gives the same edge; each pixel's mean over time is taken away, and with it everything that stands still.
The correlation of both fields is taken for every displacement of the sim: a right camera peaks at none.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Complex, Float, Int, UInt8
from scipy.ndimage import gaussian_filter1d

from simforcing.data.pair_frames import PairFrames
from simforcing.evaluation.frames import LUMA

NOISE_LEVELS = 3.0  # grey levels per pixel: gradients below count little
OUTLINE_LEVELS = 96.0  # contrast given to the sim's outline, whatever the background
SMOOTHING = 1.0 / 160.0  # of the picture's short side, at least one pixel
RADIUS = 0.12  # of the short side: how far displacements are tried
MAX_FRAMES = 64
FAST_LENGTH = 32  # Fourier transforms of multiples of it are quick


@dataclass(frozen=True, kw_only=True)
class EdgeAgreement:
    """What the edges of one episode say.

    Args:
        correlation: of the two fields as they are, -1 .. 1.
        offset_px: (down, right) by which the sim must be moved to fit best, to a fraction of a pixel.
        best: correlation there.
        z, best_z: of both correlations among all displacements tried, in their standard deviations.
        by_shift: shift of sim against real by whole frames -> correlation without displacement.
        num_frames: frames that were compared.
    """

    correlation: float
    offset_px: tuple[float, float]
    best: float
    z: float
    best_z: float
    by_shift: dict[int, float]
    num_frames: int

    @property
    def distance_px(self) -> float:
        """Length of the offset."""
        return float(np.hypot(*self.offset_px))


def compared_frames(
    num_frames: int, shifts: tuple[int, ...], allowed: Int[np.ndarray, " n"] | None = None
) -> Int[np.ndarray, " m"]:
    """Real frames that are compared: with a sim frame at every shift; of many, some, evenly spread.

    Args:
        allowed: those to choose from; None: all.
    """
    margin = max(abs(shift) for shift in (*shifts, 0))
    chosen = np.arange(num_frames) if allowed is None else allowed
    chosen = chosen[(chosen >= margin) & (chosen < num_frames - margin)]
    if len(chosen) < 2:
        raise ValueError(f"{len(chosen)} frames to compare edges in, at least 2 are needed")
    return chosen[np.unique(np.linspace(0, len(chosen) - 1, min(len(chosen), MAX_FRAMES)).round().astype(int))]


def edge_agreement(
    pair: PairFrames, *, shifts: tuple[int, ...] = (0,), allowed: Int[np.ndarray, " n"] | None = None
) -> EdgeAgreement:
    """Compare an episode's frames.

    Args:
        pair: its mask's outline counts as an edge on any background.
        shifts: real frame i stands beside sim frame i - shift.
        allowed: real frames that may be compared; None: all.

    Raises ValueError where fewer than two frames can be.
    """
    chosen = compared_frames(pair.num_frames, shifts, allowed)
    real, sim, mask = pair.real, pair.sim, pair.mask
    radius_px = max(3, round(RADIUS * min(real.shape[1:3])))
    first = moving_edges(real[pair.at(chosen)])
    by_shift = {}
    for shift in sorted({0, *shifts}, key=abs):
        beside = pair.at(chosen - shift)
        second = moving_edges(sim[beside], mask[beside])
        scale = np.sqrt(np.square(np.abs(first)).sum() * np.square(np.abs(second)).sum())
        by_shift[shift] = float(np.real(first * second.conj()).sum() / scale) if scale > 0 else 0.0
        if shift == 0:
            table = _displaced(first, second, radius_px) / scale if scale > 0 else np.zeros((2 * radius_px + 1,) * 2)
    offset_px, best = _peak(table)
    deviation = float(table.std())
    z, best_z = ((value - float(table.mean())) / deviation if deviation > 0 else 0.0 for value in (by_shift[0], best))
    return EdgeAgreement(
        correlation=by_shift[0],
        offset_px=offset_px,
        best=best,
        z=z,
        best_z=best_z,
        by_shift=by_shift,
        num_frames=len(chosen),
    )


def moving_edges(
    frames: UInt8[np.ndarray, "f h w 3"], mask: Bool[np.ndarray, "f h w"] | None = None
) -> Complex[np.ndarray, "f h w"]:
    """Edge directions in double angle, their mean over the frames taken away; the mask's outline is one more edge."""
    sigma_px = max(1.0, SMOOTHING * min(frames.shape[1:3]))
    field = np.empty(frames.shape[:3], np.complex64)
    for i, frame in enumerate(frames):
        gradient = _gradient(frame.astype(np.float32) @ np.array(LUMA, np.float32), sigma_px)
        if mask is not None:
            outline = _gradient(OUTLINE_LEVELS * mask[i].astype(np.float32), sigma_px)
            gradient = np.where(np.abs(outline) > np.abs(gradient), outline, gradient)
        field[i] = gradient**2 / (np.square(np.abs(gradient)) + NOISE_LEVELS**2)
    return field - field.mean(axis=0)


def _gradient(picture: Float[np.ndarray, "h w"], sigma_px: float) -> Complex[np.ndarray, "h w"]:
    """Derivatives of a Gaussian: to the right, and i times downwards."""
    smooth = [gaussian_filter1d(picture, sigma_px, axis=axis, mode="nearest") for axis in (0, 1)]
    right, down = (gaussian_filter1d(smooth[1 - axis], sigma_px, axis=axis, order=1, mode="nearest") for axis in (1, 0))
    return right + 1j * down


def _displaced(
    first: Complex[np.ndarray, "f h w"], second: Complex[np.ndarray, "f h w"], radius_px: int
) -> Float[np.ndarray, "r r"]:
    """Sum of Re(first(x + s) conj second(x)) for every displacement s up to the radius; row, column from -radius."""
    size = [-(-(side + radius_px) // FAST_LENGTH) * FAST_LENGTH for side in first.shape[1:]]
    total = np.zeros(size)
    for one, other in zip(first, second, strict=True):
        for part in ("real", "imag"):
            spectra = [np.fft.rfft2(getattr(field, part), size) for field in (one, other)]
            total += np.fft.irfft2(spectra[0] * spectra[1].conj(), size)
    steps = np.arange(-radius_px, radius_px + 1)
    return total[np.ix_(steps, steps)]


def _peak(table: Float[np.ndarray, "r r"]) -> tuple[tuple[float, float], float]:
    """Where the largest entry lies from the middle, refined by a parabola along each axis, and its value."""
    radius = len(table) // 2
    row, column = np.unravel_index(int(table.argmax()), table.shape)
    place = []
    for index, line in ((int(row), table[:, column]), (int(column), table[row])):
        step = 0.0
        if 0 < index < len(line) - 1:
            before, here, after = line[index - 1 : index + 2]
            bend = before - 2 * here + after
            step = 0.5 * float((before - after) / bend) if bend < 0 else 0.0
        place.append(index - radius + step)
    return (place[0], place[1]), float(table.max())
