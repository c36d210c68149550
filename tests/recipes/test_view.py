"""The page shows what the set holds, needs no other file or address, and never replaces one silently."""

import base64
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from simforcing.data.open import open_dataset
from simforcing.data.pair_streams import RECORD_NAME, variants_root
from simforcing.data.video import VideoFrames
from simforcing.recipes.simulate import SimulateOptions, simulate
from simforcing.recipes.view import GAP_PX, PANEL_PX, choose, overlay, thinned, view


@pytest.fixture(scope="module")
def paired(tabletop_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("viewed") / "set"
    options = SimulateOptions(variants=2)
    simulate(str(tabletop_root / "episodes"), root, options, processes=1, report=lambda line: None)
    return root


def page_of(data: Path, out: Path, **options: object) -> str:
    view(str(data), out=out, report=lambda line: None, **options)
    return out.read_text()


def videos(page: str, folder: Path) -> list[VideoFrames]:
    """The page's videos, as files."""
    found = []
    for index, text in enumerate(re.findall(r'src="data:video/mp4;base64,([^"]+)"', page)):
        (folder / f"{index}.mp4").write_bytes(base64.b64decode(text))
        found.append(VideoFrames(folder / f"{index}.mp4"))
    return found


def test_a_pairs_page_shows_real_sim_overlay_and_variants_of_the_chosen_episodes(paired: Path, tmp_path: Path) -> None:
    page = page_of(paired, tmp_path / "page.html", episodes=("1", "episode_000004"))
    data = open_dataset(paired)
    tasks = [data.episodes[i].task for i in (1, 4)]
    assert re.findall(r"<header><b>(.*?)</b>", page) == tasks
    assert (
        re.findall(r'<div class="[^"]*"><b>(.*?)</b> <span>', page)
        == ["real", "sim", "overlay", "variant 1", "variant 2"] * 2
    )
    assert page.count("cm off") == 4
    assert "replayed from joints, off by at most <i>less than 0.01 mm" in page
    shown = videos(page, tmp_path)
    frames = data.episodes[1].num_frames
    assert [video.num_frames for video in shown] == [frames] * 4
    height, width = shown[0].size
    side = height
    assert abs(side - PANEL_PX) <= 16
    assert width == 3 * side + 2 * GAP_PX
    first = shown[0].read(0, 1)[0].astype(float)
    factor = side // 32
    small = first[:, :side].reshape(32, factor, 32, factor, 3).mean(axis=(1, 3))
    assert np.abs(small - data.episodes[1].view("real").frames.read(0, 1)[0]).mean() < 6


def test_the_page_needs_nothing_else(paired: Path, tmp_path: Path) -> None:
    page = page_of(paired, tmp_path / "page.html", episodes=("0",))
    assert not re.search(r"https?://", page)
    assert set(re.findall(r'src="(.{5})', page)) == {"data:"}


def test_variants_of_another_simulation_are_not_shown(paired: Path, tmp_path: Path) -> None:
    root = tmp_path / "set"
    shutil.copytree(paired, root)
    shutil.copytree(variants_root(paired), variants_root(root))
    record = variants_root(root) / "meta" / RECORD_NAME
    record.write_text(record.read_text().replace('"job": "', '"job": "0'))
    lines: list[str] = []
    view(str(root), out=tmp_path / "page.html", episodes=("1",), report=lines.append)
    assert "variant 1" not in (tmp_path / "page.html").read_text()
    assert [line for line in lines if "these are no variants of" in line and line.startswith(str(variants_root(root)))]


def test_any_readable_set_is_shown_by_its_views(tabletop_root: Path, tmp_path: Path) -> None:
    page = page_of(tabletop_root / "episodes", tmp_path / "plain.html")
    assert page.count("<article>") == 6
    assert "overlay" not in re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)


def test_names_and_texts_of_a_set_are_text_on_the_page(paired: Path, tmp_path: Path) -> None:
    root = tmp_path / "<b>set"
    shutil.copytree(paired, root)
    assert "<b>set" not in page_of(root, tmp_path / "page.html", episodes=("0",)).replace(str(root), "")


def test_unknown_episodes_and_files_in_the_way_are_refused(paired: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no episode '9'; 0\.\.5, or by name: episode_000000"):
        page_of(paired, tmp_path / "page.html", episodes=("9",))
    (tmp_path / "page.html").write_text("mine")
    with pytest.raises(ValueError, match="exists; choose another name, or --overwrite"):
        page_of(paired, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == "mine"


def test_what_is_no_regular_file_is_never_replaced(paired: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to(tmp_path / "absent")
    for name, said in (("pipe", "no regular file"), ("dangling", "no regular file"), ("", "a folder")):
        before = {path.name for path in tmp_path.iterdir()}
        with pytest.raises(ValueError, match=f"{said}; choose another name"):
            page_of(tmp_path / "no set at all", tmp_path / name, overwrite=True)  # said before anything is read
        assert {path.name for path in tmp_path.iterdir()} == before
    assert (tmp_path / "pipe").is_fifo()
    with pytest.raises(ValueError, match="give them two names"):
        page_of(paired, tmp_path / "page.html", rerun=tmp_path / "page.html")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((name, None) for name in ("rejected_proposals", "left_out", "source", "perturbation", "version", "seed")),
        ("background", 5),
        ("cameras", {}),
        ("variants", "two"),
        ("episodes", {"episode_000000": 3}),
        ("episodes", {"episode_000000": {"position_error_m": "much"}}),
    ],
)
def test_a_record_without_what_is_shown_is_one_line_naming_file_and_field(
    field: str, value: object, paired: Path, tmp_path: Path
) -> None:
    root = tmp_path / "set"
    shutil.copytree(paired, root)
    path = root / "meta" / RECORD_NAME
    record = json.loads(path.read_text())
    path.write_text(json.dumps({key: one for key, one in record.items() if key != field or value is not None}))
    if value is not None:
        path.write_text(json.dumps(record | {field: value}))
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))}: field {field}"):
        page_of(root, tmp_path / "page.html", episodes=("0",))
    assert not (tmp_path / "page.html").exists()


def test_a_few_episodes_and_frames_stand_for_many(paired: Path) -> None:
    data = open_dataset(paired)
    assert choose(data, ()) == list(data.episodes)
    assert thinned(100) == list(range(100))
    assert len(thinned(1000)) <= 150
    assert thinned(1000)[0] == 0


def test_the_overlay_tints_the_mask_draws_its_outline_and_leaves_the_rest() -> None:
    real, mask = np.full((1, 400, 400, 3), 100, np.uint8), np.zeros((1, 400, 400), bool)
    mask[0, 100:200, 100:200] = True
    shown = overlay(real, mask)[0]
    assert (shown[50, 50] == 100).all()
    assert (shown[150, 150] != 100).any()
    assert shown[150, 150, 0] > shown[150, 201, 0]  # the outline is the tint itself
    changed = (shown != 100).any(axis=-1)
    assert changed[95:205, 95:205].sum() == changed.sum()


def test_a_recording_without_a_pair_or_without_rerun_is_refused(
    tabletop_root: Path, paired: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="no paired set, nothing to show in 3D"):
        page_of(tabletop_root / "episodes", tmp_path / "a.html", rerun=tmp_path / "a.rrd")
    try:
        import rerun  # noqa: F401
    except ModuleNotFoundError:
        with pytest.raises(ModuleNotFoundError, match="rerun"):
            page_of(paired, tmp_path / "b.html", rerun=tmp_path / "b.rrd")


def test_a_recording_is_written(paired: Path, tmp_path: Path) -> None:
    pytest.importorskip("rerun", reason="rerun-sdk is not installed (extra view)")
    page_of(paired, tmp_path / "page.html", rerun=tmp_path / "set.rrd", episodes=("0",))
    assert (tmp_path / "set.rrd").stat().st_size > 50_000
