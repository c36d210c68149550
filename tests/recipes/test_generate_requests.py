"""Videos of pictures and commands that somebody brings: what is made, what it is made of, what is refused and when."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from requesting import FEW_STEPS, item_of, quiet, request_of, written

from simforcing.data.open import open_dataset
from simforcing.data.video import ArrayFrames, VideoFrames
from simforcing.models.bundle import load_bundle
from simforcing.recipes import recipe_named
from simforcing.recipes.execute import execute
from simforcing.recipes.generate import generate
from simforcing.recipes.generated_folder import SETTINGS
from simforcing.recipes.requests import Asked, RequestFields
from simforcing.recipes.run import RunOptions
from simforcing.recipes.sampling import SamplingOptions
from simforcing.types import Episode, EpisodeSet, View


def test_a_picture_and_actions_become_a_video_as_long_as_the_actions(student: Path, files: Path, tmp_path: Path):
    spec = load_bundle(student).spec
    item = request_of(files)
    action = np.load(files / "moves0.npy")
    assert len(action) > spec.num_actions  # more than one window
    (path,) = generate(student, Asked(one=item), out=tmp_path / "out", options=FEW_STEPS, report=quiet)
    assert path.name == "real0-moves0.mp4"
    frames = VideoFrames(path)
    assert frames.num_frames == len(action) + 1
    given = np.asarray(Image.open(files / "real0.png")).astype(float)
    assert np.abs(frames.read(0, 1)[0] - given).mean() < 12  # the given frame as it is, but for the codec
    assert sorted(p.name for p in path.parent.iterdir()) == ["real0-moves0.mp4", "real0-moves0.sim.mp4", SETTINGS]
    settings = json.loads((path.parent / SETTINGS).read_text())
    assert settings["generated"] is True
    assert settings["videos"]["real0-moves0"]["seed"] == 0
    assert settings["sampler"]["num_steps"] == 2


def test_a_requests_file_says_what_single_calls_say(student: Path, files: Path, tmp_path: Path):
    inline = np.load(files / "moves1.npy").tolist()
    path = written(files, [item_of(0, name="a", task="move the square"), item_of(1, actions=inline, name="b")])
    asked = Asked(one=RequestFields(task="move the square"), requests=path)
    one_by_one = SamplingOptions(batch_size=1)
    many = generate(student, asked, out=tmp_path / "many", options=FEW_STEPS, sampling=one_by_one, report=quiet)
    lines = files / "requests.jsonl"
    lines.write_text("\n".join(map(json.dumps, json.loads(path.read_text()))) + "\n\n", encoding="utf-8-sig")
    again = replace(asked, requests=lines)
    other = generate(student, again, out=tmp_path / "lines", options=FEW_STEPS, sampling=one_by_one, report=quiet)
    assert [p.read_bytes() for p in many] == [p.read_bytes() for p in other]
    for index, video in enumerate(many):
        single = generate(
            student,
            Asked(one=request_of(files, index)),
            out=tmp_path / f"single{index}",
            options=replace(FEW_STEPS, seed=index),
            sampling=one_by_one,
            report=quiet,
        )[0]
        assert single.read_bytes() == video.read_bytes()


def test_a_missing_video_is_made_again_bit_for_bit_and_others_are_kept(student: Path, files: Path, tmp_path: Path):
    asked = Asked(requests=written(files, [item_of(i % 2, name=f"v{i}", seed=i) for i in range(3)]))

    def made() -> dict[str, bytes]:
        generate(student, asked, out=tmp_path / "out", options=FEW_STEPS, report=quiet)
        return {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.mp4")}

    first = made()
    (tmp_path / "out/v1.mp4").unlink()
    kept_ns = (tmp_path / "out/v0.mp4").stat().st_mtime_ns
    assert made() == first
    assert (tmp_path / "out/v0.mp4").stat().st_mtime_ns == kept_ns


def test_videos_of_other_inputs_or_settings_are_never_mixed(student: Path, files: Path, tmp_path: Path):
    asked, out = Asked(one=request_of(files, name="v")), tmp_path / "out"
    first = generate(student, asked, out=out, options=FEW_STEPS, report=quiet)[0].read_bytes()
    with pytest.raises(ValueError, match=r"of other settings: sampler\.sim_guidance was 0\.\d, is 0\.3"):
        generate(student, asked, out=out, options=FEW_STEPS, sampling=SamplingOptions(sim_guidance=0.3), report=quiet)
    other = Asked(one=request_of(files, name="v", actions=str(files / "moves1.npy")))
    with pytest.raises(ValueError, match=r"of other settings: v\.inputs was"):
        generate(student, other, out=out, options=FEW_STEPS, report=quiet)
    assert (out / "v.mp4").read_bytes() == first
    beside = Asked(one=request_of(files, name="w", actions=str(files / "moves1.npy")))
    generate(student, beside, out=out, options=FEW_STEPS, report=quiet)
    assert set(json.loads((out / SETTINGS).read_text())["videos"]) == {"v", "w"}
    assert generate(student, other, out=out, options=replace(FEW_STEPS, overwrite=True), report=quiet)
    assert (out / "v.mp4").read_bytes() != first


def test_overwriting_one_request_keeps_all_others_and_files_of_the_user(student: Path, files: Path, tmp_path: Path):
    out, over = tmp_path / "out", replace(FEW_STEPS, overwrite=True)
    for name in ("v", "w"):
        generate(student, Asked(one=request_of(files, name=name)), out=out, options=FEW_STEPS, report=quiet)
    for name in ("own.mp4", "own.compare.mp4"):
        (out / name).write_bytes(b"the user's")
    kept = (out / "w.mp4").read_bytes()
    other = Asked(one=request_of(files, name="v", actions=str(files / "moves1.npy")))
    generate(student, other, out=out, options=over, report=quiet)
    assert (out / "w.mp4").read_bytes() == kept
    assert set(json.loads((out / SETTINGS).read_text())["videos"]) == {"v", "w"}
    lines: list[str] = []
    generate(student, other, out=out, options=over, sampling=SamplingOptions(sim_guidance=0.3), report=lines.append)
    assert any(line.startswith("removed ") for line in lines)
    assert not (out / "w.mp4").exists()  # of other settings
    assert {path.name for path in out.glob("own*")} == {"own.mp4", "own.compare.mp4"}
    mine = Asked(one=request_of(files, name="own"))
    with pytest.raises(ValueError, match=r"own\.mp4 is not of this command"):
        generate(student, mine, out=out, options=FEW_STEPS, sampling=SamplingOptions(sim_guidance=0.3), report=quiet)


def test_every_bad_request_is_named_before_the_first_is_made(student: Path, files: Path, tmp_path: Path):
    bad = np.load(files / "moves1.npy")
    bad[2, 3] = np.nan
    np.save(files / "bad.npy", bad)
    Image.fromarray(np.zeros((32, 64, 3), np.uint8)).save(files / "wide.png")
    items = [
        item_of(0, name="good"),
        item_of(0, actions="bad.npy"),
        item_of(0, image="gone.png"),
        item_of(0, image="wide.png"),
        item_of(1, colour="blue"),
        item_of(1, actions={"fps": 30, "values": bad.tolist()}),
        item_of(1, sim_image=[]),
        item_of(1, state=[0.0] * 3),
        item_of(1, name="a/b"),
        "words",
    ]
    path = written(files, items)
    lines: list[str] = []
    with pytest.raises(ValueError, match=r"9 of 10 requests cannot be used, nothing was generated") as caught:
        generate(student, Asked(requests=path), out=tmp_path / "out", options=FEW_STEPS, report=lines.append)
    assert "\n" not in str(caught.value)
    expected = [
        r"row 2, column 3 (roll) is nan",
        "gone.png: no such file",
        "a picture of 32x64 (aspect 2); the model was trained on 32x32",
        "no field 'colour'; fields: image, actions",
        "actions come at 30 Hz; this model reads 5 Hz",
        "--sim-image; --segment to cut",
        "shape [1, 3]",
        "name 'a/b'",
        "expected an object, found str",
    ]
    assert len(lines) == len(expected)
    for number, (line, words) in enumerate(zip(lines, expected, strict=True), 1):
        assert f"request {number}" in line
        assert words in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"image": ()}, "no picture"),
        ({"actions": None}, "no actions"),
        ({"image": ("a.png", "b.png")}, "2 images; this model reads one of each view: real"),
        ({"sim_image": (), "segment": None}, "--sim-image; --segment .*; --camera .*; --sim-guidance 0"),
        ({"actions": "moves.txt"}, "ending '.txt' is unknown; choices: .npy, .csv, .json"),
    ],
)
def test_a_single_bad_request_is_one_line(
    changes: dict[str, Any], line: str, student: Path, files: Path, tmp_path: Path
):
    with pytest.raises(ValueError, match=line):
        generate(student, Asked(one=request_of(files, **changes)), out=tmp_path / "out", report=quiet)
    assert not (tmp_path / "out").exists()


def test_two_requests_of_one_name_and_options_that_exclude_each_other_are_refused(student: Path, files: Path):
    path = written(files, [item_of(0), item_of(0)])
    with pytest.raises(ValueError, match="requests 0 and 1 are both called 'real0-moves0'; give each a name"):
        generate(student, Asked(requests=path), out=files / "out", report=quiet)
    with pytest.raises(ValueError, match="--requests and --actions exclude each other"):
        Asked(one=request_of(files, image=()), requests=path)
    with pytest.raises(ValueError, match="--rollout and --max-clips are for episodes alone"):
        Asked(one=request_of(files), rollout=True)
    with pytest.raises(ValueError, match="give --out"):
        generate(student, Asked(one=request_of(files)), report=quiet)


@pytest.mark.parametrize(
    ("changes", "seeds", "message"),
    [({"name": "x" * 300}, 1, "at most 120"), ({"seed": 2**63 - 1}, 2, r"must be at least 0 and below 2\*\*63")],
)
def test_names_and_seeds_that_cannot_be_are_refused_before_a_folder_is_made(
    student: Path, files: Path, tmp_path: Path, changes: dict[str, Any], seeds: int, message: str
):
    asked = Asked(requests=written(files, [item_of(0, **changes)]))
    sampling = SamplingOptions(num_seeds=seeds)
    with pytest.raises(ValueError, match=message):
        generate(student, asked, out=tmp_path / "out", options=FEW_STEPS, sampling=sampling, report=quiet)
    assert not (tmp_path / "out").exists()


def test_pictures_and_commands_unlike_the_trainings_are_named_and_used(
    student: Path, files: Path, tmp_path: Path, rng: np.random.Generator
):
    Image.fromarray(rng.integers(0, 256, (32, 32, 3), np.uint8)).save(files / "noise.png")
    wild = np.load(files / "moves0.npy")
    wild[1, 0] = 0.95  # allowed by the layout, far from all squares
    path = written(files, [item_of(0, name="known"), item_of(0, image="noise.png", actions=wild.tolist(), name="odd")])
    lines: list[str] = []
    assert len(generate(student, Asked(requests=path), out=tmp_path / "o", options=FEW_STEPS, report=lines.append)) == 2
    warned = [line for line in lines if line.startswith("warning: ")]
    assert any("odd: view real is unlike the training's pictures" in line for line in warned)
    assert any("odd: action 1, translation[0] is 0.95 m; the training's lie about" in line for line in warned)
    assert not any("known" in line for line in warned)


def test_swapped_actions_and_further_seeds_are_videos_of_their_own(student: Path, files: Path, tmp_path: Path):
    asked = Asked(requests=written(files, [item_of(i, name=f"v{i}") for i in range(2)]))
    sampling = SamplingOptions(num_seeds=2, swap=True)
    paths = generate(student, asked, out=tmp_path / "out", options=FEW_STEPS, sampling=sampling, report=quiet)
    names = {path.name for path in paths}
    assert names == {f"v{i}{swap}{draw}.mp4" for i in range(2) for swap in ("", ".swapped") for draw in ("", ".draw1")}
    contents = [path.read_bytes() for path in paths]
    assert len(set(contents)) == len(contents)
    listed = json.loads((tmp_path / "out" / SETTINGS).read_text())["videos"]
    assert listed["v1"]["seed"] == listed["v1.swapped"]["seed"] != listed["v1.draw1"]["seed"]
    with pytest.raises(ValueError, match="at least two requests"):
        generate(student, Asked(one=request_of(files)), out=tmp_path / "o", sampling=sampling, report=quiet)


def test_another_aspect_is_brought_to_the_models_as_asked(student: Path, files: Path, tmp_path: Path):
    wide = np.repeat(np.asarray(Image.open(files / "real0.png")), 2, axis=1)
    Image.fromarray(wide).save(files / "wide.png")
    item = request_of(files, image=(str(files / "wide.png"),), name="v")
    videos = {
        policy: generate(
            student, Asked(one=item, resize=policy), out=tmp_path / policy, options=FEW_STEPS, report=quiet
        )[0]
        for policy in ("squash", "pad")
    }
    first = {policy: VideoFrames(path).read(0, 1)[0].astype(float) for policy, path in videos.items()}
    original = np.asarray(Image.open(files / "real0.png")).astype(float)
    assert np.abs(first["squash"] - original).mean() < 12
    assert first["pad"][:6].mean() < 12  # black bars


def test_every_view_needs_its_picture_and_gets_its_video(square_set: EpisodeSet, files: Path, tmp_path: Path):
    def filmed(episode: Episode) -> Episode:
        front = episode.views[0]
        dark = ArrayFrames(front.frames.read(0, episode.num_frames) // 8)
        return replace(episode, views=(front, View(name="wrist", frames=dark)))

    data = replace(square_set, episodes=tuple(map(filmed, square_set.episodes)), fingerprint="two-cameras")
    options = RunOptions(views=("front", "wrist"), num_steps=2, batch_size=2)
    execute(recipe_named("debug")(data, options), data, tmp_path / "run", report=quiet)
    Image.fromarray(np.asarray(Image.open(files / "real0.png")) // 8).save(files / "dark.png")
    front, wrist = str(files / "real0.png"), str(files / "dark.png")

    def made(images: tuple[str, ...], name: str, view: str | None = None) -> dict[str, bytes]:
        item = request_of(files, image=images, sim_image=(), name="v")
        how = replace(FEW_STEPS, view=view)
        out, root = tmp_path / name, tmp_path / f"{name}-set"
        generate(tmp_path / "run", Asked(one=item), out=out, lerobot=root, options=how, report=quiet)
        return {path.name: path.read_bytes() for path in out.glob("*.mp4")}

    in_order = made((front, wrist), "order")
    assert made((f"wrist={wrist}", f"front={front}"), "named") == in_order
    assert set(in_order) == {"v.mp4", "v.wrist.mp4"}
    other = made((front, wrist), "wrist", view="wrist")
    assert (other["v.mp4"], other["v.front.mp4"]) == (in_order["v.wrist.mp4"], in_order["v.mp4"])
    for name in ("order", "wrist"):
        (episode,) = open_dataset(tmp_path / f"{name}-set").episodes
        first = {view.name: view.frames.read(0, 1).mean() for view in episode.views}
        assert first["wrist"] < 0.5 * first["front"]
    with pytest.raises(ValueError, match=r"1 images; this model reads one of each view: front, wrist"):
        made((front,), "one")
