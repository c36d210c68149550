"""Refines a camera by Gauss-Newton on contours of true renderings, to fractions of a pixel, with its covariance."""

# MuJoCo ships no stubs:
# pyright: reportAttributeAccessIssue=false, reportInvalidTypeForm=false

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from simforcing.sim.contours import Rendered, camera_jacobian, log_odds, match
from simforcing.sim.observation import NotSeenError, Observation
from simforcing.sim.robot import Robot
from simforcing.sim.search import moved
from simforcing.sim.studio import Studio
from simforcing.types import Camera

ROBUST_PX = 2.0  # outlines farther away count less and less
FIRST_DAMPING, LEAST_DAMPING, MOST_DAMPING, OVERSHOT = 0.1, 1e-3, 1e3, 10.0
FAR_REACH_PX, NEAR_REACH_PX = 5.0, 2.5
# Points of one outline are not independent, nor are the outlines of neighbouring frames: measured on scenes of known
# truth, errors are so many times those of independent equations.
INFLATION = 6.0
SMALLEST_MOTION_PX = 0.02
NUM_SETTLING_STEPS = 8
SCORE_TOLERANCE = 0.01  # the score counts whole pixels: smaller differences say nothing
MIN_MATCHES = 50


@dataclass(frozen=True, kw_only=True)
class Refined:
    """A camera, how well its silhouettes separate robot from ground, and how well it is known.

    Args:
        score: mean log odds of pixels being on the side that the silhouettes say; higher is better.
        covariance: of (turn, rad; shift, m; log focal length) in the camera's frame; the last row is 0 where the focal
            length is given.
        residual_px: weighted root mean square distance of outlines.
    """

    camera: Camera
    score: float
    covariance: Float[np.ndarray, "7 7"]
    residual_px: float


class Refiner:
    """Fits cameras to frames whose configurations are known. Use as a context manager: it holds an OpenGL context."""

    def __init__(self, robot: Robot, observation: Observation, qpos: Float[np.ndarray, "f q"]) -> None:
        self._observation, self._qpos = observation, qpos
        self._studio = Studio(robot, observation.size)

    def __enter__(self) -> "Refiner":
        return self

    def __exit__(self, *_: object) -> None:
        self._studio.close()

    def set_configurations(self, qpos: Float[np.ndarray, "f q"]) -> None:
        """Give the same frames other configurations (another lag)."""
        self._qpos = qpos

    def render(self, camera: Camera) -> Rendered:
        """The robot in all frames."""
        coverage = np.empty((len(self._qpos), *camera.size), np.float32)
        depth = np.empty_like(coverage)
        for i, picture in enumerate(self._studio.pictures(self._qpos, camera)):
            coverage[i], depth[i] = picture.coverage, picture.depth_m
        return Rendered(coverage=coverage, depth_m=depth)

    def refine(self, camera: Camera, *, free_focal: bool, num_steps: int = 16) -> Refined:
        """The best camera met on the way down from `camera`, or one as good where no outline asks for a change.

        Raises NotSeenError where the robot's outline is not in view.
        """
        damping, best = FIRST_DAMPING, self._look(camera, FAR_REACH_PX, free_focal)
        current = best
        for step in range(num_steps):
            change = current.step(damping)
            reach = FAR_REACH_PX if step < num_steps // 3 else NEAR_REACH_PX
            try:
                tried = self._look(current.after(change), reach, free_focal)
            except NotSeenError:  # too long a step
                damping *= OVERSHOT
                continue
            damping = np.clip(damping * (0.5 if tried.score > current.score else 3.0), LEAST_DAMPING, MOST_DAMPING)
            motion = current.motion_px(change)
            current = tried if tried.score > best.score - 0.05 * abs(best.score) else best
            best = tried if tried.score > best.score else best
            if motion < SMALLEST_MOTION_PX and reach == NEAR_REACH_PX:
                break
        return self._refined(self._settled(best, free_focal))

    def _settled(self, best: "_Look", free_focal: bool) -> "_Look":
        """The equations' own solution near the best camera: they are finer than its score."""
        current = best
        for _ in range(NUM_SETTLING_STEPS):
            change = current.step(damping=0.0)
            try:
                tried = self._look(current.after(change), NEAR_REACH_PX, free_focal)
            except NotSeenError:
                break
            if tried.score < best.score - SCORE_TOLERANCE * abs(best.score):
                break
            motion, current = current.motion_px(change), tried
            if motion < SMALLEST_MOTION_PX:
                break
        return current

    def _look(self, camera: Camera, reach_px: float, free_focal: bool) -> "_Look":
        rendered = self.render(camera)
        odds = log_odds(rendered, self._observation)
        matches = match(rendered, odds, reach_px=reach_px)
        if len(matches) < MIN_MATCHES:
            raise NotSeenError("the robot's outline is not in view")
        jacobian = camera_jacobian(matches, camera)[:, : 7 if free_focal else 6]
        weight = 1 / matches.variance / (1 + (matches.offset_px / ROBUST_PX) ** 2)
        # Mixed pixels and blur show all outlines a little too far out or in: their mean offset is an unknown beside the
        # camera, so only differences from it count.
        # Sums by einsum: those of a matrix product depend on how many threads it may use.
        mean = weight / weight.sum()
        centred = jacobian - np.einsum("n,np->p", mean, jacobian)
        offset_px = matches.offset_px - (mean * matches.offset_px).sum()
        weighted = centred * weight[:, None]
        inside = rendered.coverage >= 0.5
        return _Look(
            camera=camera,
            score=float((odds * np.where(inside, 1, -1)).mean()),
            jacobian=jacobian,
            normal_matrix=np.einsum("np,nq->pq", weighted, centred) + 1e-9 * np.eye(jacobian.shape[1]),
            gradient=np.einsum("np,n->p", weighted, offset_px),
            residual_px=float(np.sqrt((mean * matches.offset_px**2).sum())),
        )

    def _refined(self, look: "_Look") -> Refined:
        covariance = np.zeros((7, 7))
        size = len(look.gradient)
        covariance[:size, :size] = INFLATION**2 * np.linalg.inv(look.normal_matrix)
        return Refined(camera=look.camera, score=look.score, covariance=covariance, residual_px=look.residual_px)


@dataclass(frozen=True, kw_only=True)
class _Look:
    """One camera tried: its score, and the equations for a better one."""

    camera: Camera
    score: float
    jacobian: Float[np.ndarray, "n p"]
    normal_matrix: Float[np.ndarray, "p p"]
    gradient: Float[np.ndarray, " p"]
    residual_px: float

    def step(self, damping: float) -> Float[np.ndarray, " p"]:
        """The change of the camera that the equations ask for; damped, shorter."""
        return np.linalg.solve(self.normal_matrix + damping * np.diag(np.diag(self.normal_matrix)), self.gradient)

    def after(self, change: Float[np.ndarray, " p"]) -> Camera:
        """The camera after a change."""
        full = np.zeros(7)
        full[: len(change)] = change
        return moved(self.camera, full[:3], full[3:6], float(full[6]))

    def motion_px(self, change: Float[np.ndarray, " p"]) -> float:
        """How far a change moves the outlines on average."""
        return float(np.abs(self.jacobian @ change).mean())
