"""Contours: derivatives are those of projection, and an outline that lies elsewhere is seen where it lies."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from scipy.spatial.transform import Rotation

from simforcing.sim.contours import (
    LARGEST_ODDS,
    Matches,
    Rendered,
    camera_jacobian,
    free_pixels,
    log_odds,
    match,
)
from simforcing.sim.observation import observe
from simforcing.sim.search import moved
from simforcing.types import Camera

SIDE, RADIUS_PX, CENTRE_PX = 48, 11.0, (24.0, 23.0)


def disc(centre: tuple[float, float]) -> np.ndarray:
    """Coverage of a disc (column, row), by averaging 4 x 4 samples a pixel."""
    samples = (np.arange(4 * SIDE) + 0.5) / 4 - 0.5
    inside = np.hypot(samples[None] - centre[0], samples[:, None] - centre[1]) <= RADIUS_PX
    return inside.reshape(SIDE, 4, SIDE, 4).mean(axis=(1, 3)).astype(np.float32)


def rendered(centre: tuple[float, float] = CENTRE_PX, num_frames: int = 1) -> Rendered:
    coverage = np.repeat(disc(centre)[None], num_frames, axis=0)
    return Rendered(coverage=coverage, depth_m=(0.8 * (coverage > 0)).astype(np.float32))


def odds_of(centre: tuple[float, float]) -> np.ndarray:
    """Sure inside, sure outside."""
    return (LARGEST_ODDS * (2 * disc(centre) - 1))[None].astype(np.float32)


def test_jacobian_equals_numeric_derivatives_of_projected_points(rng: np.random.Generator):
    """All seven parameters of a squashed camera with an axis off the middle, at any pose."""
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = Rotation.random(random_state=rng).as_matrix(), rng.normal(size=3)
    camera = Camera(size=(48, 64), intrinsics=np.array([[70.0, 0, 28.3], [0, 55.0, 25.1], [0, 0, 1]]), pose=pose)
    num, depth = 40, rng.uniform(0.4, 2.0, 40)
    pixels = rng.uniform([0, 0], [64, 48], (num, 2))
    assert camera.intrinsics is not None
    rays = np.concatenate([pixels, np.ones((num, 1))], axis=1) @ np.linalg.inv(camera.intrinsics).T
    points = (rays * depth[:, None]) @ pose[:3, :3].T + pose[:3, 3]
    angle = rng.uniform(0, 2 * np.pi, num)
    normal = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    matches = Matches(position_px=pixels, normal=normal, depth_m=depth, offset_px=np.zeros(num), variance=np.ones(num))
    jacobian, step = camera_jacobian(matches, camera), 1e-6
    for parameter in range(7):
        sides = []
        for sign in (1, -1):
            x = np.zeros(7)
            x[parameter] = sign * step
            sides.append(moved(camera, x[:3], x[3:6], float(x[6])).project(points))
        numeric = ((sides[0] - sides[1]) / (2 * step) * normal).sum(axis=1)
        np.testing.assert_allclose(jacobian[:, parameter], numeric, rtol=1e-5, atol=1e-5)


def test_contour_of_a_disc_lies_on_its_circle_with_normals_outwards():
    matches = match(rendered(), odds_of(CENTRE_PX), reach_px=3.0)
    from_centre = matches.position_px - CENTRE_PX
    radius = np.linalg.norm(from_centre, axis=1)
    assert len(matches) > 60
    assert np.abs(radius - RADIUS_PX).max() < 0.5
    assert abs(radius.mean() - RADIUS_PX) < 0.05
    np.testing.assert_allclose(np.linalg.norm(matches.normal, axis=1), 1)
    assert ((matches.normal * from_centre).sum(axis=1) / radius).min() > 0.97
    np.testing.assert_allclose(matches.depth_m, 0.8)


@pytest.mark.parametrize("shift_px", [(0.0, 0.0), (1.0, 0.0), (0.0, -1.5), (1.3, 1.1)])
def test_a_silhouette_that_is_shifted_is_matched_with_that_offset(shift_px: tuple[float, float]):
    """Along every normal by as much as the shift has in its direction."""
    matches = match(rendered(), odds_of((CENTRE_PX[0] + shift_px[0], CENTRE_PX[1] + shift_px[1])), reach_px=4.0)
    expected = matches.normal @ np.array(shift_px)
    assert np.abs(matches.offset_px - expected).max() < 0.4
    assert np.abs(matches.offset_px - expected).mean() < 0.12


def test_where_nothing_is_known_the_offset_is_0_with_all_doubt():
    matches = match(rendered(), np.zeros((1, SIDE, SIDE), np.float32), reach_px=4.0)
    sure = match(rendered(), odds_of(CENTRE_PX), reach_px=4.0)
    np.testing.assert_allclose(matches.offset_px, 0, atol=1e-6)
    assert matches.variance.min() > 4**2 / 3
    assert sure.variance.max() < 0.7


def test_contour_points_near_the_border_are_left_out():
    at_border = (RADIUS_PX + 1.0, CENTRE_PX[1])
    matches = match(rendered(at_border), odds_of(at_border), reach_px=5.0)
    inside = match(rendered(), odds_of(CENTRE_PX), reach_px=5.0)
    assert 0 < len(matches) < len(inside)
    ends = matches.position_px + 5 * matches.normal
    assert ends.min() > 0
    assert ends.max() < SIDE - 1


def moving_disc(colour: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A disc that goes from left to right before a textured wall: frames, coverage, episode."""
    rng = np.random.default_rng(1)
    wall = np.clip(140 + 60 * gaussian_filter(rng.standard_normal((SIDE, SIDE)), 2)[..., None], 0, 255)
    coverage = np.stack([disc((column, 24.0)) for column in np.linspace(13, 35, 12)])
    frames = coverage[..., None] * np.array(colour) + (1 - coverage[..., None]) * wall
    return frames.round().astype(np.uint8), coverage, np.zeros(12, int)


@pytest.mark.parametrize("colour", [(25, 30, 40), (220, 120, 30)])
def test_odds_tell_robot_from_background_and_find_a_shift_in_real_pixels(colour: tuple[int, int, int]):
    """Histograms are learnt under silhouettes that are 1.5 px off, and still the outline is seen where it is."""
    frames, coverage, episode = moving_disc(colour)
    observation = observe(frames, episode)
    right = Rendered(coverage=coverage, depth_m=(coverage > 0).astype(np.float32))
    odds = log_odds(right, observation)
    assert (odds[coverage > 0.9] > 0).mean() > 0.85
    assert (odds[coverage < 0.1] < 0).mean() > 0.85
    assert np.abs(odds).max() <= LARGEST_ODDS
    off = np.stack([disc((column, 25.5)) for column in np.linspace(13, 35, 12)])
    wrong = Rendered(coverage=off, depth_m=(off > 0).astype(np.float32))
    matches = match(wrong, log_odds(wrong, observation), reach_px=4.0)
    weight = matches.normal[:, 1] ** 2 / matches.variance
    shift_px = (weight * matches.offset_px / matches.normal[:, 1])[np.abs(matches.normal[:, 1]) > 0.3].sum()
    shift_px /= weight[np.abs(matches.normal[:, 1]) > 0.3].sum()
    assert shift_px == pytest.approx(-1.5, abs=0.5)


def test_free_pixels_are_those_where_the_robot_is_not_usual():
    frames, _, episode = moving_disc((25, 30, 40))
    silhouettes = np.zeros((12, SIDE, SIDE), bool)
    silhouettes[:7, :10], silhouettes[:5, 10:20] = True, True
    free = free_pixels(silhouettes, observe(frames, episode))
    assert not free[:, :10].any()
    assert free[:, 10:].all()
    assert free_pixels(silhouettes, observe(frames, episode, silhouettes)).all()
