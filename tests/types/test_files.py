"""Files appear whole, whoever else writes them at the same time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simforcing.types.files import PARTIAL_SUFFIX, remove_half_written, whole_file


def test_processes_that_write_one_file_do_not_share_its_temporary_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "step_000000001.safetensors"
    with whole_file(path) as first:
        first.write_text("first")
        monkeypatch.setattr(os, "getpid", lambda: -1)
        with whole_file(path) as second:
            second.write_text("second")
        assert path.read_text() == "second"
        assert first.read_text() == "first"
        assert first in tmp_path.glob(f"step_*{PARTIAL_SUFFIX}")
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_process_that_ended_left_half_written_is_removed_and_what_a_running_one_writes_is_not(tmp_path: Path):
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    path = tmp_path / "video[1].mp4"
    kept = [f"{path.name}.{os.getpid()}.partial", f"other.mp4.{ended.pid}.partial", f"{path.name}.mine.partial"]
    for name in (*kept, f"{path.name}.{ended.pid}.partial", path.name):
        (tmp_path / name).write_text("half")
    remove_half_written(path)
    assert {item.name for item in tmp_path.iterdir()} == {*kept, path.name}
