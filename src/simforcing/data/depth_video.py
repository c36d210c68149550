"""Depth as video without loss: millimetres in 16-bit grey FFV1 (RFC 9043), 0 where nothing is known; read by windows.

Every frame stands alone, so that a window decodes exactly its own frames. Colours are the affair of `video`.
"""

import os
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from types import TracebackType

import av
import numpy as np
from av.video.stream import VideoStream
from jaxtyping import Float

from simforcing.data.frame_index import DAMAGED, frame_index
from simforcing.data.video import check_range, decode_frames

PIXEL_FORMAT = "gray16le"
MM = 1000.0
MAX_DEPTH_M = 65.535  # what 16 bits of millimetres hold


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


class DepthWriter:
    """Encodes depth as it comes into one Matroska file, in place. Use as a context manager.

    Args:
        path: the file to create.
        fps: frame rate in Hz, written to the header.
        size: (height, width) in pixels.
    """

    def __init__(self, path: str | Path, fps: float | int, size: tuple[int, int]) -> None:
        self.path, self.size, self.num_frames = str(path), size, 0
        # The open Python file makes write errors (a full disk) surface as the OSError they are.
        self._file = open(self.path, "wb")  # noqa: SIM115 - closed in close() or abort()
        self._container = av.open(self._file, "w", format="matroska", options={"fflags": "+bitexact"})
        rate = Fraction(fps).limit_denominator(10_000)
        stream = self._container.add_stream("ffv1", rate=rate, options={"level": "3", "slicecrc": "1"})
        assert isinstance(stream, VideoStream)
        self._stream = stream
        self._stream.height, self._stream.width, self._stream.pix_fmt = *size, PIXEL_FORMAT
        self._stream.gop_size = 1
        self._stream.codec_context.thread_count = 1
        self._stream.codec_context.time_base = 1 / rate

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
            frame = av.VideoFrame.from_ndarray(image, format=PIXEL_FORMAT)
            frame.pts, frame.time_base = self.num_frames, self._stream.codec_context.time_base
            self._container.mux(self._stream.encode(frame))
            self.num_frames += 1

    def close(self) -> None:
        """Finish the file; OSError where the disk is full."""
        try:
            self._container.mux(self._stream.encode(None))
            self._container.close()
            self._file.flush()
            os.fsync(self._file.fileno())
        finally:
            self._file.close()

    def abort(self) -> None:
        """Close without finishing; the file is unusable and should be removed."""
        with suppress(*DAMAGED):
            self._container.close()
        with suppress(OSError):
            self._file.close()

    def __enter__(self) -> "DepthWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()
