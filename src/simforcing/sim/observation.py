"""What real frames say about where a robot is, before any camera is known: change against a still background.

A pixel changes where the robot moves in front of something else. Where the robot stands longer than it is away, the
median is robot and the pixel changes when it leaves: predictions follow the same rule, so nothing must be known about
the scene. Masks, where given, take the place of change.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped, UInt8

NOISE_FLOOR = 4.0  # grey levels: compression and quantisation
NOISE_FACTOR = 1.5
CHANGE_AT_ONE = 6.0  # a pixel that differs by so many times its noise has surely changed
NUM_CHANGE_BINS, NUM_COLOUR_BINS = 8, 6
NUM_KEYS = NUM_CHANGE_BINS * NUM_COLOUR_BINS**3


class NotSeenError(ValueError):
    """The robot is not seen: it never moves, or is out of view."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """Frames of one camera, with their cues.

    Args:
        frames: any number of episodes, one after the other.
        episode: which episode each frame is of.
        change: 0 nothing, 1 surely something else than the episode's median; or the given masks. Searches shrink it.
        key: change and colour as one bin number, for histograms.
        masked: `change` holds masks of the robot, given from outside.
    """

    frames: UInt8[np.ndarray, "f h w 3"]
    episode: Int[np.ndarray, " f"]
    change: Float[np.ndarray, "f h2 w2"]
    key: Int[np.ndarray, "f h w"]
    masked: bool = False

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.frames.shape[1], self.frames.shape[2]

    def take(self, chosen: Int[np.ndarray, " n"]) -> "Observation":
        """Some of the frames; their cues stay those of all."""
        return Observation(
            frames=self.frames[chosen],
            episode=self.episode[chosen],
            change=self.change[chosen],
            key=self.key[chosen],
            masked=self.masked,
        )


def observe(
    frames: UInt8[np.ndarray, "f h w 3"],
    episode: Int[np.ndarray, " f"],
    masks: Bool[np.ndarray, "f h w"] | None = None,
) -> Observation:
    """Cues of the frames of one camera; masks of the robot replace the change where they are given."""
    change = np.empty(frames.shape[:3], np.float32)
    levels = np.empty(frames.shape[:3], np.int32)
    for number in np.unique(episode):
        own = episode == number
        difference = np.abs(frames[own] - np.median(frames[own], axis=0)).max(axis=-1)
        noise = NOISE_FLOOR + NOISE_FACTOR * np.median(difference, axis=0)
        change[own] = np.minimum(1.0, difference / noise / CHANGE_AT_ONE)
        levels[own] = np.minimum(NUM_CHANGE_BINS - 1, 2 * np.sqrt(difference / noise))
    if masks is not None:
        change, levels = masks.astype(np.float32), np.where(masks, NUM_CHANGE_BINS - 1, 0)
    colour = frames.astype(np.int32) * NUM_COLOUR_BINS // 256
    key = ((levels * NUM_COLOUR_BINS + colour[..., 0]) * NUM_COLOUR_BINS + colour[..., 1]) * NUM_COLOUR_BINS
    return Observation(
        frames=frames, episode=episode, change=change, key=key + colour[..., 2], masked=masks is not None
    )


def mostly_inside(
    silhouettes: Shaped[np.ndarray, "f h w"], episode: Int[np.ndarray, " f"]
) -> Bool[np.ndarray, "f h w"]:
    """Pixels that the robot covers in more than half of an episode's frames: there the median is robot."""
    covered = np.empty(silhouettes.shape, bool)
    for number in np.unique(episode):
        covered[episode == number] = silhouettes[episode == number].mean(axis=0) > 0.5
    return covered


def predicted_change(silhouettes: Bool[np.ndarray, "f h w"], observation: Observation) -> Bool[np.ndarray, "f h w"]:
    """Where silhouettes of the same frames would change pixels."""
    if observation.masked:
        return silhouettes
    return silhouettes ^ mostly_inside(silhouettes, observation.episode)


def shrink(frames: Shaped[np.ndarray, "f h w *c"], factor: int) -> Float[np.ndarray, "f h2 w2 *c"]:
    """Means over squares of `factor` pixels a side; what is left over at the right and bottom is cut off."""
    height, width = frames.shape[1] // factor, frames.shape[2] // factor
    cut = frames[:, : height * factor, : width * factor]
    squares = cut.reshape(len(frames), height, factor, width, factor, *frames.shape[3:])
    return squares.mean(axis=(2, 4), dtype=np.float32)
