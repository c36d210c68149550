"""What is in the way is named before any work, and nothing is left behind by looking."""

from pathlib import Path

import pytest

from simforcing.recipes.output import require_absent, require_writable


def test_what_is_in_the_way_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for out, place in (("file", "file"), ("file/run", "file"), ("link", "link"), ("link/run", "link")):
        with pytest.raises(ValueError, match=rf"{out} cannot be written to: {tmp_path / place} is "):
            require_writable(tmp_path / out)


def test_a_place_that_takes_no_files_is_named():
    if not Path("/proc").is_dir():
        pytest.skip("no /proc here")
    with pytest.raises(ValueError, match="/proc/run cannot be written to: /proc: "):
        require_writable(Path("/proc/run"))


def test_looking_leaves_nothing_behind(tmp_path: Path):
    require_writable(tmp_path / "a/b")
    require_writable(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_would_be_replaced_is_named(tmp_path: Path):
    require_absent([tmp_path / "a", tmp_path / "b"])
    (tmp_path / "b").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="b is there already"):
        require_absent([tmp_path / "a", tmp_path / "b"])
