"""Verifying decodes every frame once: a broken video costs its own episode, by name, and no other."""

from pathlib import Path

import numpy as np
import pytest

from simforcing.data.lerobot_writer import LeRobotWriter
from simforcing.data.open import open_dataset
from simforcing.data.verify import verify_videos
from simforcing.types import LAYOUTS


@pytest.fixture
def six(tmp_path: Path, frames_of) -> Path:
    """A v2.1 set: a video file per episode and view."""
    root = tmp_path / "six"
    views = {"front": (24, 32), "side": (24, 32)}
    with LeRobotWriter(root, fps=5, views=views, action_layout=LAYOUTS["tabletop"], version="v2.1") as writer:
        for index in range(6):
            frames = {view: frames_of(20, index) for view in views}
            writer.add(frames=frames, action=np.zeros((20, 7), np.float32), name=f"take {index}")
    return root


def damage(path: Path) -> None:
    """Overwrite the middle of the coded pictures: header and index stay, so that opening sees nothing."""
    content = bytearray(path.read_bytes())
    start, stop = content.index(b"mdat") + 4, content.index(b"moov")
    middle = start + (stop - start) // 2
    content[middle : middle + 400] = np.random.default_rng(0).bytes(400)
    path.write_bytes(content)


def test_a_damaged_video_costs_exactly_its_episode(six: Path) -> None:
    damage(six / "videos" / "chunk-000" / "observation.images.front" / "episode_000003.mp4")
    opened = open_dataset(six)
    assert len(opened.episodes) == 6
    counted = []
    kept = verify_videos(opened, ("front",), lambda done, total: counted.append((done, total)))
    assert [episode.name for episode in kept.episodes] == [f"take {i}" for i in (0, 1, 2, 4, 5)]
    (rejected,) = kept.rejected
    assert rejected.name == "take 3"
    assert "episode_000003.mp4" in rejected.reason
    assert "\n" not in rejected.reason
    assert counted == [(i, 6) for i in range(1, 7)]


def test_a_view_that_is_not_read_costs_nothing(six: Path) -> None:
    damage(six / "videos" / "chunk-000" / "observation.images.side" / "episode_000003.mp4")
    assert len(verify_videos(open_dataset(six), ("front",)).episodes) == 6


def test_a_set_without_a_sound_video_says_why(six: Path) -> None:
    for path in (six / "videos").rglob("*front*/*.mp4"):
        damage(path)
    with pytest.raises(ValueError, match=r"no episode is left; take 0: .*episode_000000.mp4"):
        verify_videos(open_dataset(six), ("front",))
