"""What a LeRobot set holds of a view beside its pictures: cameras, masks; depth is told and left out."""

import json
from pathlib import Path

import numpy as np
import pytest

from simforcing.data.lerobot import read_lerobot
from simforcing.data.lerobot_writer import LeRobotWriter
from simforcing.data.windows import WindowSpec, read_clip
from simforcing.types import Camera, Layout, Part, Resize

LAYOUT = Layout(name="three", parts=(Part(kind="translation", size=3),))


def picture(num_frames: int = 12) -> np.ndarray:
    """A white block that moves over grey."""
    frames = np.full((num_frames, 32, 48, 3), 40, np.uint8)
    for i in range(num_frames):
        frames[i, 8:16, 2 * i : 2 * i + 8] = 255
    return frames


def write_set(root: Path, num_episodes: int = 3, **options: object) -> Path:
    """Episodes of 12 frames that command nothing."""
    with LeRobotWriter(root, **{"fps": 5, "views": {"front": (32, 48)}, "action_layout": LAYOUT} | options) as writer:
        for _ in range(num_episodes):
            writer.add(frames={view: picture() for view in writer.views}, action=np.zeros((12, 3), np.float32))
    return root


def pinhole(focal_px: float) -> Camera:
    intrinsics = np.array([[focal_px, 0, 23.5], [0, focal_px, 15.5], [0, 0, 1]])
    return Camera(size=(32, 48), intrinsics=intrinsics, pose=np.eye(4))


@pytest.mark.parametrize("version", ["v3.0", "v2.1"])
def test_cameras_of_the_set_and_of_single_episodes_are_read(tmp_path, version):
    options = {"fps": 5, "views": {"front": (32, 48), "wrist": (32, 48)}, "action_layout": LAYOUT, "version": version}
    with LeRobotWriter(tmp_path / "set", cameras={"front": pinhole(50)}, **options) as writer:
        for cameras in (None, {"front": pinhole(60), "wrist": Camera(size=(32, 48))}):
            frames = {view: picture() for view in ("front", "wrist")}
            writer.add(frames=frames, action=np.zeros((12, 3), np.float32), cameras=cameras)
    first, second = read_lerobot(tmp_path / "set").episodes
    assert [view.camera for view in first.views] == [pinhole(50), None]
    assert [view.camera for view in second.views] == [pinhole(60), Camera(size=(32, 48))]
    with pytest.raises(ValueError, match="camera of view 'side'; views: front, wrist"):
        LeRobotWriter(tmp_path / "other", cameras={"side": pinhole(50)}, **options)


@pytest.mark.parametrize(
    ("camera", "message"),
    [
        ({"size": [32]}, r"front.size: expected \[height, width\]"),
        ({"size": [32, 48], "intrinsics": [[1, 0], [0, 1]]}, "front.intrinsics: expected 3 rows of 3 finite numbers"),
        ({"size": [32, 48], "pose": "up"}, "front.pose: expected 4 rows"),
        ({"size": [32, 48], "focal": 3}, "a camera has no field 'focal'; fields: size, intrinsics, pose"),
    ],
)
def test_damaged_cameras_are_named(tmp_path, camera, message):
    root = write_set(tmp_path / "set", 1)
    (root / "meta" / "cameras.json").write_text(json.dumps({"episode_000000": {"front": camera}}))
    with pytest.raises(ValueError, match=rf"cameras.json: episode_000000.{message}|cameras.json: .*{message}"):
        read_lerobot(root)


def test_a_depth_stream_is_left_out_with_one_line(tmp_path):
    root = write_set(tmp_path / "set", views={"front": (32, 48), "depth": (32, 48)})
    info = json.loads((root / "meta" / "info.json").read_text())
    info["features"]["observation.images.depth"]["info"]["video.is_depth_map"] = True
    (root / "meta" / "info.json").write_text(json.dumps(info))
    opened = read_lerobot(root)
    assert [view.name for view in opened.episodes[0].views] == ["front"]
    assert [line.split(": ", 1)[1] for line in opened.warnings] == [
        "LeRobot's own depth streams are not read: depth left out"
    ]


def test_masks_of_a_set_reach_the_clip(tmp_path):
    root = write_set(tmp_path / "set", views={"front": (32, 48), "front_mask": (32, 48)}, masks={"front": "front_mask"})
    window = WindowSpec(num_frames=4, views=("front",), resize=Resize(height=16, width=24), with_masks=True)
    clip = read_clip(read_lerobot(root).episodes[0], 2, window, 3)
    stored = read_lerobot(root).episodes[0].view("front").masks.read(2, 6)
    assert clip.mask_present.all()
    np.testing.assert_array_equal(clip.masks[0], stored[:, 1::2, 1::2, 0] > 127)
