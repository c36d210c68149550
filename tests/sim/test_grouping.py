"""Which episodes share a camera: other objects, light and noise do not matter, a turn by some pixels does."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from simforcing.sim.grouping import camera_groups
from simforcing.sim.render import Renderer
from simforcing.sim.scene import SceneConfig, apply, compile_tabletop, place_objects
from simforcing.sim.tabletop_arm import TABLETOP_ARM


def backgrounds(num_episodes: int, *, turned_by_px: float = 0.0, size_px: int = 64) -> np.ndarray:
    """One room with other objects and another posture of the arm each time, all seen by one camera."""
    room = SceneConfig(camera_jitter_m=0.0, target_jitter_m=0.0, table_contrast=(0.5, 0.5)).draw(
        np.random.default_rng(1)
    )
    x, y, z = room.camera_target_m
    far_m = np.linalg.norm(np.subtract(room.camera_position_m, room.camera_target_m))
    aside_m = turned_by_px / size_px * 2 * np.tan(np.deg2rad(room.camera_fovy_deg) / 2) * far_m
    room = replace(room, camera_target_m=(x + 0.64 * aside_m, y + 0.77 * aside_m, z))
    model = compile_tabletop(num_slots=2, timestep_s=0.005)
    data, renderer = mujoco.MjData(model), Renderer(model, size=(size_px, size_px))
    pictures, joints = [], TABLETOP_ARM.arms[0].joints
    for index in range(num_episodes):
        rng = np.random.default_rng([2, index])
        scene = replace(room, objects=SceneConfig().draw(rng).objects)
        apply(scene, model)
        renderer.reload_textures()
        mujoco.mj_resetData(model, data)
        place_objects(scene, model, data)
        posture = np.add(TABLETOP_ARM.arms[0].home_rad, rng.uniform(-0.4, 0.4, len(joints)))
        for name, angle in zip(joints, posture, strict=True):
            data.joint(name).qpos[:] = angle
        mujoco.mj_forward(model, data)
        pictures.append(renderer.render(data, "view"))
    renderer.close()
    return np.stack(pictures)


@pytest.fixture(scope="module")
def one_camera() -> np.ndarray:
    return backgrounds(4)


def test_one_camera_with_other_objects_is_one_group(one_camera: np.ndarray):
    assert camera_groups(one_camera).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("turned_by_px", [8.0, -8.0])
def test_a_camera_that_was_turned_is_another(one_camera: np.ndarray, turned_by_px: float):
    both = np.concatenate([one_camera[:2], backgrounds(2, turned_by_px=turned_by_px)])
    assert camera_groups(both).tolist() == [0, 0, 1, 1]


def test_noise_and_brightness_do_not_matter(one_camera: np.ndarray):
    noise = np.random.default_rng(0).normal(0, 2, one_camera[:2].shape)
    darker = (0.75 * one_camera[:2] + noise).round().clip(0, 255).astype(np.uint8)
    assert camera_groups(np.concatenate([one_camera[:2], darker])).tolist() == [0, 0, 0, 0]


def test_groups_are_numbered_by_first_appearance_whatever_the_order(one_camera: np.ndarray):
    other = backgrounds(2, turned_by_px=10.0)
    mixed = np.stack([other[0], one_camera[0], other[1], one_camera[1]])
    assert camera_groups(mixed).tolist() == [0, 1, 0, 1]


def test_pictures_without_any_edge_stand_alone():
    grey = np.full((3, 64, 64, 3), 120, np.uint8)
    assert camera_groups(grey).tolist() == [0, 1, 2]


def test_one_episode_is_one_group(one_camera: np.ndarray):
    assert camera_groups(one_camera[:1]).tolist() == [0]


def test_larger_pictures_are_compared_by_the_same_rule():
    large = np.concatenate([backgrounds(2, size_px=128), backgrounds(1, turned_by_px=16.0, size_px=128)])
    assert camera_groups(large).tolist() == [0, 0, 1]
