"""A Rerun recording of a paired set: the robot in 3D, the camera it was rendered by, and the frames over time."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simforcing.data.footage import chosen_frames
from simforcing.data.lerobot import episode_names, read_columns
from simforcing.data.pair_streams import REAL, SIM
from simforcing.sim.model import RobotModel
from simforcing.sim.robots import robot_named
from simforcing.sim.shapes import robot_shapes, shape_poses
from simforcing.sim.studio import shown_rows
from simforcing.types import Episode, EpisodeSet

APPLICATION = "simforcing view"
FRUSTUM_M = 0.15


def write_recording(
    path: Path, data: EpisodeSet, episodes: Sequence[Episode], lags: dict[str, int], *, robot_path: Path | None
) -> None:
    """Write `path`.

    Args:
        lags: by episode: frame i shows the configuration of row i - lag.
        robot_path: where the robot's model lies.

    Raises:
        ModuleNotFoundError: rerun-sdk is not installed.
        ValueError: the robot is not known here, or its model is missing.
    """
    import rerun as rr  # pyright: ignore[reportMissingImports] - in the extra view

    if data.robot is None:
        raise ValueError(f"{data.root}: no robot is declared, there is nothing to show in 3D")
    robot = RobotModel(robot_named(data.robot, robot_path))
    columns = read_columns(data.root, ("sim_joint_rad", "sim_openness"))
    rows = dict(zip(episode_names(data.root), columns, strict=True))
    recording = rr.RecordingStream(APPLICATION)
    recording.save(path)
    shapes = robot_shapes(robot)
    recording.log("world", rr.ViewCoordinates.RIGHT_HAND_Z_UP, static=True)
    for shape in shapes:
        recording.log(
            f"world/robot/{shape.name}",
            rr.Mesh3D(
                vertex_positions=shape.points_m,
                triangle_indices=shape.triangles,
                albedo_factor=(255 * shape.colour).astype(np.uint8),
            ),
            static=True,
        )
    step = 0
    for episode in episodes:
        joint_rad, openness = (
            np.array(rows[episode.name][key], np.float64) for key in ("sim_joint_rad", "sim_openness")
        )
        qpos = robot.configuration(joint_rad, openness.reshape(len(joint_rad), -1))
        qpos = qpos[shown_rows(len(qpos), lags.get(episode.name, 0))]
        recording.set_time("frame", sequence=step)
        recording.log("task", rr.TextDocument(f"{episode.name}: {episode.task}"))
        _log_camera(recording, rr, episode)
        numbers = np.arange(len(qpos))
        real, sim = (chosen_frames(episode.view(view).frames, numbers) for view in (REAL, SIM))
        for row, real_frame, sim_frame in zip(qpos, real, sim, strict=True):
            recording.set_time("frame", sequence=step)
            recording.set_time("time", duration=step / episode.fps)
            robot.place(row)
            for shape, pose in zip(shapes, shape_poses(robot, shapes), strict=True):
                recording.log(f"world/robot/{shape.name}", rr.Transform3D(translation=pose[:3, 3], mat3x3=pose[:3, :3]))
            recording.log("world/camera/real", rr.Image(real_frame).compress())
            recording.log("sim", rr.Image(sim_frame).compress())
            step += 1
    recording.flush()


def _log_camera(recording: Any, rr: Any, episode: Episode) -> None:
    camera = episode.view(SIM).camera
    if camera is None or camera.intrinsics is None or camera.pose is None:
        return
    height, width = camera.size
    recording.log("world/camera", rr.Transform3D(translation=camera.pose[:3, 3], mat3x3=camera.pose[:3, :3]))
    pinhole = rr.Pinhole(
        image_from_camera=camera.intrinsics,
        resolution=(width, height),
        camera_xyz=rr.ViewCoordinates.RDF,
        image_plane_distance=FRUSTUM_M,
    )
    recording.log("world/camera/real", pinhole)
