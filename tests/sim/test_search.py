"""Searches for cameras: the score that is climbed, how cameras move, and what a search gives back."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from simforcing.sim.calibrate import Group
from simforcing.sim.model import RobotModel
from simforcing.sim.observation import shrink
from simforcing.sim.search import Evidence, Orbit, correlation, moved, search_around, search_near
from simforcing.sim.surface import SurfacePoints
from simforcing.types import Camera
from simforcing.types.cameras import pinhole_intrinsics, resized_intrinsics

SMALL = (32, 32)


@pytest.fixture(scope="module")
def evidence(filmed: Group) -> Evidence:
    chosen = np.arange(0, len(filmed.frames), 3)
    observation = filmed.observation
    small = replace(observation.take(chosen), change=shrink(observation.change[chosen], 2))
    points = SurfacePoints(RobotModel(filmed.robot), num_points=800).place(filmed.configurations(chosen, 1))
    return Evidence(observation=small, points=points)


@pytest.fixture(scope="module")
def true_camera(filmed_camera: Camera) -> Camera:
    assert filmed_camera.intrinsics is not None
    intrinsics = resized_intrinsics(filmed_camera.intrinsics, filmed_camera.size, SMALL)
    return replace(filmed_camera, size=SMALL, intrinsics=intrinsics)


def test_correlation_is_1_for_equal_images_and_minus_1_for_opposite_ones(rng: np.random.Generator):
    image = rng.random((3, 8, 10)).astype(np.float32)
    assert correlation(image, image) == pytest.approx(1.0, abs=1e-5)
    assert correlation(2 * image + 3, image) == pytest.approx(1.0, abs=1e-4)
    assert correlation(1 - image, image) == pytest.approx(-1.0, abs=1e-5)


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_correlation_with_a_constant_image_is_0(level: float, rng: np.random.Generator):
    image, constant = rng.random((3, 8, 10)).astype(np.float32), np.full((3, 8, 10), level, np.float32)
    assert correlation(constant, image) == 0.0
    assert correlation(image, constant) == 0.0
    assert correlation(constant, constant) == 0.0


def test_moves_round_trip(rng: np.random.Generator):
    camera = Camera(size=SMALL, intrinsics=pinhole_intrinsics(SMALL, fovy_rad=0.8), pose=random_pose(rng))
    turn, shift, scale = rng.normal(0, 0.5, 3), rng.normal(0, 0.3, 3), 0.2
    away = moved(camera, turn, shift, scale)
    back = moved(away, -turn, -(Rotation.from_rotvec(-turn).as_matrix() @ shift), -scale)
    assert camera.pose is not None
    assert back.pose is not None
    np.testing.assert_allclose(back.pose, camera.pose, atol=1e-12)
    np.testing.assert_allclose(back.intrinsics, camera.intrinsics, atol=1e-12)
    assert moved(camera, np.zeros(3), np.zeros(3)) == camera


def random_pose(rng: np.random.Generator) -> np.ndarray:
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = Rotation.random(random_state=rng).as_matrix(), rng.normal(size=3)
    return pose


def test_moves_are_in_the_cameras_own_frame(rng: np.random.Generator):
    """A shift ahead nears what it sees; a turn about its axis turns the image; a longer focal length enlarges it."""
    camera = Camera(size=SMALL, intrinsics=pinhole_intrinsics(SMALL, fovy_rad=0.8), pose=random_pose(rng))
    assert camera.pose is not None
    assert camera.intrinsics is not None
    seen = rng.uniform(-0.2, 0.2, (9, 3)) + np.array([0, 0, 1])
    points = seen @ camera.pose[:3, :3].T + camera.pose[:3, 3]
    ahead = moved(camera, np.zeros(3), np.array([0, 0, 0.25]))
    nearer = replace(camera, pose=np.eye(4)).project(seen - [0, 0, 0.25])
    np.testing.assert_allclose(ahead.project(points), nearer, atol=1e-9)
    centre = camera.intrinsics[:2, 2]
    zoomed = moved(camera, np.zeros(3), np.zeros(3), np.log(2.0))
    np.testing.assert_allclose(zoomed.project(points) - centre, 2 * (camera.project(points) - centre), atol=1e-9)


def orbit(**options: object) -> Orbit:
    template = Camera(size=(48, 64), intrinsics=pinhole_intrinsics((48, 64), fovy_rad=0.9))
    return Orbit(**({"template": template, "centre_m": (0.2, -0.1, 0.3), "distance_m": (0.5, 1.5)} | options))


def test_orbit_cameras_look_at_their_target_with_the_horizon_level(rng: np.random.Generator):
    around = orbit()
    for _ in range(20):
        x = around.draw(rng)
        x[3:7] = 0  # looked-at point in the middle, no roll
        camera = around.camera(x)
        assert camera.pose is not None
        assert camera.intrinsics is not None
        target = camera.project(np.array([around.centre_m]))[0]
        np.testing.assert_allclose(target, camera.intrinsics[:2, 2], atol=1e-9)
        assert camera.pose[2, 0] == pytest.approx(0, abs=1e-12)  # right is level
        assert camera.pose[2, 1] < 0  # down is down
        np.testing.assert_allclose(camera.pose[:3, :3] @ camera.pose[:3, :3].T, np.eye(3), atol=1e-12)
        assert np.linalg.det(camera.pose[:3, :3]) == pytest.approx(1)
        assert 0.5 <= np.linalg.norm(camera.pose[:3, 3] - around.centre_m) <= 1.5


def test_roll_turns_the_image_about_its_middle(rng: np.random.Generator):
    around = orbit()
    x = around.draw(rng)
    x[3:7] = 0
    level = around.camera(x)
    x[6] = 0.3
    rolled = around.camera(x)
    assert level.pose is not None
    assert rolled.pose is not None
    turn = Rotation.from_matrix(level.pose[:3, :3].T @ rolled.pose[:3, :3]).as_rotvec()
    np.testing.assert_allclose(turn, [0, 0, 0.3], atol=1e-12)


def test_orbit_focal_lengths_are_the_templates_where_given_and_squashed_where_stored_so(rng: np.random.Generator):
    given, free = orbit(focal=None), orbit(pixel_aspect=0.6)
    template = given.template.intrinsics
    assert template is not None
    x = free.draw(rng)
    np.testing.assert_array_equal(given.camera(x).intrinsics, template)
    intrinsics = free.camera(x).intrinsics
    assert intrinsics is not None
    assert intrinsics[0, 0] == pytest.approx(0.6 * intrinsics[1, 1])
    assert intrinsics[1, 1] == pytest.approx(48 * np.exp(x[7]))


def test_doubt_is_0_at_the_usual_and_grows_with_roll_and_below_the_ground():
    around = orbit()
    usual = np.array([2.0, 0.4, 0.0, 0, 0, 0, 0, -0.1])
    assert around.doubt(usual) == pytest.approx(0)
    for index, value in ((6, 0.5), (1, -0.6), (3, 2.0), (7, 0.6)):
        unusual = usual.copy()
        unusual[index] = value
        assert around.doubt(unusual) > 0.005


def test_the_true_camera_scores_above_displaced_ones(evidence: Evidence, true_camera: Camera):
    right = evidence.score(true_camera)
    assert right > 0.5
    for turn in ([0.15, 0, 0], [-0.15, 0, 0], [0, 0.15, 0], [0, -0.15, 0], [0, 0, 0.4]):
        assert evidence.score(moved(true_camera, np.array(turn), np.zeros(3))) < right - 0.1


def test_a_camera_that_sees_no_robot_scores_0(evidence: Evidence, true_camera: Camera):
    assert evidence.score(moved(true_camera, np.array([0, np.pi, 0]), np.zeros(3))) == 0.0


def test_search_near_finds_the_camera_again_the_same_every_time(evidence: Evidence, true_camera: Camera):
    start = moved(true_camera, np.array([0.1, -0.1, 0.1]), np.array([0.05, 0.05, -0.05]))
    found, again = (search_near(evidence, start, free_focal=False, seed=3, num_generations=25) for _ in range(2))
    assert found == again
    assert found.score == evidence.score(found.camera)
    assert found.score > evidence.score(true_camera) - 0.03
    np.testing.assert_array_equal(found.camera.intrinsics, start.intrinsics)


def test_search_near_scales_both_focal_lengths_alike_where_they_are_free(evidence: Evidence, true_camera: Camera):
    squashed = replace(true_camera, intrinsics=np.diag([1.2, 1.0, 1.0]) @ true_camera.intrinsics)
    found = search_near(evidence, squashed, free_focal=True, seed=3, num_generations=5).camera
    assert found.intrinsics is not None
    assert squashed.intrinsics is not None
    ratio = found.intrinsics[:2, :2].diagonal() / squashed.intrinsics[:2, :2].diagonal()
    assert ratio[0] == pytest.approx(ratio[1])
    assert ratio[0] != 1


def test_search_around_gives_as_many_cameras_as_asked_of_the_given_focal_length(
    evidence: Evidence, true_camera: Camera, monkeypatch: pytest.MonkeyPatch
):
    """A small search: a third of the cameras of a generation, on a few frames and points."""
    monkeypatch.setattr("simforcing.sim.search.POPULATION", 4)
    few = Evidence(observation=evidence.observation.take(np.arange(0, 21, 5)), points=evidence.points[::5, ::3])
    around = Orbit(template=true_camera, centre_m=(0.15, 0.0, 0.2), distance_m=(0.4, 1.6), focal=None)
    found = search_around(few, around, seed=0, num_draws=60, num_kept=2)
    assert len(found) == 2
    for one in found:
        assert one.score == few.score(one.camera)
        np.testing.assert_array_equal(one.camera.intrinsics, true_camera.intrinsics)
    assert found[0].score > 0.3
