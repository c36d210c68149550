"""Names from foreign files never lead out of their data set, and nobody's other files are overwritten."""

import json
from pathlib import Path

import numpy as np
import pytest

from simforcing.data.convert import convert
from simforcing.data.lerobot_writer import LeRobotWriter
from simforcing.data.open import open_dataset
from simforcing.data.video import write_video
from simforcing.types import layout_named


def writer(root: Path, view: str = "front", *, overwrite: bool = False) -> LeRobotWriter:
    layout = layout_named("tabletop")
    return LeRobotWriter(
        root, fps=5.0, views={view: (16, 16)}, action_layout=layout, state_layout=layout, overwrite=overwrite
    )


@pytest.mark.parametrize("view", ["../out", "/abs", "a/b", "..", ""])
def test_a_view_name_that_is_no_plain_name_is_refused(tmp_path: Path, view: str):
    with pytest.raises(ValueError, match="view name"):
        writer(tmp_path / "set", view)
    assert list(tmp_path.iterdir()) == []


def test_overwrite_replaces_data_sets_alone(tmp_path: Path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match="no LeRobot set"):
        writer(tmp_path / "home", overwrite=True)
    assert (tmp_path / "home" / "thesis.txt").read_text() == "years of work"


def own_recording(root: Path, video: str) -> Path:
    (root / "annotation").mkdir(parents=True)
    poses = [[0.1, 0.0, 0.2, 0.0, 0.0, 0.0, 1.0]] * 8
    record = {"task": "push", "fps": 5, "action": poses, "state": poses, "video": video}
    (root / "annotation" / "0.json").write_text(json.dumps(record))
    return root


def test_a_record_that_names_a_video_outside_of_its_set_is_rejected(tmp_path: Path):
    frames = np.zeros((8, 16, 16, 3), np.uint8)
    write_video(tmp_path / "private.mp4", frames, 5)
    root = own_recording(tmp_path / "set", "../private.mp4")
    with pytest.raises(ValueError, match="outside of"):
        open_dataset(root, layout="tabletop")


@pytest.mark.parametrize("destination", [".", "..", "inner"])
def test_source_and_destination_must_not_contain_each_other(tmp_path: Path, destination: str):
    root = own_recording(tmp_path / "data" / "set", "videos/0.mp4")
    write_video(root / "videos" / "0.mp4", np.zeros((8, 16, 16, 3), np.uint8), 5)
    with pytest.raises(ValueError, match="contain each other"):
        convert(root, root / destination, layout="tabletop", overwrite=True, report=lambda line: None)
    assert (root / "videos" / "0.mp4").is_file()
