"""Swapped actions: nothing for a model that ignores them, much for one that obeys."""

from dataclasses import replace

import numpy as np
import pytest

from simforcing.evaluation.following import (
    CounterfactualGroup,
    cost_of_swapped_actions,
    not_applicable,
    with_actions_of,
)
from simforcing.evaluation.protocols import protocol_named

FREE = protocol_named("predicted-frames")
DIRECTIONS = np.array([[2.0, 0.0], [-2.0, 0.0], [0.0, 2.0], [0.0, -2.0]])


@pytest.fixture
def groups(world) -> list[CounterfactualGroup]:
    return [
        CounterfactualGroup(
            start=f"start {s}",
            clips=tuple(
                world.clip(f"start {s} branch {i}", (18 + s, 20), np.repeat(step[None], 8, axis=0))
                for i, step in enumerate(DIRECTIONS)
            ),
        )
        for s in range(4)
    ]


def test_swapping_costs_exactly_nothing_when_the_model_ignores_its_actions(groups, blind) -> None:
    result = cost_of_swapped_actions(groups, blind, FREE)
    for moving in (False, True):
        cost = result.cost(moving=moving)
        assert (cost.mean, cost.low, cost.high) == (0, 0, 0)


def test_swapping_costs_an_obedient_model_more_where_things_move(groups, world) -> None:
    result = cost_of_swapped_actions(groups, world.obedient, FREE)
    whole, moving = result.cost(moving=False), result.cost(moving=True)
    assert whole.low > 10
    assert moving.mean > whole.mean
    assert (whole.num_values, whole.num_clusters) == (16, 4)


def test_the_cost_is_own_minus_swapped_against_the_branch_s_own_truth(groups, world) -> None:
    from simforcing.evaluation.protocols import score_clip

    result = cost_of_swapped_actions(groups[:1], world.obedient, FREE, seed=5)
    first, second = groups[0].clips[:2]
    truth = first.frames[0]
    own = score_clip(truth, world.obedient([first], [5])[0], FREE).mean("psnr")
    swapped = score_clip(truth, world.obedient([with_actions_of(first, second)], [5])[0], FREE).mean("psnr")
    assert (result.swaps[0].psnr_own, result.swaps[0].psnr_swapped) == (own, swapped)
    assert (result.swaps[0].branch, result.swaps[0].actions_of) == (first.episode, second.episode)


def test_every_pair_can_be_swapped(groups, world) -> None:
    result = cost_of_swapped_actions(groups, world.obedient, FREE, swaps_per_branch=3)
    assert len({(swap.branch, swap.actions_of) for swap in result.swaps}) == 4 * 4 * 3


def test_only_the_actions_are_swapped(groups) -> None:
    first, second = groups[0].clips[:2]
    mixed = with_actions_of(replace(first, task="left"), replace(second, task="right"))
    assert mixed.task == "left"
    np.testing.assert_array_equal(mixed.frames, first.frames)
    np.testing.assert_array_equal(mixed.action, second.action)


def test_simulation_follows_the_swapped_actions_from_the_frame_after_the_given_one(groups) -> None:
    first, second = (
        replace(c, frames=np.stack([c.frames[0], c.frames[0] // 2]), view_present=np.ones(2, bool))
        for c in groups[0].clips[:2]
    )
    mixed = with_actions_of(first, second, 1)
    np.testing.assert_array_equal(mixed.frames[0], first.frames[0])
    np.testing.assert_array_equal(mixed.frames[1, 0], first.frames[1, 0])
    np.testing.assert_array_equal(mixed.frames[1, 1:], second.frames[1, 1:])
    assert (first.frames[1, 1:] != mixed.frames[1, 1:]).any()


def test_branches_that_command_the_same_are_left_out_and_counted(world) -> None:
    step = np.repeat(DIRECTIONS[:1], 8, axis=0)
    same = CounterfactualGroup(start="s", clips=tuple(world.clip(f"b{i}", (20, 20), step) for i in range(2)))
    result = cost_of_swapped_actions([same], world.obedient, FREE)
    assert (result.num_equal, result.reason) == (2, "all branches command the same in this window")


def test_branches_from_another_pose_are_refused(world) -> None:
    step = np.repeat(DIRECTIONS[:1], 8, axis=0)
    with pytest.raises(ValueError, match="far does not start like near: frames differ by"):
        CounterfactualGroup(start="s", clips=(world.clip("near", (5, 5), step), world.clip("far", (30, 30), -step)))


def test_without_counterfactuals_the_answer_is_a_reason_and_not_a_number(world) -> None:
    result = cost_of_swapped_actions([], world.obedient, FREE)
    assert "no counterfactual video" in result.reason
    assert np.isnan(result.cost(moving=False).mean)
    with pytest.raises(ValueError, match="needs its reason"):
        not_applicable("")
