"""Drawings against the renderer's masks and plain NumPy: the tool where it is seen, rays through every cell."""

from dataclasses import replace

import numpy as np
import pytest
from einops import rearrange
from scipy.ndimage import distance_transform_edt
from scipy.spatial.transform import Rotation

from simforcing.data.conditions import action_grid, conditions_of
from simforcing.data.lerobot import read_lerobot
from simforcing.data.spec import fit_spec, window_of
from simforcing.data.tabletop import TabletopSets
from simforcing.data.trajectory_maps import (
    DRAWN,
    FINE,
    MOMENT_M,
    RAY_CHANNELS,
    TOOL_RADIUS_M,
    ToolPath,
    arms_of,
    draw_maps,
    draw_tool,
    num_channels,
    ray_map,
    tool_paths,
)
from simforcing.data.windows import WindowSpec, read_clip
from simforcing.recipes.simulate import SimulateOptions, simulate
from simforcing.sim.tabletop import TabletopConfig
from simforcing.types import LAYOUTS, Camera, Clip, DataSpec, Layout, NetworkInput, Resize, layout_named
from simforcing.types.inputs import Commands

NUM_FRAMES, SIZE, FACTOR, SPATIAL = 17, 64, 4, 8
GRID = (5, SIZE // SPATIAL, SIZE // SPATIAL)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[DataSpec, list[Clip]]:
    """Rendered pairs of the table top with masks: a spec of both streams, and one clip of each episode."""
    root = tmp_path_factory.mktemp("pair")
    simulator = TabletopConfig(num_frames=NUM_FRAMES, size_px=SIZE)
    TabletopSets(num_episodes=3, seed=5, simulator=simulator, num_processes=1).write(root)
    simulate(str(root / "episodes"), root / "pairs", SimulateOptions(variants=0), processes=1, report=lambda line: None)
    data = read_lerobot(root / "pairs")
    window = WindowSpec(num_frames=NUM_FRAMES, views=("real",), resize=Resize(height=SIZE, width=SIZE))
    spec = replace(fit_spec(data, data.episodes, window=window), sim_views=("sim",), with_maps=True)
    read = window_of(spec, with_masks=True)
    dims = spec.action.layout.dim, spec.stored_state_dim
    return spec, [read_clip(episode, 0, read, *dims) for episode in data.episodes]


def drawn_tool(maps: np.ndarray) -> np.ndarray:
    """The first arm's drawings, unfolded: "g 5 h w"."""
    return rearrange(maps[:, : DRAWN * FINE**2], "g (d p q) h w -> g d (h p) (w q)", d=DRAWN, p=FINE, q=FINE)


def centroid_px(disc: np.ndarray, size: int = SIZE) -> np.ndarray:
    """Column and row of a disc's centre of mass."""
    places = (np.arange(disc.shape[0]) + 0.5) * size / disc.shape[0] - 0.5
    return np.array([(disc.sum(axis=0) * places).sum(), (disc.sum(axis=1) * places).sum()]) / disc.sum()


def test_the_disc_lies_on_the_rendered_robot(pair: tuple[DataSpec, list[Clip]]) -> None:
    spec, clips = pair
    right, wrong = [], []
    for clip in clips:
        assert clip.masks is not None
        tool = drawn_tool(draw_maps(clip, spec, action_grid([clip], spec, FACTOR), GRID)[0])
        for i, drawing in enumerate(tool):
            column, row = centroid_px(drawing[0]).round().astype(int).clip(0, SIZE - 1)
            distances = distance_transform_edt(~clip.masks[1, FACTOR * i])
            right.append(distances[row, column])
            wrong.append(distances[row, SIZE - 1 - column])
    assert max(right) <= 3.0, right  # the tool lies between the fingers, and commands lead the robot
    assert np.mean(right) < 1.0
    assert np.mean(wrong) > 4.0  # mirrored


def test_the_disc_is_where_a_pinhole_sees_the_commanded_tool(pair: tuple[DataSpec, list[Clip]]) -> None:
    spec, clips = pair
    for clip in clips:
        camera = clip.cameras[0]
        assert camera is not None
        tool = drawn_tool(draw_maps(clip, spec, action_grid([clip], spec, FACTOR), GRID)[0])
        targets = [clip.state[:3], *(clip.action[FACTOR * i - 1, :3] for i in range(1, GRID[0]))]
        for drawing, target in zip(tool, targets, strict=True):
            x, y, z = np.linalg.inv(camera.pose)[:3] @ np.append(np.float64(target), 1.0)
            seen = camera.intrinsics[:2, :2] @ [x / z, y / z] + camera.intrinsics[:2, 2]
            radius_px = TOOL_RADIUS_M * camera.intrinsics[0, 0] / z
            if (np.abs(seen - (SIZE - 1) / 2) < SIZE / 2 - radius_px - 2).all():
                np.testing.assert_allclose(centroid_px(drawing[0]), seen, atol=0.25)
                area = drawing[0].sum() * (SPATIAL / FINE) ** 2
                assert area == pytest.approx(np.pi * radius_px**2, rel=0.15)


def test_rays_pass_through_the_cells_that_they_are_drawn_in(pair: tuple[DataSpec, list[Clip]]) -> None:
    camera = pair[1][0].cameras[0]
    assert camera is not None
    direction, moment = np.split(ray_map(camera, (4, 6)).reshape(6, -1).T, 2, axis=1)
    position = camera.pose[:3, 3]
    rows, columns = np.meshgrid((np.arange(4) + 0.5) * 16 - 0.5, (np.arange(6) + 0.5) * 64 / 6 - 0.5, indexing="ij")
    for away_m in (0.5, 2.0):
        seen = camera.project(position + away_m * direction)
        np.testing.assert_allclose(seen, np.stack([columns.ravel(), rows.ravel()], axis=1), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(direction, axis=1), 1)
    np.testing.assert_allclose(np.cross(position + 0.7 * direction, direction) / MOMENT_M, moment, atol=1e-9)


def test_conditions_hold_the_maps_of_every_view_within_about_one(pair: tuple[DataSpec, list[Clip]]) -> None:
    spec, clips = pair
    maps = conditions_of(clips, spec, FACTOR, SPATIAL).maps
    assert maps is not None
    assert maps.shape == (len(clips), 1, GRID[0], num_channels(spec.action.layout), *GRID[1:])
    assert 0.9 < maps.abs().max() < 1.5
    for clip, found in zip(clips, maps.numpy(), strict=True):
        np.testing.assert_array_equal(found, draw_maps(clip, spec, action_grid([clip], spec, FACTOR), GRID))


def test_other_commands_change_the_drawings_of_the_frames_they_lead_to_alone(pair: tuple[DataSpec, list[Clip]]) -> None:
    spec, clips = pair
    clip, grid = clips[0], action_grid([clips[0]], spec, FACTOR)
    action = clip.action.copy()
    action[11, :3] += 0.05  # leads to frame 12, the last of latent frame 3
    before, after = (draw_maps(each, spec, grid, GRID)[0] for each in (clip, replace(clip, action=action)))
    changed = [not np.array_equal(a, b) for a, b in zip(before, after, strict=True)]
    assert changed == [False, False, False, True, False]


def test_a_variant_without_real_video_is_drawn_through_its_simulation(pair: tuple[DataSpec, list[Clip]]) -> None:
    spec, clips = pair
    clip, grid = clips[0], action_grid([clips[0]], spec, FACTOR)
    variant = replace(clip, view_present=np.array([False, True]), cameras=(None, clip.cameras[1]))
    np.testing.assert_array_equal(draw_maps(variant, spec, grid, GRID), draw_maps(clip, spec, grid, GRID))
    blind = replace(clip, view_present=np.array([False, False]))
    assert not draw_maps(blind, spec, grid, GRID).any()


def test_a_camera_that_is_not_known_is_named_in_one_line(pair: tuple[DataSpec, list[Clip]]) -> None:
    spec, clips = pair
    message = rf"^episode {clips[0].episode}, frame 0: the camera of view real is not known.*simulate write cameras$"
    for cameras in ((), (None, clips[0].cameras[1]), (replace(clips[0].cameras[0], pose=None), None)):
        with pytest.raises(ValueError, match=message):
            conditions_of([replace(clips[0], cameras=cameras)], spec, FACTOR, SPATIAL)


@pytest.mark.parametrize("name", ["tabletop_joint", "language_table"])
def test_a_layout_without_a_pose_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"layout {name} holds no tool pose"):
        num_channels(layout_named(name))


CAMERA = Camera(size=(64, 64), intrinsics=np.array([[80.0, 0, 31.5], [0, 80.0, 31.5], [0, 0, 1]]), pose=np.eye(4))


def path_at(*positions: tuple[float, float, float], openness: float = 1.0) -> ToolPath:
    count = len(positions)
    return ToolPath(
        position_m=np.array(positions), axes=np.tile(np.eye(3), (count, 1, 1)), openness=np.full(count, openness)
    )


def test_the_disc_falls_with_distance_and_a_tool_behind_the_camera_is_not_drawn() -> None:
    near, far, behind = draw_tool(path_at((0, 0, 0.5), (0, 0, 1.0), (0, 0, -0.5)), CAMERA, (32, 32))[:, 0]
    assert near.sum() == pytest.approx(4 * far.sum(), rel=0.05)
    assert not behind.any()


def test_the_opening_is_signed_and_the_axes_point_where_the_tool_s_do() -> None:
    closed, opened = (draw_tool(path_at((0, 0, 0.5), openness=x), CAMERA, (32, 32))[0] for x in (0.0, 1.0))
    np.testing.assert_array_equal(closed[1], -closed[0])
    np.testing.assert_array_equal(opened[1], opened[0])
    x, y, z = (centroid_px(line) - centroid_px(opened[0]) for line in opened[2:])
    half_px = 80 * 0.1 / 0.5 / 2
    np.testing.assert_allclose(x, [half_px, 0], atol=0.5)  # OpenCV: x right, y down
    np.testing.assert_allclose(y, [0, half_px], atol=0.5)
    np.testing.assert_allclose(z, [0, 0], atol=0.5)


def test_squashed_frames_show_an_ellipse() -> None:
    squashed = replace(CAMERA, intrinsics=np.array([[160.0, 0, 31.5], [0, 80.0, 31.5], [0, 0, 1]]))
    disc = draw_tool(path_at((0, 0, 1.0)), squashed, (64, 64))[0, 0]
    assert disc.max(axis=0).sum() == pytest.approx(2 * disc.max(axis=1).sum(), rel=0.15)


def plain_clip(layout: Layout, action: np.ndarray, state: np.ndarray, **changes) -> tuple[Clip, DataSpec]:
    """A clip without video, and a spec for it."""
    state_layout = LAYOUTS["bridge_state"]
    clip = Clip(
        episode="e",
        start=0,
        task="",
        frames=np.zeros((1, 9, 0, 0, 3), np.uint8),
        view_present=np.ones(1, bool),
        frame_time_s=np.arange(9) / 5,
        action=action.astype(np.float32),
        action_valid=np.ones(action.shape, bool),
        action_time_s=np.arange(len(action)) / 5,
        state=state.astype(np.float32),
        state_valid=np.ones(7, bool),
        cameras=(CAMERA,),
    )
    spec = DataSpec(
        views=("main",),
        num_frames=9,
        fps=5.0,
        num_actions=len(action),
        resize=Resize(height=64, width=64),
        action=NetworkInput.fit_windows([Commands(action, np.ones(action.shape, bool))], layout),
        state=NetworkInput.fit(np.stack([state, state + 1]), state_layout),
        robot=None,
        fingerprint="",
    )
    return replace(clip, **changes), spec


def test_increments_are_drawn_where_they_lead_from_the_measured_state(rng: np.random.Generator) -> None:
    action = np.concatenate([rng.uniform(-0.02, 0.02, (8, 6)), rng.random((8, 1))], axis=1)
    state = np.array([0.3, 0.1, 0.2, 0.2, 0.1, -0.3, 1.0])
    clip, spec = plain_clip(LAYOUTS["bridge"], action, state)
    (path,) = tool_paths(clip, spec, tuple((i + 1) / 4 for i in range(8)), 3)
    assert path is not None
    position, turn = state[:3], Rotation.from_euler("xyz", state[3:6])
    for row, step in enumerate(action):
        position, turn = position + step[:3], Rotation.from_euler("xyz", step[3:6]) * turn
        if row in (3, 7):
            np.testing.assert_allclose(path.position_m[(row + 1) // 4], position, atol=1e-6)
            np.testing.assert_allclose(path.axes[(row + 1) // 4], turn.as_matrix(), atol=1e-6)
    np.testing.assert_allclose(path.position_m[0], state[:3], atol=1e-6)
    np.testing.assert_allclose(path.openness[1:], action[[3, 7], 6], atol=1e-6)


def test_slow_commands_are_interpolated_and_the_last_one_holds() -> None:
    state = np.array([0.0, 0, 0.5, 0, 0, 0, 1])
    action = np.array([[0.2, 0, 0.5, 0, 0, 1.0, 0], [0.4, 0, 0.5, 0, 0, 1.0, 0]])
    clip, spec = plain_clip(LAYOUTS["tabletop"], action, state)
    (path,) = tool_paths(clip, spec, (2.0, 3.0), 5)
    assert path is not None
    np.testing.assert_allclose(path.position_m[:, 0], [0, 0.1, 0.2, 0.4, 0.4], atol=1e-6)
    turns = Rotation.from_matrix(path.axes).as_euler("xyz")[:, 2]
    np.testing.assert_allclose(turns, [0, 0.5, 1, 1, 1], atol=1e-6)


def test_commands_that_start_after_the_last_latent_frame_are_not_drawn(rng: np.random.Generator) -> None:
    action = np.concatenate([rng.uniform(-0.02, 0.02, (8, 6)), rng.random((8, 1))], axis=1)
    clip, spec = plain_clip(LAYOUTS["bridge"], action, np.array([0.0, 0, 0.5, 0, 0, 0, 1]))
    late = replace(clip, action=np.concatenate([clip.action[:4], -clip.action[4:]]))
    grid = tuple((i + 1) / 2 for i in range(8))  # the fifth starts at latent frame 2, the last one
    first, second = (draw_maps(each, spec, grid, (3, 8, 8)) for each in (clip, late))
    np.testing.assert_array_equal(first, second)


def test_two_arms_have_channels_of_their_own_and_a_missing_one_is_not_drawn() -> None:
    parts = LAYOUTS["tabletop"].parts
    both = Layout(name="both", parts=tuple(replace(p, side=side) for side in ("left", "right") for p in parts))
    assert arms_of(both) == ("left", "right")
    assert num_channels(both) == 2 * DRAWN * FINE**2 + RAY_CHANNELS
    pose = np.array([0.05, 0, 0.6, 0, 0, 0, 1])
    action = np.tile(np.concatenate([pose, -pose * [1, 1, -1, 1, 1, 1, -1]]), (8, 1))
    clip, spec = plain_clip(both, action, pose)
    maps = draw_maps(clip, spec, tuple((i + 1) / 4 for i in range(8)), (3, 8, 8))[0]
    left, right = (drawn_tool(maps[:, k * DRAWN * FINE**2 :]) for k in (0, 1))
    assert centroid_px(left[1, 0])[0] == pytest.approx(31.5 + 80 * 0.05 / 0.6, abs=0.3)
    assert centroid_px(right[1, 0])[0] == pytest.approx(31.5 - 80 * 0.05 / 0.6, abs=0.3)
    valid = clip.action_valid.copy()
    valid[:, :7] = False
    one = draw_maps(replace(clip, action_valid=valid), spec, tuple((i + 1) / 4 for i in range(8)), (3, 8, 8))[0]
    assert not drawn_tool(one).any()
    np.testing.assert_array_equal(one[:, DRAWN * FINE**2 :], maps[:, DRAWN * FINE**2 :])


def test_without_a_gripper_the_opening_is_neither() -> None:
    layout = Layout(name="bare", parts=tuple(p for p in LAYOUTS["tabletop"].parts if p.kind != "gripper"))
    clip, spec = plain_clip(layout, np.tile([0.0, 0, 0.6, 0, 0, 0], (8, 1)), np.array([0, 0, 0.6, 0, 0, 0, 1.0]))
    tool = drawn_tool(draw_maps(clip, spec, tuple((i + 1) / 4 for i in range(8)), (3, 8, 8))[0])
    assert tool[:, 0].any()
    assert not tool[:, 1].any()
