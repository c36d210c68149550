"""The environment report: real codecs, a real render, and failures that end as one line."""

import sys
from pathlib import Path

import pytest

from simforcing.evaluation import environment
from simforcing.evaluation.environment import codec_check, disk_check, environment_checks, extra_check, gl_check


def test_every_line_of_the_report_is_there_and_nothing_raises(tmp_path: Path) -> None:
    checks = {check.name: check for check in environment_checks(tmp_path)}
    assert {"python", "torch", "devices", "gl", "h264", "av1", "disk", "extra sim"} <= set(checks)
    assert checks["python"].passed
    assert checks["torch"].passed
    assert "threads" in checks["torch"].detail


@pytest.mark.parametrize("codec", ["h264", "av1"])
def test_both_codecs_come_back(codec) -> None:
    check = codec_check(codec)
    assert check.passed, check.detail


def test_a_renderer_that_crashes_is_a_failed_check_with_the_line_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mujoco", reason="the renderer is optional")
    monkeypatch.setattr(environment, "RENDER_PROGRAM", "import os; os.abort()")
    check = gl_check()
    assert check.passed is False
    assert "apt-get install" in check.detail


def test_a_renderer_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mujoco", reason="the renderer is optional")
    monkeypatch.setattr(environment, "RENDER_PROGRAM", "import time; time.sleep(60)")
    assert gl_check(timeout_s=0.5).value == "timeout"


def test_disk_space_is_told_for_a_folder_that_does_not_exist_yet(tmp_path: Path) -> None:
    check = disk_check(tmp_path / "a" / "b")
    assert str(check.value).endswith(" GB")
    assert str(tmp_path) in check.detail


def test_a_missing_extra_says_what_to_install_and_fails_nothing() -> None:
    check = extra_check("sim", ("no_such_module_at_all",))
    assert check.passed is None
    assert "pip install 'simforcing[sim]'" in check.detail


def test_a_broken_codec_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "simforcing.data.video", None)
    check = codec_check("h264")
    assert check.passed is False
    assert "\n" not in check.detail
