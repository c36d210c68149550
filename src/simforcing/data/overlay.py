"""The sheet to look at after a calibration: frames with the rendered robot's outline, group by group."""

from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image, ImageDraw
from scipy.ndimage import binary_erosion

from simforcing.data.resize import resize_camera, resize_frames
from simforcing.sim.robot import Robot
from simforcing.sim.studio import Studio, shown_rows
from simforcing.types import Episode, Resize
from simforcing.types.calibration import Calibration, GroupFit
from simforcing.types.files import whole_file

COLUMNS, SHEET_GROUPS = 5, 24
TILE_PX = 192  # height
OUTLINE, TITLE = (255, 40, 40), (235, 235, 235)
TITLE_PX, SHOWN_NAME = 16, 14


def write_sheet(
    path: Path,
    episodes: dict[str, Episode],
    calibration: Calibration,
    *,
    robot: Robot,
    qpos: dict[str, Float[np.ndarray, "f q"]],
) -> None:
    """A row for every group (24 at most): five frames with the robot's outline in red, best episodes first."""
    rows = [_row(robot, group, episodes, calibration.view, qpos) for group in calibration.groups[:SHEET_GROUPS]]
    width = max(row.shape[1] for row in rows)
    sheet = np.concatenate([np.pad(row, ((0, 0), (0, width - row.shape[1]), (0, 0))) for row in rows])
    with whole_file(path) as partial:
        Image.fromarray(sheet).save(partial, format="PNG")


def outlined(
    frame: UInt8[np.ndarray, "h w 3"], mask: np.ndarray, colour: tuple[int, int, int] = OUTLINE
) -> UInt8[np.ndarray, "h w 3"]:
    """The frame with a mask's outline drawn along its inner edge."""
    drawn = frame.copy()
    drawn[mask & np.logical_not(binary_erosion(mask, border_value=1))] = colour
    return drawn


def _row(
    robot: Robot, group: GroupFit, episodes: dict[str, Episode], view: str, qpos: dict[str, np.ndarray]
) -> UInt8[np.ndarray, "h w 3"]:
    order = sorted(group.episodes, key=lambda fit: -(fit.iou or 0.0))
    names = [order[i * len(order) // COLUMNS].name for i in range(COLUMNS)]
    height, width = episodes[names[0]].view(view).frames.size
    size = (TILE_PX, 2 * round(width * TILE_PX / height / 2))
    resize = Resize(height=size[0], width=size[1])
    camera = None if group.camera is None else resize_camera(group.camera, resize)
    studio = None if camera is None else Studio(robot, size)
    tiles = []
    for column, name in enumerate(names):
        episode = episodes[name]
        number = int((column + 0.5) * episode.num_frames / COLUMNS)
        frame = resize_frames(episode.view(view).frames.read(number, number + 1), resize)[0]
        if studio is not None and camera is not None:
            row = shown_rows(episode.num_frames, group.lag)[number]
            frame = outlined(frame, next(studio.pictures(qpos[name][row : row + 1], camera)).mask)
        tiles.append(_titled(frame, _title(group, name, number)))
    if studio is not None:
        studio.close()
    return np.concatenate(tiles, axis=1)


def _title(group: GroupFit, name: str, number: int) -> str:
    fit = next(fit for fit in group.episodes if fit.name == name)
    score = "no score" if fit.iou is None else f"IoU {fit.iou:.2f}"
    shown = name if len(name) <= SHOWN_NAME else f"~{name[1 - SHOWN_NAME :]}"
    return f"{'' if fit.accepted else 'LEFT OUT, '}{score}, {shown}:{number}"


def _titled(frame: UInt8[np.ndarray, "h w 3"], text: str) -> UInt8[np.ndarray, "h2 w2 3"]:
    picture = Image.fromarray(np.pad(frame, ((TITLE_PX, 2), (0, 2), (0, 0))))
    ImageDraw.Draw(picture).text((2, 2), text, fill=TITLE)
    return np.asarray(picture)
