"""Silhouettes: exact where they must be, between a floor and a ceiling, never a number where there is none."""

from dataclasses import replace

import numpy as np
import pytest

from simforcing.evaluation.intervals import mean_over_frames
from simforcing.evaluation.protocols import protocol_named
from simforcing.evaluation.record import result_record
from simforcing.evaluation.scoring import Further, Simulation, evaluate
from simforcing.evaluation.silhouette import (
    CEILING,
    COPY,
    LABELS,
    LEVELS,
    ROLLOUT,
    TRUTH,
    SilhouetteScores,
    no_silhouettes,
    overlap,
    silhouette,
)
from simforcing.types import Clip

FREE = protocol_named("predicted-frames")
GREY = np.full((48, 48, 3), 128, np.uint8)


def simulated(world, clip: Clip) -> tuple[np.ndarray, np.ndarray]:
    """The world's square alone on grey, and where it is."""
    robot = (clip.frames[0] != world.background).any(axis=-1)
    return np.where(robot[..., None], clip.frames[0], GREY), robot


def paired(world, clip: Clip) -> Clip:
    sim, robot = simulated(world, clip)
    return replace(
        clip,
        frames=np.stack([clip.frames[0], sim]),
        view_present=np.ones(2, bool),
        masks=np.stack([robot, robot]),
        mask_present=np.ones(2, bool),
    )


def simulation(predict) -> Simulation:
    return Simulation(
        stream=1,
        background=lambda episode: GREY,
        reconstruct=lambda batch: [c.frames[1] for c in batch],
        predict=predict,
    )


def test_overlap_is_1_with_itself_0_with_nothing_and_not_a_number_of_nothing() -> None:
    mask = np.zeros((3, 4, 4), bool)
    mask[:2, 1:3, 1:3] = True
    np.testing.assert_array_equal(overlap(mask, mask), [1, 1, np.nan])
    np.testing.assert_array_equal(overlap(np.zeros_like(mask), mask), [0, 0, np.nan])
    half = mask.copy()
    half[:, 1] = False
    np.testing.assert_array_equal(overlap(half, mask), [0.5, 0.5, np.nan])
    np.testing.assert_array_equal(overlap(half, mask), overlap(mask, half))


def test_a_silhouette_is_what_differs_from_the_background_by_more_than_the_level(rng: np.random.Generator) -> None:
    background = rng.integers(60, 196, (8, 8, 3)).astype(np.uint8)
    frames = np.repeat(background[None], 2, axis=0)
    frames[0, 2, 3, 1] += 12
    frames[1, 5, 5] -= 13
    shown = silhouette(frames, background, 12)
    assert np.argwhere(shown).tolist() == [[1, 5, 5]]
    assert silhouette(frames, background, 11).sum() == 2


def test_the_true_simulation_overlaps_wholly_and_an_empty_one_not_at_all(world, clips) -> None:
    pairs = [paired(world, clip) for clip in clips]
    empty = simulation(lambda batch, seeds: [np.repeat(GREY[None], c.frames.shape[1], axis=0) for c in batch])
    true = simulation(lambda batch, seeds: [c.frames[1] for c in batch])
    for asked, expected in ((true, 1.0), (empty, 0.0)):
        result = evaluate(
            pairs, world.obedient, lambda b: [c.frames[0] for c in b], FREE, further=Further(simulation=asked)
        )
        found = result.silhouettes
        assert found.interval(ROLLOUT).mean == expected
        assert found.interval(CEILING).mean == found.interval(TRUTH).mean == 1.0
        assert 0 < found.interval(COPY).mean < 1
        assert set(found.iou) == set(LABELS)


def test_only_pixels_at_the_outline_may_differ_where_it_is_smoothed(world, clips) -> None:
    from scipy.ndimage import binary_dilation, binary_erosion, uniform_filter

    sim, robot = simulated(world, clips[0])
    smooth = uniform_filter(sim.astype(np.float64), size=(1, 3, 3, 1)).round().astype(np.uint8)
    edge = binary_dilation(robot[0], iterations=1, structure=np.ones((3, 3))) & ~binary_erosion(
        robot[0], structure=np.ones((3, 3))
    )
    for level in LEVELS:
        assert not ((silhouette(smooth, GREY, level)[0] != robot[0]) & ~edge).any()


def test_the_level_is_that_of_the_best_ceiling_whatever_the_model_does(rng: np.random.Generator) -> None:
    robot = np.zeros((2, 16, 16), bool)
    robot[:, 4:12, 4:12] = True
    dirty = np.where(robot[..., None], 128 + 60, 128 + 20).astype(np.uint8).repeat(3, axis=-1)
    background = np.full((16, 16, 3), 128, np.uint8)
    levels = []
    for rollout in (dirty, np.full_like(dirty, 128), rng.integers(0, 256, dirty.shape).astype(np.uint8)):
        scores = SilhouetteScores()
        scores.add({ROLLOUT: rollout, COPY: dirty, CEILING: dirty, TRUTH: dirty}, robot, background)
        result = scores.result(["a"], seed=0, num_resamples=10)
        levels.append(result.level)
        assert result.interval(CEILING).mean == 1.0
    assert levels == [24, 24, 24]  # the lowest of those above the dirt of 20


def test_a_teacher_s_own_prediction_is_the_rollout(world, clips) -> None:
    def sim_only(clip: Clip) -> Clip:
        pair = paired(world, clip)
        return replace(
            pair,
            frames=pair.frames[1:],
            view_present=np.ones(1, bool),
            masks=pair.masks[1:],
            mask_present=np.ones(1, bool),
        )

    asked = Simulation(stream=0, background=lambda episode: GREY, reconstruct=lambda b: [c.frames[0] for c in b])
    result = evaluate(
        [sim_only(clip) for clip in clips],
        lambda batch, seeds: [c.frames[0] for c in batch],
        lambda batch: [c.frames[0] for c in batch],
        FREE,
        further=Further(simulation=asked),
    )
    assert result.silhouettes.interval(ROLLOUT).mean == 1.0
    assert result.examples[0].simulated is None


def test_frames_without_a_robot_do_not_count() -> None:
    iou = np.array([[1.0, np.nan, 0.5], [np.nan, np.nan, np.nan]])
    np.testing.assert_array_equal(mean_over_frames(iou), [0.75, np.nan])


def test_without_simulation_the_answer_is_a_reason_and_not_a_number(world, clips, reconstruct) -> None:
    result = evaluate(
        clips, world.obedient, reconstruct, FREE, further=Further(simulation="only real video is predicted")
    )
    assert result_record(result)["silhouettes"] == {"reason": "only real video is predicted"}
    with pytest.raises(ValueError, match="needs its reason"):
        no_silhouettes("")


def test_a_simulation_without_its_mask_is_refused_by_name(world, clips) -> None:
    bare = [replace(paired(world, clip), masks=None, mask_present=None) for clip in clips]
    asked = Further(simulation=simulation(lambda batch, seeds: [c.frames[1] for c in batch]))
    with pytest.raises(ValueError, match="clip episode 0:0: the simulation has no mask"):
        evaluate(bare, world.obedient, lambda b: [c.frames[0] for c in b], FREE, further=asked)


def test_kept_videos_show_the_true_and_the_self_made_simulation(world, clips) -> None:
    pairs = [paired(world, clip) for clip in clips]
    asked = Further(simulation=simulation(lambda batch, seeds: [c.frames[1] // 2 for c in batch]))
    result = evaluate(pairs, world.obedient, lambda b: [c.frames[0] for c in b], FREE, further=asked)
    true, made = result.examples[0].simulated
    np.testing.assert_array_equal(true, pairs[0].frames[1])
    np.testing.assert_array_equal(made, pairs[0].frames[1] // 2)
