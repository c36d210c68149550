"""A toy world whose video is known in closed form: a bright square on a fixed texture, moved by its actions."""

from collections.abc import Callable

import numpy as np
import pytest

from simforcing.types import Clip

SIDE = 48
SQUARE = 8


class SquareWorld:
    """Action (rows, columns) in pixels per frame; positions are clipped to the picture."""

    def __init__(self) -> None:
        self.background = np.random.default_rng(7).integers(60, 120, (SIDE, SIDE, 3)).astype(np.uint8)

    def render(self, corners: np.ndarray) -> np.ndarray:
        frames = np.repeat(self.background[None], len(corners), axis=0)
        for frame, (row, column) in zip(frames, np.clip(corners, 0, SIDE - SQUARE).round().astype(int), strict=True):
            frame[row : row + SQUARE, column : column + SQUARE] = (240, 200, 40)
        return frames

    def video(self, start: np.ndarray, action: np.ndarray) -> np.ndarray:
        return self.render(np.concatenate([start[None], start + np.cumsum(action, axis=0)]))

    def clip(self, episode: str, start: tuple[float, float], action: np.ndarray, task: str = "push") -> Clip:
        state = np.array(start, np.float32)
        num = len(action) + 1
        return Clip(
            episode=episode,
            start=0,
            task=task,
            frames=self.video(state, action)[None],
            view_present=np.ones(1, bool),
            frame_time_s=np.arange(num) / 5.0,
            action=action.astype(np.float32),
            action_valid=np.ones(action.shape, bool),
            action_time_s=np.arange(num - 1) / 5.0,
            state=state,
            state_valid=np.ones(2, bool),
        )

    def obedient(self, clips: list[Clip], seeds: list[int]) -> list[np.ndarray]:
        """Predicts from state and actions, with a little noise of its seed."""
        return [noisy(self.video(clip.state, clip.action), seed) for clip, seed in zip(clips, seeds, strict=True)]


def noisy(frames: np.ndarray, seed: int, levels: float = 2.0) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(0, levels, frames.shape)
    return np.clip(np.rint(frames + noise), 0, 255).astype(np.uint8)


@pytest.fixture
def world() -> SquareWorld:
    return SquareWorld()


@pytest.fixture
def clips(world: SquareWorld) -> list[Clip]:
    """Two clips of each of six episodes, in different directions."""
    steps = np.random.default_rng(3).uniform(-2, 2, (12, 1, 2))
    return [world.clip(f"episode {i // 2}", (20.0, 20.0), np.repeat(step, 8, axis=0)) for i, step in enumerate(steps)]


@pytest.fixture
def blind() -> Callable[[list[Clip], list[int]], list[np.ndarray]]:
    """Repeats the given frame with noise, whatever the actions are."""

    def predict(clips: list[Clip], seeds: list[int]) -> list[np.ndarray]:
        return [
            noisy(np.repeat(clip.frames[0][:1], clip.frames.shape[1], axis=0), seed)
            for clip, seed in zip(clips, seeds, strict=True)
        ]

    return predict


@pytest.fixture
def reconstruct() -> Callable[[list[Clip]], list[np.ndarray]]:
    """An autoencoder that only adds a little noise."""
    return lambda clips: [noisy(clip.frames[0], 1000 + i, levels=1.0) for i, clip in enumerate(clips)]
