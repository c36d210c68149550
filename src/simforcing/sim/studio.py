"""A robot alone in front of one camera: what a rendering job draws, frame by frame, and where the tool is seen.

One model and one OpenGL context are kept in a process and serve episode after episode.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int

from simforcing.sim.model import RobotModel
from simforcing.sim.render import Picture, Renderer
from simforcing.sim.robot import Robot
from simforcing.sim.robots import robot_named
from simforcing.types import Camera

_kept: dict[tuple[str, Path | None, tuple[int, int]], "Studio"] = {}


class Studio:
    """A loaded robot and a renderer of one frame size.

    Raises ValueError where the robot's model cannot be used; RuntimeError where there is no OpenGL.
    """

    def __init__(self, robot: Robot, size: tuple[int, int]) -> None:
        self.robot = RobotModel(robot)
        self._renderer = Renderer(self.robot.model, size=size)
        self._base_pose = self.robot.base_pose()

    def pictures(self, qpos: Float[np.ndarray, "f q"], camera: Camera) -> Iterator[Picture]:
        """The robot in each configuration, through a pinhole given in its base frame; equal rows are rendered once."""
        in_world = self._in_world(camera)
        last, picture = None, None
        for row in qpos:
            if picture is None or last is None or not np.array_equal(row, last):
                self.robot.place(row)
                picture = self._renderer.picture(self.robot.data, in_world)
                last = row
            yield picture

    def tool_poses(self, qpos: Float[np.ndarray, "f q"]) -> Float[np.ndarray, "f n 4 4"]:
        """Every arm's end effector in the base frame, in each configuration."""
        poses = np.empty((len(qpos), len(self.robot.robot.arms), 4, 4))
        for i, row in enumerate(qpos):
            self.robot.place(row)
            for k, arm in enumerate(self.robot.robot.arms):
                poses[i, k] = self.robot.tool_pose(arm.side)
        return poses

    def close(self) -> None:
        """Free the OpenGL context."""
        self._renderer.close()

    def _in_world(self, camera: Camera) -> Camera:
        assert camera.pose is not None
        return replace(camera, pose=self._base_pose @ camera.pose)


def studio_of(robot: str, path: Path | None, size: tuple[int, int]) -> Studio:
    """This process's studio of a robot by name; another robot or size replaces it."""
    key = (robot, path, size)
    if key not in _kept:
        close_studios()
        _kept[key] = Studio(robot_named(robot, path), size)
    return _kept[key]


def close_studios() -> None:
    """Free what this process keeps."""
    while _kept:
        _kept.popitem()[1].close()


def shown_rows(num_frames: int, lag: int) -> Int[np.ndarray, " f"]:
    """The configuration that each frame shows: row i - lag, held at both ends."""
    return np.clip(np.arange(num_frames) - lag, 0, num_frames - 1)


def seen_at(
    poses: Float[np.ndarray, "f n 4 4"], camera: Camera
) -> tuple[Float[np.ndarray, "f n 2"], Bool[np.ndarray, "f n"]]:
    """Where points of the base frame are seen: (column, row) in pixels, and which are in front of it and in the image.

    A point behind the camera is at (0, 0) and not valid.
    """
    assert camera.pose is not None
    points = poses[..., :3, 3].reshape(-1, 3)
    ahead = ((points - camera.pose[:3, 3]) @ camera.pose[:3, 2]) > 1e-6
    pixels = np.zeros((len(points), 2))
    if ahead.any():
        pixels[ahead] = camera.project(points[ahead])
    height, width = camera.size
    valid = ahead & (pixels >= -0.5).all(axis=1) & (pixels < np.array([width, height]) - 0.5).all(axis=1)
    return pixels.reshape(*poses.shape[:2], 2), valid.reshape(poses.shape[:2])
