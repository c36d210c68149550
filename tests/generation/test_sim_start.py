"""The simulation's first picture of a photo: rendered as stored pairs were, or the photo's robot before its ground."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.ndimage import binary_dilation

from simforcing.data.backgrounds import MARGIN_PX
from simforcing.data.open import open_dataset
from simforcing.data.resize import resize_camera
from simforcing.data.sim_background import look_from_json, look_to_json, simulation_look
from simforcing.data.tabletop import TabletopSets
from simforcing.data.video import VideoFrames, VideoWriter
from simforcing.data.windows import MASK_LEVEL
from simforcing.generation.rollout import Predictor
from simforcing.generation.sampler import stored_sampler
from simforcing.generation.segment import CHOICES, MaskFileSegmenter
from simforcing.generation.sim_start import (
    Filmed,
    Measured,
    SimulatorMask,
    camera_in,
    known_simulation,
    sim_first_frame,
    with_simulation,
)
from simforcing.generation.start import Start, clip_from
from simforcing.models.bundle import Bundle, load_bundle
from simforcing.recipes.execute import execute
from simforcing.recipes.run import RunOptions
from simforcing.recipes.simulate import SimulateOptions, simulate
from simforcing.recipes.train import planned
from simforcing.sim.real_like import RealLike
from simforcing.sim.replay import Layouts, replay
from simforcing.sim.robots import robot_named
from simforcing.sim.studio import Studio
from simforcing.sim.tabletop import TabletopConfig
from simforcing.types import Episode, EpisodeSet, Resize
from simforcing.types.calibration import Calibration, EpisodeFit, GroupFit, write_calibration
from simforcing.types.cameras import camera_to_json
from simforcing.types.files import write_json

SIDE, NUM_FRAMES = 48, 13


def quiet(line: str) -> None:
    """Nobody reads it."""


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> EpisodeSet:
    """A paired set of the table top, all through one camera."""
    root = tmp_path_factory.mktemp("pairs")
    looks = RealLike(shared_camera=True)
    simulator = TabletopConfig(num_frames=NUM_FRAMES, size_px=SIDE, real=looks)
    TabletopSets(num_episodes=3, seed=4, simulator=simulator, num_processes=1).write(root)
    simulate(str(root / "episodes"), root / "pairs", SimulateOptions(variants=0), processes=1, report=quiet)
    return open_dataset(root / "pairs")


@pytest.fixture(scope="module")
def bundle(pairs: EpisodeSet, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A student of it, trained a few steps and read back."""
    out = tmp_path_factory.mktemp("runs")
    options = RunOptions(scale="debug", held_out=1)
    execute(planned("teacher", pairs, options), pairs, out / "teacher", report=quiet)
    taught = replace(options, teacher=str(out / "teacher"))
    execute(planned("student", pairs, taught), pairs, out / "student", report=quiet)
    return load_bundle(out / "student")


def start_of(episode: Episode, **changes) -> Start:
    assert episode.state is not None
    image = episode.view("real").frames.read(0, 1)[0]
    return Start(**({"images": (image,), "state": np.asarray(episode.state[0]), "name": episode.name} | changes))


def true_mask(episode: Episode) -> np.ndarray:
    source = episode.view("sim").masks
    assert source is not None
    return source.read(0, 1)[0, ..., 0] > MASK_LEVEL


def simulated(pairs: EpisodeSet, episode: Episode, frames: np.ndarray, path: Path) -> np.ndarray:
    """Frames as a paired set stores them."""
    with VideoWriter(path, episode.fps, frames.shape[1:3]) as writer:
        writer.write(frames)
    return VideoFrames(path, num_frames=len(frames)).read(0, len(frames))


def test_a_rendered_start_is_the_picture_that_simulate_encoded(pairs: EpisodeSet, bundle: Bundle, tmp_path: Path):
    """Bit for bit: with it in the place of the first frame, the stored video is encoded again."""
    look = known_simulation(bundle)
    assert look is not None
    studio = Studio(robot_named(look.robot), look.size)
    for number, episode in enumerate(pairs.episodes):
        (ours,) = with_simulation(start_of(episode), bundle).sim or ()
        camera = episode.view("sim").camera
        assert camera is not None
        qpos = replay(studio.robot, episode, Layouts.of(pairs)).qpos
        frames = [picture.over(np.full_like(ours, 128)) for picture in studio.pictures(qpos, camera)]
        np.testing.assert_array_equal(ours, frames[0])
        stored = episode.view("sim").frames.read(0, 1)[0]
        again = simulated(pairs, episode, np.stack([ours, *frames[1:]]), tmp_path / f"{number}.mp4")
        np.testing.assert_array_equal(again[0], stored)
    studio.close()


def test_the_simulators_mask_is_the_stored_one_from_joints_and_from_the_tool_alike(pairs: EpisodeSet, bundle: Bundle):
    for episode in pairs.episodes:
        assert episode.state is not None
        assert episode.joint is not None
        camera = episode.view("sim").camera
        assert camera is not None
        image = episode.view("real").frames.read(0, 1)[0]
        tool = Measured(state=np.asarray(episode.state[0]), state_layout=pairs.state_layout)
        joint = Measured(joint=np.asarray(episode.joint[0]), joint_layout=pairs.joint_layout)
        for measured in (tool, joint):
            filmed = Filmed(robot="tabletop_arm", camera=camera, measured=measured)
            np.testing.assert_array_equal(SimulatorMask(filmed)(image), true_mask(episode))


def test_a_photo_in_another_size_gets_the_same_rendering(pairs: EpisodeSet, bundle: Bundle):
    start = start_of(pairs.episodes[0])
    large = replace(start, images=(start.images[0].repeat(2, axis=0).repeat(2, axis=1),))
    np.testing.assert_array_equal(
        (with_simulation(large, bundle).sim or ())[0], (with_simulation(start, bundle).sim or ())[0]
    )


def test_a_cut_out_robot_has_the_photos_pixels_and_the_simulations_ground(pairs: EpisodeSet, bundle: Bundle):
    episode = pairs.episodes[1]
    start, mask = start_of(episode, state=None), true_mask(episode)
    segmenter = MaskFileSegmenter(np.where(mask, 255, 0).astype(np.uint8), "m.png")
    (sim,) = with_simulation(start, bundle, segmenter=segmenter).sim or ()
    np.testing.assert_array_equal(sim[mask], start.images[0][mask])
    assert (sim[~mask] == 128).all()
    (white,) = with_simulation(start, bundle, segmenter=segmenter, background="white").sim or ()
    assert (white[~mask] == 255).all()
    scene = np.full_like(start.images[0], 7)
    (given,) = with_simulation(start, bundle, segmenter=segmenter, background=scene).sim or ()
    np.testing.assert_array_equal(given, sim_first_frame(start.images[0], mask, scene))
    (plate,) = with_simulation(start, bundle, segmenter=segmenter, background="plate").sim or ()
    kept = mask | ~binary_dilation(mask, iterations=MARGIN_PX)  # the photo's robot before the photo's own ground
    np.testing.assert_array_equal(plate[kept], start.images[0][kept])


def test_a_rendered_robot_before_a_plate_has_the_photo_around_it(pairs: EpisodeSet, bundle: Bundle):
    episode = pairs.episodes[2]
    start = start_of(episode)
    (plain,) = with_simulation(start, bundle).sim or ()
    (plate,) = with_simulation(start, bundle, background="plate").sim or ()
    touched = (plain != 128).any(axis=-1)
    near = binary_dilation(touched, iterations=MARGIN_PX + 1)
    np.testing.assert_array_equal(plate[~near], start.images[0][~near])


def test_a_start_with_simulation_or_a_model_without_is_left_alone(pairs: EpisodeSet, bundle: Bundle):
    start = start_of(pairs.episodes[0], sim=(np.zeros((SIDE, SIDE, 3), np.uint8),))
    assert with_simulation(start, bundle) is start
    alone = replace(bundle, spec=replace(bundle.spec, sim_views=()))
    bare = start_of(pairs.episodes[0])
    assert with_simulation(bare, alone) is bare


def test_what_is_missing_and_what_could_be_given_is_one_line(pairs: EpisodeSet, bundle: Bundle):
    old = replace(bundle, about={key: value for key, value in bundle.about.items() if key != "simulation"})
    bare = start_of(pairs.episodes[0], state=None, name="photo")
    with pytest.raises(ValueError, match=r"photo: the run does not say .*background: white, grey, plate, or a picture"):
        with_simulation(bare, old)
    with pytest.raises(ValueError, match=r"photo: .*sam3:.*or, to render it, the robot's measured state$"):
        with_simulation(bare, bundle)
    with pytest.raises(ValueError, match=r"the camera of view real in the robot's base frame and the robot's measured"):
        with_simulation(bare, old, background="grey")
    with pytest.raises(ValueError, match="unknown background 'blue'; choices: white, grey, plate, or a picture"):
        with_simulation(bare, bundle, background="blue")
    with pytest.raises(ValueError, match="a background of 2x2 pixels for a picture of 48x48"):
        with_simulation(start_of(pairs.episodes[0]), bundle, background=np.zeros((2, 2, 3), np.uint8))


def test_every_way_to_cut_out_is_named_as_it_is_written(pairs: EpisodeSet, bundle: Bundle):
    with pytest.raises(ValueError, match="cuts the robot out") as caught:
        with_simulation(start_of(pairs.episodes[0], state=None), bundle)
    for written in CHOICES:
        assert written in str(caught.value)


def test_a_camera_of_another_aspect_than_the_photo_is_refused_with_both(pairs: EpisodeSet, bundle: Bundle):
    camera = pairs.episodes[0].view("real").camera
    assert camera is not None
    wide = replace(camera, size=(SIDE, 2 * SIDE))
    with pytest.raises(ValueError, match=rf"camera of view real films {SIDE}x{2 * SIDE}, the picture is {SIDE}x{SIDE}"):
        with_simulation(start_of(pairs.episodes[0], cameras=(wide,)), bundle)
    twice = resize_camera(camera, Resize(height=2 * SIDE, width=2 * SIDE))
    (sim,) = with_simulation(start_of(pairs.episodes[0], cameras=(twice,)), bundle).sim or ()
    (same,) = with_simulation(start_of(pairs.episodes[0], cameras=(camera,)), bundle).sim or ()
    np.testing.assert_array_equal(sim, same)


def test_an_old_run_works_where_background_and_camera_are_given(pairs: EpisodeSet, bundle: Bundle):
    episode = pairs.episodes[0]
    old = replace(bundle, about={key: value for key, value in bundle.about.items() if key != "simulation"})
    start = start_of(episode, cameras=(episode.view("real").camera,))
    (sim,) = with_simulation(start, old, background="grey").sim or ()
    np.testing.assert_array_equal(sim, (with_simulation(start, bundle).sim or ())[0])


def test_backgrounds_that_one_photo_does_not_tell_are_asked_for(pairs: EpisodeSet, bundle: Bundle):
    about = bundle.about | {"simulation": bundle.about["simulation"] | {"background": "mean", "colour": None}}
    with pytest.raises(ValueError, match="each episode's mean picture, which one photo does not tell; give the backg"):
        with_simulation(start_of(pairs.episodes[0]), replace(bundle, about=about))


def test_a_camera_that_looks_away_finds_no_robot(pairs: EpisodeSet, bundle: Bundle):
    camera = pairs.episodes[0].view("real").camera
    assert camera is not None
    assert camera.pose is not None
    away = replace(camera, pose=camera.pose @ np.diag([-1.0, 1.0, -1.0, 1.0]))
    with pytest.raises(ValueError, match=r"no robot found in the frame: .*rendered through the given camera"):
        with_simulation(start_of(pairs.episodes[0], cameras=(away,)), bundle)


def test_a_segmenters_refusal_names_the_start(pairs: EpisodeSet, bundle: Bundle):
    nothing = MaskFileSegmenter(np.zeros((SIDE, SIDE), np.uint8), "m.png")
    with pytest.raises(ValueError, match=r"photo 3: no robot found in the frame: m\.png"):
        with_simulation(start_of(pairs.episodes[0], name="photo 3"), bundle, segmenter=nothing)


def test_a_run_records_how_its_simulation_looks(pairs: EpisodeSet, bundle: Bundle):
    look = known_simulation(bundle)
    assert look == simulation_look(pairs, ("sim",))
    assert look is not None
    assert (look.robot, look.size, look.background, look.colour) == ("tabletop_arm", (SIDE, SIDE), "grey", (128,) * 3)
    assert look.cameras == (pairs.episodes[0].view("sim").camera,)
    assert look_from_json(look_to_json(look), "here") == look


def test_cameras_that_differ_between_episodes_are_not_recorded(pairs: EpisodeSet):
    first, *others = pairs.episodes
    camera = first.view("sim").camera
    assert camera is not None
    moved = replace(camera, size=(1, 1))
    views = tuple(replace(view, camera=moved) for view in first.views)
    look = simulation_look(replace(pairs, episodes=(replace(first, views=views), *others)), ("sim",))
    assert look is not None
    assert look.cameras == (None,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cameras": 3}, "expected an object with a list of cameras"),
        ({"background": "blue"}, "about.simulation.background: 'blue' is not one of"),
        ({"cameras": [{"size": "x"}]}, r"about\.simulation\.cameras\[0\]"),
    ],
)
def test_a_damaged_record_in_a_bundle_is_named(change: dict, message: str, bundle: Bundle):
    about = bundle.about | {"simulation": bundle.about["simulation"] | change}
    with pytest.raises(ValueError, match=message):
        known_simulation(replace(bundle, about=about))


def test_cameras_are_read_from_a_file_of_one_and_from_a_calibration(pairs: EpisodeSet, tmp_path: Path):
    camera = pairs.episodes[0].view("real").camera
    assert camera is not None
    write_json(tmp_path / "camera.json", camera_to_json(camera))
    assert camera_in(str(tmp_path / "camera.json")) == camera
    groups = tuple(
        GroupFit(name=name, camera=fitted, lag=0, episodes=(EpisodeFit(name=f"e{name}", accepted=fitted is not None),))
        for name, fitted in (("0", camera), ("1", None))
    )
    write_calibration(
        tmp_path / "all.json",
        Calibration(data="d", fingerprint="f", view="v", robot="r", groups=groups, seed=0, settings={}),
    )
    assert camera_in(str(tmp_path / "all.json")) == camera
    assert camera_in(f"{tmp_path / 'all.json'}@e0") == camera
    with pytest.raises(ValueError, match="no fitted camera for 'e1'; groups: 0"):
        camera_in(f"{tmp_path / 'all.json'}@e1")


def test_a_photo_a_state_and_commands_become_video(pairs: EpisodeSet, bundle: Bundle):
    """Nothing of the data set's simulation is read."""
    spec, episode = bundle.spec, pairs.episodes[0]
    start = with_simulation(start_of(episode), bundle)
    clip = clip_from(start, np.asarray(episode.action[: spec.num_actions], np.float64), spec)
    predictor = Predictor(bundle, stored_sampler(bundle)).using(num_steps=1)
    (video,) = predictor.predict([clip], [0])
    assert video.shape == (spec.num_frames, spec.resize.height, spec.resize.width, 3)
