"""Pictures for people: real | predicted | difference side by side, contact sheets, animations.

Small frames are enlarged by whole factors without smoothing, so that what is seen is what was scored.
"""

import base64
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import matplotlib
import numpy as np
from jaxtyping import UInt8
from matplotlib import font_manager
from PIL import Image, ImageDraw, ImageFont

from simforcing.data.video import write_video

TARGET_SIDE_PX = 256
DIFFERENCE_GAIN = 2.0  # a difference of half the range is already white-hot
BACKGROUND = (17, 24, 39)
INK = (226, 232, 240)
FAINT_INK = (148, 163, 184)
GAP_PX = 4
VIDEO_CRF = 22  # enlarged pixels cost little; the frames that are scored are never coded
PANELS = ("real", "predicted", "difference")
SIMULATED_PANELS = ("simulation", "self-made simulation", "difference")


def difference(
    truth: UInt8[np.ndarray, "f h w 3"], predicted: UInt8[np.ndarray, "f h w 3"]
) -> UInt8[np.ndarray, "f h w 3"]:
    """Largest absolute difference over the channels, doubled, on the `inferno` scale: black = equal."""
    largest = np.abs(truth.astype(np.int16) - predicted.astype(np.int16)).max(axis=-1)
    colours = matplotlib.colormaps["inferno"](np.clip(largest * DIFFERENCE_GAIN / 255, 0, 1))[..., :3]
    return np.rint(colours * 255).astype(np.uint8)


def enlarge(frames: UInt8[np.ndarray, "*n h w 3"], factor: int) -> UInt8[np.ndarray, "*n p q 3"]:
    """Every pixel becomes a square of factor x factor."""
    return frames.repeat(factor, axis=-3).repeat(factor, axis=-2)


def enlargement(height: int, width: int) -> int:
    """Whole factor that brings the longer side to about 256 px."""
    return max(1, round(TARGET_SIDE_PX / max(height, width)))


def side_by_side(
    truth: UInt8[np.ndarray, "f h w 3"],
    predicted: UInt8[np.ndarray, "f h w 3"],
    fps: float,
    *,
    panels: tuple[str, str, str] = PANELS,
) -> UInt8[np.ndarray, "f p q 3"]:
    """Real | predicted | difference with a label strip above, and the time in it; sides are even, for H.264.

    Args:
        panels: what the strip calls the three.
    """
    videos = (truth, predicted, difference(truth, predicted))
    return labelled_row(list(zip(panels, videos, strict=True)), fps, enlargement(*truth.shape[1:3]))


def labelled_row(
    videos: Sequence[tuple[str, UInt8[np.ndarray, "f h w 3"]]], fps: float, factor: int
) -> UInt8[np.ndarray, "f p q 3"]:
    """Videos of one shape beside each other, each under its label, enlarged by a whole factor; sides are even."""
    shown = [enlarge(video, factor) for _, video in videos]
    num, height, width = shown[0].shape[:3]
    strip = 26
    total_height, total_width = strip + height, len(shown) * (width + GAP_PX) - GAP_PX
    canvas = np.empty((num, total_height + total_height % 2, total_width + total_width % 2, 3), np.uint8)
    canvas[:] = BACKGROUND
    for column, panel in enumerate(shown):
        left = column * (width + GAP_PX)
        canvas[:, strip : strip + height, left : left + width] = panel
    for i in range(num):
        labels = [(column * (width + GAP_PX) + 8, name, INK) for column, (name, _) in enumerate(videos)]
        canvas[i, :strip] = _strip(canvas.shape[2], strip, labels, _time_label(i, fps))
    return canvas


def contact_sheet(
    truth: UInt8[np.ndarray, "f h w 3"],
    predicted: UInt8[np.ndarray, "f h w 3"],
    fps: float,
    *,
    num_columns: int = 6,
    side_px: int = 160,
    title: str = "",
) -> Image.Image:
    """Rows real, predicted, difference; columns evenly spread in time, the given frame first."""
    picked = np.unique(np.linspace(0, len(truth) - 1, num_columns).round().astype(int))
    factor = max(1, round(side_px / max(truth.shape[1:3])))
    rows = [enlarge(video[picked], factor) for video in (truth, predicted, difference(truth, predicted))]
    height, width = rows[0].shape[1:3]
    margin, head = 26, 26 + (24 if title else 0)
    sheet = Image.new("RGB", (margin + len(picked) * (width + GAP_PX), head + 3 * (height + GAP_PX)), BACKGROUND)
    draw = ImageDraw.Draw(sheet)
    if title:
        draw.text((margin, 6), _fitted(title, sheet.width - 2 * margin), INK, _font(13))
    for column, frame in enumerate(picked):
        left = margin + column * (width + GAP_PX)
        draw.text((left + width / 2, head - 12), _time_label(int(frame), fps), FAINT_INK, _font(12), anchor="mm")
        for row, frames in enumerate(rows):
            sheet.paste(Image.fromarray(frames[column]), (left, head + row * (height + GAP_PX)))
    for row, name in enumerate(PANELS):
        label = Image.new("RGB", (height, margin), BACKGROUND)
        ImageDraw.Draw(label).text((height / 2, margin / 2), name, INK, _font(12), anchor="mm")
        sheet.paste(label.rotate(90, expand=True), (0, head + row * (height + GAP_PX)))
    return sheet


def animation(
    pairs: Sequence[tuple[UInt8[np.ndarray, "f h w 3"], UInt8[np.ndarray, "f h w 3"]]],
    fps: float,
    path: Path,
    *,
    hold_s: float = 0.6,
) -> None:
    """A GIF or WebP (by the path's ending) of several clips under each other, side by side as in the report.

    Args:
        pairs: (real, predicted) of each clip; equal shapes.
        hold_s: how long the last frame stays.
    """
    stacked = np.concatenate([side_by_side(truth, predicted, fps) for truth, predicted in pairs], axis=1)
    write_animation(stacked, fps, path, hold_s=hold_s)


def write_animation(
    frames: UInt8[np.ndarray, "f h w 3"], fps: float, path: Path, *, hold_s: float = 0.6, num_colours: int = 255
) -> None:
    """Frames as a GIF (of so many colours) or WebP, by the path's ending; the last one stays for `hold_s`."""
    if path.suffix not in (".gif", ".webp"):
        raise ValueError(f"animation {path.name}: ending {path.suffix!r} is unknown; choices: .gif, .webp")
    images = [Image.fromarray(frame) for frame in frames]
    if path.suffix == ".gif":  # one palette for the whole film, or colours flicker
        palette = Image.fromarray(frames[:: max(1, len(frames) // 4)].reshape(-1, frames.shape[2], 3)).quantize(
            num_colours, Image.Quantize.MAXCOVERAGE
        )
        images = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    milliseconds = [round(1000 / fps)] * len(images)
    milliseconds[-1] += round(1000 * hold_s)
    images[0].save(path, save_all=True, append_images=images[1:], duration=milliseconds, loop=0, optimize=False)


def video_uri(frames: UInt8[np.ndarray, "f h w 3"], fps: float) -> str:
    """The frames as an H.264 mp4 in a `data:` address."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "video.mp4"
        write_video(path, frames, fps, codec="h264", keyframe_every=8, crf=VIDEO_CRF)
        return "data:video/mp4;base64," + base64.b64encode(path.read_bytes()).decode("ascii")


def _strip(width: int, height: int, labels: Sequence[tuple[int, str, tuple[int, int, int]]], right: str) -> np.ndarray:
    image = Image.new("RGB", (width, height), BACKGROUND)
    draw = ImageDraw.Draw(image)
    for left, text, colour in labels:
        draw.text((left, height / 2), text, colour, _font(13), anchor="lm")
    draw.text((width - 8, height / 2), right, FAINT_INK, _font(12), anchor="rm")
    return np.asarray(image)


def _time_label(frame: int, fps: float) -> str:
    return "given" if frame == 0 else f"{frame / fps:.1f} s"


def _fitted(text: str, width_px: int) -> str:
    font = _font(13)
    while font.getlength(text) > width_px and len(text) > 4:
        text = text[:-4] + "..."
    return text


@lru_cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(font_manager.findfont("DejaVu Sans"), size)  # matplotlib brings this font along
