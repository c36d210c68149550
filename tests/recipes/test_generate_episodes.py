"""Episodes as requests: rolled out whole, other pictures under their commands, other commands from their pictures."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from simforcing.data.clips import Clips
from simforcing.data.lerobot_format import number_names
from simforcing.data.open import open_dataset
from simforcing.data.video import VideoFrames
from simforcing.models.bundle import load_bundle
from simforcing.recipes.execute import execute
from simforcing.recipes.generate import generate
from simforcing.recipes.generate_jobs import other_windows, require_distinct
from simforcing.recipes.generated_folder import SETTINGS
from simforcing.recipes.prediction import PredictionOptions
from simforcing.recipes.requests import Asked, RequestFields
from simforcing.recipes.sampling import SamplingOptions
from simforcing.types import EpisodeSet

FEW_STEPS = PredictionOptions(num_steps=2)


def quiet(line: str) -> None:
    """Nobody reads it."""


@pytest.fixture
def photo(tabletop_root: Path, tmp_path: Path) -> Path:
    """The first frame of one episode."""
    episode = open_dataset(tabletop_root / "episodes").episodes[0]
    path = tmp_path / "photo.png"
    Image.fromarray(episode.views[0].frames.read(0, 1)[0]).save(path)
    return path


def test_whole_episodes_are_rolled_out_beside_what_was_filmed(debug_run: Path, tmp_path: Path):
    bundle = load_bundle(debug_run)
    paths = generate(debug_run, Asked(rollout=True), out=tmp_path / "out", options=FEW_STEPS, report=quiet)
    episodes = {episode.name: episode for episode in open_dataset(bundle.about["data"]).episodes}
    assert [path.stem for path in paths] == bundle.about["held_out"]
    for path in paths:
        num_frames = episodes[path.stem].num_frames
        assert num_frames > bundle.spec.num_frames
        assert VideoFrames(path).num_frames == VideoFrames(path.with_suffix(".compare.mp4")).num_frames == num_frames


def test_the_first_window_of_a_rollout_is_the_predicted_window(debug_run: Path, tmp_path: Path):
    spec = load_bundle(debug_run).spec
    name = load_bundle(debug_run).about["held_out"][-1]
    one = SamplingOptions(batch_size=1)
    (window,) = generate(
        debug_run,
        Asked(episodes=(name,), max_clips=1),
        out=tmp_path / "w",
        options=FEW_STEPS,
        sampling=one,
        report=quiet,
    )
    seed = json.loads((window.parent / SETTINGS).read_text())["videos"][window.stem]["seed"]

    def rolled_out(seed: int) -> np.ndarray:
        (path,) = generate(
            debug_run,
            Asked(rollout=True, episodes=(name,)),
            out=tmp_path / f"whole{seed}",
            options=replace(FEW_STEPS, seed=seed),
            sampling=one,
            report=quiet,
        )
        return VideoFrames(path).read(1, spec.num_frames).astype(int)

    expected = VideoFrames(window).read(1, spec.num_frames)
    same, other = (np.abs(rolled_out(which) - expected).mean() for which in (seed, seed + 1))
    assert same < 0.5 * other  # what is left is the codec's, as the given frames differ


def test_an_episodes_commands_move_another_picture(debug_run: Path, photo: Path, tmp_path: Path):
    name = load_bundle(debug_run).about["held_out"][0]
    asked = Asked(one=RequestFields(image=(str(photo),)), episodes=(name,))
    (path,) = generate(debug_run, asked, out=tmp_path / "out", options=FEW_STEPS, report=quiet)
    assert path.name == f"photo-{name}.mp4"
    assert not path.with_suffix(".compare.mp4").exists()
    own = Asked(one=RequestFields(episode=name, actions=[[0.2, 0, 0.1, 0, 0, 0, 1]] * 4))
    (other,) = generate(debug_run, own, out=tmp_path / "own", options=FEW_STEPS, report=quiet)
    assert VideoFrames(other).num_frames == 5


def test_commands_are_read_by_name_whatever_their_order(debug_run: Path, photo: Path, tmp_path: Path):
    spec = load_bundle(debug_run).spec
    names = number_names(spec.action.layout)
    table = open_dataset(load_bundle(debug_run).about["data"]).episodes[0].action[:8]
    order = list(reversed(range(len(names))))
    lines = [",".join(names[i] for i in order), *(",".join(repr(float(row[i])) for i in order) for row in table)]
    (tmp_path / "moves.csv").write_text("\n".join(lines))
    np.save(tmp_path / "moves.npy", table)
    videos = [
        generate(
            debug_run,
            Asked(one=RequestFields(image=(str(photo),), actions=str(tmp_path / f"moves.{ending}"))),
            out=tmp_path / ending,
            options=FEW_STEPS,
            report=quiet,
        )[0].read_bytes()
        for ending in ("csv", "npy")
    ]
    assert videos[0] == videos[1]


def test_swapped_windows_show_the_same_picture_under_other_actions(debug_run: Path, tmp_path: Path):
    sampling = SamplingOptions(swap=True, num_seeds=2)
    paths = generate(debug_run, out=tmp_path, options=FEW_STEPS, sampling=sampling, report=quiet)
    own = [path for path in paths if ".swapped" not in path.name]
    for path in own:
        other = path.with_name(path.name.replace(".draw1", "").replace(".mp4", ".swapped.mp4"))
        other = path.with_name(f"{other.stem}.draw1.mp4") if ".draw1" in path.name else other
        assert other in paths
        assert path.read_bytes() != other.read_bytes()
        assert path.with_suffix(".compare.mp4").exists()
        assert not other.with_suffix(".compare.mp4").exists()


def test_a_swapped_video_says_whose_actions_it_shows_in_every_call(debug_run: Path, tmp_path: Path):
    """Another choice of episodes gives a window another partner: its video is another one, never passed off as this."""
    sampling, out = SamplingOptions(swap=True), tmp_path / "out"
    names = [episode.name for episode in open_dataset(load_bundle(debug_run).about["data"]).episodes[:3]]

    def made(*episodes: str, **options: Any) -> dict[str, str]:
        how = replace(FEW_STEPS, **options)
        chosen = Asked(episodes=episodes)
        generate(debug_run, chosen, out=out, options=how, sampling=sampling, lerobot=out / "set", report=quiet)
        listed = json.loads((out / SETTINGS).read_text())["videos"]
        return {name: item["inputs"] for name, item in listed.items() if ".swapped" in name}

    def actions_of_last() -> np.ndarray:
        (last,) = [e for e in open_dataset(out / "set").episodes if e.name.startswith(names[0]) and "swap" in e.name][
            -1:
        ]
        return last.action

    first = made(names[0], names[1])
    last = max(name for name in first if name.startswith(names[0]))
    assert first[last].split(", actions of ")[1] == f"{names[1]} at frame 0"
    commands = actions_of_last()
    with pytest.raises(ValueError, match=r"set exists and holds other data"):
        made(names[0], names[2])
    again = Asked(episodes=(names[0], names[2]))
    with pytest.raises(ValueError, match=r"of other settings: .*inputs was .*actions of"):
        generate(debug_run, again, out=out, options=FEW_STEPS, sampling=sampling, report=quiet)
    second = made(names[0], names[2], overwrite=True)
    assert second[last].split(", actions of ")[1] == f"{names[2]} at frame 0"
    assert not np.array_equal(commands, actions_of_last())


def test_windows_of_the_same_commands_are_not_swapped(debug_run: Path, square_set: EpisodeSet):
    spec = replace(load_bundle(debug_run).spec, views=("front",))
    one, other = square_set.episodes[:2]
    twin = replace(one, name="twin")
    clips = Clips([one, twin, other], spec, stride=100)
    assert other_windows(clips, 3) == {0: 2, 1: 2, 2: 0}
    with pytest.raises(ValueError, match="need two clips with different actions, found 2 alike"):
        other_windows(clips, 2)


def test_episodes_that_would_share_a_file_are_refused(square_set: EpisodeSet):
    one, other = (replace(square_set.episodes[0], name=name) for name in ("a/b", "a_b"))
    require_distinct([(one, 0), (other, 4)])
    with pytest.raises(ValueError, match=r"episodes 'a/b' and 'a_b' would share the file a_b-00000\.mp4"):
        require_distinct([(one, 0), (other, 0)])


def test_an_episode_without_the_simulation_that_conditions_its_video_is_refused(
    student: Path, square_pairs: EpisodeSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The video would follow a black picture."""
    first, *others = square_pairs.episodes
    real = replace(first, views=first.views[:1])
    data = replace(square_pairs, root=str(tmp_path / "s"), episodes=(real, *others), fingerprint="one-without")
    monkeypatch.setattr("simforcing.recipes.prediction.open_dataset", lambda source, cameras=None: data)
    how, asked = replace(FEW_STEPS, data="another"), Asked(episodes=(real.name,), max_clips=1)
    with pytest.raises(ValueError, match="no view sim of the simulation, which this model's video follows"):
        generate(student, asked, out=tmp_path / "out", options=how, report=quiet)
    off = SamplingOptions(sim_guidance=0.0)
    assert len(generate(student, asked, out=tmp_path / "off", options=how, sampling=off, report=quiet)) == 1


def test_a_set_of_windows_holds_their_commands(debug_run: Path, tmp_path: Path):
    generate(debug_run, out=tmp_path / "out", options=FEW_STEPS, lerobot=tmp_path / "set", report=quiet)
    spec = load_bundle(debug_run).spec
    source = {episode.name: episode for episode in open_dataset(load_bundle(debug_run).about["data"]).episodes}
    for episode in open_dataset(tmp_path / "set").episodes:
        name, start = episode.name.rsplit("-", 1)
        rows = source[name].action[int(start) : int(start) + spec.num_actions]
        np.testing.assert_array_equal(episode.action[: spec.num_actions], rows)
        assert episode.task == source[name].task


@pytest.mark.parametrize(
    ("one", "line"),
    [
        ({"episode": "nobody"}, "no episode 'nobody'; episodes: "),
        ({"episode": "nobody", "data": "nowhere"}, "nowhere"),
        ({"actions": [[0.0] * 7]}, "no picture; give an image, or an episode"),
        ({"sim_image": ("a.png",)}, "no picture"),
    ],
)
def test_what_an_episode_lacks_is_said(one: dict[str, Any], line: str, debug_run: Path, tmp_path: Path):
    own = one if "actions" in one or "sim_image" in one else one | {"task": "go"}
    with pytest.raises(ValueError, match=line):
        generate(debug_run, Asked(one=RequestFields(**own)), out=tmp_path / "out", report=quiet)
    assert not (tmp_path / "out").exists()


def test_commands_of_another_rate_or_layout_are_refused_with_both_sides(
    debug_run: Path, photo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    data = open_dataset(load_bundle(debug_run).about["data"])
    slow = replace(data, episodes=tuple(replace(episode, fps=2.0) for episode in data.episodes))
    monkeypatch.setattr("simforcing.recipes.request_reader.open_dataset", lambda source: slow)
    asked = Asked(one=RequestFields(image=(str(photo),), episode=data.episodes[0].name))
    with pytest.raises(ValueError, match="layout tabletop at 2 frames/s; this model reads tabletop at 5"):
        generate(debug_run, asked, out=tmp_path / "out", report=quiet)


def test_a_true_simulation_conditions_only_an_episodes_own_commands(
    planned_run: Any, square_pairs: EpisodeSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    execute(planned_run("student"), square_pairs, tmp_path / "run", report=quiet)
    for module in ("prediction", "request_reader"):
        monkeypatch.setattr(f"simforcing.recipes.{module}.open_dataset", lambda source, cameras=None: square_pairs)
    true = SamplingOptions(sim_source="true")

    def made(asked: Asked, name: str, sampling: SamplingOptions = true) -> list[Path]:
        return generate(
            tmp_path / "run", asked, out=tmp_path / name, options=FEW_STEPS, sampling=sampling, report=quiet
        )

    (path,) = made(Asked(rollout=True), "true")
    assert not path.with_suffix(".sim.mp4").exists()  # it is given, not made
    (own,) = made(Asked(rollout=True), "self", SamplingOptions())
    assert own.with_suffix(".sim.mp4").exists()
    assert path.read_bytes() != own.read_bytes()
    episode = square_pairs.episodes[0]
    with pytest.raises(ValueError, match="--sim-source true needs the simulation of these very actions"):
        made(Asked(one=RequestFields(episode=episode.name, actions=episode.action[:4].tolist())), "other")
    shutil.rmtree(tmp_path / "run")


def test_a_limit_that_leaves_nothing_is_refused():
    with pytest.raises(ValueError, match="max_clips is 0; it must be at least 1"):
        Asked(max_clips=0)
