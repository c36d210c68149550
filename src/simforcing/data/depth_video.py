"""Depth as video without loss: millimetres in 16-bit grey FFV1 (RFC 9043), 0 where nothing is known; read by windows.

Every frame stands alone, so that a window decodes exactly its own frames. Colours are the affair of `video`.
"""

from pathlib import Path

import av
import numpy as np
from jaxtyping import Float

from simforcing.data.encoder import Encoder, Encoding
from simforcing.data.frame_index import frame_index
from simforcing.data.video import check_range, decode_frames

PIXEL_FORMAT = "gray16le"
MM = 1000.0
MAX_DEPTH_M = 65.535  # what 16 bits of millimetres hold
ENCODING = Encoding(
    container="matroska",
    codec="ffv1",
    pixel_format=PIXEL_FORMAT,
    keyframe_every=1,
    options={"level": "3", "slicecrc": "1"},
)


class DepthVideo:
    """A DepthSource over a file that `DepthWriter` wrote. Opened at each read, so that it can be pickled."""

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)

    @property
    def num_frames(self) -> int:
        """Frames that the file holds (opens it, decodes nothing)."""
        return len(frame_index(self.path).pts)

    @property
    def size(self) -> tuple[int, int]:
        """Stored (height, width) in pixels."""
        header = frame_index(self.path).header
        return header.height, header.width

    def read(self, start: int, stop: int) -> Float[np.ndarray, "f h w"]:
        """Frames start..stop-1 in metres; 0 = unknown. ValueError names the file and the frame."""
        index = frame_index(self.path)
        check_range(self.path, start, stop, len(index.pts))
        if index.header.pixel_format != PIXEL_FORMAT:
            raise ValueError(
                f"{self.path}: pixels are {index.header.pixel_format}, expected {PIXEL_FORMAT} millimetres"
            )
        if start == stop:
            return np.zeros((0, *self.size), np.float32)
        return (decode_frames(self.path, index, start, stop, PIXEL_FORMAT) / MM).astype(np.float32)


class DepthWriter(Encoder):
    """Encodes depth as it comes into one Matroska file, in place. Use as a context manager."""

    def __init__(self, path: str | Path, fps: float | int, size: tuple[int, int]) -> None:
        super().__init__(path, fps, size, ENCODING)

    def write(self, depth_m: Float[np.ndarray, "f h w"]) -> None:
        """Append frames in metres, rounded to millimetres; what is not finite or not positive is stored as unknown.

        Raises ValueError where their size is not the file's, or a depth is beyond 65.535 m; OSError on a full disk.
        """
        if depth_m.shape[1:] != self.size:
            raise ValueError(f"{self.path}: depth of {depth_m.shape[1:]} pixels, expected {self.size}")
        known = np.where(np.isfinite(depth_m) & (depth_m > 0), depth_m, 0)
        if known.size and known.max() > MAX_DEPTH_M:
            raise ValueError(f"{self.path}: a depth of {known.max():g} m, 16 bits of millimetres hold {MAX_DEPTH_M} m")
        for image in np.round(known * MM).astype(np.uint16):
            self._append(av.VideoFrame.from_ndarray(image, format=PIXEL_FORMAT))
