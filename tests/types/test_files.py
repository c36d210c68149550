"""Files appear whole, whoever else writes them at the same time."""

import os
from pathlib import Path

import pytest

from simforcing.types.files import PARTIAL_SUFFIX, whole_file


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
