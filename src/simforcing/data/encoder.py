"""A video file while it is written: what the writers of colours (`video`) and of depth (`depth_video`) share."""

import os
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import av
from av.video.stream import VideoStream

from simforcing.data.frame_index import DAMAGED

Kind = TypeVar("Kind", bound="Encoder")


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """Container, codec and pixels of a file; `options` are the codec's own, by FFmpeg's names."""

    container: str
    codec: str
    pixel_format: str
    keyframe_every: int
    options: dict[str, str]


class Encoder:
    """One stream, encoded in place on one thread, so that the same frames give the same bytes. A context manager.

    Args:
        path: the file to create.
        fps: frame rate in Hz, written to the header.
        size: (height, width) in pixels.
    """

    def __init__(self, path: str | Path, fps: float | int, size: tuple[int, int], encoding: Encoding) -> None:
        self.path, self.size = str(path), size
        self.num_frames = self.num_bytes = 0
        # The open Python file makes write errors (a full disk) surface as the OSError they are.
        self._file = open(self.path, "wb")  # noqa: SIM115 - closed in close() or abort()
        self._container = av.open(self._file, "w", format=encoding.container, options={"fflags": "+bitexact"})
        rate = Fraction(fps).limit_denominator(10_000)
        stream = self._container.add_stream(encoding.codec, rate=rate, options=encoding.options)
        assert isinstance(stream, VideoStream)
        self._stream = stream
        self._stream.height, self._stream.width, self._stream.pix_fmt = *size, encoding.pixel_format
        self._stream.gop_size = encoding.keyframe_every
        self._stream.codec_context.thread_count = 1
        self._stream.codec_context.time_base = 1 / rate

    def close(self) -> None:
        """Finish the file; OSError where the disk is full."""
        try:
            self._mux(None)
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

    def __enter__(self: Kind) -> Kind:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def _append(self, frame: av.VideoFrame) -> None:
        frame.pts, frame.time_base = self.num_frames, self._stream.codec_context.time_base
        self._mux(frame)
        self.num_frames += 1

    def _mux(self, frame: av.VideoFrame | None) -> None:
        packets = self._stream.encode(frame)
        self.num_bytes += sum(packet.size for packet in packets)
        self._container.mux(packets)
