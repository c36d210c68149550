"""Looks: drawn from a seed, clutter in view and out of the way, textures that tile, a sensor with known effects."""

from dataclasses import replace

import numpy as np
import pytest

from simforcing.sim import textures
from simforcing.sim.camera_error import displaced_camera
from simforcing.sim.look import MAX_CLUTTER, draw_look
from simforcing.sim.scene import SceneConfig, apply, compile_tabletop, pinhole
from simforcing.sim.sensor import Sensor

CAMERA = pinhole(SceneConfig().draw(np.random.default_rng(0)), 64)
IDEAL = Sensor(gain=(1.0, 1.0, 1.0), gamma=1.0, vignette=0.0, blur_px=0.0, read_noise=0.0, shot_noise=0.0)


def test_same_generator_state_gives_the_same_look():
    looks = [draw_look("full", CAMERA, np.random.default_rng(seed)) for seed in (3, 3, 4)]
    assert looks[0] == looks[1]
    assert looks[0] != looks[2]


def test_a_look_does_not_depend_on_the_size_of_the_frames():
    scene = SceneConfig().draw(np.random.default_rng(0))
    looks = [draw_look("full", pinhole(scene, size_px), np.random.default_rng(1)) for size_px in (32, 64, 128)]
    assert looks[0] == looks[1] == looks[2]


def test_clutter_is_seen_and_never_within_the_workspace():
    counts = []
    for seed in range(40):
        clutter = draw_look("full", CAMERA, np.random.default_rng(seed)).clutter
        counts.append(len(clutter))
        for item in clutter:
            x, y = item.position_m
            assert np.hypot(x, y) > (0.44 if abs(np.arctan2(y, x)) < 1.4 else 0.15)
            column, row = CAMERA.project(np.array([[x, y, 0.03]]))[0]
            assert -3 < column < 67
            assert -3 < row < 67
    assert 2 <= np.mean(counts) <= MAX_CLUTTER
    assert not draw_look("light", CAMERA, np.random.default_rng(0)).clutter


def test_a_look_is_written_whole_whatever_was_there_before():
    scene = SceneConfig().draw(np.random.default_rng(0))
    looks = [draw_look("full", CAMERA, np.random.default_rng(seed)) for seed in range(6)]
    looks.sort(key=lambda look: len(look.clutter))  # what stands out of sight keeps its textures
    models = [compile_tabletop(num_slots=2, timestep_s=0.005, with_look=True) for _ in range(2)]
    for look in looks:
        apply(replace(scene, look=look), models[0])
    apply(replace(scene, look=looks[-1]), models[1])
    for name in ("tex_data", "mat_rgba", "geom_pos", "light_diffuse", "light_dir"):
        np.testing.assert_array_equal(getattr(models[0], name), getattr(models[1], name))
    for i in range(MAX_CLUTTER):
        geom = models[0].geom(f"clutter_{i}")
        assert geom.contype == geom.conaffinity == 0
        assert (geom.pos[2] > 0) == (i < len(looks[-1].clutter))


@pytest.mark.parametrize("surface", [*textures.SURFACES, *textures.LABELS], ids=lambda surface: surface.__name__)
def test_surfaces_have_contrast_and_bounds(surface: textures.Drawing):
    pattern = surface(np.random.default_rng(1), 64)
    assert pattern.shape == (64, 64)
    assert np.ptp(pattern) > 0.3
    assert np.abs(pattern).max() < 4


def test_clouds_tile():
    pattern = textures.clouds(np.random.default_rng(0), 64, (3, 3), num_octaves=1)
    for axis in (0, 1):
        inside = np.abs(np.diff(pattern, axis=axis)).max()
        assert np.abs(pattern.take(0, axis) - pattern.take(-1, axis)).max() <= inside


def test_an_ideal_sensor_changes_nothing_and_each_fault_does_what_it_says():
    rng = np.random.default_rng(0)
    frame = np.full((32, 32, 3), 120, np.uint8)
    frame[8:16] = 40

    def exposed(**faults: float) -> np.ndarray:
        return Sensor(**{**vars(IDEAL), **faults}).expose(frame, rng).astype(float)

    np.testing.assert_array_equal(exposed(), frame)
    np.testing.assert_allclose(exposed(gain=(0.5, 1.0, 1.0))[20, 20], (60, 120, 120), atol=1)
    assert exposed(vignette=0.4)[0, 0, 0] < exposed(vignette=0.4)[20, 16, 0]
    assert exposed(blur_px=1.0)[8, 16, 0] > 45
    assert abs(np.std(exposed(read_noise=3.0)[20:]) - 3.0) < 0.3
    dark, bright = exposed(shot_noise=8.0)[8:16], exposed(shot_noise=8.0)[16:]
    assert np.std(dark) < np.std(bright)


@pytest.mark.parametrize("error_px", [0.0, 0.5, 5.0])
def test_a_displaced_camera_is_off_by_exactly_that_on_its_points(error_px: float):
    points = np.random.default_rng(0).uniform((0, -0.2, 0), (0.3, 0.2, 0.3), (20, 3))
    for seed in range(5):
        moved = displaced_camera(CAMERA, points, error_px, np.random.default_rng(seed))
        distance = np.linalg.norm(moved.project(points) - CAMERA.project(points), axis=1).mean()
        assert abs(distance - error_px) < 1e-3


def test_a_camera_error_beyond_reason_is_refused():
    with pytest.raises(ValueError, match=r"camera_error_px 1000000\.0: too large"):
        displaced_camera(CAMERA, np.array([[0.2, 0.0, 0.1]]), 1e6, np.random.default_rng(0))
