"""What generation hands out: a chunk of frames as it comes, and a whole rollout."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8

from simforcing.data.video import write_video
from simforcing.generation.sampler import SamplerConfig
from simforcing.generation.start import Start

Video = UInt8[np.ndarray, "v f h w 3"]


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """What one step of a session makes: the frames after the ones that it began with.

    Args:
        frames: of each view.
        sim_frames: of the simulation that conditioned them; None where none did.
        state: at each of the frames, in the stored layout; None where the start had none.
        time_s: of each frame, from the session's start.
    """

    frames: Video
    sim_frames: Video | None
    state: Float[np.ndarray, "f s"] | None
    time_s: Float[np.ndarray, " f"]


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """A whole video: the given frame, in the model's size, then the generated ones.

    Args:
        frames: of each view.
        sim_frames: of the simulation that conditioned them; None where none did.
        state: at each frame, in the stored layout; None where the start had none.
        time_s: of each frame; the given one's is 0.
        views: names of the views.
        name, task, seed: of the start.
        sampler: how the latents were drawn.
    """

    frames: Video
    sim_frames: Video | None
    state: Float[np.ndarray, "f s"] | None
    time_s: Float[np.ndarray, " f"]
    views: tuple[str, ...]
    name: str
    task: str
    seed: int
    sampler: SamplerConfig

    @classmethod
    def joined(
        cls, start: Start, chunks: Sequence[Chunk], *, views: tuple[str, ...], seed: int, sampler: SamplerConfig
    ) -> "Rollout":
        """A session's chunks of one clip, after the start that it began with (in the model's size)."""
        sims = [chunk.sim_frames for chunk in chunks if chunk.sim_frames is not None]
        states = [chunk.state for chunk in chunks if chunk.state is not None]
        return cls(
            frames=np.concatenate([np.stack(start.images)[:, None], *(chunk.frames for chunk in chunks)], axis=1),
            sim_frames=np.concatenate([np.stack(start.sim)[:, None], *sims], axis=1) if start.sim and sims else None,
            state=np.concatenate([start.state[None], *states]) if start.state is not None else None,
            time_s=np.concatenate([np.zeros(1), *(chunk.time_s for chunk in chunks)]),
            views=views,
            name=start.name,
            task=start.task,
            seed=seed,
            sampler=sampler,
        )

    @property
    def fps(self) -> float:
        """Frames per second."""
        return (len(self.time_s) - 1) / float(self.time_s[-1] - self.time_s[0])

    def view(self, name: str) -> UInt8[np.ndarray, "f h w 3"]:
        """Frames of one view by name; ValueError lists the choices."""
        if name not in self.views:
            raise ValueError(f"no view {name!r}; views: {', '.join(self.views)}")
        return self.frames[self.views.index(name)]

    def save(self, path: Path | str, view: str | None = None) -> None:
        """Write one view, by default the first, as mp4. OSError in one line where it cannot be written."""
        write_video(Path(path), self.view(view or self.views[0]), self.fps)
