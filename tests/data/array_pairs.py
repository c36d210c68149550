"""A paired set in memory whose video counts how often it is read; and its variants, in simulation alone."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from simforcing.data.clips import Clips
from simforcing.data.spec import fit_spec
from simforcing.data.video import ArrayFrames
from simforcing.data.windows import WindowSpec
from simforcing.models.autoencoder import TinyAutoencoder, TinyAutoencoderConfig
from simforcing.types import DataSpec, Episode, EpisodeSet, Resize, View, layout_named

NUM_FRAMES, SIDE, WINDOW, STRIDE = 13, 16, 9, 4
WINDOWS_EACH = 2  # 13 frames, windows of 9 every 4


class CountedFrames(ArrayFrames):
    """Counts all reads of its kind, in this process."""

    num_reads = 0

    def read(self, start: int, stop: int) -> np.ndarray:
        CountedFrames.num_reads += 1
        return super().read(start, stop)


def pair(
    index: int, *, views: Sequence[str] = ("real", "sim"), name: str = "", num_frames: int = NUM_FRAMES
) -> Episode:
    """Frames and actions of its own for every index, the same in every process."""
    rng = np.random.default_rng(index)
    state = rng.uniform(0, 0.3, (num_frames, 7)).astype(np.float32)
    videos = {view: rng.integers(0, 255, (num_frames, SIDE, SIDE, 3)).astype(np.uint8) for view in ("real", "sim")}
    times = np.arange(num_frames) / 5
    return Episode(
        name=name or f"pair {index}",
        task=f"push block {index}",
        fps=5.0,
        num_frames=num_frames,
        views=tuple(View(name=view, frames=CountedFrames(videos[view])) for view in views),
        action=state,
        action_time_s=times,
        state=state,
        state_time_s=times,
    )


def set_of(episodes: Sequence[Episode], fingerprint: str = "pairs-1") -> EpisodeSet:
    layout = layout_named("tabletop")
    return EpisodeSet(
        root="pairs",
        kind="arrays",
        episodes=tuple(episodes),
        rejected=(),
        warnings=(),
        action_layout=layout,
        state_layout=layout,
        robot=None,
        fingerprint=fingerprint,
    )


PAIRS = set_of([pair(index) for index in range(5)])
VARIANTS = set_of([pair(10 + i, views=("sim",), name=f"pair {i}_0") for i in range(5)], "variants-1")


def student_spec(**changes: object) -> DataSpec:
    """Of the pairs: real video, conditioned on its simulation."""
    window = WindowSpec(num_frames=WINDOW, views=("real",), resize=Resize(height=SIDE, width=SIDE))
    return replace(fit_spec(PAIRS, PAIRS.episodes, window=window), **({"sim_views": ("sim",)} | changes))


def clips_of(data: EpisodeSet, spec: DataSpec, *, num_episodes: int | None = None) -> Clips:
    return Clips(data.episodes[:num_episodes], spec, stride=STRIDE, fingerprint=data.fingerprint)


def autoencoder(seed: int = 0) -> TinyAutoencoder:
    torch.manual_seed(seed)
    return TinyAutoencoderConfig(channels=6, num_decoder_blocks=0).build().eval()
