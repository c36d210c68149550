"""Distances between a predicted and a true video, frame by frame: PSNR, SSIM and the moving region.

Everything is computed in float64 on 8-bit frames scaled to 0..1. Which frames count is decided in `protocols`.
"""

import numpy as np
from jaxtyping import Bool, Float, UInt8
from scipy.ndimage import correlate1d, maximum_filter

MOVING_THRESHOLD = 10  # grey levels of 255: above the noise of 8-bit video coding, below any visible motion
MOVING_DILATION_PX = 2
SSIM_TAPS = 11
SSIM_SIGMA_PX = 1.5
LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601


def psnr(truth: UInt8[np.ndarray, "*n h w c"], predicted: UInt8[np.ndarray, "*n h w c"]) -> Float[np.ndarray, "*n"]:
    """PSNR = -10 log10(mean over h, w, c of (truth - predicted)^2), in dB; infinite for equal frames."""
    _check_pair(truth, predicted)
    return _decibels(np.square(_unit(truth) - _unit(predicted)).mean(axis=(-3, -2, -1)))


def masked_psnr(
    truth: UInt8[np.ndarray, "*n h w c"], predicted: UInt8[np.ndarray, "*n h w c"], region: Bool[np.ndarray, "*n h w"]
) -> Float[np.ndarray, "*n"]:
    """PSNR over the pixels of a region, in dB; NaN for a frame whose region is empty."""
    _check_pair(truth, predicted)
    squared = np.square(_unit(truth) - _unit(predicted)).mean(axis=-1)
    num_pixels = region.sum(axis=(-2, -1))
    total = np.where(region, squared, 0.0).sum(axis=(-2, -1))
    decibels = _decibels(total / np.maximum(num_pixels, 1))
    return np.where(num_pixels > 0, decibels, np.nan)


def ssim(truth: UInt8[np.ndarray, "*n h w c"], predicted: UInt8[np.ndarray, "*n h w c"]) -> Float[np.ndarray, "*n"]:
    """Structural similarity with an 11x11 Gaussian window, sigma 1.5 px, K = (0.01, 0.03), population covariance.

    The map is averaged where the whole window lies inside the frame, then over channels (Wang et al. 2004).
    Raises ValueError for frames smaller than the window.
    """
    _check_pair(truth, predicted)
    return ssim_of_unit(_unit(truth), _unit(predicted))


def ssim_of_unit(x: Float[np.ndarray, "*n h w c"], y: Float[np.ndarray, "*n h w c"]) -> Float[np.ndarray, "*n"]:
    """`ssim` of frames that already are numbers from 0 to 1."""
    if min(x.shape[-3:-1]) < SSIM_TAPS:
        raise ValueError(f"SSIM needs frames of at least {SSIM_TAPS}x{SSIM_TAPS} px, found {x.shape[-3]}x{x.shape[-2]}")
    c1, c2 = 0.01**2, 0.03**2
    mean_x, mean_y = _window_mean(x), _window_mean(y)
    variance_x = _window_mean(x * x) - mean_x**2
    variance_y = _window_mean(y * y) - mean_y**2
    covariance = _window_mean(x * y) - mean_x * mean_y
    luminance = (2 * mean_x * mean_y + c1) / (mean_x**2 + mean_y**2 + c1)
    structure = (2 * covariance + c2) / (variance_x + variance_y + c2)
    return (luminance * structure).mean(axis=(-3, -2, -1))


def moving_region(frames: UInt8[np.ndarray, "f h w 3"]) -> Bool[np.ndarray, "f h w"]:
    """Pixels whose change from frame 0 exceeds 10/255 in any channel, dilated by 2 px (a 5x5 square).

    The region of frame 0 is empty, and so is that of any frame in which nothing has moved yet.
    """
    change = np.abs(frames.astype(np.int16) - frames[:1].astype(np.int16)).max(axis=-1) > MOVING_THRESHOLD
    side = 2 * MOVING_DILATION_PX + 1
    return maximum_filter(change, size=(1, side, side), mode="constant", cval=False)


def to_grey(frames: UInt8[np.ndarray, "*n h w 3"]) -> UInt8[np.ndarray, "*n h w 1"]:
    """BT.601 luma, rounded to 8 bits."""
    return np.rint(frames.astype(np.float64) @ np.array(LUMA))[..., None].astype(np.uint8)


def halve_to_256(frames: UInt8[np.ndarray, "*n h w c"]) -> Float[np.ndarray, "*n p q c"]:
    """Frames as 0..1, average-pooled by round(shorter side / 256): what `piq.ssim` does before its window."""
    height, width = frames.shape[-3:-1]
    factor = max(1, round(min(height, width) / 256))
    rows, columns = height // factor, width // factor
    cropped = _unit(frames)[..., : rows * factor, : columns * factor, :]
    return cropped.reshape(*frames.shape[:-3], rows, factor, columns, factor, frames.shape[-1]).mean(axis=(-4, -2))


def _unit(frames: np.ndarray) -> np.ndarray:
    return frames.astype(np.float64) / 255.0


def _decibels(squared_error: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.asarray(-10.0 * np.log10(squared_error))


def _window_mean(x: np.ndarray) -> np.ndarray:
    """Gaussian mean at every pixel whose whole window lies inside the frame."""
    radius = SSIM_TAPS // 2
    taps = np.exp(-0.5 * (np.arange(-radius, radius + 1) / SSIM_SIGMA_PX) ** 2)
    taps /= taps.sum()
    rows = correlate1d(x, taps, axis=-3)[..., radius:-radius, :, :]
    return correlate1d(rows, taps, axis=-2)[..., radius:-radius, :]


def _check_pair(truth: np.ndarray, predicted: np.ndarray) -> None:
    if truth.shape != predicted.shape:
        raise ValueError(f"true frames have shape {truth.shape}, predicted ones {predicted.shape}; they must agree")
