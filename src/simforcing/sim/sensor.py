"""A video camera's imperfections: exposure, white balance, tone, falling-off corners, blur and noise."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8
from scipy import ndimage


@dataclass(frozen=True, kw_only=True)
class Sensor:
    """One camera's state during one episode.

    Args:
        gain: exposure and white balance of red, green and blue.
        gamma: exponent of the tone curve; 1 is linear.
        vignette: how much darker the corners are, 0 .. 1.
        blur_px: standard deviation of the lens's point spread.
        read_noise: standard deviation of noise in the dark, of 255.
        shot_noise: of noise that grows with the square root of brightness, at white, of 255.
    """

    gain: tuple[float, float, float]
    gamma: float
    vignette: float
    blur_px: float
    read_noise: float
    shot_noise: float

    def expose(self, frame: UInt8[np.ndarray, "h w 3"], rng: np.random.Generator) -> UInt8[np.ndarray, "h w 3"]:
        """The frame as this camera records it; the noise is drawn from `rng`."""
        height, width, _ = frame.shape
        light = ndimage.gaussian_filter(frame.astype(np.float32), (self.blur_px, self.blur_px, 0)) / 255
        y, x = np.linspace(-1, 1, height)[:, None, None], np.linspace(-1, 1, width)[None, :, None]
        light = np.clip(light * np.array(self.gain) * (1.0 - self.vignette * (x * x + y * y) / 2), 0.0, 1.0)
        signal = 255 * light**self.gamma
        deviation = np.sqrt(self.read_noise**2 + self.shot_noise**2 * light)
        return np.clip(signal + deviation * rng.standard_normal(frame.shape) + 0.5, 0, 255).astype(np.uint8)
