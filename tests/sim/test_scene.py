"""Scenes: drawn from a seed, written into a model in place."""

import mujoco
import numpy as np
import pytest

from simforcing.sim.scene import SceneConfig, apply, compile_tabletop, look_at, place_objects
from simforcing.sim.tabletop_arm import TABLETOP_ARM
from simforcing.sim.textures import smooth_texture


def test_same_generator_state_gives_the_same_scene():
    draws = [SceneConfig().draw(np.random.default_rng(seed)) for seed in (3, 3, 4)]
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]


def test_objects_keep_their_distance_and_their_colours_apart():
    config = SceneConfig(num_objects=(3, 3))
    for seed in range(30):
        objects = config.draw(np.random.default_rng(seed)).objects
        places = np.array([item.position_m for item in objects])
        gaps = np.linalg.norm(places[:, None] - places[None], axis=-1) + 10 * np.eye(3)
        assert gaps.min() >= config.separation_m
        assert len({item.colour for item in objects}) == 3


def test_objects_rest_where_the_scene_puts_them():
    model = compile_tabletop(num_slots=3, timestep_s=0.005)
    data = mujoco.MjData(model)
    for seed in range(8):
        scene = SceneConfig(num_objects=(1, 3)).draw(np.random.default_rng(seed))
        apply(scene, model)
        mujoco.mj_resetData(model, data)
        place_objects(scene, model, data)
        data.qpos[:6] = data.ctrl[:6] = TABLETOP_ARM.arms[0].home_rad
        for _ in range(200):
            mujoco.mj_step(model, data)
        for i, item in enumerate(scene.objects):
            position = data.body(f"object_{i}").xpos
            np.testing.assert_allclose(position, [*item.position_m, item.half_size_m[2]], atol=2e-3)


def test_a_model_with_too_few_slots_is_refused():
    model = compile_tabletop(num_slots=1, timestep_s=0.005)
    scene = SceneConfig(num_objects=(2, 2)).draw(np.random.default_rng(0))
    with pytest.raises(ValueError, match="2 objects, the model was compiled for 1"):
        apply(scene, model)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [({"num_objects": (0, 2)}, "num_objects"), ({"half_size_m": (0.03, 0.02)}, "half_size_m")],
)
def test_impossible_variation_is_refused_by_name(kwargs: dict, message: str):
    with pytest.raises(ValueError, match=message):
        SceneConfig(**kwargs)


def test_objects_that_cannot_fit_are_refused():
    with pytest.raises(ValueError, match="separation_m"):
        SceneConfig(num_objects=(3, 3), separation_m=2.0).draw(np.random.default_rng(0))


def test_camera_looks_at_its_target_with_a_level_horizon():
    position, target = np.array([0.6, -0.5, 0.5]), np.array([0.2, 0.0, 0.1])
    matrix = np.empty(9)
    mujoco.mju_quat2Mat(matrix, look_at(position, target))
    right, up, back = matrix.reshape(3, 3).T
    np.testing.assert_allclose(-back, (target - position) / np.linalg.norm(target - position), atol=1e-12)
    assert abs(right[2]) < 1e-12
    assert up[2] > 0


def test_textures_are_smooth_and_tile():
    texture = smooth_texture(np.random.default_rng(0), np.array([0.5, 0.5, 0.5]), 0.2, 64).astype(int)
    assert np.ptp(texture) > 10
    for axis in (0, 1):
        assert np.abs(texture - np.roll(texture, 1, axis)).max() < 20
