"""Converting: numbers, pictures, tasks and rates arrive; nothing is overwritten; an interruption leaves no half set."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simforcing.data import convert as convert_module
from simforcing.data.convert import check_free_space, convert, estimate
from simforcing.data.counterfactuals import counterfactual_groups
from simforcing.data.lerobot import read_columns
from simforcing.data.lerobot_writer import LeRobotWriter
from simforcing.data.open import open_dataset
from simforcing.data.tabletop import TabletopSets
from simforcing.data.video import ArrayDepth, ArrayFrames
from simforcing.sim.tabletop import TabletopConfig
from simforcing.types import LAYOUTS, Camera, EpisodeSet
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
    (destination / "precious.txt").unlink()
    for _ in range(2):  # over an empty folder, then over a data set
        again = convert(source, destination, layout="tabletop", overwrite=True, report=lines.append)
        assert isinstance(again, EpisodeSet)
    with pytest.raises(ValueError, match="must not contain each other"):
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


@pytest.mark.parametrize("version", ["v3.0", "v2.1"])
def test_masks_cameras_and_extra_columns_of_a_lerobot_set_arrive(
    tmp_path: Path, frames_of, lines: list[str], version: str
) -> None:
    views = {"front": (24, 32), "inside": (24, 32)}
    cameras = [Camera(size=(24, 32), intrinsics=np.diag([20.0 + i, 20, 1]), pose=np.eye(4)) for i in range(3)]
    layout = LAYOUTS["tabletop"]
    with LeRobotWriter(tmp_path / "own", fps=5, views=views, action_layout=layout, masks={"front": "inside"}) as writer:
        for i in range(3):
            frames = frames_of(8, i)
            mask = np.where(frames[..., :1] > 200, 255, 0).astype(np.uint8).repeat(3, 3)
            extra = {"start": i, "reward": np.arange(8) / 8, "note": f"note {i}", "wrench": np.ones((8, 6)) * i}
            pictures = {"front": frames, "inside": mask}
            writer.add(
                frames=pictures,
                action=np.zeros((8, 7), np.float32),
                extra=extra,
                name=f"take {i}",
                cameras={"front": cameras[i]},
            )
    original = open_dataset(tmp_path / "own")
    converted = convert(tmp_path / "own", tmp_path / "set", layout=None, version=version, report=lines.append)
    assert not any("left out" in line for line in lines)
    assert [episode.name for episode in converted.episodes] == [f"take {i}" for i in range(3)]
    for i, (before, after) in enumerate(zip(original.episodes, converted.episodes, strict=True)):
        assert [view.name for view in after.views] == ["front"]
        assert after.views[0].camera == cameras[i]
        stored, again = (e.views[0].masks.read(0, 8)[..., 0] > 127 for e in (before, after))
        assert (stored == again).mean() > 0.995
    columns = ["start", "reward", "note", "wrench"]
    assert read_columns(tmp_path / "own", columns) == read_columns(tmp_path / "set", columns)


def test_a_converted_counterfactual_set_keeps_its_groups_even_where_an_episode_is_left_out(
    tmp_path: Path, lines: list[str]
) -> None:
    TabletopSets(
        num_episodes=1,
        num_counterfactual_starts=3,
        seed=0,
        simulator=TabletopConfig(num_frames=4, size_px=16),
        num_processes=1,
    ).write(tmp_path)
    source = tmp_path / "counterfactuals"
    whole = convert(source, tmp_path / "whole", layout=None, version="v2.1", report=lines.append)
    before, after = counterfactual_groups(open_dataset(source)), counterfactual_groups(whole)
    assert {k: [e.name for e in v] for k, v in before.items()} == {k: [e.name for e in v] for k, v in after.items()}
    assert len(after) == 3
    video = tmp_path / "whole" / "videos" / "chunk-000" / "observation.images.front" / "episode_000002.mp4"
    video.write_bytes(b"")
    lacking = convert(tmp_path / "whole", tmp_path / "lacking", layout=None, report=lines.append)
    groups = {key: [episode.name for episode in group] for key, group in counterfactual_groups(lacking).items()}
    expected = {key: [episode.name for episode in group] for key, group in before.items()}
    expected["start 0"].remove("episode_000002")
    assert groups == expected


def test_what_a_lerobot_set_cannot_hold_is_named(tmp_path: Path, frames_of, lines: list[str]) -> None:
    with LeRobotWriter(tmp_path / "own", fps=5, views={"front": (24, 32)}, action_layout=LAYOUTS["tabletop"]) as writer:
        writer.add(frames={"front": frames_of(8)}, action=np.zeros((8, 7), np.float32))
    data = open_dataset(tmp_path / "own")
    front = data.episodes[0].views[0]
    some = replace(front, depth=ArrayDepth(np.ones((8, 24, 32))), masks=ArrayFrames(np.zeros((8, 4, 4, 3), np.uint8)))
    masks = convert_module._common_masks(
        replace(data, episodes=(replace(data.episodes[0], views=(some,)),)), {"front": (24, 32)}, lines.append
    )
    assert masks == {}
    lacking = replace(data, episodes=(replace(data.episodes[0], views=(some,)), data.episodes[0]))
    assert convert_module._common_depth(lacking, {"front": (24, 32)}, lines.append) == ()
    assert [line.split(": ", 1)[1] for line in lines] == [
        "masks of view front are left out: 0 of 1 have them in the view's size",
        "depth of view front is left out: 1 of 2 have it",
    ]
