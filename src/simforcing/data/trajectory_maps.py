"""Trajectory and rays drawn into the frame (docs/baselines.md): where the commanded tool is seen, and by which rays.

Per arm: a disc at the tool whose size falls with distance, its opening, and the tool's three axes as lines; for the
camera: direction and moment of every cell's ray. Drawn twice as fine as the latents' grid, and folded into channels.
"""

from dataclasses import dataclass

import numpy as np
from einops import rearrange
from jaxtyping import Float
from scipy.spatial.transform import Rotation, Slerp

from simforcing.types import Camera, Clip, DataSpec, Layout
from simforcing.types.conversions import StartState, convert_actions
from simforcing.types.inputs import start_row
from simforcing.types.layouts import Kind, Side, absolute_layout

FINE = 2  # drawn cells per latent along each side; a drawing as coarse as latents would hide moves within one
DRAWN = 5  # channels of an arm before folding: disc, opening, x, y and z axis
RAY_CHANNELS = 6  # direction, moment
TOOL_RADIUS_M = 0.05
AXIS_LENGTH_M = 0.1
MOMENT_M = 1.0  # distance from the base's origin at which a ray's moment is 1
NEAREST_M = 0.02  # what is closer to the camera's plane, or behind it, is not seen


@dataclass(frozen=True, kw_only=True)
class ToolPath:
    """Where the tool of one arm is commanded to be, at every latent frame, in the robot's base frame.

    Args:
        position_m: of the tool.
        axes: columns are the directions of the tool's axes.
        openness: of its gripper, 0 closed .. 1 open; 1/2 where none is commanded.
    """

    position_m: Float[np.ndarray, "g 3"]
    axes: Float[np.ndarray, "g 3 3"]
    openness: Float[np.ndarray, " g"]


def num_channels(layout: Layout) -> int:
    """Channels of the maps of this action layout. ValueError where it holds no pose."""
    return len(arms_of(layout)) * DRAWN * FINE**2 + RAY_CHANNELS


def arms_of(layout: Layout) -> tuple[Side, ...]:
    """The arms whose tool pose an action layout holds.

    Raises:
        ValueError: none.
    """
    sizes = {name: layout.part(name).size for name in layout.slices}
    sides: tuple[Side, ...] = ("single", "left", "right")
    found: list[Side] = [
        side for side in sides if sizes.get(_name(side, "translation")) == 3 and _name(side, "rotation") in sizes
    ]
    if not found:
        raise ValueError(
            f"layout {layout.name} holds no tool pose that could be drawn (parts: {', '.join(sizes)}); maps need a"
            " translation of 3 numbers and a rotation"
        )
    return tuple(found)


def draw_maps(
    clip: Clip, spec: DataSpec, action_frame: tuple[float, ...], grid: tuple[int, int, int]
) -> Float[np.ndarray, "v g r h w"]:
    """Maps of a clip's views, within about [-1, 1]; zero for views that are not there.

    Every latent frame shows the target that the last of its frames is commanded to reach; frame 0 the measured state.

    Args:
        action_frame: latent frame that each action leads to.
        grid: latent frames, rows and columns of the latents.

    Raises:
        ValueError: the layout holds no pose, there is no state to chain increments from, or a view's camera is not
            known.
    """
    num_frames, height, width = grid
    paths = tool_paths(clip, spec, action_frame, num_frames)
    out = np.zeros((len(spec.views), num_frames, num_channels(spec.action.layout), height, width), np.float32)
    for i, j in enumerate(_shown(clip, spec)):
        if j is None:
            continue
        camera = clip.cameras[j] if clip.cameras else None
        if camera is None or camera.pose is None or camera.intrinsics is None:
            raise ValueError(
                f"the camera of view {spec.streams[j]} is not known, and maps are drawn through it; simforcing"
                " calibrate and simforcing simulate write cameras"
            )
        for k, path in enumerate(paths):
            if path is not None:
                drawn = draw_tool(path, camera, (FINE * height, FINE * width))
                folded = rearrange(drawn, "g d (h p) (w q) -> g (d p q) h w", p=FINE, q=FINE)
                out[i, :, k * folded.shape[1] : (k + 1) * folded.shape[1]] = folded
        out[i, :, -RAY_CHANNELS:] = ray_map(camera, (height, width))
    return out


def tool_paths(clip: Clip, spec: DataSpec, action_frame: tuple[float, ...], num_frames: int) -> list[ToolPath | None]:
    """The commanded path of every arm of the layout; None for an arm that this clip lacks.

    Between targets it is interpolated, rotations along the geodesic; the last one holds.
    """
    layout, start = spec.action.layout, None
    if spec.state is not None:
        start = StartState(values=clip.state, layout=spec.state.layout, valid=clip.state_valid)
    out: list[ToolPath | None] = []
    for side in arms_of(layout):
        kinds: tuple[Kind, ...] = ("translation", "rotation", "gripper")
        names = [_name(side, kind) for kind in kinds if _name(side, kind) in layout.slices]
        names = [name for name in names if clip.action_valid[:, layout.columns([name])].all()]
        if not {_name(side, "translation"), _name(side, "rotation")} <= set(names):
            out.append(None)
            continue
        own, target = layout.only(names), absolute_layout(layout).only(names)
        commands = clip.action[:, layout.columns(names)].astype(np.float64)
        targets = convert_actions(commands, own, target, start=start)
        rows = np.concatenate([start_row(targets[0], target, start)[None], targets])
        out.append(_path(rows, target, side, action_frame, num_frames))
    return out


def _path(
    rows: Float[np.ndarray, "k n"], layout: Layout, side: Side, action_frame: tuple[float, ...], num_frames: int
) -> ToolPath:
    """Rows at latent frame 0 and at those of the actions -> at every latent frame."""
    times = np.append(0.0, action_frame)
    wanted = np.minimum(np.arange(num_frames), times[-1])
    turns = Rotation.from_quat(rows[:, layout.columns([_name(side, "rotation")])], scalar_first=True)
    position = rows[:, layout.columns([_name(side, "translation")])]
    openness = rows[:, layout.columns([_name(side, "gripper")])]
    return ToolPath(
        position_m=np.stack([np.interp(wanted, times, column) for column in position.T], axis=1),
        axes=Slerp(times, turns)(wanted).as_matrix(),
        openness=np.interp(wanted, times, openness[:, 0]) if openness.size else np.full(num_frames, 0.5),
    )


def draw_tool(path: ToolPath, camera: Camera, grid: tuple[int, int]) -> Float[np.ndarray, "g 5 h w"]:
    """Disc (coverage), opening (-1 closed .. 1 open, within the disc) and the tool's axes (coverage of lines)."""
    assert camera.pose is not None
    assert camera.intrinsics is not None
    rows_px, columns_px = cell_centres(camera.size, grid)
    cells_px = np.stack([columns_px, rows_px], axis=-1)
    cell_px = (camera.size[0] / grid[0] + camera.size[1] / grid[1]) / 2
    focal_px = np.diag(camera.intrinsics)[:2]
    out = np.zeros((len(path.position_m), DRAWN, *grid))
    for drawn, position, axes, openness in zip(out, path.position_m, path.axes, path.openness, strict=True):
        points = np.stack([position, *(position + AXIS_LENGTH_M * axes.T)])
        depth_m = (points - camera.pose[:3, 3]) @ camera.pose[:3, 2]
        if depth_m[0] < NEAREST_M:
            continue
        seen = camera.project(points)
        away_m = np.linalg.norm((cells_px - seen[0]) / focal_px, axis=-1) * depth_m[0]
        cell_m = cell_px / focal_px.mean() * depth_m[0]
        drawn[0] = np.clip((TOOL_RADIUS_M - away_m) / cell_m + 0.5, 0.0, 1.0)
        drawn[1] = drawn[0] * (2 * openness - 1)
        for line, end, end_m in zip(drawn[2:], seen[1:], depth_m[1:], strict=True):
            if end_m >= NEAREST_M:
                line[:] = np.clip(1.0 - _distance(cells_px, seen[0], end) / cell_px, 0.0, 1.0)
    return out


def _distance(
    cells: Float[np.ndarray, "h w 2"], start: Float[np.ndarray, " 2"], end: Float[np.ndarray, " 2"]
) -> Float[np.ndarray, "h w"]:
    """Of every cell from a line between two points."""
    along = end - start
    share = np.clip((cells - start) @ along / max(float(along @ along), 1e-12), 0.0, 1.0)
    return np.linalg.norm(cells - start - share[..., None] * along, axis=-1)


def ray_map(camera: Camera, grid: tuple[int, int]) -> Float[np.ndarray, "6 h w"]:
    """The ray through every cell, in the base frame: direction (unit), and moment = position x direction / MOMENT_M."""
    assert camera.pose is not None
    assert camera.intrinsics is not None
    rows_px, columns_px = cell_centres(camera.size, grid)
    image = np.stack([columns_px, rows_px, np.ones(grid)], axis=-1)
    direction = image @ np.linalg.inv(camera.intrinsics).T @ camera.pose[:3, :3].T
    direction /= np.linalg.norm(direction, axis=-1, keepdims=True)
    moment = np.cross(camera.pose[:3, 3], direction) / MOMENT_M
    return np.concatenate([direction, moment], axis=-1).transpose(2, 0, 1)


def cell_centres(
    size: tuple[int, int], grid: tuple[int, int]
) -> tuple[Float[np.ndarray, "h w"], Float[np.ndarray, "h w"]]:
    """Rows and columns, in pixels, of the centres of a grid's cells on an image; pixel centres are integers."""
    rows, columns = ((np.arange(n) + 0.5) * side / n - 0.5 for side, n in zip(size, grid, strict=True))
    return np.broadcast_to(rows[:, None], grid), np.broadcast_to(columns, grid)


def _shown(clip: Clip, spec: DataSpec) -> list[int | None]:
    """Stream that shows each view: its own, its simulation where the clip has no real video, or none."""
    num_views = len(spec.views)
    offset = 0 if clip.view_present[:num_views].any() else len(spec.sim_views)
    return [i + offset if clip.view_present[i + offset] else None for i in range(num_views)]


def _name(side: Side, kind: Kind) -> str:
    return kind if side == "single" else f"{side}_{kind}"
