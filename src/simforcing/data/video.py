"""Frame sources that decode only what is read (mp4 by seeking, JPEG strings, arrays), and an atomic mp4 writer.

Frames are chosen by presentation time stamp, never by counting from the header's rate, so files with B-frames, one
keyframe or a wrong header rate read exactly. Resizing and time belong to `windows`.
"""

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import av
import numpy as np
from av.video.frame import PictureType
from av.video.reformatter import VideoReformatter
from jaxtyping import Float, Shaped, UInt8
from PIL import Image

from simforcing.data.encoder import Encoder, Encoding
from simforcing.data.frame_index import FrameIndex, VideoHeader, frame_index, one_line, opened_video
from simforcing.types.files import whole_file

Codec = Literal["h264", "av1"]
ENCODERS: dict[str, str] = {"h264": "libx264", "av1": "libsvtav1"}
# H.264 takes a constant quantiser: with rate control a frame's bits would depend on the frames that follow it.
DEFAULT_CRF: dict[str, int] = {"h264": 19, "av1": 24}


def probe(path: str | Path) -> VideoHeader:
    """Header and true number of frames, without decoding. ValueError names the file where it is missing or damaged."""
    return frame_index(str(path)).header


class VideoFrames:
    """Frames of an mp4, H.264 or AV1, decoded from the nearest keyframe before the ones that are read.

    The file is opened at each read, so that a source can be pickled and shared by worker processes.

    Args:
        path: the file.
        start_frame: first frame of this source (several episodes may share a file).
        num_frames: how many frames belong to it; None: all that follow.
        start_s, stop_s: the same range as times in the file, each moved to the nearest frame; they win where given.
    """

    def __init__(
        self,
        path: str | Path,
        start_frame: int = 0,
        num_frames: int | None = None,
        *,
        start_s: float | None = None,
        stop_s: float | None = None,
    ) -> None:
        self.path = str(path)
        self._start_frame, self._num_frames = start_frame, num_frames
        self._start_s, self._stop_s = start_s, stop_s

    def __repr__(self) -> str:
        return f"VideoFrames({self.path!r}, start_frame={self._start_frame}, start_s={self._start_s})"

    @property
    def num_frames(self) -> int:
        """As declared, or all that the file holds in the source's range (opens the file, decodes nothing)."""
        if self._num_frames is not None:
            return self._num_frames
        index = frame_index(self.path)
        stop = len(index.pts) if self._stop_s is None else index.nearest(self._stop_s)
        return max(stop - self.start_frame, 0)

    @property
    def start_frame(self) -> int:
        """Index in the file of this source's first frame."""
        return self._start_frame if self._start_s is None else frame_index(self.path).nearest(self._start_s)

    @property
    def size(self) -> tuple[int, int]:
        """Stored (height, width) in pixels."""
        header = frame_index(self.path).header
        return header.height, header.width

    def read(self, start: int, stop: int) -> UInt8[np.ndarray, "f h w 3"]:
        """Frames start..stop-1. ValueError names the file and the frame that is missing or damaged."""
        check_range(self.path, start, stop, self.num_frames)
        if start == stop:
            return np.zeros((0, *self.size, 3), np.uint8)
        index = frame_index(self.path)
        first = self.start_frame + start
        last = self.start_frame + stop
        if last > len(index.pts):
            raise ValueError(f"{self.path}: frame {last - 1} is missing: the file holds {len(index.pts)} frames")
        return decode_frames(self.path, index, first, last)

    def each(self, stop: int) -> Iterator[UInt8[np.ndarray, "h w 3"]]:
        """Frames 0..stop-1 one by one, each decoded once, however far apart keyframes are; raises like `read`."""
        check_range(self.path, 0, stop, self.num_frames)
        decoder = _Decoder(self.path, frame_index(self.path), self.start_frame, self.start_frame + stop, "rgb24")
        expected = 0
        for row, pixels in decoder.decoded(decoder.keyframe):
            if row != expected:
                break
            yield pixels
            expected += 1
        if expected < stop:
            yield from self.read(expected, stop)  # frames out of order, or a seek that overshot


class JpegFrames:
    """Frames kept as JPEG (or PNG) strings. `name` says in messages where they came from."""

    def __init__(self, images: Sequence[bytes], name: str = "JPEG frames") -> None:
        self._images = list(images)
        self._name = name

    @property
    def num_frames(self) -> int:
        return len(self._images)

    @property
    def size(self) -> tuple[int, int]:
        """Stored (height, width) of the first frame."""
        if not self._images:
            raise ValueError(f"{self._name}: no frames, expected at least one")
        with self._opened(0) as image:
            return image.height, image.width

    def read(self, start: int, stop: int) -> UInt8[np.ndarray, "f h w 3"]:
        """Frames start..stop-1. ValueError names the frame that is damaged or of another size."""
        check_range(self._name, start, stop, self.num_frames)
        height, width = self.size
        frames = np.empty((stop - start, height, width, 3), np.uint8)
        for i in range(start, stop):
            with self._opened(i) as image:
                if (image.height, image.width) != (height, width):
                    raise ValueError(
                        f"{self._name}: frame {i} is {image.height}x{image.width}, frame 0 is {height}x{width}"
                    )
                frames[i - start] = np.asarray(image.convert("RGB"))
        return frames

    @contextmanager
    def _opened(self, i: int) -> Iterator[Image.Image]:
        try:
            with Image.open(io.BytesIO(self._images[i])) as image:
                image.load()
                loaded = image
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise ValueError(f"{self._name}: frame {i} is not a readable image ({one_line(error)})") from error
        yield loaded


class ArrayFrames:
    """Frames in memory."""

    def __init__(self, frames: UInt8[np.ndarray, "f h w 3"], name: str = "array") -> None:
        self._frames = frames
        self._name = name

    @property
    def num_frames(self) -> int:
        return len(self._frames)

    @property
    def size(self) -> tuple[int, int]:
        """Stored (height, width) in pixels."""
        return self._frames.shape[1], self._frames.shape[2]

    def read(self, start: int, stop: int) -> UInt8[np.ndarray, "f h w 3"]:
        """Frames start..stop-1."""
        check_range(self._name, start, stop, self.num_frames)
        return self._frames[start:stop]


class ArrayDepth:
    """Depth in memory, in metres; what is not finite or not positive is unknown and read as 0."""

    def __init__(self, depth: Float[np.ndarray, "f h w"], name: str = "array") -> None:
        self._depth = np.where(np.isfinite(depth) & (depth > 0), depth, 0).astype(np.float32)
        self._name = name

    @property
    def num_frames(self) -> int:
        return len(self._depth)

    @property
    def size(self) -> tuple[int, int]:
        """Stored (height, width) in pixels."""
        return self._depth.shape[1], self._depth.shape[2]

    def read(self, start: int, stop: int) -> Float[np.ndarray, "f h w"]:
        """Frames start..stop-1 in metres."""
        check_range(self._name, start, stop, self.num_frames)
        return self._depth[start:stop]


class VideoWriter(Encoder):
    """Encodes frames as they come into one mp4, on one thread, so that the same frames give the same bytes.

    Writes in place: `write_video` and `LeRobotWriter` put a temporary name around it. Use as a context manager.

    Args:
        path: the file to create.
        fps: frame rate in Hz, written to the header.
        size: (height, width) in pixels, both even.
        codec: h264 | av1.
        keyframe_every: distance of keyframes in frames; 2 makes any window cheap to read.
        crf: quality, lower is better (H.264: the quantiser); None: the codec's default here.
    """

    def __init__(
        self,
        path: str | Path,
        fps: float | int,
        size: tuple[int, int],
        *,
        codec: Codec = "h264",
        keyframe_every: int = 2,
        crf: int | None = None,
    ) -> None:
        height, width = size
        if codec not in ENCODERS:
            raise ValueError(f"unknown codec {codec!r}; choices: {', '.join(ENCODERS)}")
        if height % 2 or width % 2 or height < 2 or width < 2:
            raise ValueError(f"{path}: a video of {height}x{width} pixels cannot be written, both sides must be even")
        if not fps > 0:
            raise ValueError(f"{path}: fps {fps} must be above 0")
        crf = DEFAULT_CRF[codec] if crf is None else crf
        if codec == "av1":
            os.environ.setdefault("SVT_LOG", "1")  # the encoder greets on stderr otherwise
            options = {"crf": str(crf), "preset": "8", "svtav1-params": f"lp=1:keyint={keyframe_every}"}
        else:
            options = {"qp": str(crf), "preset": "medium", "bf": "0", "sc_threshold": "0", "forced-idr": "1"}
        encoding = Encoding(
            container="mp4",
            codec=ENCODERS[codec],
            pixel_format="yuv420p",
            keyframe_every=keyframe_every,
            options=options,
        )
        super().__init__(path, fps, size, encoding)

    def write(self, frames: UInt8[np.ndarray, "f h w 3"]) -> None:
        """Append frames; the first of each call is a keyframe, which in H.264 depends on no other frame at all.

        Raises ValueError where their size is not the file's; OSError where the disk is full.
        """
        if frames.shape[1:3] != self.size:
            raise ValueError(f"{self.path}: frames of {frames.shape[1:3]} pixels, expected {self.size}")
        for i, image in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
            if i == 0:
                frame.pict_type = PictureType.I
            self._append(frame)


def write_video(
    path: str | Path,
    frames: UInt8[np.ndarray, "f h w 3"],
    fps: float | int,
    *,
    codec: Codec = "h264",
    keyframe_every: int = 2,
    crf: int | None = None,
) -> None:
    """Write an mp4 under a temporary name and rename it when complete; `path` is never half a file.

    Raises ValueError for no frames, odd sizes or an unknown codec, and OSError in one line on a full disk.
    """
    if len(frames) == 0:
        raise ValueError(f"{path}: no frames to write, expected at least one")
    size = (frames.shape[1], frames.shape[2])
    with (
        whole_file(Path(path)) as partial,
        VideoWriter(partial, fps, size, codec=codec, keyframe_every=keyframe_every, crf=crf) as writer,
    ):
        writer.write(frames)


def check_range(name: str, start: int, stop: int, num_frames: int) -> None:
    """ValueError, naming the source, for frames that it does not have."""
    if not 0 <= start <= stop <= num_frames:
        raise ValueError(f"{name}: frames {start}..{stop - 1} asked for, expected a range within 0..{num_frames - 1}")


def decode_frames(
    path: str, index: FrameIndex, first: int, last: int, pixel_format: str = "rgb24"
) -> Shaped[np.ndarray, "f h w ..."]:
    """Frames first..last-1 of the file in a format that NumPy holds (rgb24, gray16le).

    Decoded from the nearest keyframe before, or from the beginning if the seek overshot. ValueError names the frame.
    """
    decoder = _Decoder(path, index, first, last, pixel_format)
    shape = (last - first, index.header.height, index.header.width)
    is_grey = pixel_format.startswith("gray")
    frames = np.empty(shape if is_grey else (*shape, 3), np.uint16 if is_grey else np.uint8)
    missing = range(last - first)
    for key_pts in (decoder.keyframe, None):
        came = set()
        for row, pixels in decoder.decoded(key_pts):
            frames[row] = pixels
            came.add(row)
        missing = [row for row in range(last - first) if row not in came]
        if not missing or key_pts is None:
            break
    if missing:
        number = first + missing[0]
        raise ValueError(f"{path}: frame {number} cannot be decoded; expected {len(index.pts)} readable frames")
    return frames


class _Decoder:
    """One window of one file."""

    def __init__(self, path: str, index: FrameIndex, first: int, last: int, pixel_format: str) -> None:
        self.path, self.index, self.first, self.last, self.pixel_format = path, index, first, last, pixel_format

    @property
    def keyframe(self) -> int | None:
        """Time stamp of the nearest keyframe before the window; None: there is none."""
        before = self.index.key_pts[self.index.key_pts <= self.index.pts[self.first]]
        return int(before[-1]) if len(before) else None

    def decoded(self, key_pts: int | None) -> Iterator[tuple[int, np.ndarray]]:
        """(row in the window, pixels) as they come, decoding from a keyframe (None: the beginning) on."""
        row_of = {int(pts): row for row, pts in enumerate(self.index.pts[self.first : self.last])}
        with opened_video(self.path, f"decoding frames {self.first}..{self.last - 1}") as container:
            stream = container.streams.video[0]
            stream.codec_context.thread_count = 1  # starting threads costs more than small frames gain
            if key_pts is not None:
                container.seek(key_pts, stream=stream, backward=True)
            converter = VideoReformatter()  # one for all frames: it keeps its conversion tables
            for frame in container.decode(stream):
                row = None if frame.pts is None else row_of.pop(frame.pts, None)
                if row is not None:
                    yield row, self._pixels(row, frame, converter)
                if not row_of:
                    break

    def _pixels(self, row: int, frame: av.VideoFrame, converter: VideoReformatter) -> np.ndarray:
        """One decoded frame; ValueError where the decoder concealed damage or the size changed."""
        height, width = self.index.header.height, self.index.header.width
        if frame.is_corrupt or (frame.height, frame.width) != (height, width):
            raise ValueError(f"{self.path}: frame {self.first + row} is damaged, expected {height}x{width} pixels")
        return converter.reformat(frame, format=self.pixel_format, threads=1).to_ndarray()
