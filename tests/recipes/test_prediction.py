"""Using a finished run: which camera, which episodes, and videos that were made with other settings."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simforcing.data.open import open_dataset
from simforcing.data.video import ArrayFrames, VideoFrames
from simforcing.models.bundle import load_bundle
from simforcing.recipes import recipe_named
from simforcing.recipes.doctor import agreement_checks
from simforcing.recipes.evaluate import evaluate_run
from simforcing.recipes.execute import execute
from simforcing.recipes.generate import generate
from simforcing.recipes.generated_folder import SETTINGS
from simforcing.recipes.prediction import PredictionOptions, open_for, ready_to_predict
from simforcing.recipes.requests import Asked
from simforcing.recipes.run import RunOptions
from simforcing.types import EpisodeSet, View


def quiet(line: str) -> None:
    """Reports go nowhere."""


@pytest.fixture(scope="module")
def two_cameras(square_set: EpisodeSet) -> EpisodeSet:
    """The square as seen by a front camera and by a dark wrist camera, which one episode lacks."""

    def filmed(index: int):
        episode = square_set.episodes[index]
        front = episode.views[0]
        dark = ArrayFrames(front.frames.read(0, episode.num_frames) // 8)
        views = (front,) if index == 1 else (front, View(name="wrist", frames=dark))
        return replace(episode, views=views)

    episodes = tuple(filmed(i) for i in range(len(square_set.episodes)))
    return replace(square_set, episodes=episodes, fingerprint="two-cameras")


@pytest.fixture
def run_of_two(two_cameras: EpisodeSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that reads both cameras; its data set opens as another one, so that all episodes count as held out."""
    options = RunOptions(views=("front", "wrist"), num_steps=2, batch_size=2)
    execute(recipe_named("debug")(two_cameras, options), two_cameras, tmp_path / "run", report=quiet)
    other = replace(two_cameras, root=str(tmp_path / "squares"), fingerprint="another")
    monkeypatch.setattr("simforcing.recipes.prediction.open_dataset", lambda source, cameras=None: other)
    return tmp_path / "run"


def test_the_view_that_is_asked_for_is_generated(run_of_two: Path, tmp_path: Path):
    brightness = {}
    for view in (None, "front", "wrist"):
        out = tmp_path / f"videos {view}"
        paths = generate(run_of_two, out=out, options=PredictionOptions(data="another", view=view), report=quiet)
        brightness[view] = VideoFrames(paths[0]).read(0, 1).mean()
        assert len(paths) == (4 if view == "wrist" else 5)  # one episode was not filmed by it
    assert brightness[None] == brightness["front"]
    assert brightness["wrist"] < 0.5 * brightness["front"]


def test_the_view_that_is_asked_for_is_scored(run_of_two: Path, tmp_path: Path):
    results = {
        view: evaluate_run(
            run_of_two, out=tmp_path / view, options=PredictionOptions(data="another", view=view), report=quiet
        ).result
        for view in ("front", "wrist")
    }
    assert len(results["wrist"].clips) == len(results["front"].clips) - 1
    pictures = {
        view: np.mean([example.truth.mean() for example in result.examples]) for view, result in results.items()
    }
    assert pictures["wrist"] < 0.5 * pictures["front"]
    assert "view wrist" in (tmp_path / "wrist/report.html").read_text()


def test_a_view_that_the_run_does_not_read_is_refused_with_the_choices(run_of_two: Path):
    with pytest.raises(ValueError, match="no view 'ceiling'; views: front, wrist"):
        ready_to_predict(run_of_two, PredictionOptions(view="ceiling"), quiet)


def test_a_run_of_one_camera_finds_its_held_out_episodes_again(tabletop_root: Path, tmp_path: Path):
    for cameras in (None, ("front",)):
        data = open_dataset(tabletop_root / "episodes", cameras=cameras)
        out = tmp_path / str(cameras)
        options = RunOptions(held_out=2, num_steps=1, batch_size=1)
        execute(recipe_named("debug")(data, options), data, out, report=quiet)
        assert len(ready_to_predict(out, PredictionOptions(), quiet).held_out) == 2


def test_videos_of_other_settings_are_never_passed_off_as_these(debug_run: Path, tmp_path: Path):
    def made(**options: object) -> list[Path]:
        return generate(debug_run, out=tmp_path, options=PredictionOptions(**options), report=quiet)

    first = made()[0].read_bytes()
    with pytest.raises(ValueError, match=r"videos of other settings: seed was 0, is 1; choose another --out, or --ov"):
        made(seed=1)
    with pytest.raises(ValueError, match=r"sampler\.num_steps was 4, is 2"):
        made(num_steps=2)
    own = tmp_path / "own-00000.compare.mp4"
    own.write_bytes(b"of somebody else")
    changed = made(seed=1, overwrite=True)[0].read_bytes()
    assert changed != first
    assert own.exists()  # what no call has listed is not ours to remove
    assert json.loads((tmp_path / SETTINGS).read_text())["seed"] == 1
    (tmp_path / SETTINGS).unlink()
    with pytest.raises(ValueError, match="is there already and not of this command"):
        made(seed=1)


def test_a_clips_seed_does_not_depend_on_what_else_is_asked_for(debug_run: Path, tmp_path: Path):
    paths = generate(debug_run, out=tmp_path / "all", report=quiet)
    name = paths[-1].stem.rsplit("-", 1)[0]
    alone = generate(debug_run, Asked(episodes=(name,)), out=tmp_path / "one", report=quiet)[-1]
    assert alone.read_bytes() == paths[-1].read_bytes()


def test_one_episode_of_another_rate_fails_the_check(debug_run: Path):
    ready = ready_to_predict(debug_run, PredictionOptions(), quiet)
    first, *others = ready.data.episodes
    mixed = replace(ready.data, episodes=(first, *others[:-1], replace(others[-1], fps=30.0)))
    checks = {check.name: check for check in agreement_checks(ready.bundle, mixed)}
    assert checks["fps"].passed is False
    assert "data has 30" in checks["fps"].detail


def test_data_that_changed_since_training_has_no_held_out_episodes(
    debug_run: Path, tabletop_root: Path, tmp_path: Path
):
    bundle = load_bundle(debug_run)
    changed = tmp_path / "episodes"
    shutil.copytree(tabletop_root / "episodes", changed)
    declared = changed / "meta" / "simforcing.json"
    declared.write_text(declared.read_text() + " ")
    moved = replace(bundle, about={**bundle.about, "data": str(changed)})
    with pytest.raises(ValueError, match="has changed since the run was trained"):
        open_for(moved, None)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_an_evaluation_that_was_cut_short_is_started_again(
    run_of_two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    options = PredictionOptions(data="another")

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for name in ("write_report", "contact_sheet", "write_record"):
        with monkeypatch.context() as patched:
            patched.setattr(f"simforcing.recipes.evaluate.{name}", killed)
            with pytest.raises(KeyboardInterrupt):
                evaluate_run(run_of_two, options=options, report=quiet)
        assert not (run_of_two / "evaluation/results.json").exists()
    evaluate_run(run_of_two, options=options, report=quiet)
    assert set(snapshot(run_of_two / "evaluation")) == {"report.html", "contact_sheet.png", "results.json"}
    with pytest.raises(ValueError, match="holds an evaluation already"):
        evaluate_run(run_of_two, options=options, report=quiet)


@pytest.mark.parametrize("name", ["report.html", "contact_sheet.png"])
def test_files_of_somebody_else_are_no_evaluation(run_of_two: Path, tmp_path: Path, name: str):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / name).write_text("mine")
    lines: list[str] = []
    with pytest.raises(ValueError, match=f"site/{name} is there already"):
        evaluate_run(run_of_two, out=tmp_path / "site", options=PredictionOptions(data="another"), report=lines.append)
    assert snapshot(tmp_path / "site") == {name: b"mine"}
    assert lines == []


def first_video(run: Path, tmp_path: Path, **options: bool) -> Path:
    how = PredictionOptions(data="another", **options)
    return generate(run, Asked(max_clips=1), out=tmp_path / "videos", options=how, report=quiet)[0]


def test_an_empty_video_is_made_again(run_of_two: Path, tmp_path: Path):
    video = first_video(run_of_two, tmp_path)
    content = video.read_bytes()
    video.write_bytes(b"")
    first_video(run_of_two, tmp_path)
    assert video.read_bytes() == content


def test_files_of_somebody_else_are_no_videos_of_ours(run_of_two: Path, tmp_path: Path):
    video = first_video(run_of_two, tmp_path)
    settings = video.with_name(SETTINGS)
    settings.write_text('{"colour": "blue"}')
    with pytest.raises(ValueError, match=r"settings\.json: expected an object with field 'model_sha256'"):
        first_video(run_of_two, tmp_path)
    settings.write_text("[]")
    with pytest.raises(ValueError, match=r"settings\.json: expected an object .*, found list"):
        first_video(run_of_two, tmp_path)
    settings.unlink()
    video.with_suffix(".compare.mp4").unlink()
    with pytest.raises(ValueError, match=r"\.mp4 is there already"):
        first_video(run_of_two, tmp_path)
    (video.with_name("holiday.compare.mp4")).write_text("mine")
    first_video(run_of_two, tmp_path, overwrite=True)
    assert video.with_name("holiday.compare.mp4").read_text() == "mine"


def test_what_is_in_the_way_is_said_before_any_work(run_of_two: Path, tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    lines: list[str] = []
    options = PredictionOptions(data="another", overwrite=True)
    for call in (evaluate_run, generate):
        with pytest.raises(ValueError, match="file is not a folder"):
            call(run_of_two, out=tmp_path / "file", options=options, report=lines.append)
    assert lines == []


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_seeds_out_of_range_are_refused(seed: int):
    for options in (PredictionOptions, RunOptions):
        with pytest.raises(ValueError, match=f"seed is {seed}; it must be"):
            options(seed=seed)
        options(seed=2**63 - 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda about: about.pop("run"), "about.run.sampler is missing"),
        (lambda about: about["run"]["sampler"].update(num_steps="ten"), "about.run.sampler.num_steps: expected int"),
        (lambda about: about["run"]["sampler"].update(num_steps=0), "about.run.sampler: "),
        (lambda about: about["run"].update(sampler=3), "about.run.sampler: expected a SamplerConfig object, found 3"),
    ],
)
def test_a_damaged_sampler_is_named_with_its_file(run_of_two: Path, change, message: str):
    path = run_of_two / "config.json"
    config = json.loads(path.read_text())
    change(config["about"])
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=re.escape(f"{path}: {message}")):
        ready_to_predict(run_of_two, PredictionOptions(data="another"), quiet)
