"""Fits the camera of a group of episodes and the lag between its frames and the measured states, with no weights.

1. From a given camera, or from all around: correlation of changes, with silhouettes of points (`search`).
2. Every lag from there, then Gauss-Newton on contours of renderings for the best two (`refine`).
3. A score on frames that were not fitted, under this camera and under displaced ones, and a verdict by episode.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from simforcing.sim.appearance import learn_appearance
from simforcing.sim.model import RobotModel
from simforcing.sim.observation import NotSeenError, Observation, observe, shrink
from simforcing.sim.refine import Refined, Refiner
from simforcing.sim.robot import Robot
from simforcing.sim.search import Evidence, Found, Orbit, derived_seed, moved, search_around, search_near
from simforcing.sim.silhouette_score import Overlap, overlap
from simforcing.sim.surface import SurfacePoints
from simforcing.types import Camera
from simforcing.types.calibration import Appearance, EpisodeFit, GroupFit
from simforcing.types.cameras import resized_intrinsics

COARSE_PX = 28  # short side of the pictures that are searched
NUM_POINTS = 1200
LAG_GENERATIONS = 15
NUM_REFINED = 3  # hypotheses
NUM_STEPS, NUM_POLISHING_STEPS = 16, 3
MAX_STARTS = 2  # of the given ones, those that explain most as they are
DISPLACED = 0.12  # of the picture's width: how far a wrong camera is turned to see what chance gives
NEARBY = 0.03  # so far, and none may be better
MIN_SCORED = 8  # frames of an episode that were not fitted; with fewer, all are scored
# A right camera's lower bound was measured 1.4 to 7 times what chance gives, that of the best camera for the motion of
# other episodes at most 1.2 times.
ABOVE_CHANCE = 1.3
SIDES = ((1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0))


@dataclass(frozen=True, kw_only=True)
class CalibrateConfig:
    """How a camera is looked for.

    Args:
        free_focal: whether the focal length is fitted; otherwise it is the template's.
        num_coarse_frames, num_fine_frames, num_final_frames: frames of a group that are searched, that hypotheses are
            compared on, and that the best one is refined on.
        num_scored_frames: frames of an episode that it is scored on.
        min_iou: an episode below it is left out.
        seed: of everything random.
    """

    free_focal: bool = True
    num_coarse_frames: int = 48
    num_fine_frames: int = 40
    num_final_frames: int = 160
    num_scored_frames: int = 24
    min_iou: float = 0.15
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("num_coarse_frames", "num_fine_frames", "num_final_frames", "num_scored_frames"):
            if getattr(self, name) < 4:
                raise ValueError(f"{name} {getattr(self, name)}: needs at least 4 frames")


@dataclass(frozen=True, kw_only=True)
class Group:
    """Episodes of one camera, ready to be fitted.

    Args:
        name: for reports. episodes: their names.
        robot: what was filmed.
        frames: all of their frames, one episode after the other, small (about 100 pixels high).
        episode, number: which episode each frame is of, 0, 1, ..., and which of its video frames it is.
        lags, qpos: lags that may be tried, and for each of them the robot's configuration at every frame by the
            measured states: frame i shows row i - lag of its episode.
        template: a camera of the frames' size; its focal lengths are the given ones or first guesses.
        starts: cameras to start from; none searches all around.
        pixel_aspect: see `Orbit`.
        reach_m: of the robot: sets the distances of the search all around.
        masks: of the robot, where they are given.
    """

    name: str
    episodes: tuple[str, ...]
    robot: Robot
    frames: UInt8[np.ndarray, "f h w 3"]
    episode: Int[np.ndarray, " f"]
    number: Int[np.ndarray, " f"]
    lags: tuple[int, ...]
    qpos: Float[np.ndarray, "l f q"]
    template: Camera
    starts: tuple[Camera, ...] = ()
    pixel_aspect: float = 1.0
    masks: Bool[np.ndarray, "f h w"] | None = None

    def configurations(self, chosen: Int[np.ndarray, " n"], lag: int) -> Float[np.ndarray, "n q"]:
        """The robot at some frames under a lag."""
        return self.qpos[self.lags.index(lag)][chosen]

    def half_an_episode_away(self, chosen: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """Other frames of the same episodes, half of an episode later or earlier."""
        first = np.searchsorted(self.episode, self.episode[chosen], side="left")
        count = np.searchsorted(self.episode, self.episode[chosen], side="right") - first
        return first + (chosen - first + count // 2) % count

    @property
    def fitted(self) -> Int[np.ndarray, " n"]:
        """Frames that cameras are fitted to: two of three of every episode."""
        first = np.searchsorted(self.episode, self.episode, side="left")
        return np.flatnonzero((np.arange(len(self.episode)) - first) % 3 != 2)

    @property
    def observation(self) -> Observation:
        """The frames with their cues."""
        return observe(self.frames, self.episode, self.masks)


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """A camera of the group's frame size and a lag, with the score of the stage that found them."""

    camera: Camera
    lag: int
    score: float


def fit_group(group: Group, config: CalibrateConfig) -> tuple[Hypothesis, Refined] | None:
    """Stages 1 and 2: the hypothesis that separates robot and ground best.

    None where the robot is never seen to move as its states say.
    """
    try:
        found = hypotheses(group, config)[:NUM_REFINED]
    except NotSeenError:
        return None
    refined = [refine(group, config, hypothesis) for hypothesis in found]
    kept = [(hypothesis, fit) for hypothesis, fit in refined if fit is not None]
    return max(kept, key=lambda pair: pair[1].score, default=None)


def polish(group: Group, config: CalibrateConfig, best: tuple[Hypothesis, Refined]) -> tuple[Hypothesis, Refined]:
    """The best one refined once more, in few steps on many frames; as it was where that fails."""
    many = replace(config, num_fine_frames=config.num_final_frames)
    hypothesis, refined = refine(group, many, best[0], num_steps=NUM_POLISHING_STEPS)
    return best if refined is None else (hypothesis, refined)


def hypotheses(group: Group, config: CalibrateConfig) -> list[Hypothesis]:
    """Stage 1 and the lags of stage 2: the two best lags of every camera that the search kept, best first.

    Raises NotSeenError where the robot is never seen to move.
    """
    coarse = _Coarse(group, config)
    lag = min(group.lags, key=abs)
    if group.starts:
        evidence = coarse.evidence(lag)
        starts = sorted((coarse.camera(start) for start in group.starts), key=evidence.score, reverse=True)
        found = [
            search_near(evidence, start, free_focal=config.free_focal, seed=derived_seed(config.seed, 1))
            for start in starts[:MAX_STARTS]
        ]
    else:
        found = search_around(coarse.evidence(lag), _orbit(group, coarse, config), seed=config.seed)
    best: list[Hypothesis] = []
    for one in found:
        best += _by_lag(coarse, one, config)
    if max(h.score for h in best) <= 0:
        raise NotSeenError("the robot is never seen to move")
    best.sort(key=lambda h: -h.score)
    return [replace(h, camera=_resized(h.camera, group.template.size, coarse.factor)) for h in best]


def _by_lag(coarse: "_Coarse", found: Found, config: CalibrateConfig) -> list[Hypothesis]:
    """The two best lags from a camera, each with the camera adapted to it."""
    tried = []
    for lag in coarse.group.lags:
        near = search_near(
            coarse.evidence(lag),
            found.camera,
            free_focal=config.free_focal,
            seed=derived_seed(config.seed, 2),
            num_generations=LAG_GENERATIONS,
        )
        tried.append(Hypothesis(camera=near.camera, lag=lag, score=near.score))
    return sorted(tried, key=lambda h: -h.score)[:2]


def refine(
    group: Group, config: CalibrateConfig, hypothesis: Hypothesis, *, num_steps: int = NUM_STEPS
) -> tuple[Hypothesis, Refined | None]:
    """Stage 2: the hypothesis on true renderings; None where the robot's outline left the picture."""
    chosen = group.fitted[_spread(len(group.fitted), config.num_fine_frames)]
    observation = group.observation.take(chosen)
    with Refiner(group.robot, observation, group.configurations(chosen, hypothesis.lag)) as refiner:
        try:
            refined = refiner.refine(hypothesis.camera, free_focal=config.free_focal, num_steps=num_steps)
        except (NotSeenError, np.linalg.LinAlgError):
            return hypothesis, None
    return replace(hypothesis, camera=refined.camera, score=refined.score), refined


def judge(
    group: Group, config: CalibrateConfig, hypothesis: Hypothesis, *, was_fitted: bool = True
) -> tuple[EpisodeFit, ...]:
    """Stage 3: a score and a verdict for each of the group's episodes, on frames that were not fitted, if possible.

    Args:
        was_fitted: the camera was fitted to these episodes, not to others that it filmed as well.
    """
    chosen = _scored_frames(group, config)
    observation = group.observation.take(chosen)
    by_lag: dict[int, Overlap] = {}
    with Refiner(group.robot, observation, group.configurations(chosen, hypothesis.lag)) as refiner:
        displaced, nearby = (
            [overlap(refiner.render(camera), observation) for camera in _displaced(hypothesis.camera, share)]
            for share in (DISPLACED, NEARBY)
        )
        for lag in group.lags:
            refiner.set_configurations(group.configurations(chosen, lag))
            by_lag[lag] = overlap(refiner.render(hypothesis.camera), observation)
        refiner.set_configurations(group.configurations(group.half_an_episode_away(chosen), hypothesis.lag))
        mistimed = overlap(refiner.render(hypothesis.camera), observation)
    scores = Scores(by_lag=by_lag, displaced=displaced, nearby=nearby, mistimed=mistimed, lag=hypothesis.lag)
    verdicts = (
        _verdict(name, observation.episode == number, scores, config) for number, name in enumerate(group.episodes)
    )
    return tuple(
        replace(verdict, fitted_frames=fitted_frames(group, number) if was_fitted else ())
        for number, verdict in enumerate(verdicts)
    )


def appearance_of(group: Group, config: CalibrateConfig, hypothesis: Hypothesis) -> Appearance | None:
    """What the robot looks like under a fitted camera, on fitted frames; None where it is never or only seen."""
    chosen = group.fitted[_spread(len(group.fitted), config.num_final_frames)]
    observation = group.observation.take(chosen)
    with Refiner(group.robot, observation, group.configurations(chosen, hypothesis.lag)) as refiner:
        robot = refiner.render(hypothesis.camera).coverage >= 0.5
    return learn_appearance(observation.frames, robot) if robot.any() and not robot.all() else None


def group_fit(
    name: str, hypothesis: Hypothesis, refined: Refined, episodes: tuple[EpisodeFit, ...], camera: Camera
) -> GroupFit:
    """The record of a fit; `camera` is the fitted one for the stored image size."""
    deviation = np.sqrt(np.diag(refined.covariance))
    return GroupFit(
        name=name,
        camera=camera,
        lag=hypothesis.lag,
        episodes=episodes,
        position_deviation_m=float(np.linalg.norm(deviation[3:6])),
        rotation_deviation_rad=float(np.linalg.norm(deviation[:3])),
        focal_deviation=float(deviation[6]),
    )


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Overlaps under every lag, and under cameras turned a little; and what chance gives: under cameras turned far, and
    with the motion of other times."""

    by_lag: dict[int, Overlap]
    displaced: list[Overlap]
    nearby: list[Overlap]
    mistimed: Overlap
    lag: int


def fitted_frames(group: Group, episode: int) -> tuple[int, ...]:
    """Video frames of an episode that its group's camera was fitted to."""
    chosen = group.fitted
    return tuple(int(number) for number in group.number[chosen[group.episode[chosen] == episode]])


def _verdict(name: str, own: Bool[np.ndarray, " f"], scores: Scores, config: CalibrateConfig) -> EpisodeFit:
    score = scores.by_lag[scores.lag]
    seen = own & score.visible
    if seen.sum() < max(2, 0.25 * own.sum()):
        share = f"{int(seen.sum())} of {int(own.sum())}"
        return EpisodeFit(name=name, accepted=False, reason=f"the robot is seen to move in {share} frames only")
    iou, (low, high) = score.iou(own), score.interval(own, config.seed)
    displaced = float(np.mean([other.iou(own) for other in scores.displaced]))
    chance = max(displaced, scores.mistimed.iou(own))
    reason = ""
    if iou < config.min_iou:
        reason = f"silhouettes overlap by {iou:.2f} only, {config.min_iou:.2f} is asked"
    elif low < ABOVE_CHANCE * chance:
        what = "displaced cameras" if chance == displaced else "the motion of other times"
        reason = f"silhouettes overlap by {iou:.2f} [{low:.2f}, {high:.2f}], by {chance:.2f} under {what}"
    elif any(score.surpassed_by(other, own, config.seed) for other in scores.nearby):
        reason = f"silhouettes overlap more when the camera is turned by {100 * NEARBY:.0f} % of the width"
    elif (lag := _better_lag(scores, own, config.seed)) is not None:
        reason = f"silhouettes overlap more at lag {lag} than at its group's, {scores.lag}"
    return EpisodeFit(
        name=name,
        accepted=not reason,
        iou=iou,
        iou_low=low,
        iou_high=high,
        lag=max(scores.by_lag, key=lambda one: scores.by_lag[one].iou(own)),
        reason=reason,
    )


def _better_lag(scores: Scores, own: Bool[np.ndarray, " f"], seed: int) -> int | None:
    """A lag that fits an episode better than its group's, beyond chance."""
    score = scores.by_lag[scores.lag]
    better = [lag for lag, other in scores.by_lag.items() if score.surpassed_by(other, own, seed)]
    return max(better, key=lambda lag: scores.by_lag[lag].iou(own), default=None)


def _displaced(camera: Camera, share: float) -> list[Camera]:
    """Cameras turned so that the picture moves by a share of its width to each side."""
    assert camera.intrinsics is not None
    angle = share * camera.size[1] / camera.intrinsics[0, 0]
    return [moved(camera, angle * np.array([x, y, 0.0]), np.zeros(3)) for x, y in SIDES]


def _scored_frames(group: Group, config: CalibrateConfig) -> Int[np.ndarray, " n"]:
    """Some frames of every episode: those that are never fitted, or all where these are too few to say anything."""
    fresh = np.setdiff1d(np.arange(len(group.frames)), group.fitted)
    chosen = []
    for number in range(len(group.episodes)):
        own, unseen = np.flatnonzero(group.episode == number), fresh[group.episode[fresh] == number]
        pool = unseen if len(unseen) >= MIN_SCORED else own
        chosen.append(pool[_spread(len(pool), config.num_scored_frames)])
    return np.concatenate(chosen)


def _spread(count: int, wanted: int) -> Int[np.ndarray, " n"]:
    """`wanted` of `count` numbers, evenly."""
    return np.unique(np.linspace(0, count - 1, min(count, wanted)).round().astype(np.int64))


class _Coarse:
    """A group's frames made small, and the robot's points at each of them for any lag."""

    def __init__(self, group: Group, config: CalibrateConfig) -> None:
        self.group = group
        self.factor = max(1, round(min(group.template.size) / COARSE_PX))
        self._chosen = group.fitted[_spread(len(group.fitted), config.num_coarse_frames)]
        full = group.observation
        small = shrink(full.change[self._chosen], self.factor)
        if small.max() <= 0:
            raise NotSeenError("nothing changes in any frame")
        self._observation = replace(full.take(self._chosen), change=small)
        self._points = SurfacePoints(RobotModel(group.robot), num_points=NUM_POINTS)
        self._evidence: dict[int, Evidence] = {}

    def evidence(self, lag: int) -> Evidence:
        """For one lag."""
        if lag not in self._evidence:
            points = self._points.place(self.group.configurations(self._chosen, lag))
            self._evidence[lag] = Evidence(observation=self._observation, points=points)
        return self._evidence[lag]

    def camera(self, camera: Camera) -> Camera:
        """A camera of the group's frames, of the small ones."""
        height, width = camera.size[0] // self.factor, camera.size[1] // self.factor
        cut = (height * self.factor, width * self.factor)
        assert camera.intrinsics is not None
        return replace(
            camera, size=(height, width), intrinsics=resized_intrinsics(camera.intrinsics, cut, (height, width))
        )


def _resized(camera: Camera, size: tuple[int, int], factor: int) -> Camera:
    """Back to the group's frames."""
    cut = (camera.size[0] * factor, camera.size[1] * factor)
    assert camera.intrinsics is not None
    return replace(camera, size=size, intrinsics=resized_intrinsics(camera.intrinsics, camera.size, cut))


def _orbit(group: Group, coarse: _Coarse, config: CalibrateConfig) -> Orbit:
    """All around where the robot's moving parts were."""
    points = coarse.evidence(min(group.lags, key=abs)).points
    centre = points.reshape(-1, 3).mean(axis=0).astype(float)
    reach = float(np.quantile(np.linalg.norm(points.reshape(-1, 3), axis=1), 0.98))
    return Orbit(
        template=coarse.camera(group.template),
        centre_m=(centre[0], centre[1], centre[2]),
        distance_m=(0.5 * reach, 2.0 * reach),
        focal=Orbit.focal if config.free_focal else None,
        pixel_aspect=group.pixel_aspect,
    )
