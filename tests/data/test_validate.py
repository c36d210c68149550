"""The acceptance rules: what is trimmed, what is overridden, what rejects an episode, and that nothing is replaced."""

from dataclasses import replace

import numpy as np
import pytest

from simforcing.data.validate import Candidate, Inspector, accept, describe, range_fault
from simforcing.data.video import ArrayFrames
from simforcing.data.windows import WindowSpec, read_clip
from simforcing.types import LAYOUTS, Episode, Rejected, Resize, View

BRIDGE = LAYOUTS["bridge"]


def candidate(num_frames: int = 10, video_frames: int | None = None, **changes: object) -> Candidate:
    frames = np.zeros((num_frames if video_frames is None else video_frames, 4, 4, 3), np.uint8)
    whole = Candidate(
        name="take",
        task="",
        fps=5.0,
        num_frames=num_frames,
        views=(View(name="front", frames=ArrayFrames(frames)),),
        action=np.zeros((num_frames, 7)),
    )
    return replace(whole, **changes)


def test_a_sound_candidate_becomes_an_episode_with_times_from_its_rate() -> None:
    episode = accept(candidate(), BRIDGE)
    assert isinstance(episode, Episode)
    np.testing.assert_allclose(episode.action_time_s, np.arange(10) / 5)
    assert episode.action.dtype == np.float32


def test_one_surplus_frame_is_trimmed_with_one_warning() -> None:
    inspector = Inspector("set", BRIDGE, None)
    inspector.judge(candidate(10, 11))
    found = inspector.finish(kind="x", robot=None, fingerprint="")
    assert found.episodes[0].num_frames == 10
    assert found.warnings == ("set: episode take: video has 11 frames, the table 10: the last frame is left out",)


@pytest.mark.parametrize("video_frames", [5, 9, 12, 20])
def test_a_larger_length_difference_rejects(video_frames: int) -> None:
    verdict = accept(candidate(10, video_frames), BRIDGE)
    assert isinstance(verdict, Rejected)
    assert verdict.reason == f"view front has {video_frames} frames, the table 10"


@pytest.mark.parametrize("num_rows", [9, 10])
def test_a_table_has_a_row_per_frame_or_one_fewer(num_rows: int) -> None:
    assert isinstance(accept(candidate(action=np.zeros((num_rows, 7))), BRIDGE), Episode)


@pytest.mark.parametrize("num_rows", [1, 8, 11, 40])
def test_a_table_of_any_other_length_rejects(num_rows: int) -> None:
    verdict = accept(candidate(action=np.zeros((num_rows, 7))), BRIDGE)
    assert isinstance(verdict, Rejected)
    assert f"action has {num_rows} rows for 10 frames" in verdict.reason


def test_headers_that_are_overridden_the_same_way_share_one_line() -> None:
    inspector = Inspector("set", BRIDGE, None)
    for name in ("a", "b", "c"):
        inspector.judge(candidate(name=name, header_fps=(20.0, 5.0)))
    assert inspector.warnings == ("set: 3 video header(s) say 20 fps, the data has 5: the header is overridden",)


@pytest.mark.parametrize("part", ["translation", "rotation", "gripper"])
def test_five_per_cent_outside_the_range_is_the_limit(part: str) -> None:
    declared = BRIDGE.part(part)
    assert declared.low is not None
    assert declared.high is not None
    width = declared.high - declared.low
    values = np.zeros((3, 7))
    column = BRIDGE.slices[part].start
    for sign, edge in ((1, declared.high), (-1, declared.low)):
        values[1, column] = edge + sign * 0.049 * width
        assert range_fault(values, BRIDGE) is None
        values[1, column] = edge + sign * 0.051 * width
        fault = range_fault(values, BRIDGE)
        assert fault is not None
        assert fault.startswith(f"{part}[0] of row 1 is")
        assert "layout bridge declares" in fault


def test_unused_numbers_have_no_range_but_must_be_finite() -> None:
    layout = LAYOUTS["bridge_scaled"]
    values = np.zeros((10, 10))
    values[:, 8] = 1e6
    assert isinstance(accept(candidate(action=values), layout), Episode)
    values[4, 8] = np.inf
    verdict = accept(candidate(action=values), layout)
    assert isinstance(verdict, Rejected)
    assert "action[4, 8] is inf" in verdict.reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"action": np.full((10, 7), np.nan)}, "action[0, 0] is nan, expected a finite number"),
        ({"state": np.full((10, 7), np.inf)}, "state[0, 0] is inf"),
        ({"action": np.zeros((10, 8))}, "action has 8 numbers per row, layout bridge has 7"),
        ({"action": np.zeros((0, 7))}, "action has shape (0, 7)"),
        ({"views": ()}, "no view is present"),
        ({"fps": float("nan")}, "fps is nan"),
        ({"num_frames": 1}, "1 frame(s), expected at least 2"),
        ({"action_time_s": np.zeros(10)}, "action_time_s must be finite and rise"),
    ],
)
def test_a_bad_candidate_is_rejected_with_field_and_value(changes: dict, reason: str) -> None:
    verdict = accept(candidate(**changes), BRIDGE)
    assert isinstance(verdict, Rejected)
    assert reason in verdict.reason


def test_rejected_episodes_are_counted_and_never_replaced() -> None:
    inspector = Inspector("set", BRIDGE, None)
    inspector.judge(candidate(name="good"))
    inspector.judge(candidate(name="long", video_frames=15))
    inspector.consider("broken", _raise_two_lines)
    inspector.judge(candidate(name="good"))
    found = inspector.finish(kind="x", robot=None, fingerprint="")
    assert [episode.name for episode in found.episodes] == ["good"]
    assert [(item.name, item.reason) for item in found.rejected] == [
        ("long", "view front has 15 frames, the table 10"),
        ("broken", "video.mp4: line one line two"),
        ("good", "another episode of this data set has the same name"),
    ]
    lines = describe(found)
    assert "1 episodes of 10 to 10 frames" in lines[0]
    assert "3 rejected" in lines[0]
    assert lines[1] == "set: episode long is left out: view front has 15 frames, the table 10"


def _raise_two_lines() -> Candidate:
    raise ValueError("video.mp4: line one\n  line two")


def test_a_set_without_any_usable_episode_says_why_in_one_line() -> None:
    inspector = Inspector("set", BRIDGE, None)
    for index in range(5):
        inspector.reject(f"take{index}", "too short")
    with pytest.raises(ValueError, match=r"^set: no usable episode \(5 rejected: take0: too short; .* and 2 more\)$"):
        inspector.finish(kind="x", robot=None, fingerprint="")


FAST = replace(BRIDGE, name="fast", parts=tuple(replace(part, rate_hz=15.0) for part in BRIDGE.parts))


@pytest.mark.parametrize("num_rows", [28, 30])
def test_a_declared_control_rate_gives_the_times_where_none_are_stored(num_rows: int) -> None:
    episode = accept(candidate(action=np.zeros((num_rows, 7))), FAST)
    assert isinstance(episode, Episode)
    np.testing.assert_allclose(episode.action_time_s, np.arange(num_rows) / 15)
    window = WindowSpec(num_frames=5, views=("front",), resize=Resize(height=4, width=4))
    assert len(read_clip(episode, 2, window, 7).action) == 12


@pytest.mark.parametrize("num_rows", [10, 26, 31])
def test_rows_that_do_not_fill_the_video_at_the_declared_rate_reject(num_rows: int) -> None:
    verdict = accept(candidate(action=np.zeros((num_rows, 7))), FAST)
    assert isinstance(verdict, Rejected)
    assert verdict.reason == f"action has {num_rows} rows at 15 Hz for 2 s of video, expected about 30"


def test_stored_times_win_over_a_declared_rate_with_one_warning() -> None:
    inspector = Inspector("set", FAST, None)
    for name in ("a", "b"):
        inspector.judge(candidate(name=name, action_time_s=np.arange(10) / 5))
    found = inspector.finish(kind="x", robot=None, fingerprint="")
    np.testing.assert_allclose(found.episodes[0].action_time_s, np.arange(10) / 5)
    assert found.warnings == (
        "set: action times of 2 episode(s) are at 5 Hz, the layout declares 15: the times are used",
    )
    agreeing = Inspector("set", FAST, None)
    agreeing.judge(candidate(action=np.zeros((30, 7)), action_time_s=np.arange(30) / 15))
    assert agreeing.warnings == ()
