"""Does the video follow the commanded actions? The cost of swapping them between true branches of one start.

For a branch i with true video T_i, other branch j:  cost = PSNR(video(actions_i), T_i) - PSNR(video(actions_j), T_i),
same given frame, state, text and noise. A model that ignores its actions has cost exactly 0. Swaps between unrelated
episodes are not offered: they would teleport the robot and flatter the score.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from simforcing.evaluation.intervals import Interval, bootstrap_mean
from simforcing.evaluation.protocols import Protocol, score_clip
from simforcing.evaluation.scoring import Predict
from simforcing.types import Clip

SAME_START_LEVELS = 4.0  # mean grey-level difference that two codings of one image may have
SAME_START_STATE = 1e-3  # largest difference of starting states (m, rad or fraction)


@dataclass(frozen=True, kw_only=True)
class CounterfactualGroup:
    """Clips that start from one situation and go on under different actions, all of them truly recorded (rendered)."""

    start: str
    clips: tuple[Clip, ...]

    def __post_init__(self) -> None:
        if len(self.clips) < 2:
            raise ValueError(f"counterfactual group {self.start}: needs two branches or more, found {len(self.clips)}")
        first = self.clips[0]
        for clip in self.clips[1:]:
            shift = np.abs(clip.frames[:, 0].astype(np.float64) - first.frames[:, 0]).mean()
            turn = np.abs(clip.state - first.state).max() if clip.state.size else 0.0
            if shift > SAME_START_LEVELS or turn > SAME_START_STATE:
                raise ValueError(
                    f"counterfactual group {self.start}: {clip.episode} does not start like {first.episode}:"
                    f" frames differ by {shift:.2f} grey levels (at most {SAME_START_LEVELS}),"
                    f" states by {turn:.2g} (at most {SAME_START_STATE})"
                )


@dataclass(frozen=True, kw_only=True)
class Swap:
    """One prediction under the branch's own actions and one under another branch's, against the branch's true video."""

    start: str
    branch: str
    actions_of: str
    psnr_own: float
    psnr_swapped: float
    moving_own: float
    moving_swapped: float


@dataclass(frozen=True, kw_only=True)
class FollowingResult:
    """All swaps, or the reason why there are none.

    Args:
        num_equal: pairs left out because both branches command the same in this window.
        reason: why the measurement does not apply; empty where it does.
    """

    swaps: tuple[Swap, ...] = ()
    num_equal: int = 0
    seed: int = 0
    reason: str = ""

    def cost(self, *, moving: bool) -> Interval:
        """Mean cost of swapped actions in dB, interval over starts; of the moving region or the whole frame."""
        own, swapped = self.decibels(moving=moving)
        return bootstrap_mean(own - swapped, [swap.start for swap in self.swaps], seed=self.seed)

    def decibels(self, *, moving: bool) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """PSNR under the own and the swapped actions, one number per swap, in dB."""
        names = ("moving_own", "moving_swapped") if moving else ("psnr_own", "psnr_swapped")
        own, swapped = (np.array([getattr(swap, name) for swap in self.swaps], np.float64) for name in names)
        return own, swapped


def not_applicable(reason: str) -> FollowingResult:
    """The result where no counterfactual video exists; ValueError without a reason."""
    if not reason:
        raise ValueError("a measurement that does not apply needs its reason")
    return FollowingResult(reason=reason)


def with_actions_of(clip: Clip, other: Clip, num_views: int | None = None) -> Clip:
    """The clip with another one's commands; video, state and text stay its own.

    Args:
        num_views: how many of the frames' streams are video; later ones are simulation, which follows the commands
            after the given frame (a model may read it). None: all.
    """
    if clip.action.shape[1] != other.action.shape[1]:
        raise ValueError(f"actions of {other.episode} have {other.action.shape[1]} numbers, not {clip.action.shape[1]}")
    frames = clip.frames
    if num_views is not None and num_views < len(frames):
        frames = frames.copy()
        frames[num_views:, 1:] = other.frames[num_views:, 1:]
    return replace(
        clip,
        frames=frames,
        action=other.action,
        action_valid=other.action_valid,
        action_time_s=other.action_time_s,
    )


def cost_of_swapped_actions(
    groups: Sequence[CounterfactualGroup],
    predict: Predict,
    protocol: Protocol,
    *,
    seed: int = 0,
    swaps_per_branch: int = 1,
    view: int = 0,
    num_views: int | None = None,
) -> FollowingResult:
    """Predict each branch under its own actions and under those of the next `swaps_per_branch` branches of its group.

    Both predictions of a pair use the same seed, one per group. Returns `n/a` with the reason for no groups.

    Args:
        num_views: see `with_actions_of`.
    """
    if not groups:
        return not_applicable("no counterfactual video: the data has no two episodes from the same start")
    swaps: list[Swap] = []
    num_equal = 0
    for index, group in enumerate(groups):
        pairs = _pairs(group, swaps_per_branch)
        different = [(i, j) for i, j in pairs if not _same_actions(group.clips[i], group.clips[j])]
        num_equal += len(pairs) - len(different)
        if different:
            swaps += _swaps_of(group, different, predict, (protocol, seed + index, view, num_views))
    if not swaps:
        return FollowingResult(num_equal=num_equal, reason="all branches command the same in this window")
    return FollowingResult(swaps=tuple(swaps), num_equal=num_equal, seed=seed)


def _swaps_of(
    group: CounterfactualGroup,
    pairs: list[tuple[int, int]],
    predict: Predict,
    how: tuple[Protocol, int, int, int | None],
) -> list[Swap]:
    protocol, seed, view, num_views = how
    clips = group.clips
    own = sorted({i for i, _ in pairs})
    asked = [clips[i] for i in own] + [with_actions_of(clips[i], clips[j], num_views) for i, j in pairs]
    videos = predict(asked, [seed] * len(asked))
    scores = []
    for branch, video in zip(own + [i for i, _ in pairs], videos, strict=True):
        frames = score_clip(clips[branch].frames[view], video, protocol)
        scores.append((frames.mean("psnr"), frames.mean("moving_psnr")))
    by_branch = dict(zip(own, scores, strict=False))
    return [
        Swap(
            start=group.start,
            branch=clips[i].episode,
            actions_of=clips[j].episode,
            psnr_own=by_branch[i][0],
            psnr_swapped=swapped[0],
            moving_own=by_branch[i][1],
            moving_swapped=swapped[1],
        )
        for (i, j), swapped in zip(pairs, scores[len(own) :], strict=True)
    ]


def _pairs(group: CounterfactualGroup, swaps_per_branch: int) -> list[tuple[int, int]]:
    num = len(group.clips)
    return [(i, (i + step) % num) for i in range(num) for step in range(1, min(swaps_per_branch, num - 1) + 1)]


def _same_actions(first: Clip, second: Clip) -> bool:
    return first.action.shape == second.action.shape and bool(np.allclose(first.action, second.action, atol=1e-6))
