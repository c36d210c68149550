"""How the simulation that a video follows is given, made or left out; what would change nothing is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from requesting import FEW_STEPS, item_of, quiet, request_of, written

from simforcing.data.video import VideoFrames, write_video
from simforcing.recipes.generate import generate
from simforcing.recipes.generated_folder import SETTINGS
from simforcing.recipes.requests import Asked, RequestFields, stored_requests
from simforcing.recipes.sampling import SamplingOptions
from simforcing.types import Camera, EpisodeSet
from simforcing.types.cameras import camera_to_json
from simforcing.types.files import write_json


def test_other_guidance_than_trained_warns_and_without_guidance_no_simulation_is_needed(
    student: Path, files: Path, tmp_path: Path
):
    lines: list[str] = []
    sampling = SamplingOptions(sim_guidance=1.5)
    asked = Asked(one=request_of(files))
    generate(student, asked, out=tmp_path / "much", options=FEW_STEPS, sampling=sampling, report=lines.append)
    assert any("warning: sim_guidance is 1.5; it is known to help within 0 .. 1" in line for line in lines)
    without = Asked(one=request_of(files, sim_image=(), state=None))
    sampling = SamplingOptions(sim_guidance=0.0)
    lines.clear()
    (path,) = generate(
        student, without, out=tmp_path / "off", options=FEW_STEPS, sampling=sampling, report=lines.append
    )
    assert not path.with_suffix(".sim.mp4").exists()
    assert any("give no state, which this model was trained to read" in line for line in lines)


def test_the_robot_is_cut_out_of_the_picture_where_it_is_shown_where_it_is(student: Path, files: Path, tmp_path: Path):
    sim = np.asarray(Image.open(files / "sim0.png")).astype(int)
    square = np.abs(sim - 128).max(axis=-1) > 20
    Image.fromarray(np.where(square, 255, 0).astype(np.uint8)).save(files / "mask.png")
    Image.fromarray(np.zeros((32, 32), np.uint8)).save(files / "none.png")
    cut = request_of(files, sim_image=(), segment=f"mask:{files / 'mask.png'}", background="grey", name="v")
    (path,) = generate(student, Asked(one=cut), out=tmp_path / "out", options=FEW_STEPS, report=quiet)
    first = VideoFrames(path.with_suffix(".sim.mp4")).read(0, 1)[0].astype(int)
    assert np.abs(first[~square] - 128).mean() < 8
    assert np.abs(first[square] - np.asarray(Image.open(files / "real0.png")).astype(int)[square]).mean() < 30
    none = replace(cut, segment=f"mask:{files / 'none.png'}")
    with pytest.raises(ValueError, match="no robot found"):
        generate(student, Asked(one=none), out=tmp_path / "none", options=FEW_STEPS, report=quiet)
    assert not (tmp_path / "none").exists()
    items = [item_of(0, sim_image=None, segment="mask:mask.png", background="grey", name="v")]
    asked = Asked(requests=written(files, items), one=RequestFields(task="move the square"))
    (same,) = generate(student, asked, out=tmp_path / "file", options=FEW_STEPS, report=quiet)
    assert same.read_bytes() == path.read_bytes()


WAYS_TO_SIMULATE = {
    "segment": "mask:mask.png",
    "background": "grey",
    "camera": ("camera.json",),
    "sim_video": ("sim.mp4",),
}


@pytest.mark.parametrize("way", WAYS_TO_SIMULATE)
def test_what_makes_a_simulation_is_refused_where_none_is_followed(way: str, student: Path, files: Path):
    camera = Camera(size=(32, 32), intrinsics=np.diag([100.0, 100.0, 1.0]), pose=np.eye(4))
    write_json(files / "camera.json", camera_to_json(camera))
    given = WAYS_TO_SIMULATE[way]
    placed = tuple(str(files / path) for path in given) if isinstance(given, tuple) else given
    item = request_of(files, sim_image=(), **{way: placed})
    off = SamplingOptions(sim_guidance=0.0)
    line = f"--{way.replace('_', '-')} makes a simulation, and none conditions this video; leave it out"
    with pytest.raises(ValueError, match=line):
        generate(student, Asked(one=item), out=files / "out", sampling=off, report=quiet)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"segment": "mask:m.png"}),
        ({}, {"background": "grey"}),
        ({}, {"sim_video": ("sim.mp4",)}),
        ({"sim_image": ()}, {"segment": "mask:m.png", "sim_video": ("sim.mp4",)}),
    ],
)
def test_two_ways_to_one_simulation_exclude_each_other(
    first: dict[str, Any], second: dict[str, Any], student: Path, files: Path
):
    item = request_of(files, **first, **second)
    with pytest.raises(ValueError, match="exclude each other: give one of them"):
        generate(student, Asked(one=item), out=files / "out", report=quiet)


def test_a_camera_beside_a_segmenter_is_refused_and_one_of_each_view_is_read(student: Path, files: Path):
    camera = Camera(size=(32, 32), intrinsics=np.diag([100.0, 100.0, 1.0]), pose=np.eye(4))
    write_json(files / "camera.json", camera_to_json(camera))
    path = str(files / "camera.json")
    both = request_of(files, sim_image=(), segment="mask:m.png", camera=(path,))
    with pytest.raises(ValueError, match="--camera and --segment exclude each other"):
        generate(student, Asked(one=both), out=files / "out", report=quiet)
    two = request_of(files, sim_image=(), camera=(path, path))
    with pytest.raises(ValueError, match="2 cameras; this model reads one of each view: real"):
        generate(student, Asked(one=two), out=files / "out", report=quiet)
    write_json(files / "wide.json", camera_to_json(replace(camera, size=(32, 64))))
    wide = request_of(files, sim_image=(), camera=(str(files / "wide.json"),))
    with pytest.raises(ValueError, match=r"wide\.json: the camera .*32x64.* another aspect than its picture's 32x32"):
        generate(student, Asked(one=wide), out=files / "out", report=quiet)
    lines: list[str] = []
    items = [item_of(0, sim_image=[], camera={"real": "camera.json"}), item_of(0, sim_image=[], camera={"x": "c"})]
    with pytest.raises(ValueError, match="2 of 2"):
        generate(student, Asked(requests=written(files, items)), out=files / "out", report=lines.append)
    assert "background" in lines[0]  # the camera was read; the squares' run knows no background to render before
    assert "x=" in lines[1] or "1 cameras" in lines[1] or "no such file" in lines[1]


def test_a_requests_own_way_to_its_simulation_replaces_the_commands(files: Path):
    path = written(files, [item_of(0), item_of(1, sim_image=[])])
    asked = Asked(one=RequestFields(segment="mask:m.png", background="grey"), requests=path)
    (_, own), (_, common) = stored_requests(asked)
    assert isinstance(own, RequestFields)
    assert isinstance(common, RequestFields)
    assert (own.sim_image, own.segment, own.background) == ((str(files / "sim0.png"),), None, None)
    assert (common.sim_image, common.segment, common.background) == ((), "mask:m.png", "grey")


def rendering(square_pairs: EpisodeSet, index: int, num_frames: int, path: Path) -> str:
    """The squares' own simulation as a file."""
    episode = square_pairs.episodes[index]
    write_video(path, episode.view("sim").frames.read(0, num_frames), episode.fps)
    return str(path)


def test_a_given_rendering_is_followed_in_place_of_the_models_own(
    student: Path, files: Path, square_pairs: EpisodeSet, tmp_path: Path
):
    count = len(np.load(files / "moves0.npy")) + 1
    mine = rendering(square_pairs, 0, count, files / "mine.mp4")
    other = rendering(square_pairs, 1, count, files / "other.mp4")
    given, own = request_of(files, sim_image=(), sim_video=(mine,), name="v"), request_of(files, name="v")
    follow = SamplingOptions(sim_guidance=1.0)

    def made(asked: Asked, name: str, **options: Any) -> Path:
        how = replace(FEW_STEPS, **options)
        (path,) = generate(student, asked, out=tmp_path / name, options=how, sampling=follow, report=quiet)
        return path

    path = made(Asked(one=given), "given")
    assert VideoFrames(path).num_frames == count
    assert not path.with_suffix(".sim.mp4").exists()
    assert json.loads((path.parent / SETTINGS).read_text())["sampler"]["sim_source"] == "true"
    assert path.read_bytes() != made(Asked(one=own), "own").read_bytes()
    changed = Asked(one=replace(given, sim_video=(other,)))
    with pytest.raises(ValueError, match=r"of other settings: v\.inputs was"):
        made(changed, "given")
    assert made(changed, "given", overwrite=True).read_bytes() != made(Asked(one=given), "again").read_bytes()
    items = [item_of(0, sim_image=[], sim_video="mine.mp4", name="v", task="move the square")]
    assert made(Asked(requests=written(files, items)), "file").read_bytes() == (tmp_path / "again/v.mp4").read_bytes()


def test_a_rendering_that_does_not_fit_is_refused_before_any_work(
    student: Path, files: Path, square_pairs: EpisodeSet, rng: np.random.Generator
):
    count = len(np.load(files / "moves0.npy")) + 1
    fitting = rendering(square_pairs, 0, count, files / "fits.mp4")
    write_video(files / "wide.mp4", rng.integers(0, 256, (count, 32, 64, 3), np.uint8), 5.0)
    short = rendering(square_pairs, 0, count - 1, files / "short.mp4")
    lines = {
        short: rf"short\.mp4: a sim video of {count - 1} frames; {count - 1} actions lead to {count}, the first",
        str(files / "wide.mp4"): r"wide\.mp4: a sim video of 32x64; the model was trained on 32x32: another aspect",
        str(files / "gone.mp4"): r"gone\.mp4",
    }
    for path, line in lines.items():
        item = request_of(files, sim_image=(), sim_video=(path,))
        with pytest.raises(ValueError, match=line):
            generate(student, Asked(one=item), out=files / "out", report=quiet)
    own = SamplingOptions(sim_source="self")
    item = request_of(files, sim_image=(), sim_video=(fitting,))
    with pytest.raises(ValueError, match="--sim-source self asks for the model's own; leave out one"):
        generate(student, Asked(one=item), out=files / "out", sampling=own, report=quiet)
    items = [item_of(0, sim_image=[], sim_video="fits.mp4", name="a"), item_of(0, name="b")]
    with pytest.raises(ValueError, match=r"1 of 2 .*\(b\): --sim-source true needs"):
        generate(student, Asked(requests=written(files, items)), out=files / "out", report=quiet)
    assert not (files / "out").exists()
