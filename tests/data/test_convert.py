"""Converting: numbers, pictures, tasks and rates arrive; nothing is overwritten; an interruption leaves no half set."""

import json
from pathlib import Path

import numpy as np
import pytest

from simforcing.data import convert as convert_module
from simforcing.data.convert import check_free_space, convert, estimate
from simforcing.data.open import open_dataset
from simforcing.types import LAYOUTS, EpisodeSet
from simforcing.types.conversions import convert_actions


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.mark.parametrize("version", ["v3.0", "v2.1"])
def test_own_recordings_arrive_with_views_tasks_states_and_rate(
    tmp_path: Path, write_own, lines: list[str], version: str
) -> None:
    source = write_own(tmp_path / "own", views=("front", "side"))
    converted = convert(source, tmp_path / "set", layout="tabletop", version=version, report=lines.append)
    original = open_dataset(source, layout="tabletop")
    assert converted.action_layout == LAYOUTS["tabletop"] == converted.state_layout
    assert [episode.name for episode in converted.episodes] == [episode.name for episode in original.episodes]
    for before, after in zip(original.episodes, converted.episodes, strict=True):
        assert (before.task, before.fps, before.num_frames) == (after.task, after.fps, after.num_frames)
        np.testing.assert_array_equal(before.action, after.action)
        np.testing.assert_array_equal(before.state, after.state)
        assert {view.name for view in after.views} == {"front", "side"}
        for view in before.views:
            again = after.view(view.name).frames.read(2, 9).astype(int)
            assert np.abs(again - view.frames.read(2, 9)).mean() < 6
    assert any("MB and" in line for line in lines)
    assert lines[-1].endswith("3 of 3 episodes written")
    stored = json.loads((tmp_path / "set" / "meta" / "simforcing.json").read_text())
    assert stored["action_layout"]["name"] == "tabletop"


def test_a_real_record_file_arrives_with_every_number(tmp_path: Path, shared_data: Path, lines: list[str]) -> None:
    original = open_dataset(shared_data / "bridge_rlds")
    converted = convert(shared_data / "bridge_rlds", tmp_path / "set", layout=None, report=lines.append)
    assert converted.state_layout == original.state_layout
    for before, after in zip(original.episodes, converted.episodes, strict=True):
        np.testing.assert_array_equal(before.action, after.action)
        np.testing.assert_array_equal(before.state, after.state)
        assert before.task == after.task


def test_a_known_layout_is_converted_and_not_relabelled(tmp_path: Path, write_bridge, lines: list[str]) -> None:
    source = write_bridge(tmp_path / "bridge")
    target = LAYOUTS["bridge_delta_axis_angle"]
    converted = convert(source, tmp_path / "set", layout=target.name, report=lines.append)
    before = open_dataset(source).episodes[0].action
    expected = convert_actions(before, LAYOUTS["bridge"], target)
    np.testing.assert_allclose(converted.episodes[0].action, expected, atol=1e-6)
    assert any("actions are converted from layout bridge to bridge_delta_axis_angle" in line for line in lines)


def test_a_last_frame_without_a_command_holds_an_absolute_one_and_adds_no_motion_to_deltas(
    tmp_path: Path, write_own, lines: list[str]
) -> None:
    def shorter(index: int, record: dict) -> None:
        del record["state"]
        record["action"] = [[0.01] * 7] * 11

    source = write_own(tmp_path / "own", change=shorter)
    absolute = convert(source, tmp_path / "absolute", layout="tabletop", report=lines.append)
    np.testing.assert_allclose(absolute.episodes[0].action[-1], 0.01)
    delta = convert(source, tmp_path / "delta", layout="bridge", report=lines.append)
    np.testing.assert_allclose(delta.episodes[0].action[-1], [0, 0, 0, 0, 0, 0, 0.01], atol=1e-7)


def test_a_set_without_layout_is_refused_and_the_choices_listed(tmp_path: Path, write_own, lines: list[str]) -> None:
    with pytest.raises(ValueError, match=r"no action layout is declared.*choices: aloha, bridge"):
        convert(write_own(tmp_path / "own"), tmp_path / "set", layout=None, report=lines.append)
    assert not (tmp_path / "set").exists()


def test_an_existing_destination_is_kept_unless_overwritten(tmp_path: Path, write_own, lines: list[str]) -> None:
    source, destination = write_own(tmp_path / "own"), tmp_path / "set"
    destination.mkdir()
    (destination / "precious.txt").write_text("keep me")
    with pytest.raises(ValueError, match="exists; choose another name or overwrite it"):
        convert(source, destination, layout="tabletop", report=lines.append)
    assert (destination / "precious.txt").read_text() == "keep me"
    assert isinstance(convert(source, destination, layout="tabletop", overwrite=True, report=lines.append), EpisodeSet)
    with pytest.raises(ValueError, match="the same folder"):
        convert(destination, destination, layout="tabletop", overwrite=True, report=lines.append)


def test_an_interrupted_conversion_leaves_no_half_set_and_can_be_repeated(
    tmp_path: Path, write_own, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_own(tmp_path / "own")
    original = convert_module._add

    def interrupted(writer, source_set, episode, report):
        if episode.name == "0001":
            raise KeyboardInterrupt
        return original(writer, source_set, episode, report)

    monkeypatch.setattr(convert_module, "_add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        convert(source, tmp_path / "set", layout="tabletop", report=lines.append)
    assert not (tmp_path / "set").exists()
    monkeypatch.undo()
    assert len(convert(source, tmp_path / "set", layout="tabletop", report=lines.append).episodes) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own", "set"]


def test_an_episode_with_a_damaged_frame_is_left_out_by_name(tmp_path: Path, write_bridge, lines: list[str]) -> None:
    def damage(index: int, features: dict) -> None:
        if index == 1:
            features["steps/observation/image_0"][4] = b"\xff\xd8\xff broken"

    converted = convert(
        write_bridge(tmp_path / "own", change=damage), tmp_path / "set", layout=None, report=lines.append
    )
    assert [episode.name for episode in converted.episodes] == ["train_00000_0000", "train_00000_0002"]
    assert any("episode train_00000_0001 is left out: " in line for line in lines)


def test_a_control_rate_that_lerobot_cannot_hold_is_refused_by_name(
    tmp_path: Path, write_own, lines: list[str]
) -> None:
    def faster(index: int, record: dict) -> None:
        record["action"] = np.zeros((36, 7)).tolist()
        record["action_time_s"] = (np.arange(36) / 30).tolist()

    with pytest.raises(ValueError, match="no episode was added"):
        convert(write_own(tmp_path / "own", change=faster), tmp_path / "set", layout="tabletop", report=lines.append)
    assert any("36 rows at 0 .. 1.17 s do not fall on its 12 frames at 10 fps" in line for line in lines)


def test_the_estimate_grows_with_the_frames_and_a_full_disk_is_told_before_writing(tmp_path: Path, write_own) -> None:
    small = open_dataset(write_own(tmp_path / "small", num_frames=6))
    large = open_dataset(write_own(tmp_path / "large", num_frames=24))
    assert estimate(small, ("front",)) < estimate(large, ("front",))
    with pytest.raises(OSError, match=r"MB are needed, .* MB are free"):
        check_free_space(tmp_path / "set", 1e18)
