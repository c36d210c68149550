"""The command: from a set on disk to cameras, verdicts, a file for `simulate` and a sheet; else one clear line."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.spatial.transform import Rotation

from simforcing.data.convert import convert
from simforcing.data.footage import CameraPrior, build_group, working_size
from simforcing.data.open import open_dataset
from simforcing.data.resize import resize_camera
from simforcing.data.tabletop import VIEW, TabletopSets, true_cameras
from simforcing.data.windows import MASK_LEVEL
from simforcing.generation.segment import AppearanceFile
from simforcing.recipes.calibrate import CalibrateOptions, calibrate, table
from simforcing.sim.calibrate import CalibrateConfig, Group, Hypothesis, judge, refine
from simforcing.sim.model import RobotModel
from simforcing.sim.real_like import RealLike
from simforcing.sim.replay import Layouts, replay
from simforcing.sim.robots import robot_named
from simforcing.sim.search import moved
from simforcing.sim.surface import SurfacePoints
from simforcing.sim.tabletop import TabletopConfig
from simforcing.sim.tabletop_arm import TABLETOP_ARM
from simforcing.types import Camera, EpisodeSet, Resize
from simforcing.types.calibration import Calibration, read_calibration
from simforcing.types.cameras import camera_to_json, read_start

ERROR_PX, LAG = 3.0, 1
BRIDGE_START = read_start(
    {
        "position_m": [0.0, -0.16, 0.336],
        "quaternion_wxyz": [0.909182, -0.0819809, 0.347277, 0.214629],
        "axes": "sapien",
        "size": [480, 640],
        "fovy_deg": 42.1,
    },
    "SimplerEnv's camera of BridgeData",
)
PROGRAM = (sys.executable, "-m", "simforcing")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three real-like episodes of one camera, declared wrong by 3 px, with masks and a lag of 1."""
    folder = tmp_path_factory.mktemp("calibrate")
    real = RealLike(appearance="full", frame_lag=LAG, camera_error_px=ERROR_PX, shared_camera=True)
    simulator = TabletopConfig(num_frames=21, real=real, truth=True)
    TabletopSets(num_episodes=3, seed=4, simulator=simulator, num_processes=1).write(folder)
    return folder / "episodes"


def options(**changed: Any) -> CalibrateOptions:
    return CalibrateOptions(**({"groups": "one", "lags": (1, 2)} | changed))


@pytest.fixture(scope="module")
def reported() -> list[str]:
    return []


@pytest.fixture(scope="module")
def found(root: Path, tmp_path_factory: pytest.TempPathFactory, reported: list[str]) -> tuple[Path, Calibration]:
    out = tmp_path_factory.mktemp("found") / "calibration.json"
    return out, calibrate(str(root), out, options(), processes=1, report=reported.append)


def overlay_px(camera: Camera, root: Path) -> float:
    """Mean distance of the robot's points from where they truly are seen."""
    data, robot = open_dataset(str(root)), RobotModel(TABLETOP_ARM)
    qpos = replay(robot, data.episodes[0], Layouts.of(data)).qpos[::4]
    points = SurfacePoints(robot, num_points=200).place(qpos).reshape(-1, 3)
    truth = true_cameras(root)[data.episodes[0].name]
    return float(np.linalg.norm(camera.project(points) - truth.project(points), axis=1).mean())


def test_from_the_stored_camera_that_is_3_px_wrong_the_true_one_is_found(found: tuple[Path, Calibration], root: Path):
    (group,) = found[1].groups
    stored = open_dataset(str(root)).episodes[0].view(VIEW).camera
    assert stored is not None
    assert group.camera is not None
    assert overlay_px(stored, root) > 2
    assert overlay_px(group.camera, root) < 0.5
    assert group.lag == LAG
    assert group.focal_deviation is not None
    assert group.focal_deviation == 0  # the stored focal length is kept
    for fit in group.episodes:
        assert fit.accepted, fit.reason
        assert fit.lag == LAG


def test_the_file_says_what_was_found_and_how(found: tuple[Path, Calibration], root: Path):
    out, calibration = found
    stored, data = read_calibration(out), open_dataset(str(root))
    assert stored.groups == calibration.groups
    assert (stored.fingerprint, stored.view, stored.robot) == (data.fingerprint, VIEW, "tabletop_arm")
    assert stored.settings["lags"] == [1, 2]
    assert stored.settings["groups"] == "one"
    assert sorted(path.name for path in out.parent.iterdir()) == ["calibration.json", "calibration.png"]
    assert Image.open(out.with_suffix(".png")).width > 500


def test_the_appearance_that_it_learns_finds_the_robot_in_single_frames(found: tuple[Path, Calibration], root: Path):
    segmenter = AppearanceFile(path=found[0]).build()
    scores, chance = [], []
    for episode in open_dataset(str(root)).episodes:
        view = episode.view(VIEW)
        assert view.masks is not None
        image, mask = view.frames.read(20, 21)[0], view.masks.read(20, 21)[0, ..., 0] > MASK_LEVEL
        robot = segmenter(image)
        scores.append((robot & mask).sum() / (robot | mask).sum())
        chance.append(mask.mean())
    assert np.mean(scores) > 0.6  # measured 0.78, at 0.15 of the picture covered
    assert np.mean(scores) > 3 * np.mean(chance)


def test_the_table_has_a_line_for_every_group_and_episode(found: tuple[Path, Calibration], reported: list[str]):
    first, *others = table(found[1])
    assert first.startswith("group 0: 3 of 3 episodes accepted; lag 1, camera at (")
    assert "+- " in first
    assert len(others) == 3
    for line, fit in zip(others, found[1].groups[0].episodes, strict=True):
        assert line.startswith(f"  {fit.name}: IoU {fit.iou:.2f} [")
        assert line.endswith("lag 1, accepted")
    assert any("3 episodes in one group of one camera" in line for line in reported)
    assert reported[-1].endswith("look at " + str(found[0].with_suffix(".png")))


def as_json(calibration: Calibration) -> list[Any]:
    """Every number of what was found."""
    return [
        (camera_to_json(group.camera) if group.camera else None, {**vars(group), "camera": None})
        for group in calibration.groups
    ]


def test_the_number_of_processes_changes_nothing(found: tuple[Path, Calibration], root: Path, tmp_path: Path):
    """Bit for bit, the sheet as well."""
    out = tmp_path / "again.json"
    again = calibrate(str(root), out, options(), processes=2, report=lambda line: None)
    assert as_json(again) == as_json(found[1])
    assert out.with_suffix(".png").read_bytes() == found[0].with_suffix(".png").read_bytes()


def test_simulate_takes_the_file_as_it_is(found: tuple[Path, Calibration], root: Path, tmp_path: Path):
    command = [*PROGRAM, "simulate", root, tmp_path / "paired", "--calibration", found[0], "--variants", "0"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    paired = open_dataset(str(tmp_path / "paired"))
    assert len(paired.episodes) == 3
    camera = found[1].groups[0].camera
    assert camera is not None
    for view in paired.episodes[0].views:
        if view.camera is not None and view.camera.pose is not None:
            np.testing.assert_allclose(view.camera.pose, camera.pose, atol=1e-6)


def test_the_command_line_reads_a_start_and_prints_the_table(root: Path, tmp_path: Path):
    """With the field of view given and masks of the robot, from a camera file in MuJoCo's axes."""
    stored = open_dataset(str(root)).episodes[0].view(VIEW).camera
    assert stored is not None
    assert stored.pose is not None
    turned = stored.pose[:3, :3] @ np.diag([1, -1, -1])
    x, y, z, w = Rotation.from_matrix(turned).as_quat()
    start = {"position_m": stored.pose[:3, 3].tolist(), "quaternion_wxyz": [w, x, y, z], "axes": "mujoco"}
    (tmp_path / "start.json").write_text(json.dumps(start | {"size": [64, 64]}))
    command = [*PROGRAM, "calibrate", root, "out.json", "--start", "start.json", "--fovy-deg", "40", "--masks"]
    command += ["--groups", "one", "--lags", "1", "2", "--processes", "1"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    assert "group 0: 3 of 3 episodes accepted; lag 1" in done.stdout
    (group,) = read_calibration(tmp_path / "out.json").groups
    assert group.camera is not None
    assert group.focal_deviation == 0
    assert overlay_px(group.camera, root) < 0.5


@pytest.mark.slow
def test_without_any_camera_the_true_one_is_found_from_all_around(root: Path, tmp_path: Path):
    calibration = calibrate(
        str(root), tmp_path / "out.json", options(stored_cameras=False), processes=1, report=lambda line: None
    )
    (group,) = calibration.groups
    assert group.camera is not None
    assert group.lag == LAG
    assert overlay_px(group.camera, root) < 0.5
    assert all(fit.accepted for fit in group.episodes)


def silenced(root: Path, out: Path, **changed: Any) -> Calibration:
    return calibrate(str(root), out, options(**changed), processes=1, report=lambda line: None)


def test_a_set_whose_frames_never_change_gets_no_camera(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A clear verdict in the file, the table and the sheet, and `simulate` has nothing to use."""
    import simforcing.recipes.calibrate as recipe

    def frozen(*arguments: Any, **named: Any) -> Group:
        group = build_group(*arguments, **named)
        return replace(group, frames=np.repeat(group.frames[:1], len(group.frames), axis=0))

    monkeypatch.setattr(recipe, "build_group", frozen)
    calibration = silenced(root, tmp_path / "out.json")
    (group,) = calibration.groups
    assert group.camera is None
    assert not any(fit.accepted for fit in group.episodes)
    assert all("never seen to move" in fit.reason for fit in group.episodes)
    assert table(calibration)[0] == "group 0: 0 of 3 episodes accepted"
    assert read_calibration(tmp_path / "out.json").groups == calibration.groups
    assert (tmp_path / "out.png").exists()


def test_masks_that_a_set_does_not_have_are_one_line(root: Path, tmp_path: Path):
    plain = tmp_path / "plain"
    TabletopSets(num_episodes=1, simulator=TabletopConfig(num_frames=9), num_processes=1).write(plain)
    with pytest.raises(ValueError, match="view front has no masks"):
        silenced(plain / "episodes", tmp_path / "out.json", masks=True)
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"robot": "r2d2"}, "r2d2"),
        ({"view": "side"}, "no view 'side'; views: front"),
        ({"robot": "panda_hand", "robot_path": Path("nowhere")}, "nowhere"),
    ],
)
def test_what_cannot_be_calibrated_is_refused_by_name(root: Path, tmp_path: Path, changed: dict, said: str):
    with pytest.raises(ValueError, match=said):
        silenced(root, tmp_path / "out.json", **changed)
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"lags": ()}, r"lags \(\): at least one"),
        ({"lags": (0, 21)}, "between -20 and 20 frames"),
        ({"fovy_deg": 0.5}, "fovy_deg 0.5: must lie between 1 and 170"),
        ({"aspect": 16.0}, "aspect 16.0: width over height"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_options_that_make_no_sense_name_value_and_choices(changed: dict, said: str):
    with pytest.raises(ValueError, match=said):
        options(**changed)


def test_a_start_that_is_no_camera_is_one_line_on_the_command_line(root: Path, tmp_path: Path):
    (tmp_path / "start.json").write_text('{"position_m": [1, 2], "size": [64, 64]}')
    command = [*PROGRAM, "calibrate", root, "out.json", "--start", "start.json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert "start.json.position_m: expected 3 finite numbers, found [1, 2]" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.fixture(scope="module")
def bridge(shared_data: Path, shared_dir: Path) -> tuple[EpisodeSet, Group]:
    """Real BridgeData episodes of one scene, from a published camera of that setting (see below)."""
    path = shared_data / "bridge_rlds"
    if not path.is_dir() or not (shared_dir / "robots" / "trossen_wx250s").is_dir():
        pytest.skip(f"no BridgeData records at {path}, or no WidowX model in {shared_dir / 'robots'}")
    data = open_dataset(str(path))
    robot = robot_named("widowx_250s", shared_dir / "robots")
    model, layouts, view = RobotModel(robot), Layouts.of(data), data.episodes[0].views[0].name
    episodes = list(data.episodes)[:6]
    size = working_size(episodes[0].view(view).frames.size)
    start = BRIDGE_START
    assert start.intrinsics is not None
    small = resize_camera(start, Resize(height=size[0], width=size[1]))
    group = build_group(
        "bridge",
        episodes,
        view,
        robot=robot,
        qpos={episode.name: replay(model, episode, layouts).qpos for episode in episodes},
        prior=CameraPrior(template=replace(small, pose=None), lags=(0,), starts=(small,)),
    )
    return data, group


def test_on_real_bridge_data_the_fitted_camera_overlaps_better_than_displaced_ones(bridge: tuple[EpisodeSet, Group]):
    """From the published camera, which is off by a few per cent of the picture."""
    _, group = bridge
    config = CalibrateConfig(free_focal=False, num_fine_frames=24)
    start = Hypothesis(camera=group.starts[0], lag=0, score=0.0)
    hypothesis, refined = refine(group, config, start)
    assert refined is not None
    right, before = mean_iou(group, hypothesis), mean_iou(group, start)
    assert right > before
    assert hypothesis.camera.intrinsics is not None
    for column, row in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        turn = 6 / np.diag(hypothesis.camera.intrinsics)[:2] * [column, row]
        wrong = moved(hypothesis.camera, np.array([turn[1], turn[0], 0.0]), np.zeros(3))
        assert mean_iou(group, replace(hypothesis, camera=wrong)) < right - 0.03


def mean_iou(group: Group, hypothesis: Hypothesis) -> float:
    fits = judge(group, CalibrateConfig(free_focal=False), hypothesis)
    return float(np.mean([fit.iou or 0.0 for fit in fits]))


def test_an_episode_with_a_damaged_video_is_left_out_by_name(tmp_path: Path):
    """As in `simulate`: the others are fitted."""
    root = tmp_path / "set"
    sets = TabletopSets(
        num_episodes=2, simulator=TabletopConfig(num_frames=9, real=RealLike(shared_camera=True)), num_processes=1
    )
    sets.write(root)
    converted = tmp_path / "v21"
    convert(root / "episodes", converted, layout=None, version="v2.1", report=lambda line: None)
    video = next(converted.rglob("episode_000001.mp4"))
    content = video.read_bytes()
    video.write_bytes(content[: len(content) // 2])
    lines: list[str] = []
    options = CalibrateOptions(groups="one", lags=(0,))
    found = calibrate(str(converted), tmp_path / "out.json", options, processes=1, report=lines.append)
    assert "episode_000001" in found.left_out or any("episode_000001" in line for line in lines)
    assert [fit.name for group in found.groups for fit in group.episodes] == ["episode_000000"]


def test_a_robot_of_ones_own_whose_model_is_a_file_is_fitted_in_other_processes(root: Path, tmp_path: Path):
    (tmp_path / "arm.xml").write_text(str(TABLETOP_ARM.model))
    (tmp_path / "own.py").write_text(
        "from dataclasses import replace\nfrom pathlib import Path\n"
        "from simforcing.sim.tabletop_arm import TABLETOP_ARM\n"
        "ROBOT = replace(TABLETOP_ARM, model=lambda: Path(__file__).with_name('arm.xml'))\n"
    )
    options = CalibrateOptions(robot_path=tmp_path / "own.py", groups="each", lags=(LAG,))
    found = calibrate(str(root), tmp_path / "out.json", options, processes=2, report=lambda line: None)
    assert all(group.camera is not None for group in found.groups)
