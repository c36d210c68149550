"""The doctor tells the obedient from the blind, and names both sides of a mismatch."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from simforcing.evaluation.checks import Check, all_passed
from simforcing.evaluation.doctor import (
    agreement_check,
    equality_check,
    gradient_check,
    layout_check,
    loading_check,
    mirrored_actions,
    normaliser_check,
    obedience_check,
    rate_check,
    untouched_check,
)
from simforcing.types import Layout, Normaliser, Part

PLANE = Layout(name="plane", parts=(Part(kind="translation", size=2, mode="delta"),))
LAYOUT = Layout(
    name="test",
    parts=(
        Part(kind="translation", size=3, mode="delta"),
        Part(kind="rotation", size=3, mode="delta", rotation="euler_xyz", unit="rad"),
        Part(kind="gripper", size=1, unit="fraction", gripper="closed_0_open_1"),
    ),
)


@pytest.fixture
def actions(rng: np.random.Generator) -> np.ndarray:
    scale = np.array([0.02, 0.02, 0.02, 0.2, 0.2, 0.2, 1.0])
    return (rng.uniform(-1, 1, (200, 7)) * scale).astype(np.float32)


def test_obedience_passes_for_a_model_that_obeys(world, clips) -> None:
    check = obedience_check(clips, mirrored_actions(clips, PLANE), world.obedient)
    assert check.passed
    assert check.value > 5


def test_obedience_fails_for_a_model_that_ignores_its_actions(clips, blind) -> None:
    check = obedience_check(clips, mirrored_actions(clips, PLANE), blind)
    assert check.passed is False
    assert check.value == pytest.approx(1.0, abs=0.05)
    assert "an action-blind model has 1" in check.detail


def test_obedience_fails_for_a_deterministic_model_that_ignores_its_actions(clips) -> None:
    def frozen(batch, seeds):
        return [np.repeat(clip.frames[0][:1], clip.frames.shape[1], axis=0) for clip in batch]

    check = obedience_check(clips, mirrored_actions(clips, PLANE), frozen)
    assert (check.passed, check.value) == (False, 1.0)


def test_obedience_fails_for_a_response_that_drowns_in_the_noise_of_sampling(world, clips) -> None:
    def faint(batch, seeds):
        noise = [
            np.random.default_rng(seed).normal(0, 20, clip.frames[0].shape)
            for clip, seed in zip(batch, seeds, strict=True)
        ]
        return [
            np.clip(100 + 0.02 * video.astype(float) + n, 0, 255).astype(np.uint8)
            for video, n in zip(world.obedient(batch, seeds), noise, strict=True)
        ]

    assert obedience_check(clips, mirrored_actions(clips, PLANE), faint).passed is False


def test_obedience_needs_two_episodes(world, clips) -> None:
    check = obedience_check(clips[:2], mirrored_actions(clips[:2], PLANE), world.obedient)
    assert check.passed is False
    assert "two starts or more" in check.detail


@pytest.mark.parametrize("kind", ["min_max", "quantile", "mean_std"])
def test_a_normaliser_fits_the_data_it_was_fitted_on(actions, kind) -> None:
    assert normaliser_check("action", actions, Normaliser.fit(actions, LAYOUT, kind)).passed


@pytest.mark.parametrize("factor", [55.0, 1 / 55.0])
def test_actions_in_other_units_are_found_in_both_directions(actions, factor: float) -> None:
    check = normaliser_check("action", (actions * factor).astype(np.float32), Normaliser.fit(actions, LAYOUT))
    assert check.passed is False
    assert "translation" in check.detail


def test_one_part_in_degrees_is_named(actions) -> None:
    degrees = actions.copy()
    degrees[:, 3:6] *= 180 / np.pi
    check = normaliser_check("action", degrees, Normaliser.fit(actions, LAYOUT))
    assert check.passed is False
    assert "translation 0.0%, rotation 9" in check.detail


def test_a_gripper_that_never_moves_is_no_fault(actions) -> None:
    held = actions.copy()
    held[:, 6] = 1.0
    assert normaliser_check("action", held, Normaliser.fit(actions, LAYOUT)).passed


def test_values_a_little_beyond_those_of_training_are_no_fault(actions) -> None:
    assert normaliser_check("state", (actions * 1.04).astype(np.float32), Normaliser.fit(actions, LAYOUT)).passed
    check = normaliser_check("state", (actions * 3).astype(np.float32), Normaliser.fit(actions, LAYOUT))
    assert check.passed is False


def test_a_wrong_width_is_found(actions) -> None:
    check = normaliser_check("action", actions[:, :6], Normaliser.fit(actions, LAYOUT))
    assert (check.passed, check.detail) == (False, "data has 6 numbers per step, layout test 7")


def test_layouts_agree_only_when_every_part_does() -> None:
    flipped = replace(LAYOUT, parts=(*LAYOUT.parts[:2], replace(LAYOUT.parts[2], gripper="open_0_closed_1")))
    assert layout_check("action", LAYOUT, LAYOUT).passed
    check = layout_check("action", LAYOUT, flipped)
    assert check.passed is False
    assert "closed_0_open_1" in check.detail
    assert "open_0_closed_1" in check.detail
    assert layout_check("action", LAYOUT, None).passed is False
    assert layout_check("state", None, None).passed


@pytest.mark.parametrize(
    ("name", "run", "data", "passed"),
    [
        ("fps", 5.0, 5.0, True),
        ("fps", 29.97, 30, True),
        ("fps", 5.0, 20.0, False),
        ("robot", "widowx", "panda", False),
        ("robot", "widowx", None, False),
        ("action numbers", 7, 7, True),
    ],
)
def test_properties_must_agree(name: str, run, data, passed: bool) -> None:
    check = agreement_check(name, run, data)
    assert check.passed is passed
    assert passed or (str(run) in check.detail and str(data) in check.detail)


def test_a_refused_checkpoint_says_why_in_one_line() -> None:
    def refuses() -> None:
        raise ValueError("missing tensor blocks.0.weight\nand more")

    assert loading_check(lambda: None).passed
    check = loading_check(refuses)
    assert (check.passed, check.detail) == (False, "missing tensor blocks.0.weight")


def test_only_a_failure_fails() -> None:
    passed, failed, information = (Check(name="a", passed=p, value=1.0, detail="") for p in (True, False, None))
    assert all_passed([passed, information])
    assert not all_passed([passed, failed])
    assert str(failed).startswith("FAIL")


def test_mirrored_actions_start_from_the_same_pose_and_go_the_other_way(clips) -> None:
    action = np.random.default_rng(0).normal(size=(8, 7)).astype(np.float32)
    moving = [replace(clip, action=action, action_valid=np.ones((8, 7), bool)) for clip in clips]
    absolute = replace(LAYOUT, parts=tuple(replace(part, mode="absolute") for part in LAYOUT.parts))
    for layout, opposite in ((LAYOUT, -action), (absolute, 2 * action[:1] - action)):
        for clip, mirrored in zip(moving, mirrored_actions(moving, layout), strict=True):
            np.testing.assert_allclose(mirrored.action[:, :3], opposite[:, :3], atol=1e-6)
            turns, back = (Rotation.from_euler("xyz", a[:, 3:6]) for a in (action, mirrored.action))
            undone = turns * back if layout is LAYOUT else turns[0].inv() * turns * turns[0].inv() * back
            np.testing.assert_allclose(undone.magnitude(), 0, atol=1e-5)
            np.testing.assert_array_equal(mirrored.action[:, 6], action[:, 6])
            assert mirrored.frames is clip.frames


def test_a_gradient_of_the_teacher_or_none_of_the_student_fails() -> None:
    nothing, some = {"a": False, "b": False}, {"a": True, "b": False}
    assert gradient_check(some, nothing).passed
    assert gradient_check(nothing, nothing).passed is False
    leaking = gradient_check(some, some)
    assert leaking.passed is False
    assert "1 of 2 of the teacher's: a" in leaking.detail


def test_a_difference_of_one_bit_fails() -> None:
    first = np.ones((2, 3), np.float32)
    assert equality_check("same", first, first.copy(), "").passed
    second = first.copy()
    second[1, 2] = np.nextafter(np.float32(1), np.float32(2))
    check = equality_check("same", first, second, "")
    assert (check.passed, check.value) == (False, float(second[1, 2] - 1))


def test_a_teacher_s_file_is_the_recorded_one_another_or_gone() -> None:
    assert untouched_check("teacher", "ab12", "ab12").passed
    assert untouched_check("teacher", "ab12", "cd34").passed is False
    gone = untouched_check("teacher", "ab12", None)
    assert (gone.passed, gone.value) == (None, "n/a")


def test_a_rate_fails_outside_three_standard_errors(rng: np.random.Generator) -> None:
    drawn = rng.random(10_000) < 0.7
    assert rate_check("gate", 0.7, drawn).passed
    assert rate_check("gate", 0.68, drawn).passed is False
    assert rate_check("gate", 0.72, drawn).passed is False
    assert rate_check("gate", 1.0, np.ones(10, bool)).passed
    assert rate_check("gate", 1.0, np.arange(10) > 0).passed is False
