"""Draws what a calibration was fitted to, without a picture of the recordings: change, and the rendered outline.

    python experiments/calibration_masks.py DATA calibration.json sheet.png [--robot-path PATH]

A row for every group: five frames across its episodes; grey where pixels differ from the episode's median picture (the
robot and what it moves; its absence where it stands most of the time), red the outline of the rendered robot.
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

from simforcing.data.footage import read_footage, working_size
from simforcing.data.open import open_dataset
from simforcing.data.overlay import outlined
from simforcing.data.resize import resize_camera
from simforcing.sim.model import RobotModel
from simforcing.sim.observation import observe
from simforcing.sim.refine import Refiner
from simforcing.sim.replay import Layouts, replay
from simforcing.sim.robots import robot_named
from simforcing.sim.studio import shown_rows
from simforcing.types import Resize
from simforcing.types.calibration import GroupFit, read_calibration

COLUMNS, NUM_FRAMES, HEIGHT_PX = 5, 24, 144
LIGHTEST = 190


def main() -> None:
    """Read the calibration, render its groups again, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("data", "calibration", "sheet"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--robot-path", type=Path)
    options = parser.parse_args()
    calibration = read_calibration(options.calibration)
    data = open_dataset(options.data)
    robot = robot_named(calibration.robot, options.robot_path)
    model, layouts = RobotModel(robot), Layouts.of(data)
    episodes = {episode.name: episode for episode in data.episodes}

    def row(group: GroupFit) -> np.ndarray:
        tiles = []
        for i in range(COLUMNS):
            fit = group.episodes[i * len(group.episodes) // COLUMNS]
            episode = episodes[fit.name]
            size = working_size(episode.view(calibration.view).frames.size)
            footage = read_footage(episode, calibration.view, num_frames=NUM_FRAMES)
            qpos = replay(model, episode, layouts).qpos[shown_rows(episode.num_frames, group.lag)[footage.rows]]
            observation = observe(footage.frames, np.zeros(len(footage.frames), int))
            assert group.camera is not None
            camera = resize_camera(group.camera, Resize(height=size[0], width=size[1]))
            with Refiner(robot, observation, qpos) as refiner:
                rendered = refiner.render(camera)
            chosen = int((i + 0.5) * len(footage.frames) / COLUMNS)
            seen = np.repeat((LIGHTEST * observation.change[chosen, ..., None]).astype(np.uint8), 3, axis=-1)
            drawn = Image.fromarray(outlined(seen, rendered.coverage[chosen] >= 0.5))
            width = round(size[1] * HEIGHT_PX / size[0])
            tiles.append(
                np.pad(np.asarray(drawn.resize((width, HEIGHT_PX), 0)), ((1, 1), (1, 1), (0, 0)), constant_values=60)
            )
        return np.concatenate(tiles, axis=1)

    rows = [row(group) for group in calibration.groups if group.camera is not None]
    Image.fromarray(np.concatenate(rows)).quantize(24).save(options.sheet, optimize=True)


if __name__ == "__main__":
    main()
