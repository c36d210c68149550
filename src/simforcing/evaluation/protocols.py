"""Named evaluation protocols: which frames, size, colour and SSIM. Scores of two protocols do not compare.

`simforcing`, `irasim-short` and `dreamdojo` are those of the literature as far as they need no other software; FID,
FVD and LPIPS are not computed here.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, UInt8

from simforcing.evaluation.frames import halve_to_256, masked_psnr, moving_region, psnr, ssim, ssim_of_unit, to_grey

ROUNDING_PSNR_DB = float(10 * np.log10(12 * 255**2))  # 58.9 dB: the error of rounding to 8 bits alone, 1/12 level^2
METRICS = ("psnr", "moving_psnr", "ssim")  # of every clip
ROBOT_METRICS = ("robot_psnr", "background_psnr")  # where the robot's true silhouette is known
SCORES = (*METRICS, *ROBOT_METRICS)


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How a prediction is scored.

    Args:
        name: written into every result.
        num_frames: frames of a window, the given one too; None = any.
        include_given: whether the given frame counts (it adds decibels).
        size: (height, width) in pixels; None = any.
        colour: PSNR and SSIM on colour, or on BT.601 grey.
        ssim_form: `gaussian`, or `gaussian_halved` (first average-pooled to about 256 px, as piq does).
        reencode_fps: score frames read back from an H.264 file of this rate, or None.
        psnr_cap_db: a frame's PSNR counts at most this much, so that an exact copy is not infinitely good.
        note: what a reader should know.
    """

    name: str
    num_frames: int | None = None
    include_given: bool = False
    size: tuple[int, int] | None = None
    colour: Literal["rgb", "grey"] = "rgb"
    ssim_form: Literal["gaussian", "gaussian_halved"] = "gaussian"
    reencode_fps: float | None = None
    psnr_cap_db: float = ROUNDING_PSNR_DB
    note: str = ""

    def check(self, frames: UInt8[np.ndarray, "f h w 3"]) -> None:
        """ValueError where a clip's frames are not what the protocol scores."""
        if self.num_frames is not None and len(frames) != self.num_frames:
            raise ValueError(
                f"protocol {self.name} scores {self.num_frames} frames, the clip has {len(frames)};"
                " protocol predicted-frames takes any number"
            )
        if self.size is not None and frames.shape[1:3] != self.size:
            raise ValueError(
                f"protocol {self.name} scores {self.size[0]}x{self.size[1]} px, the clip has"
                f" {frames.shape[1]}x{frames.shape[2]}; protocol predicted-frames takes any size"
            )
        if len(frames) < 2:
            raise ValueError(f"protocol {self.name} needs the given frame and at least one more, found {len(frames)}")

    @property
    def first_counted(self) -> int:
        """Index of the first frame that counts."""
        return 0 if self.include_given else 1


@dataclass(frozen=True, kw_only=True)
class FrameScores:
    """Scores of one clip's counted frames; NaN = the frame's region is empty, or not known."""

    psnr: Float[np.ndarray, " f"]
    moving_psnr: Float[np.ndarray, " f"]
    ssim: Float[np.ndarray, " f"]
    robot_psnr: Float[np.ndarray, " f"]
    background_psnr: Float[np.ndarray, " f"]

    def mean(self, metric: str) -> float:
        """Mean over the frames that count; NaN where none does."""
        values = getattr(self, metric)
        counted = values[np.isfinite(values)]
        return float(counted.mean()) if len(counted) else float("nan")


PROTOCOLS: dict[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        Protocol(name="tabletop", num_frames=17, size=(64, 64), note="16 predicted frames; given frame left out."),
        Protocol(name="predicted-frames", note="Any length and size; given frame left out."),
        Protocol(
            name="simforcing",
            num_frames=21,
            include_given=True,
            size=(224, 320),
            note="The paper's frames and size. The given frame counts. LPIPS, FID and FVD are not computed here.",
        ),
        Protocol(
            name="irasim-short",
            num_frames=16,
            size=(256, 320),
            colour="grey",
            reencode_fps=4.0,
            note="Grey frames read back from a 4-fps H.264 file of our encoder settings; windows every 16 frames.",
        ),
        Protocol(
            name="dreamdojo",
            num_frames=49,
            include_given=True,
            size=(480, 640),
            ssim_form="gaussian_halved",
            note="100 clips, generated in chunks of 12; SSIM in piq's form. LPIPS (VGG) is not computed here.",
        ),
    )
}


def protocol_named(name: str) -> Protocol:
    """A protocol by name; ValueError lists the choices."""
    if name not in PROTOCOLS:
        raise ValueError(f"unknown protocol {name!r}; choices: {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]


def score_clip(
    truth: UInt8[np.ndarray, "f h w 3"],
    predicted: UInt8[np.ndarray, "f h w 3"],
    protocol: Protocol,
    robot: Bool[np.ndarray, "f h w"] | None = None,
) -> FrameScores:
    """Scores of the frames that count; the moving region is the true colour video's, before any re-encoding.

    Args:
        robot: where the robot truly is; None: not known, so scores inside and outside of it are NaN.
    """
    protocol.check(truth)
    if predicted.shape != truth.shape:
        raise ValueError(f"predicted frames have shape {predicted.shape}, true ones {truth.shape}; they must agree")
    if robot is not None and robot.shape != truth.shape[:3]:
        raise ValueError(f"the robot's mask has shape {robot.shape}, the frames {truth.shape}; they must agree")
    region = moving_region(truth)
    if protocol.reencode_fps is not None:
        truth, predicted = (_through_file(video, protocol.reencode_fps) for video in (truth, predicted))
    if protocol.colour == "grey":
        truth, predicted = to_grey(truth), to_grey(predicted)
    first = protocol.first_counted
    truth, predicted, region = truth[first:], predicted[first:], region[first:]
    if protocol.ssim_form == "gaussian":
        similarity = ssim(truth, predicted)
    else:
        similarity = ssim_of_unit(halve_to_256(truth), halve_to_256(predicted))
    cap = protocol.psnr_cap_db
    unknown = np.full(len(truth), np.nan)
    inside, outside = (unknown, unknown) if robot is None else _inside_and_outside(truth, predicted, robot[first:])
    return FrameScores(
        psnr=np.minimum(psnr(truth, predicted), cap),
        moving_psnr=np.minimum(masked_psnr(truth, predicted, region), cap),
        ssim=similarity,
        robot_psnr=np.minimum(inside, cap),
        background_psnr=np.minimum(outside, cap),
    )


def _inside_and_outside(
    truth: np.ndarray, predicted: np.ndarray, robot: np.ndarray
) -> tuple[Float[np.ndarray, " f"], Float[np.ndarray, " f"]]:
    return masked_psnr(truth, predicted, robot), masked_psnr(truth, predicted, ~robot)


def _through_file(frames: np.ndarray, fps: float) -> np.ndarray:
    from simforcing.data.video import VideoFrames, write_video  # only this protocol needs a codec

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "frames.mp4"
        write_video(path, frames, fps, codec="h264")
        return VideoFrames(path).read(0, len(frames))
