"""Opening mp4 files and indexing their frames by presentation time, without decoding; damage becomes one line."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import av
import numpy as np
from av.container import InputContainer
from av.error import FFmpegError
from jaxtyping import Int

# What libav and its wrapper raise on bytes that are not the video they claim to be.
DAMAGED = (FFmpegError, OSError, EOFError, ValueError, OverflowError, MemoryError, IndexError)
STRICT = {"err_detect": "explode"}  # damage is an error, never concealed with grey blocks


@dataclass(frozen=True, kw_only=True)
class VideoHeader:
    """What a file says about itself. `fps` is only a claim: the data set's own description overrides it (0: absent)."""

    num_frames: int
    fps: float
    height: int
    width: int
    codec: str
    pixel_format: str


@dataclass(frozen=True, kw_only=True)
class FrameIndex:
    """Presentation times of all frames and of the keyframes, sorted, in units of `time_base` seconds."""

    pts: Int[np.ndarray, " f"]
    key_pts: Int[np.ndarray, " k"]
    time_base: Fraction
    header: VideoHeader

    def nearest(self, time_s: float) -> int:
        """Index of the frame shown nearest to a time; the number of frames where that is past the end."""
        times_s = self.pts * float(self.time_base)
        spacing_s = (times_s[-1] - times_s[0]) / max(len(times_s) - 1, 1)
        return int(np.searchsorted(times_s, time_s - spacing_s / 2))


@contextmanager
def opened_video(path: str, doing: str) -> Iterator[InputContainer]:
    """The open file; whatever libav raises inside becomes one ValueError line."""
    if not os.path.isfile(path):
        raise ValueError(f"{path}: no such video file")
    try:
        with av.open(path, options=STRICT, metadata_errors="replace") as container:
            if not container.streams.video:
                raise ValueError("it has no video stream")
            context = container.streams.video[0].codec_context
            if context is None:  # the codec's four letters are damaged
                raise ValueError("its codec is unknown")
            context.thread_count = 1
            context.options = STRICT
            yield container
    except DAMAGED as error:
        if isinstance(error, ValueError) and str(error).startswith(path):
            raise
        reason = getattr(error, "strerror", None) or one_line(error)
        raise ValueError(f"{path}: damaged or not a video, {doing} failed ({reason})") from error


def frame_index(path: str) -> FrameIndex:
    """The index of a file, cached until the file changes. ValueError names a missing or damaged file."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise ValueError(f"{path}: no such video file") from error
    return _cached_frame_index(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=1024)
def _cached_frame_index(path: str, mtime_ns: int, num_bytes: int) -> FrameIndex:
    """Read the packets' time stamps."""
    with opened_video(path, f"reading the frame index ({num_bytes} bytes)") as container:
        stream = container.streams.video[0]
        times = [
            (packet.pts, packet.is_keyframe)
            for packet in container.demux(stream)
            if packet.size and packet.pts is not None and not packet.is_discard
        ]
        pts = np.array([time for time, _ in times], np.int64)
        key_pts = np.array([time for time, is_key in times if is_key], np.int64)
        if len(pts) == 0 or len(key_pts) == 0:
            raise ValueError("no frames")
        rate, context = stream.average_rate or stream.base_rate, stream.codec_context
        header = VideoHeader(
            num_frames=len(pts),
            fps=float(rate) if rate else 0.0,
            height=context.height,
            width=context.width,
            codec={"libdav1d": "av1"}.get(context.name, context.name),
            pixel_format=context.pix_fmt or "unknown",
        )
        if header.height < 1 or header.width < 1 or stream.time_base is None:
            raise ValueError(f"{header.height}x{header.width} pixels")
        if len(np.unique(pts)) != len(pts):
            raise ValueError("two frames have the same time stamp")
        return FrameIndex(pts=np.sort(pts), key_pts=np.sort(key_pts), time_base=stream.time_base, header=header)


def one_line(error: BaseException) -> str:
    """What an error says, without line breaks."""
    return " ".join(str(error).split()) or type(error).__name__
