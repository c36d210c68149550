"""Videos of pictures and commands that somebody brings: what is made, what it is made of, what is refused and when."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from simforcing.data.open import open_dataset
from simforcing.data.video import ArrayFrames, VideoFrames
from simforcing.models.bundle import load_bundle
from simforcing.recipes import recipe_named
from simforcing.recipes.execute import execute
from simforcing.recipes.generate import SamplingOptions, generate
from simforcing.recipes.generated_folder import SETTINGS
from simforcing.recipes.prediction import PredictionOptions
from simforcing.recipes.requests import Asked, RequestFields
from simforcing.recipes.run import RunOptions
from simforcing.recipes.train import train_on
from simforcing.types import Episode, EpisodeSet, View

FEW_STEPS = PredictionOptions(num_steps=2)


def quiet(line: str) -> None:
    """Nobody reads it."""


@pytest.fixture(scope="module")
def student(planned_run, square_pairs: EpisodeSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished student of the squares."""
    out = tmp_path_factory.mktemp("student") / "run"
    execute(planned_run("student"), square_pairs, out, report=quiet)
    return out


@pytest.fixture
def files(square_pairs: EpisodeSet, tmp_path: Path) -> Path:
    """Two squares' first frames, simulations, commands and states as files."""
    folder = tmp_path / "files"
    folder.mkdir()
    for index, episode in enumerate(square_pairs.episodes[:2]):
        for view in ("real", "sim"):
            Image.fromarray(episode.view(view).frames.read(0, 1)[0]).save(folder / f"{view}{index}.png")
        np.save(folder / f"moves{index}.npy", episode.action[: episode.num_frames - 1])
        assert episode.state is not None
        (folder / f"state{index}.json").write_text(json.dumps(episode.state[0].tolist()))
    return folder


def request_of(files: Path, index: int = 0, **changes: Any) -> RequestFields:
    item = RequestFields(
        image=(str(files / f"real{index}.png"),),
        actions=str(files / f"moves{index}.npy"),
        state=str(files / f"state{index}.json"),
        sim_image=(str(files / f"sim{index}.png"),),
        task="move the square",
    )
    return replace(item, **changes)


def written(files: Path, items: list[dict[str, Any]]) -> Path:
    """A requests file of them, with relative paths."""
    path = files / "requests.json"
    path.write_text(json.dumps(items))
    return path


def item_of(index: int, **changes: Any) -> dict[str, Any]:
    return {
        "image": f"real{index}.png",
        "actions": f"moves{index}.npy",
        "state": f"state{index}.json",
        "sim_image": f"sim{index}.png",
    } | changes


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
    lines.write_text("\n".join(map(json.dumps, json.loads(path.read_text()))) + "\n\n")
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
    assert not (out / "w.mp4").exists()


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


def test_other_guidance_than_trained_warns_and_without_guidance_no_simulation_is_needed(
    student: Path, files: Path, tmp_path: Path
):
    lines: list[str] = []
    sampling = SamplingOptions(sim_guidance=1.5)
    asked = Asked(one=request_of(files))
    generate(student, asked, out=tmp_path / "much", options=FEW_STEPS, sampling=sampling, report=lines.append)
    assert any("warning: sim guidance 1.5 is above 1" in line for line in lines)
    without = Asked(one=request_of(files, sim_image=(), state=None))
    sampling = SamplingOptions(sim_guidance=0.0)
    lines.clear()
    (path,) = generate(
        student, without, out=tmp_path / "off", options=FEW_STEPS, sampling=sampling, report=lines.append
    )
    assert not path.with_suffix(".sim.mp4").exists()
    assert any("give no state, which this model was trained to read" in line for line in lines)


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


@pytest.fixture
def made_set(student: Path, files: Path, tmp_path: Path) -> Callable[..., Path]:
    """-> the LeRobot set of two videos."""

    def make(**options: Any) -> Path:
        asked = Asked(requests=written(files, [item_of(i, name=f"v{i}", task="move it") for i in range(2)]))
        root = tmp_path / "set"
        generate(
            student,
            asked,
            out=tmp_path / "out",
            lerobot=root,
            options=replace(FEW_STEPS, **options),
            report=quiet,
        )
        return root

    return make


def test_a_lerobot_set_holds_videos_commands_and_carried_states_and_says_that_it_is_generated(
    made_set: Callable[..., Path], student: Path, files: Path, tmp_path: Path
):
    data = open_dataset(made_set())
    spec = load_bundle(student).spec
    assert (data.action_layout, data.robot) == (spec.action.layout, spec.robot)
    assert [episode.name for episode in data.episodes] == ["v0", "v1"]
    for index, episode in enumerate(data.episodes):
        action = np.load(files / f"moves{index}.npy")
        np.testing.assert_array_equal(episode.action[: len(action)], action)
        assert (episode.task, episode.fps) == ("move it", spec.fps)
        assert episode.state is not None
        np.testing.assert_allclose(episode.state[0], json.loads((files / f"state{index}.json").read_text()), rtol=1e-6)
        np.testing.assert_allclose(episode.state[1 : len(action) + 1], action, atol=1e-6)  # targets in force
        video = VideoFrames(tmp_path / f"out/v{index}.mp4")
        stored = episode.view("real").frames.read(0, episode.num_frames)
        np.testing.assert_array_equal(stored, video.read(0, video.num_frames))
    record = json.loads((tmp_path / "set/meta/generated.json").read_text())
    settings = json.loads((tmp_path / "out" / SETTINGS).read_text())
    assert record["generated"] is True
    assert record["model_sha256"] == settings["model_sha256"]
    assert record["videos"]["v1"]["seed"] == 1


def test_a_lerobot_set_trains_a_model_as_it_is(made_set: Callable[..., Path], tmp_path: Path):
    options = RunOptions(num_steps=2, batch_size=2, held_out=1)
    train_on(str(made_set()), tmp_path / "trained", recipe="debug", options=options, report=quiet)
    assert load_bundle(tmp_path / "trained").spec.views == ("real",)


def test_a_set_that_is_there_is_kept_and_another_is_refused_before_any_work(
    made_set: Callable[..., Path], tmp_path: Path
):
    root = made_set()
    written_ns = (root / "meta/info.json").stat().st_mtime_ns
    assert made_set() == root
    assert (root / "meta/info.json").stat().st_mtime_ns == written_ns
    (root / "meta/generated.json").unlink()
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(ValueError, match="set exists and holds other data; choose another --lerobot, or --overwrite"):
        made_set()
    assert not (tmp_path / "out").exists()
    made_set(overwrite=True)
    assert (root / "meta/generated.json").is_file()
