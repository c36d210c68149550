"""Search for a camera that explains where pixels change, with silhouettes of points: thousands of cameras in seconds.

The score of a camera is the correlation of observed with predicted change over all pixels of some frames, both blurred
a little so that near misses count. CMA-ES climbs it, from a given camera or from all around the robot.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import cmaes
import numpy as np
from jaxtyping import Float
from scipy.ndimage import uniform_filter
from scipy.spatial.transform import Rotation

from simforcing.sim.observation import Observation, predicted_change
from simforcing.sim.surface import point_silhouettes
from simforcing.types import Camera

BLUR_PX = 3
POPULATION = 12
LEAST_PIXELS_PER_FRAME = 1.0  # fewer, and the robot is out of view
NEAR_SPREAD_M, NEAR_SPREAD_RAD, FOCAL_SPREAD = 0.05, 0.09, 0.15  # of one step of the search from a given camera
Values = Float[np.ndarray, " p"]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Some frames, small, and the robot's points at each of them.

    Args:
        points: in the base frame (m), for the frames of `observation`.
    """

    observation: Observation
    points: Float[np.ndarray, "f n 3"]

    def score(self, camera: Camera) -> float:
        """Correlation of predicted and observed change, -1 .. 1; 0 where the robot is out of view."""
        predicted = predicted_change(point_silhouettes(self.points, camera), self.observation)
        if predicted.sum() < LEAST_PIXELS_PER_FRAME * len(predicted):
            return 0.0
        return correlation(predicted.astype(np.float32), self.observation.change)


def correlation(predicted: Float[np.ndarray, "f h w"], observed: Float[np.ndarray, "f h w"]) -> float:
    """Pearson's, over all pixels of slightly blurred images; 0 where one of them is constant."""
    a, b = (uniform_filter(image, BLUR_PX, axes=(1, 2)) for image in (predicted, observed))
    a, b = a - a.mean(), b - b.mean()
    norm = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / norm if norm > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class Found:
    """A camera and its score."""

    camera: Camera
    score: float


def search_near(evidence: Evidence, start: Camera, *, free_focal: bool, seed: int, num_generations: int = 50) -> Found:
    """The best camera around a given one (a few decimetres and tens of degrees), its focal length free or kept."""

    def camera_of(x: Values) -> Camera:
        return moved(start, x[:3] * NEAR_SPREAD_RAD, x[3:6] * NEAR_SPREAD_M, x[6] * FOCAL_SPREAD if free_focal else 0.0)

    def value_of(x: Values) -> float:
        return evidence.score(camera_of(x)) - 1e-3 * float(x @ x)

    climb = _Climb(value_of, np.zeros(7 if free_focal else 6), spread=1.0, seed=derived_seed(seed))
    climb.run(num_generations)
    return Found(camera=camera_of(climb.best), score=evidence.score(camera_of(climb.best)))


@dataclass(frozen=True, kw_only=True)
class Orbit:
    """Where cameras stand that look at a robot: the prior of a search without any start.

    Args:
        template: size and, where `focal` is None, the focal lengths.
        centre_m: middle of the workspace in the base frame.
        distance_m: nearest and farthest from it.
        elevation_rad: lowest and highest above it.
        focal: mean and deviation of log(focal length / image height) of square pixels; None: as in the template.
        pixel_aspect: stored width of a pixel over its height, as seen in the picture that the camera took.
    """

    template: Camera
    centre_m: tuple[float, float, float]
    distance_m: tuple[float, float]
    elevation_rad: tuple[float, float] = (-0.1, 1.1)
    focal: tuple[float, float] | None = (-0.1, 0.35)
    pixel_aspect: float = 1.0

    def draw(self, rng: np.random.Generator) -> Values:
        """Azimuth, elevation, log distance, shift of the looked-at point (3), roll, log focal length."""
        near, far = self.distance_m
        mean, deviation = self.focal or (0.0, 0.0)
        place = [rng.uniform(-np.pi, np.pi), rng.uniform(*self.elevation_rad), np.log(rng.uniform(near, far))]
        return np.array([*place, *rng.normal(0, 0.6, 3), rng.normal(0, 0.1), rng.normal(mean, deviation)])

    def doubt(self, x: Values) -> float:
        """How unusual such a camera is, in units of score: keeps weakly determined directions near the usual."""
        low, high = self.elevation_rad
        over = max(0.0, x[1] - high, low - x[1])
        total = 0.12 * x[6] ** 2 + 0.004 * float(x[3:6] @ x[3:6]) + 0.2 * over**2
        if self.focal is not None:
            total += 0.005 * ((x[7] - self.focal[0]) / self.focal[1]) ** 2
        return total

    def camera(self, x: Values) -> Camera:
        """The camera of such numbers."""
        reach = 0.3 * (self.distance_m[0] + self.distance_m[1]) / 2
        target = np.array(self.centre_m) + reach * x[3:6]
        flat, up = np.cos(x[1]), np.sin(x[1])
        position = target + np.exp(x[2]) * np.array([flat * np.cos(x[0]), flat * np.sin(x[0]), up])
        on = (target - position) / np.linalg.norm(target - position)
        right = np.cross(on, [0.0, 0.0, 1.0])
        right /= max(float(np.linalg.norm(right)), 1e-9)
        pose = np.eye(4)
        pose[:3, :3] = np.stack([right, np.cross(on, right), on], axis=1) @ _rotation(np.array([0.0, 0.0, x[6]]))
        pose[:3, 3] = position
        assert self.template.intrinsics is not None
        intrinsics = self.template.intrinsics.copy()
        if self.focal is not None:
            focal = self.template.size[0] * np.exp(x[7])
            intrinsics[0, 0], intrinsics[1, 1] = focal * self.pixel_aspect, focal
        return replace(self.template, intrinsics=intrinsics, pose=pose)


def search_around(
    evidence: Evidence, orbit: Orbit, *, seed: int, num_draws: int = 3000, num_kept: int = 3
) -> list[Found]:
    """The best cameras from all around: random ones, the most promising climbed, fewer and further each round."""
    rng = np.random.default_rng(seed)

    def value_of(x: Values) -> float:
        return evidence.score(orbit.camera(x)) - orbit.doubt(x)

    draws = [orbit.draw(rng) for _ in range(num_draws)]
    values = np.array([value_of(x) for x in draws])
    climbs: list[_Climb] = []
    for start in _spread_out([draws[i] for i in np.argsort(-values, kind="stable")], 24):
        climbs.append(_Climb(value_of, start, spread=0.15, seed=derived_seed(seed, len(climbs))))
    for num_climbs, num_generations in ((24, 12), (8, 25), (num_kept, 50)):
        climbs = sorted(climbs, key=lambda climb: -climb.value)[:num_climbs]
        for climb in climbs:
            climb.run(num_generations)
    climbs.sort(key=lambda climb: -climb.value)
    return [Found(camera=orbit.camera(c.best), score=evidence.score(orbit.camera(c.best))) for c in climbs]


def derived_seed(*parts: int) -> int:
    """A seed of 32 bits, as CMA-ES takes them, from any whole numbers."""
    return int(np.random.SeedSequence(parts).generate_state(1)[0])


def moved(camera: Camera, rotation_rad: Values, position_m: Values, log_focal: float = 0.0) -> Camera:
    """A camera turned and shifted in its own frame, its focal lengths scaled."""
    assert camera.pose is not None
    assert camera.intrinsics is not None
    pose, intrinsics = camera.pose.copy(), camera.intrinsics.copy()
    pose[:3, 3] = camera.pose[:3, 3] + camera.pose[:3, :3] @ position_m
    pose[:3, :3] = camera.pose[:3, :3] @ _rotation(rotation_rad)
    intrinsics[:2, :2] *= np.exp(log_focal)
    return replace(camera, intrinsics=intrinsics, pose=pose)


def _rotation(vector_rad: Values) -> Float[np.ndarray, "3 3"]:
    return Rotation.from_rotvec(vector_rad).as_matrix()


def _spread_out(ordered: list[Values], count: int) -> list[Values]:
    """The first ones, leaving out those that look from nearly the same side as one before."""
    chosen: list[Values] = []
    for x in ordered:
        turns = (abs(np.angle(np.exp(1j * (x[0] - other[0])))) < 0.35 for other in chosen)
        levels = (abs(x[1] - other[1]) < 0.3 for other in chosen)
        if not any(same_side and same_level for same_side, same_level in zip(turns, levels, strict=True)):
            chosen.append(x)
        if len(chosen) == count:
            break
    return chosen


class _Climb:
    """One CMA-ES run that can go on."""

    def __init__(self, value_of: Callable[[Values], float], start: Values, *, spread: float, seed: int) -> None:
        self._value_of = value_of
        self._optimiser = cmaes.CMA(mean=start, sigma=spread, seed=seed, population_size=POPULATION)
        self.best, self.value = start, value_of(start)

    def run(self, num_generations: int) -> None:
        """Go on for so many generations."""
        for _ in range(num_generations):
            told = []
            for _ in range(POPULATION):
                x = self._optimiser.ask()
                value = self._value_of(x)
                told.append((x, -value))
                if value > self.value:
                    self.best, self.value = x, value
            self._optimiser.tell(told)
