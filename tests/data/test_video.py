"""Frame sources read exactly the frames asked for, whatever the file looks like, and name what is broken."""

import errno
import io
import os
import pickle
import random
import resource
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from simforcing.data.video import ArrayFrames, JpegFrames, VideoFrames, VideoWriter, probe, write_video
from simforcing.types import FrameSource


def numbered(num_frames: int, height: int = 64, width: int = 64) -> np.ndarray:
    """Grey frames that tell their own number: frame i has brightness 4 i + 2."""
    frames = np.empty((num_frames, height, width, 3), np.uint8)
    frames[:] = (np.arange(num_frames) * 4 + 2).astype(np.uint8)[:, None, None, None]
    return frames


def numbers(frames: np.ndarray) -> list[int]:
    """Which frames of `numbered` these are."""
    return [round((frame.mean() - 2) / 4) for frame in frames]


def complaint(path: Path, num_frames: int) -> str | None:
    """What reading the frames of a possibly damaged file complains about."""
    try:
        assert len(VideoFrames(path).read(0, num_frames)) == num_frames
    except ValueError as error:
        return str(error)
    return None


def write_foreign(
    path: Path, frames: np.ndarray, *, fps: int = 30, bframes: int = 0, keyframe_every: int = 1000
) -> Path:
    """A file as other people's tools write it: B-frames, few keyframes."""
    with av.open(str(path), "w") as container:
        options = {"bf": str(bframes), "crf": "12", "sc_threshold": "0", "b_adapt": "0"}
        stream = container.add_stream("libx264", rate=Fraction(fps), options=options)
        stream.height, stream.width, stream.pix_fmt = frames.shape[1], frames.shape[2], "yuv420p"
        stream.gop_size = keyframe_every
        for image in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode(None))
    return path


@pytest.mark.parametrize("codec", ["h264", "av1"])
def test_every_window_of_our_files_has_the_frames_asked_for(tmp_path, codec):
    path = tmp_path / "video.mp4"
    write_video(path, numbered(40), 5, codec=codec)
    video = VideoFrames(path)
    assert isinstance(video, FrameSource)
    assert (video.num_frames, video.size) == (40, (64, 64))
    for start in range(40):
        for stop in (start + 1, min(start + 7, 40)):
            assert numbers(video.read(start, stop)) == list(range(start, stop))


@pytest.mark.parametrize("bframes", [0, 3])
@pytest.mark.parametrize("keyframe_every", [1000, 12])
def test_windows_are_exact_in_files_with_b_frames_and_few_keyframes(tmp_path, bframes, keyframe_every):
    path = write_foreign(tmp_path / "video.mp4", numbered(50), bframes=bframes, keyframe_every=keyframe_every)
    video = VideoFrames(path)
    whole = video.read(0, 50)
    assert numbers(whole) == list(range(50))
    for start in range(0, 45, 3):
        assert (video.read(start, start + 5) == whole[start : start + 5]).all()


def test_a_wrong_header_rate_does_not_move_a_frame(tmp_path):
    write_video(tmp_path / "a.mp4", numbered(30), 5)
    write_video(tmp_path / "b.mp4", numbered(30), 29.97)
    assert probe(tmp_path / "b.mp4").fps == pytest.approx(29.97)
    for name in ("a.mp4", "b.mp4"):
        assert numbers(VideoFrames(tmp_path / name).read(11, 14)) == [11, 12, 13]


def test_a_range_of_a_shared_file_is_a_source_of_its_own(tmp_path):
    path = tmp_path / "shared.mp4"
    write_video(path, numbered(50), 10)
    by_frame = VideoFrames(path, start_frame=17, num_frames=20)
    by_time = VideoFrames(path, start_s=1.7, stop_s=3.7)
    for source in (by_frame, by_time):
        assert source.num_frames == 20
        assert numbers(source.read(0, 3)) == [17, 18, 19]
        assert numbers(source.read(18, 20)) == [35, 36]
        with pytest.raises(
            ValueError, match=r"shared\.mp4: frames 18\.\.20 asked for, expected a range within 0\.\.19"
        ):
            source.read(18, 21)
    assert VideoFrames(path, start_s=4.0, stop_s=9.0).num_frames == 10


@given(start=st.integers(0, 59), length=st.integers(1, 21))
@settings(max_examples=20)
def test_a_window_equals_the_same_frames_of_the_whole_file(tmp_path_factory, start, length):
    path = tmp_path_factory.getbasetemp() / "property.mp4"
    if not path.exists():
        frames = np.random.default_rng(0).integers(0, 255, (60, 8, 8, 3), np.uint8).repeat(8, 1).repeat(8, 2)
        write_foreign(path, frames, bframes=2, keyframe_every=15)
    video = VideoFrames(path)
    stop = min(start + length, 60)
    assert (video.read(start, stop) == video.read(0, 60)[start:stop]).all()


def test_a_window_decodes_no_more_than_from_its_keyframe(tmp_path, monkeypatch):
    path = tmp_path / "video.mp4"
    write_video(path, numbered(200), 5)
    video = VideoFrames(path)
    decoded = []
    seen = av.open

    class Counting:
        """The container, counting the frames it decodes."""

        def __init__(self, container):
            self._container = container

        def __getattr__(self, name):
            return getattr(self._container, name)

        def __enter__(self):
            self._container.__enter__()
            return self

        def __exit__(self, *error):
            return self._container.__exit__(*error)

        def decode(self, stream):
            for frame in self._container.decode(stream):
                decoded.append(frame.pts)
                yield frame

    monkeypatch.setattr(av, "open", lambda *args, **kwargs: Counting(seen(*args, **kwargs)))
    assert numbers(video.read(101, 122)[:1]) == [101 % 64]
    assert len(decoded) <= 22


def test_the_same_frames_give_the_same_bytes(tmp_path, rng):
    frames = rng.integers(0, 255, (20, 64, 64, 3), np.uint8)
    for codec in ("h264", "av1"):
        for name in ("a.mp4", "b.mp4"):
            write_video(tmp_path / name, frames, 5, codec=codec)
        assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()


@pytest.mark.parametrize("codec", ["h264", "av1"])
def test_written_luma_is_close_to_the_source(tmp_path, codec):
    x = np.linspace(0, 2 * np.pi, 64)
    picture = 127 + 60 * np.sin(3 * x)[:, None] + 60 * np.cos(2 * x)[None]
    frames = np.stack([np.roll(picture, i, 1) for i in range(20)])[..., None].repeat(3, 3).astype(np.uint8)
    write_video(tmp_path / "video.mp4", frames, 5, codec=codec)
    error = VideoFrames(tmp_path / "video.mp4").read(0, 20).astype(float) - frames
    assert 10 * np.log10(255**2 / np.mean(error**2)) > 38  # measured 46.7 (H.264) and 44.7 (AV1)


def test_a_source_can_be_read_in_another_process(tmp_path):
    write_video(tmp_path / "video.mp4", numbered(20), 5)
    video = VideoFrames(tmp_path / "video.mp4")
    video.read(0, 2)
    assert numbers(pickle.loads(pickle.dumps(video)).read(3, 5)) == [3, 4]
    with ProcessPoolExecutor(1) as pool:
        assert numbers(pool.submit(video.read, 7, 9).result()) == [7, 8]


def test_a_missing_or_foreign_file_is_named_in_one_line(tmp_path):
    (tmp_path / "text.mp4").write_text("this is no video" * 100)
    (tmp_path / "empty.mp4").touch()
    for name in ("absent.mp4", "text.mp4", "empty.mp4"):
        with pytest.raises(ValueError, match=name) as raised:
            VideoFrames(tmp_path / name).read(0, 1)
        assert "\n" not in str(raised.value)


def test_a_truncated_file_is_refused(tmp_path):
    path = tmp_path / "video.mp4"
    write_video(path, numbered(60), 5)
    data = path.read_bytes()
    for share in (0.2, 0.6, 0.95):
        path.write_bytes(data[: int(len(data) * share)])
        with pytest.raises(ValueError, match=r"video\.mp4: damaged"):
            VideoFrames(path).read(0, 60)


def test_a_file_with_fewer_frames_than_promised_names_the_missing_one(tmp_path):
    write_video(tmp_path / "video.mp4", numbered(10), 5)
    with pytest.raises(ValueError, match=r"video\.mp4: frame 11 is missing: the file holds 10 frames"):
        VideoFrames(tmp_path / "video.mp4", num_frames=12).read(8, 12)


def test_a_damaged_picture_is_an_error_not_a_grey_block(tmp_path, rng):
    path = tmp_path / "video.mp4"
    write_video(path, rng.integers(0, 255, (8, 64, 64, 3), np.uint8), 5)
    with av.open(str(path)) as container:
        packets = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    data = path.read_bytes()
    for number, (start, size) in enumerate(packets):
        damaged = bytearray(data)
        damaged[start + size // 2 : start + size] = bytes(size - size // 2)
        path.write_bytes(damaged)
        os.utime(path, ns=(number, number))
        with pytest.raises(ValueError, match=r"video\.mp4"):
            VideoFrames(path).read(0, 8)


@pytest.mark.parametrize("codec", ["h264", "av1"])
def test_random_damage_gives_frames_or_one_line(tmp_path, codec):
    path = tmp_path / "video.mp4"
    write_video(path, np.random.default_rng(0).integers(0, 255, (12, 64, 64, 3), np.uint8), 5, codec=codec)
    data = path.read_bytes()
    chance = random.Random(0)
    for trial in range(150):
        damaged = bytearray(data)
        low = 0 if trial % 2 else len(data) - 1200  # every second trial aims at the index
        for _ in range(chance.choice([1, 3, 20])):
            damaged[chance.randrange(low, len(data))] = chance.randrange(256)
        path.write_bytes(damaged)
        os.utime(path, ns=(trial, trial))
        message = complaint(path, 12)
        assert message is None or ("video.mp4" in message and "\n" not in message)


def test_writing_refuses_what_no_file_can_hold(tmp_path):
    path = tmp_path / "video.mp4"
    for frames, fps, codec, message in (
        (numbered(0), 5, "h264", "no frames"),
        (numbered(2, 63, 64), 5, "h264", "63x64 pixels cannot be written, both sides must be even"),
        (numbered(2), 0, "h264", "fps 0 must be above 0"),
    ):
        with pytest.raises(ValueError, match=message):
            write_video(path, frames, fps, codec=codec)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file_and_no_rest(tmp_path, monkeypatch):
    path = tmp_path / "video.mp4"
    write_video(path, numbered(4), 5)
    before = path.read_bytes()

    def full(self, frames):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(VideoWriter, "write", full)
    with pytest.raises(OSError, match=r"video\.mp4: not written \(No space left on device\)") as raised:
        write_video(path, numbered(8), 5)
    assert raised.value.__cause__.errno == errno.ENOSPC
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["video.mp4"]


def test_a_real_write_error_of_the_system_surfaces(tmp_path):
    """RLIMIT_FSIZE stands in for a full disk: the muxer's own write fails."""
    script = (
        "import resource, signal, numpy as np\n"
        "from simforcing.data.video import write_video\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, {resource.RLIM_INFINITY}))\n"
        "frames = np.random.default_rng(0).integers(0, 255, (40, 64, 64, 3), np.uint8)\n"
        f"write_video({str(tmp_path / 'video.mp4')!r}, frames, 5)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stderr.strip().splitlines()[-1].startswith("OSError"), done.stderr
    assert "video.mp4: not written (File too large)" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_jpeg_strings_and_arrays_are_sources_too(tmp_path, rng):
    frames = numbered(6)
    strings = []
    for frame in frames:
        buffer = io.BytesIO()
        Image.fromarray(frame).save(buffer, "JPEG", quality=95)
        strings.append(buffer.getvalue())
    for source in (JpegFrames(strings, "record 3"), ArrayFrames(frames)):
        assert isinstance(source, FrameSource)
        assert (source.num_frames, source.size) == (6, (64, 64))
        assert numbers(source.read(2, 5)) == [2, 3, 4]
        with pytest.raises(ValueError, match=r"frames 2\.\.6 asked for, expected a range within 0\.\.5"):
            source.read(2, 7)
    with pytest.raises(ValueError, match="record 3: frame 1 is not a readable image"):
        JpegFrames([strings[0], strings[1][:200]], "record 3").read(0, 2)


def test_real_files_read_alike_in_windows_and_as_a_whole(shared_data):
    paths = sorted(shared_data.glob("*/**/*.mp4"))[::13]
    if not paths:
        pytest.skip("no mp4 file in the shared data")
    for path in paths:
        video = VideoFrames(path)
        whole = video.read(0, video.num_frames)
        for start in range(0, video.num_frames - 5, 43):
            assert (video.read(start, start + 5) == whole[start : start + 5]).all()


def test_a_first_frame_decodes_the_same_whatever_surrounds_it(tmp_path, rng):
    first = np.kron(rng.integers(0, 255, (1, 8, 8, 3)), np.ones((1, 8, 8, 1))).astype(np.uint8)
    takes = [np.concatenate([first, np.roll(first, shift, 2), rng.integers(0, 255, first.shape)]) for shift in (1, 9)]
    with VideoWriter(tmp_path / "video.mp4", 5, (64, 64)) as writer:
        for take in takes:
            writer.write(take.astype(np.uint8))
    video = VideoFrames(tmp_path / "video.mp4")
    np.testing.assert_array_equal(video.read(0, 1), video.read(3, 4))
    assert np.abs(video.read(1, 2).astype(int) - video.read(4, 5)).max() > 100
