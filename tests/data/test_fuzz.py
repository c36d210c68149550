"""Bytes that are not what they claim to be: every reader answers with episodes, or one line that names the file."""

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simforcing.data.folders import read_folder
from simforcing.data.lerobot import read_lerobot
from simforcing.data.lerobot_writer import LeRobotWriter
from simforcing.data.open import open_dataset
from simforcing.data.rlds import read_rlds
from simforcing.data.tfrecord import parse_example
from simforcing.types import LAYOUTS, Camera, EpisodeSet

# Cut at a share of the length, or bytes overwritten at shares of it.
damage = st.one_of(
    st.tuples(st.just("cut"), st.floats(0, 1)),
    st.tuples(
        st.just("overwrite"), st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=8)), max_size=6)
    ),
    st.tuples(st.just("replace"), st.binary(max_size=300)),
)


def damaged(content: bytes, kind: str, how: object) -> bytes:
    if kind == "cut":
        return content[: int(how * len(content))]
    if kind == "replace":
        return how
    out = bytearray(content)
    for share, patch in how:
        at = min(int(share * len(out)), len(out) - len(patch))
        out[at : at + len(patch)] = patch
    return bytes(out)


def outcome(call: Callable[[], Any]) -> tuple[Any, str | None]:
    """What a call gives, or the message of its ValueError; any other exception fails the test."""
    try:
        return call(), None
    except ValueError as error:
        return None, str(error)


def opens_or_says_why(read: Callable[[], EpisodeSet], root: Path) -> EpisodeSet | None:
    """Nothing but a ValueError of one line that names the set; rejections are single lines too; frames likewise."""
    found, message = outcome(read)
    if found is None:
        _check(message, root)
        return None
    for item in found.rejected:
        assert "\n" not in item.reason
    for episode in found.episodes:
        for view in episode.views:
            frames, message = outcome(lambda view=view, stop=episode.num_frames: view.frames.read(0, stop))
            if frames is None:
                _check(message, root)
            else:
                assert len(frames) == episode.num_frames
    return found


def _check(message: str | None, root: Path) -> None:
    assert message is not None
    assert str(root) in message
    assert "\n" not in message


def put(path: Path, content: bytes) -> None:
    """Write under a new inode, so that nothing cached about the old file is taken for the new one."""
    path.unlink()
    path.write_bytes(content)


@pytest.fixture
def own_set(tmp_path: Path, write_own) -> Path:
    return write_own(tmp_path / "own", num_episodes=2, num_frames=6)


@pytest.fixture
def bridge_set(tmp_path: Path, write_bridge) -> Path:
    return write_bridge(tmp_path / "bridge", num_episodes=2)


@given(how=damage)
@settings(max_examples=120)
def test_damaged_record_files(bridge_set: Path, how: tuple) -> None:
    path = next(bridge_set.rglob("*.tfrecord*"))
    content = path.read_bytes()
    try:
        put(path, damaged(content, *how))
        opens_or_says_why(lambda: read_rlds(bridge_set), bridge_set)
    finally:
        put(path, content)


@given(data=st.binary(max_size=400))
@settings(max_examples=300)
def test_any_bytes_are_an_example_or_a_value_error(data: bytes) -> None:
    _, message = outcome(lambda: parse_example(data))
    assert message is None or message.startswith("no tf.train.Example")


@given(how=damage)
@settings(max_examples=120)
def test_damaged_annotations(own_set: Path, how: tuple) -> None:
    path = own_set / "annotation" / "0001.json"
    content = path.read_bytes()
    try:
        put(path, damaged(content, *how))
        found = opens_or_says_why(lambda: read_folder(own_set, layout="tabletop"), own_set)
        assert found is not None
        assert found.episodes[0].name == "0000"  # the sound episode stays
    finally:
        put(path, content)


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@given(
    field=st.sampled_from(["action", "state", "fps", "videos", "task", "action_time_s", "num_frames", "states"]),
    value=json_values,
)
@settings(max_examples=200)
def test_annotations_with_any_value_in_any_field(own_set: Path, field: str, value: object) -> None:
    path = own_set / "annotation" / "0001.json"
    content = path.read_bytes()
    try:
        put(path, json.dumps({**json.loads(content), field: value}).encode())
        opens_or_says_why(lambda: read_folder(own_set, layout="tabletop"), own_set)
    finally:
        put(path, content)


@given(how=damage)
@settings(max_examples=80)
def test_damaged_videos(own_set: Path, how: tuple) -> None:
    path = own_set / "videos" / "0001" / "front.mp4"
    content = path.read_bytes()
    try:
        put(path, damaged(content, *how))
        found = opens_or_says_why(lambda: read_folder(own_set), own_set)
        assert found is not None
        assert found.episodes[0].name == "0000"
    finally:
        put(path, content)


@given(how=damage)
@settings(max_examples=120)
def test_damaged_npz_files(own_set: Path, how: tuple) -> None:
    folder = own_set / "npz"
    folder.mkdir(exist_ok=True)
    for name in ("a", "b"):
        np.savez_compressed(folder / f"{name}.npz", action=np.zeros((6, 7)), state=np.ones((6, 7)), fps=np.array(10.0))
        (folder / f"{name}.mp4").write_bytes((own_set / "videos" / "0000" / "front.mp4").read_bytes())
    path = folder / "b.npz"
    put(path, damaged(path.read_bytes(), *how))
    found = opens_or_says_why(lambda: read_folder(folder), folder)
    assert found is not None
    assert found.episodes[0].name == "a"


@given(how=damage)
@settings(max_examples=60)
def test_damaged_declarations(own_set: Path, how: tuple) -> None:
    path = own_set / "meta" / "simforcing.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(damaged(b'{"action_layout": "tabletop", "robot": "arm", "fps": 10.0}', *how))
    opens_or_says_why(lambda: open_dataset(own_set), own_set)


TABLES = {
    "v3.0": (
        "meta/info.json",
        "meta/tasks.parquet",
        "meta/episodes/chunk-000/file-000.parquet",
        "data/chunk-000/file-000.parquet",
        "meta/simforcing.json",
        "meta/cameras.json",
    ),
    "v2.1": (
        "meta/info.json",
        "meta/tasks.jsonl",
        "meta/episodes.jsonl",
        "data/chunk-000/episode_000001.parquet",
        "meta/simforcing.json",
        "meta/cameras.json",
    ),
}


@pytest.fixture(scope="module")
def lerobot_sets(tmp_path_factory: pytest.TempPathFactory, frames_of) -> dict[str, Path]:
    """A LeRobot set of either version: two episodes, states, an extra column and cameras."""
    roots = {}
    for version in ("v3.0", "v2.1"):
        roots[version] = tmp_path_factory.mktemp("lerobot") / version
        layout = LAYOUTS["tabletop"]
        with LeRobotWriter(
            roots[version],
            fps=5,
            views={"front": (24, 32)},
            action_layout=layout,
            state_layout=layout,
            version=version,
        ) as writer:
            for index in range(2):
                numbers = np.full((6, 7), 0.1 * index, np.float32)
                writer.add(
                    frames={"front": frames_of(6, index)},
                    action=numbers,
                    state=numbers,
                    task=f"task {index}",
                    extra={"start": index},
                    cameras={"front": Camera(size=(24, 32), pose=np.eye(4))},
                )
    return roots


@pytest.mark.parametrize(("version", "table"), [(v, table) for v, tables in TABLES.items() for table in tables])
@given(how=damage)
@example(how=("replace", b"0"))
@settings(max_examples=30)
def test_damaged_lerobot_tables(lerobot_sets: dict[str, Path], version: str, table: str, how: tuple) -> None:
    root = lerobot_sets[version]
    path = root / table
    content = path.read_bytes()
    try:
        put(path, damaged(content, *how))
        opens_or_says_why(lambda: read_lerobot(root), root)
    finally:
        put(path, content)


@pytest.mark.parametrize("version", list(TABLES))
@pytest.mark.parametrize("table", ["meta/info.json", "meta/simforcing.json", "meta/cameras.json"])
@given(data=st.data(), value=json_values)
@settings(max_examples=40)
def test_lerobot_metadata_with_any_value_in_any_field(
    lerobot_sets: dict[str, Path], version: str, table: str, data: st.DataObject, value: object
) -> None:
    root = lerobot_sets[version]
    path = root / table
    content = path.read_bytes()
    whole = json.loads(content)
    place, depth = whole, data.draw(st.integers(0, 3))
    key = data.draw(st.sampled_from(sorted(place)))
    while depth and isinstance(place[key], dict) and place[key]:
        place, depth = place[key], depth - 1
        key = data.draw(st.sampled_from(sorted(place)))
    place[key] = value
    try:
        put(path, json.dumps(whole).encode())
        opens_or_says_why(lambda: read_lerobot(root), root)
    finally:
        put(path, content)


@pytest.mark.parametrize("text", ['{"type": "\\n"}', '{"masks": {"a\\nb": 3}}', '{"cameras": {"a\\nb": 3}}'])
def test_line_breaks_in_a_declaration_stay_out_of_the_message(
    lerobot_sets: dict[str, Path], tmp_path: Path, text: str
) -> None:
    root = shutil.copytree(lerobot_sets["v3.0"], tmp_path / "set")
    (root / "meta" / "simforcing.json").write_text(text)
    _, message = outcome(lambda: read_lerobot(root))
    _check(message, root)


def test_an_npz_that_holds_pickles_is_rejected_and_never_run(tmp_path: Path, write_own) -> None:
    own = write_own(tmp_path / "own", num_episodes=1, num_frames=6)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.savez(folder / "a.npz", action=np.array([{"a": 1}], dtype=object))
        (folder / "a.mp4").write_bytes((own / "videos" / "0000" / "front.mp4").read_bytes())
        with pytest.raises(ValueError, match=r"a.npz: damaged npz \(ValueError: Object arrays cannot be loaded"):
            read_folder(folder)
