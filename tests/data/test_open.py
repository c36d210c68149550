"""Opening: the format is detected, layouts have an order of precedence, and what cannot be opened says so."""

from pathlib import Path

import numpy as np
import pytest

from simforcing.data.formats import VIDEO_BYTES, fingerprint
from simforcing.data.lerobot_writer import LeRobotWriter
from simforcing.data.open import open_dataset, require_layout
from simforcing.data.validate import describe
from simforcing.types import LAYOUTS


def test_every_real_set_opens_and_leaves_no_episode_out(shared_data: Path) -> None:
    """Each folder that holds a data set, whatever its name: json, npz or record files."""
    folders = [
        folder
        for folder in sorted(shared_data.iterdir())
        if any(next(folder.rglob(pattern), None) for pattern in ("*.json", "*.npz", "*.tfrecord*"))
    ]
    assert folders
    for folder in folders:
        found = open_dataset(folder)
        assert found.episodes
        assert not found.rejected, describe(found)
        assert require_layout(found).dim == found.episodes[0].action.shape[1]
        assert len({episode.name for episode in found.episodes}) == len(found.episodes)


def test_formats_are_told_apart_by_their_files(tmp_path: Path, write_own, write_bridge) -> None:
    own, bridge = write_own(tmp_path / "own"), write_bridge(tmp_path / "bridge")
    assert open_dataset(own).kind == "mp4 + json"
    assert open_dataset(bridge).kind == "RLDS"
    assert open_dataset(bridge / "1.0.0").kind == "RLDS"
    record_file = next(bridge.rglob("*.tfrecord*"))
    assert open_dataset(record_file).kind == "RLDS"


def test_the_callers_layout_wins_over_the_declared_one_and_that_over_the_formats(tmp_path: Path, write_bridge) -> None:
    root = write_bridge(tmp_path / "set")
    assert require_layout(open_dataset(root)).name == "bridge"
    (root / "meta").mkdir()
    (root / "meta" / "simforcing.json").write_text('{"action_layout": "tabletop", "robot": "my_arm", "fps": 4}')
    declared = open_dataset(root)
    assert (require_layout(declared).name, declared.robot, declared.episodes[0].fps) == ("tabletop", "my_arm", 4.0)
    assert require_layout(open_dataset(root, layout="droid")).name == "droid"


def test_own_recordings_have_no_layout_until_it_is_declared(tmp_path: Path, write_own) -> None:
    root = write_own(tmp_path / "set")
    with pytest.raises(
        ValueError, match=r"no action layout is declared .* convert .* --layout NAME; choices: aloha, .*"
    ):
        require_layout(open_dataset(root))
    assert require_layout(open_dataset(root, layout="tabletop")).name == "tabletop"


def test_what_is_no_data_set_is_refused_with_the_formats(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no readable data set; formats: a LeRobot set"):
        open_dataset(tmp_path)
    with pytest.raises(ValueError, match="no such file or folder"):
        open_dataset(tmp_path / "missing")
    note = tmp_path / "note.txt"
    note.write_text("hello")
    with pytest.raises(ValueError, match="a file, expected a folder"):
        open_dataset(note)
    with pytest.raises(ValueError, match="unknown layout"):
        open_dataset(tmp_path, layout="nothing")


def test_bridge_states_of_eight_numbers_get_the_layout_of_that_width(tmp_path: Path) -> None:
    """Bridge as LeRobot pads the gripper; the same action layout goes with states of seven numbers elsewhere."""
    with LeRobotWriter(
        tmp_path / "set",
        fps=5.0,
        views={"image_0": (16, 16)},
        action_layout=LAYOUTS["bridge"],
        state_layout=LAYOUTS["bridge_lerobot_state"],
    ) as writer:
        frames = np.full((6, 16, 16, 3), 99, np.uint8)
        writer.add(
            frames={"image_0": frames}, action=np.zeros((6, 7), np.float32), state=np.zeros((6, 8), np.float32), task=""
        )
    (tmp_path / "set" / "meta" / "simforcing.json").unlink()
    found = open_dataset(tmp_path / "set", layout="bridge")
    assert found.state_layout == LAYOUTS["bridge_lerobot_state"]


def test_the_fingerprint_reads_a_videos_ends_and_sees_a_change_of_equal_size_there(tmp_path: Path) -> None:
    path, content = tmp_path / "a.mp4", bytearray(np.random.default_rng(0).bytes(300_000))

    def of(offset: int | None) -> str:
        changed = content.copy()
        if offset is not None:
            changed[offset] ^= 255
        path.write_bytes(changed)
        return fingerprint(tmp_path, [path])

    original = of(None)
    assert of(None) == original
    assert len({original, of(0), of(VIDEO_BYTES - 1), of(-VIDEO_BYTES), of(-1)}) == 5
    assert of(150_000) == original  # the documented limit
    path.write_bytes(content + b"x")
    assert fingerprint(tmp_path, [path]) != original
