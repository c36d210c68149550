"""Folders of mp4 + json / npz: the real DROID, Language-Table and Bridge clips, and own recordings."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simforcing.data.folders import read_folder
from simforcing.data.video import probe, write_video
from simforcing.types import LAYOUTS, to_json


def test_every_droid_action_is_the_next_state_and_headers_are_overridden(shared_data: Path) -> None:
    found = read_folder(shared_data / "droid")
    assert found.kind == "mp4 + json (DROID)"
    assert found.action_layout is not None
    assert found.action_layout.name == "droid"
    assert any("4 fps, the data has 5" in line for line in found.warnings)
    for episode in found.episodes:
        assert episode.fps == 5.0
        assert episode.state is not None
        np.testing.assert_array_equal(episode.action, episode.state[1:])
        assert [view.name for view in episode.views] == ["exterior_0", "exterior_1", "wrist"]


def test_droid_videos_with_one_surplus_frame_are_trimmed_with_one_warning_each(shared_data: Path) -> None:
    found = read_folder(shared_data / "droid")
    surplus = [
        episode.name
        for episode in found.episodes
        if max(view.frames.num_frames for view in episode.views) > episode.num_frames
    ]
    lines = [line for line in found.warnings if "the last frame is left out" in line]
    assert len(lines) == len(surplus)
    assert all(any(f"episode {name}:" in line for line in lines) for name in surplus)


def test_raw_droid_commands_are_every_third_row_and_lead_the_measured_pose(shared_data: Path) -> None:
    found = read_folder(shared_data / "droid_raw")
    for episode in found.episodes:
        record = json.loads((shared_data / "droid_raw" / "annotation" / f"{episode.name}.json").read_text())
        raw = np.array(record["action.cartesian_position"])
        np.testing.assert_allclose(episode.action[:, :6], raw[::3], atol=1e-6)
        assert episode.state is not None
        to_next = np.abs(episode.action[:-1, :3] - episode.state[1:, :3]).mean()
        to_same = np.abs(episode.action[:-1, :3] - episode.state[:-1, :3]).mean()
        assert to_next < to_same


def test_droid_joints_are_read_under_their_own_layout(shared_data: Path) -> None:
    found = read_folder(shared_data / "droid", layout="droid_joint", cameras=("exterior_0",))
    assert all(episode.action.shape[1] == 8 for episode in found.episodes)
    assert found.state_layout is not None
    assert found.state_layout.name == "droid_joint"


def test_bridge_clips_are_scaled_deltas_at_five_hertz_whatever_the_header_says(shared_data: Path) -> None:
    found = read_folder(shared_data / "bridge_mp4")
    assert found.action_layout is not None
    assert found.action_layout.name == "bridge_scaled"
    assert len([line for line in found.warnings if "20 fps, the data has 5" in line]) == 1
    for episode in found.episodes:
        assert episode.state is None
        assert len(episode.action) == episode.num_frames == episode.views[0].frames.num_frames


def test_language_table_has_one_action_between_each_pair_of_frames(shared_data: Path) -> None:
    found = read_folder(shared_data / "language_table")
    assert found.action_layout is not None
    assert found.action_layout.name == "language_table"
    for episode in found.episodes:
        assert len(episode.action) == episode.num_frames - 1


def test_own_recordings_come_back_as_they_were_written(tmp_path: Path, write_own, frames_of) -> None:
    root = write_own(tmp_path / "set", views=("front", "side"))
    found = read_folder(root, layout="tabletop")
    assert (found.warnings, found.rejected) == ((), ())
    assert found.state_layout is not None
    assert found.state_layout.name == "tabletop"
    episode = found.episodes[2]
    record = json.loads((root / "annotation" / "0002.json").read_text())
    assert (episode.name, episode.task, episode.fps, episode.num_frames) == ("0002", "push the block", 10.0, 12)
    np.testing.assert_allclose(episode.action, record["action"], atol=1e-7)
    np.testing.assert_allclose(episode.state, record["state"], atol=1e-7)
    np.testing.assert_allclose(episode.action_time_s, np.arange(12) / 10)
    assert [view.name for view in episode.views] == ["front", "side"]
    assert np.abs(episode.view("side").frames.read(3, 7).astype(int) - frames_of(12, 7)[3:7]).mean() < 8


def test_cameras_are_read_in_the_order_asked_for(tmp_path: Path, write_own) -> None:
    root = write_own(tmp_path / "set", views=("front", "side"))
    assert [view.name for view in read_folder(root, cameras=("side", "front")).episodes[0].views] == ["side", "front"]
    (root / "videos" / "0000" / "front.mp4").write_bytes(b"broken")
    assert not read_folder(root, cameras=("side",)).rejected  # what is not asked for is not opened
    with pytest.raises(ValueError, match="no camera 'top'; choices: front, side"):
        read_folder(root, cameras=("top",))


def test_a_flat_folder_pairs_json_and_mp4_by_name_and_npz_the_same(tmp_path: Path, frames_of) -> None:
    flat = tmp_path / "flat"
    flat.mkdir()
    write_video(flat / "take.mp4", frames_of(8), 4.0)
    (flat / "take.json").write_text(json.dumps({"action": np.zeros((7, 2)).tolist()}))
    episode = read_folder(flat).episodes[0]
    assert (episode.fps, episode.num_frames, episode.views[0].name) == (4.0, 8, "main")
    (flat / "take.json").unlink()
    np.savez(flat / "take.npz", action=np.zeros((8, 3)), fps=np.array(6.0), task=np.array("wave"))
    episode = read_folder(flat).episodes[0]
    assert (episode.fps, episode.task, episode.action.shape) == (6.0, "wave", (8, 3))


def test_a_control_rate_other_than_the_videos_is_kept_as_times(tmp_path: Path, write_own) -> None:
    def faster(index: int, record: dict) -> None:
        record["action"] = np.zeros((36, 7)).tolist()
        record["action_time_s"] = (np.arange(36) / 30).tolist()

    found = read_folder(write_own(tmp_path / "set", change=faster))
    np.testing.assert_allclose(found.episodes[0].action_time_s, np.arange(36) / 30)
    assert found.episodes[0].num_frames == 12


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"action": [[0.0] * 7] * 11 + [[0.0] * 6]}, "0001.json: field action is no table of numbers"),
        ({"action": None}, "0001.json: field action is no table|field action has shape"),
        ({"action": [[float("nan")] * 7] * 12}, r"action\[0, 0\] is nan, expected a finite number"),
        ({"fps": -3}, "0001.json: field fps is -3.0, expected a positive number"),
        ({"fps": 1e308}, "0001.json: field fps is 1e.308, expected at most 1000"),
        ({"fps": "fast"}, "0001.json: field fps is 'fast', expected a number"),
        ({"videos": {"front": "videos/9999/front.mp4"}}, "0001.json: video of view front not found"),
        ({"videos": {"front": 3}}, "0001.json: videos is"),
        ({"state": [[0.0] * 7] * 9}, "view front has 12 frames, the table 9"),
        ({"action_time_s": [0.0] * 12}, "action_time_s must be finite and rise"),
        ({"action_time_s": [0.0] * 3}, r"action_time_s has shape \(3, 1\), expected one time per row, 12"),
        ({"action": [[0.0] * 7] * 20}, "action has 20 rows for 12 frames"),
    ],
)
def test_a_bad_record_is_rejected_with_file_field_and_value(
    tmp_path: Path, write_own, change: dict, reason: str
) -> None:
    root = write_own(tmp_path / "set", change=lambda index, record: record.update(change) if index == 1 else None)
    found = read_folder(root, layout="tabletop")
    assert [item.name for item in found.rejected] == ["0001"]
    assert [episode.name for episode in found.episodes] == ["0000", "0002"]
    with pytest.raises(ValueError, match=reason):
        raise ValueError(found.rejected[0].reason)


@pytest.mark.parametrize("content", [b"", b"not a video at all", None])
def test_a_missing_or_corrupt_video_rejects_its_episode(tmp_path: Path, write_own, content: bytes | None) -> None:
    root = write_own(tmp_path / "set")
    video = root / "videos" / "0001" / "front.mp4"
    if content is None:
        video.unlink()
    else:
        video.write_bytes(content)
    found = read_folder(root)
    assert [item.name for item in found.rejected] == ["0001"]
    assert "front.mp4" in found.rejected[0].reason
    assert "\n" not in found.rejected[0].reason


@pytest.mark.parametrize("content", [b"{", b"[1, 2]", b"\xff\xfe", b"[" * 100_000])
def test_a_file_that_is_no_json_object_is_rejected_by_its_name(tmp_path: Path, write_own, content: bytes) -> None:
    root = write_own(tmp_path / "set")
    (root / "annotation" / "0001.json").write_bytes(content)
    (rejected,) = read_folder(root).rejected
    assert rejected.name == "0001"
    assert rejected.reason.startswith(str(root / "annotation" / "0001.json"))
    assert "JSON" in rejected.reason


def test_a_truncated_video_has_too_few_frames_or_does_not_open(tmp_path: Path, write_own) -> None:
    root = write_own(tmp_path / "set")
    video = root / "videos" / "0001" / "front.mp4"
    video.write_bytes(video.read_bytes()[: video.stat().st_size // 2])
    assert [item.name for item in read_folder(root).rejected] == ["0001"]


def test_an_empty_folder_and_a_layout_that_does_not_exist_are_refused(tmp_path: Path, write_own) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"no annotation/\*\*/\*.json"):
        read_folder(tmp_path / "empty")
    with pytest.raises(ValueError, match=r"unknown layout 'tabeltop'; choices: .*tabletop"):
        read_folder(write_own(tmp_path / "set"), layout="tabeltop")


def test_the_fingerprint_changes_with_a_video_and_with_a_table(tmp_path: Path, write_own, frames_of) -> None:
    root = write_own(tmp_path / "set")
    before = read_folder(root).fingerprint
    assert read_folder(root).fingerprint == before
    video = root / "videos" / "0001" / "front.mp4"
    write_video(video, frames_of(12, 3), probe(video).fps)
    changed = read_folder(root).fingerprint
    record = root / "annotation" / "0000.json"
    record.write_text(record.read_text().replace("push", "pull"))
    assert len({before, changed, read_folder(root).fingerprint}) == 3


def test_a_declared_control_rate_times_the_rows_of_a_folder(tmp_path: Path, write_own) -> None:
    def faster(index: int, record: dict) -> None:
        del record["state"]
        record["action"] = [[0.1] * 7] * 36

    root = write_own(tmp_path / "own", num_frames=12, change=faster)
    layout = replace(
        LAYOUTS["tabletop"], parts=tuple(replace(part, rate_hz=30.0) for part in LAYOUTS["tabletop"].parts)
    )
    (root / "meta").mkdir()
    (root / "meta" / "simforcing.json").write_text(json.dumps({"action_layout": to_json(layout)}))
    found = read_folder(root)
    assert (found.rejected, found.warnings) == ((), ())
    assert found.episodes[0].num_frames == 12
    np.testing.assert_allclose(found.episodes[0].action_time_s, np.arange(36) / 30)


def test_depth_in_a_record_is_left_out_with_one_line(tmp_path: Path, write_own) -> None:
    root = write_own(tmp_path / "own", change=lambda index, record: record.update(depth_front=[1.0]))
    assert read_folder(root).warnings == (f"{root}: depth is not read from folders: depth_front left out",)


def write_bridge(root: Path, frames: np.ndarray, num_episodes: int = 3) -> Path:
    """Clips as BridgeData V2 stores them: one unnamed array, a row per frame."""
    root.mkdir()
    for index in range(num_episodes):
        write_video(root / f"{index}.mp4", frames, 5.0)
        np.savez(root / f"{index}.npz", np.zeros((len(frames), LAYOUTS["bridge_scaled"].dim)))
    return root


@pytest.mark.parametrize("array", [np.zeros(()), np.zeros((8, 3)), np.array(["no", "numbers"])])
def test_a_broken_first_record_costs_its_episode_and_not_the_format(tmp_path: Path, frames_of, array) -> None:
    root = write_bridge(tmp_path / "set", frames_of(8), num_episodes=2)
    np.savez(root / "0.npz", array)
    found = read_folder(root)
    assert found.kind == "mp4 + npz (Bridge)"
    assert found.action_layout == LAYOUTS["bridge_scaled"]
    assert [item.name for item in found.rejected] == ["0"]
    assert [episode.name for episode in found.episodes] == ["1"]


def test_one_record_without_actions_does_not_make_own_recordings_droid(tmp_path: Path, write_own) -> None:
    def change(index: int, record: dict) -> None:
        if index == 0:
            record["states"] = record.pop("state")
            del record["action"]

    found = read_folder(write_own(tmp_path / "set", change=change))
    assert found.kind == "mp4 + json"
    assert [item.name for item in found.rejected] == ["0000"]


def test_videos_without_a_record_are_named_in_one_line(tmp_path: Path, frames_of, write_own) -> None:
    root = write_bridge(tmp_path / "set", frames_of(8))
    (root / "1.npz").unlink()
    assert read_folder(root).warnings == (f"{root}: 1 mp4 file(s) without a json or npz file are left out: 1.mp4",)
    own = write_own(tmp_path / "own")
    (own / "annotation" / "0001.json").unlink()
    (own / "annotation" / "0002.json").write_text("broken")  # rejected by name: its video is not named again
    (line,) = read_folder(own).warnings
    assert line.endswith("left out: videos/0001/front.mp4")


@pytest.mark.parametrize("name", ["0.npz", "0.mp4", "meta/simforcing.json"])
def test_a_pipe_in_a_folder_is_not_waited_for(tmp_path: Path, frames_of, name: str) -> None:
    root = write_bridge(tmp_path / "set", frames_of(8))
    (root / "meta").mkdir()
    (root / name).unlink(missing_ok=True)
    os.mkfifo(root / name)
    found = read_folder(root)
    assert [item.name for item in found.rejected] == ([] if "/" in name else ["0"])
    assert found.fingerprint


@pytest.mark.parametrize("pipe", ["annotation/0000.json", "videos/0000/front.mp4"])
def test_a_pipe_among_own_recordings_costs_its_episode(tmp_path: Path, write_own, pipe: str) -> None:
    root = write_own(tmp_path / "set")
    (root / pipe).unlink()
    os.mkfifo(root / pipe)
    assert [item.name for item in read_folder(root).rejected] == ["0000"]


@pytest.mark.parametrize("fps", [1e308, 0.0, -5.0, 1001])
def test_a_declared_rate_that_no_camera_has_is_refused(tmp_path: Path, write_own, fps: float) -> None:
    root = write_own(tmp_path / "set")
    (root / "meta").mkdir()
    (root / "meta" / "simforcing.json").write_text(json.dumps({"fps": fps}))
    with pytest.raises(ValueError, match=r"simforcing.json: declaration.fps is .*, expected above 0 and at most 1000"):
        read_folder(root)
    (root / "meta" / "simforcing.json").write_text('{"fps": NaN}')
    with pytest.raises(ValueError, match=r"declaration\.fps is nan"):
        read_folder(root)
