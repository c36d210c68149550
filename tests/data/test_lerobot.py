"""LeRobot sets: what was written is read, v2.1 and v3.0; foreign conventions open; damage is named in one line."""

import io
import json
import os
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from simforcing.data.lerobot import LeRobotKeys, read_columns, read_lerobot
from simforcing.data.lerobot_writer import LeRobotWriter
from simforcing.data.video import write_video
from simforcing.types import EpisodeSet, Layout, Part

LAYOUT = Layout(name="three", parts=(Part(kind="translation", size=3),))
JOINTS = Layout(
    name="two_arms",
    parts=(
        Part(kind="joint", size=6, side="left", frame="joint", unit="rad"),
        Part(kind="gripper", size=1, side="left", unit="fraction", gripper="closed_0_open_1"),
        Part(kind="joint", size=6, side="right", frame="joint", unit="rad"),
        Part(kind="gripper", size=1, side="right", unit="fraction", gripper="closed_0_open_1"),
    ),
)


def picture(number: int, num_frames: int = 12) -> np.ndarray:
    """A block pattern that moves; its overall brightness tells the episode."""
    frames = np.full((num_frames, 32, 48, 3), 40 + 30 * number, np.uint8)
    for i in range(num_frames):
        frames[i, 8:16, 2 * i : 2 * i + 8] = 255
    return frames


def write_set(root: Path, num_episodes: int = 3, **options: object) -> Path:
    """Episodes of 12, 13, 14 ... frames; action row i of episode e is (e, i, 0)."""
    options = {"fps": 5, "views": {"front": (32, 48)}, "action_layout": LAYOUT, "state_layout": LAYOUT} | options
    with LeRobotWriter(root, **options) as writer:
        for number in range(num_episodes):
            rows = np.arange(12 + number)
            action = np.stack([np.full(len(rows), number), rows, 0 * rows], axis=1).astype(np.float32)
            frames = {view: picture(number, len(rows)) for view in options["views"]}
            writer.add(frames=frames, action=action, state=-action, task=f"task {number % 2}", extra={"parent": number})
    return root


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> dict[str, Path]:
    """One set in either version; tests copy what they damage."""
    root = tmp_path_factory.mktemp("lerobot")
    return {version: write_set(root / version, version=version) for version in ("v3.0", "v2.1")}


def complaint(root: Path) -> str | None:
    """Why a set cannot be used as a whole, or None; frames are read too."""
    try:
        opened = read_lerobot(root)
        for episode in opened.episodes:
            for view in episode.views:
                view.frames.read(0, episode.num_frames)
    except ValueError as error:
        return str(error)
    return None


def edit_json(path: Path, **changes: object) -> None:
    """Change top-level fields of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def same_episodes(a: EpisodeSet, b: EpisodeSet) -> bool:
    """Equal tables, tasks and times."""
    return all(
        (x.name, x.task, x.num_frames) == (y.name, y.task, y.num_frames)
        and (x.action == y.action).all()
        and (x.action_time_s == y.action_time_s).all()
        for x, y in zip(a.episodes, b.episodes, strict=True)
    )


@pytest.mark.parametrize("version", ["v3.0", "v2.1"])
@pytest.mark.parametrize("codec", ["h264", "av1"])
def test_what_was_written_is_read(tmp_path, version, codec):
    root = write_set(tmp_path / "set", views={"front": (32, 48), "wrist": (32, 48)}, version=version, codec=codec)
    opened = read_lerobot(root)
    assert opened.kind == f"lerobot {version}"
    assert (opened.action_layout, opened.state_layout, opened.rejected, opened.warnings) == (LAYOUT, LAYOUT, (), ())
    for number, episode in enumerate(opened.episodes):
        assert (episode.name, episode.task, episode.fps) == (f"episode_{number:06d}", f"task {number % 2}", 5)
        assert [view.name for view in episode.views] == ["front", "wrist"]
        assert (episode.action[:, 0] == number).all()
        assert (episode.action[:, 1] == np.arange(12 + number)).all()
        assert (episode.state == -episode.action).all()
        assert np.allclose(episode.action_time_s, np.arange(12 + number) / 5)
        for view in episode.views:
            read = view.frames.read(3, 9).astype(float)
            assert np.abs(read - picture(number, 12 + number)[3:9]).mean() < 2
    assert [columns["parent"][0] for columns in read_columns(root, ["parent"])] == [0, 1, 2]


@given(data=st.data(), version=st.sampled_from(["v3.0", "v2.1"]))
@settings(max_examples=10)
def test_any_finite_tables_survive_the_round_trip(tmp_path_factory, data, version):
    root = tmp_path_factory.mktemp("round") / "set"
    finite = st.floats(-1e6, 1e6, width=32)
    lengths = data.draw(st.lists(st.integers(2, 9), min_size=1, max_size=3))
    tasks = data.draw(st.lists(st.text(max_size=12), min_size=len(lengths), max_size=len(lengths)))
    actions = [data.draw(arrays.arrays(np.float32, (length, 14), elements=finite)) for length in lengths]
    with LeRobotWriter(root, fps=7.5, views={"a": (32, 48)}, action_layout=JOINTS, version=version) as writer:
        for number, (action, task) in enumerate(zip(actions, tasks, strict=True)):
            writer.add(frames={"a": picture(number, len(action))}, action=action, task=task)
    opened = read_lerobot(root)
    assert not opened.rejected
    for number, episode in enumerate(opened.episodes):
        assert (episode.action == actions[number]).all()
        assert (episode.task, episode.fps, episode.state) == (tasks[number], 7.5, None)
        frames = episode.views[0].frames.read(0, episode.num_frames).astype(float)
        assert np.abs(frames - picture(number, lengths[number])).mean() < 2


def test_both_versions_hold_the_same_episodes(written):
    assert same_episodes(read_lerobot(written["v3.0"]), read_lerobot(written["v2.1"]))


def test_one_camera_can_be_chosen_and_a_wrong_one_lists_the_choices(tmp_path):
    root = write_set(tmp_path / "set", views={"front": (32, 48), "wrist": (32, 48)})
    for name in ("wrist", "observation.images.wrist"):
        assert [view.name for view in read_lerobot(root, cameras=(name,)).episodes[0].views] == ["wrist"]
    with pytest.raises(ValueError, match="no camera 'top'; cameras: front, wrist"):
        read_lerobot(root, cameras=("top",))


def test_masks_are_attached_to_their_view(tmp_path):
    views = {"front": (32, 48), "front_mask": (32, 48)}
    root = write_set(tmp_path / "set", views=views, masks={"front": "front_mask"})
    for cameras in (None, ("front",)):
        (view,) = read_lerobot(root, cameras=cameras).episodes[0].views
        assert view.name == "front"
        assert view.masks is not None
        assert view.masks.read(0, 2).shape == (2, 32, 48, 3)


@pytest.mark.parametrize("version", ["v3.0", "v2.1"])
def test_a_wrong_header_rate_is_overridden_with_one_warning(tmp_path, version):
    root = write_set(tmp_path / "set", version=version)
    for path in root.rglob("*.mp4"):
        frames = np.concatenate([picture(number, 12 + number) for number in range(3)])
        if version == "v2.1":
            number = int(path.stem[-1])
            frames = picture(number, 12 + number)
        write_video(path, frames, 5.5)
    before = read_lerobot(write_set(tmp_path / "right", version=version))
    if version == "v3.0":  # here the metadata's times count in the file's own time
        path = next((root / "meta/episodes").rglob("*.parquet"))
        table = pq.read_table(path)
        for name in ("from_timestamp", "to_timestamp"):
            column = f"videos/observation.images.front/{name}"
            times = pa.array(np.array(table[column]) * 5 / 5.5)
            table = table.set_column(table.column_names.index(column), column, times)
        pq.write_table(table, path)
    opened = read_lerobot(root)
    assert len(opened.warnings) == 1
    assert "5.5" in opened.warnings[0]
    assert opened.episodes[0].fps == 5
    assert same_episodes(opened, before)
    for number, episode in enumerate(opened.episodes):
        assert abs(episode.views[0].frames.read(11, 12)[0, 30].mean() - (40 + 30 * number)) < 4


def test_actions_in_parts_are_put_side_by_side_in_the_declared_order(tmp_path):
    root = tmp_path / "set"
    rng = np.random.default_rng(0)
    values = {
        f"{kind}.{side}_{part}.position": rng.normal(size=(12, size)).astype(np.float32)
        for kind in ("actions", "states")
        for side in ("left", "right")
        for part, size in (("joint", 6), ("gripper", 1))
    }
    with LeRobotWriter(root, fps=5, views={"x": (32, 48)}, action_layout=LAYOUT) as writer:
        writer.add(frames={"x": picture(0)}, action=np.zeros((12, 3), np.float32), task="fold", extra=values)
    path = next((root / "data").rglob("*.parquet"))
    pq.write_table(pq.read_table(path).drop_columns(["action"]), path)
    info = json.loads((root / "meta/info.json").read_text())
    del info["features"]["action"]
    (root / "meta/info.json").write_text(json.dumps(info))
    (root / "meta/simforcing.json").unlink()
    opened = read_lerobot(root)
    assert "actions.left_joint.position, actions.left_gripper.position, actions.right_joint" in opened.warnings[0]
    expected = np.concatenate([value for key, value in values.items() if key.startswith("actions")], axis=1)
    assert (opened.episodes[0].action == expected).all()
    assert opened.episodes[0].state.shape == (12, 14)
    keys = LeRobotKeys(action=("actions.right_joint.position",), state=("states.left_gripper.position",))
    chosen = read_lerobot(root, keys=keys)
    assert (chosen.episodes[0].action == values["actions.right_joint.position"]).all()
    assert chosen.episodes[0].state.shape == (12, 1)
    with pytest.raises(ValueError, match=r"no numeric feature 'actions\.nose'; choices: actions\.left_joint"):
        read_lerobot(root, keys=LeRobotKeys(action=("actions.nose",)))


def test_frames_stored_as_images_in_the_table_are_read(tmp_path):
    root = write_set(tmp_path / "set")
    key = "observation.images.front"
    info = json.loads((root / "meta/info.json").read_text())
    info["features"][key] = {"dtype": "image", "shape": [32, 48, 3], "names": ["height", "width", "channel"]}
    (root / "meta/info.json").write_text(json.dumps(info))
    shutil.rmtree(root / "videos")
    strings = []
    for frame in np.concatenate([picture(number, 12 + number) for number in range(3)]):
        buffer = io.BytesIO()
        Image.fromarray(frame).save(buffer, "PNG")
        strings.append({"bytes": buffer.getvalue(), "path": None})
    path = next((root / "data").rglob("*.parquet"))
    pq.write_table(pq.read_table(path).append_column(key, pa.array(strings)), path, row_group_size=5)
    opened = read_lerobot(root)
    assert opened.rejected == ()
    for number, episode in enumerate(opened.episodes):
        assert (episode.views[0].frames.read(2, 11) == picture(number, 12 + number)[2:11]).all()


@pytest.mark.parametrize("version", ["v3.0", "v2.1"])
def test_the_fingerprint_follows_content_not_place(tmp_path, written, version):
    original = read_lerobot(written[version]).fingerprint
    copy = shutil.copytree(written[version], tmp_path / "copy")
    assert read_lerobot(copy).fingerprint == original
    path = sorted(copy.rglob("*.mp4"))[0]
    path.write_bytes(path.read_bytes().replace(b"Lavf", b"Lavg") + b"\0")
    assert read_lerobot(copy).fingerprint != original


def test_a_broken_episode_is_rejected_by_name_and_the_others_stay(tmp_path, written):
    root = shutil.copytree(written["v2.1"], tmp_path / "set")
    videos = sorted(root.rglob("*.mp4"))
    videos[0].unlink()
    videos[2].write_bytes(videos[2].read_bytes()[:900])
    opened = read_lerobot(root)
    assert [episode.name for episode in opened.episodes] == ["episode_000001"]
    assert [item.name for item in opened.rejected] == ["episode_000000", "episode_000002"]
    assert "episode_000000.mp4: no such video" in opened.rejected[0].reason
    assert "episode_000002.mp4: damaged" in opened.rejected[1].reason


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("meta/info.json", {"codebase_version": "v1.6"}, "codebase_version is 'v1.6', expected v2.1 or v3.0"),
        ("meta/info.json", {"fps": "five"}, "field fps is 'five', expected number"),
        ("meta/info.json", {"fps": 0}, "fps is 0.0, expected a positive rate"),
        ("meta/info.json", {"features": []}, "field features is \\[\\], expected dict"),
        ("meta/info.json", {"features": {}}, "no feature action"),
        ("meta/info.json", {"data_path": "{x}.parquet"}, "data_path '{x}.parquet' does not fit"),
        ("meta/simforcing.json", {"action_layout": "nonsense"}, "unknown layout 'nonsense'; choices: "),
        ("meta/simforcing.json", {"action_layout": {"name": "x"}}, "Layout needs field 'parts'"),
    ],
)
def test_a_wrong_field_is_named_with_what_was_expected(tmp_path, written, file, changes, message):
    root = shutil.copytree(written["v3.0"], tmp_path / "set")
    edit_json(root / file, **changes)
    with pytest.raises(ValueError, match=message) as raised:
        read_lerobot(root)
    assert "\n" not in str(raised.value)


def test_a_width_that_fits_no_layout_names_both_sides(tmp_path, written):
    root = shutil.copytree(written["v3.0"], tmp_path / "set")
    info = json.loads((root / "meta/info.json").read_text())
    info["features"]["action"]["shape"] = [4]
    (root / "meta/info.json").write_text(json.dumps(info))
    with pytest.raises(ValueError, match=r"action \(action\) has 4 numbers, layout three has 3 \(translation\)"):
        read_lerobot(root)
    (root / "meta/simforcing.json").unlink()
    with pytest.raises(ValueError, match=r"field action is fixed_size_list.*3 numbers a row, expected shape \(4,\)"):
        read_lerobot(root)


def test_nothing_at_that_place_is_said_in_one_line(tmp_path):
    with pytest.raises(ValueError, match="no such folder"):
        read_lerobot(tmp_path / "absent")
    with pytest.raises(ValueError, match=r"info\.json: no such file"):
        read_lerobot(tmp_path)


@pytest.mark.parametrize("version", ["v3.0", "v2.1"])
@pytest.mark.parametrize("kind", ["*.json", "*.jsonl", "*.parquet"])
def test_random_damage_of_tables_is_one_line_or_no_harm(tmp_path, written, version, kind):
    root = shutil.copytree(written[version], tmp_path / "set")
    files = sorted(root.rglob(kind))
    chance = random.Random(1)
    for trial in range(60 if files else 0):
        path = chance.choice(files)
        data = path.read_bytes()
        damaged = bytearray(data)
        for _ in range(chance.choice([1, 2, 30])):
            damaged[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(damaged[: chance.randrange(len(data))] if trial % 5 == 0 else damaged)
        message = complaint(root)
        assert message is None or (str(root) in message and "\n" not in message)
        path.write_bytes(data)
    assert complaint(root) is None


def test_a_hub_id_downloads_the_chosen_cameras_and_their_masks_only(tmp_path, monkeypatch):
    views = {"front": (32, 48), "inside": (32, 48), "wrist": (32, 48)}
    root = write_set(tmp_path / "set", views=views, masks={"front": "inside"})
    asked = []

    def download(repo_id: str, **options: object) -> str:
        asked.append((repo_id, options["repo_type"], options["allow_patterns"]))
        return str(root)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    (view,) = read_lerobot("someone/pushing", cameras=("observation.images.front",)).episodes[0].views
    assert view.masks is not None
    patterns = ["meta/*", "data/*", "videos/*front/*", "videos/*inside/*"]
    assert asked == [("someone/pushing", "dataset", names) for names in (["meta/*"], patterns)]


def test_an_unreachable_hub_is_one_line(monkeypatch):
    def download(repo_id: str, **options: object) -> str:
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    with pytest.raises(ValueError, match=r"someone/pushing: no such folder, .* from the hub \(no route to host\)"):
        read_lerobot("someone/pushing")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda table: table.slice(0, len(table) - 2), r"12 rows of episode 2, its metadata say 14"),
        (
            lambda table: table.take([0, 2, 1, *range(3, len(table))]),
            r"frame_index of episode 0 does not count 0, 1, 2",
        ),
    ],
)
def test_missing_or_reordered_rows_reject_their_episode(tmp_path, written, change, reason):
    root = shutil.copytree(written["v3.0"], tmp_path / "set")
    path = next((root / "data").rglob("*.parquet"))
    pq.write_table(change(pq.read_table(path)), path)
    opened = read_lerobot(root)
    assert len(opened.episodes) == 2
    (rejected,) = opened.rejected
    assert re.search(reason, rejected.reason)
    assert "file-000.parquet" in rejected.reason


def test_a_video_of_another_size_than_declared_rejects_its_episode(tmp_path, written):
    root = shutil.copytree(written["v2.1"], tmp_path / "set")
    path = sorted(root.rglob("*.mp4"))[1]
    write_video(path, picture(1, 13)[:, :16], 5)
    (rejected,) = read_lerobot(root).rejected
    assert rejected.name == "episode_000001"
    assert "16x48 pixels, info.json declares [32, 48, 3] for observation.images.front" in rejected.reason


@pytest.mark.parametrize(("start_s", "stop_s"), [(-2.0, 2.4), (2.4, 2.4), (float("nan"), 2.4), (0.0, float("inf"))])
def test_times_that_no_video_has_reject_their_episode_alone(tmp_path, start_s, stop_s):
    root = write_set(tmp_path / "set")
    path = next((root / "meta/episodes").rglob("*.parquet"))
    table = pq.read_table(path)
    for name, value in (("from_timestamp", start_s), ("to_timestamp", stop_s)):
        column = f"videos/observation.images.front/{name}"
        times = np.array(table[column]).copy()
        times[0] = value
        table = table.set_column(table.column_names.index(column), column, pa.array(times))
    pq.write_table(table, path)
    opened = read_lerobot(root)
    assert [item.name for item in opened.rejected] == [read_lerobot(write_set(tmp_path / "right")).episodes[0].name]
    assert "expected 0 <= from_timestamp < to_timestamp" in opened.rejected[0].reason


@pytest.mark.parametrize("name", ["meta/info.json", "meta/tasks.jsonl", "meta/episodes.jsonl"])
def test_a_pipe_among_the_tables_is_not_waited_for(tmp_path, name):
    root = write_set(tmp_path / "set", version="v2.1")
    (root / name).unlink()
    os.mkfifo(root / name)
    with pytest.raises(ValueError, match="no regular file"):
        read_lerobot(root)
