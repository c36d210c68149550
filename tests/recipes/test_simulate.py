"""Paired sets: aligned, complete, the same however they are made, and never half there."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pairing import NUM_EPISODES, NUM_FRAMES, SIZE, calibration_of, frames, masks, record, run

from simforcing.data.lerobot import episode_names, read_columns, read_lerobot
from simforcing.data.lerobot_writer import LeRobotWriter
from simforcing.data.open import open_dataset
from simforcing.data.pair_streams import variants_root
from simforcing.data.tabletop import VIEW
from simforcing.recipes import recipe_named
from simforcing.recipes.execute import execute
from simforcing.recipes.run import RunOptions
from simforcing.sim.perturb import PerturbConfig
from simforcing.types.calibration import read_calibration, write_calibration

STILL = PerturbConfig(
    translation_bias_m=0.0,
    translation_scale=0.0,
    translation_noise_m=0.0,
    rotation_bias_rad=0.0,
    rotation_scale=0.0,
    rotation_noise_rad=0.0,
)


def test_a_pair_holds_the_sources_numbers_and_two_streams_with_one_camera(source: Path, paired: Path) -> None:
    before, after = read_lerobot(source), read_lerobot(paired)
    assert not after.rejected
    assert not after.warnings
    assert (after.robot, after.action_layout, after.state_layout) == (
        "tabletop_arm",
        before.action_layout,
        before.state_layout,
    )
    for old, new in zip(before.episodes, after.episodes, strict=True):
        assert (new.name, new.task, new.fps, new.num_frames) == (old.name, old.task, old.fps, old.num_frames)
        np.testing.assert_array_equal(new.action, old.action)
        np.testing.assert_array_equal(new.state, old.state)
        np.testing.assert_array_equal(new.joint, old.joint)
        assert [view.name for view in new.views] == ["real", "sim"]
        assert new.view("real").camera == new.view("sim").camera == old.view(VIEW).camera
        error = frames(new, "real").astype(float) - frames(old, VIEW)
        assert 10 * np.log10(255**2 / np.mean(error**2)) > 30


def test_the_sim_robot_lies_on_the_real_one_and_on_the_declared_background(paired: Path) -> None:
    """Under the mask both show the same arm; a mask three pixels off shows something else."""
    assert record(paired)["background"] == {"kind": "grey", "value": [128, 128, 128]}
    for episode in read_lerobot(paired).episodes:
        real, sim, mask = frames(episode, "real").astype(float), frames(episode, "sim").astype(float), masks(episode)
        here = np.abs(real - sim).mean(axis=3)[mask].mean()
        moved = np.roll(sim, 3, axis=2), np.roll(mask, 3, axis=2)
        assert here < 0.6 * np.abs(real - moved[0]).mean(axis=3)[moved[1]].mean()
        far = np.ones_like(mask)
        for axis in (1, 2):
            for shift in (-3, 3):
                far &= ~np.roll(mask, shift, axis=axis)
        assert abs(sim[far & ~mask] - 128).mean() < 3


def test_depth_and_track_are_on_the_robot(paired: Path) -> None:
    episodes = read_lerobot(paired).episodes
    rows = read_columns(paired, ("sim_track", "sim_track_valid", "sim_joint_rad"))
    for episode, columns in zip(episodes, rows, strict=True):
        depth = episode.view("sim").depth
        assert depth is not None
        metres, mask = depth.read(0, NUM_FRAMES), masks(episode)
        assert (metres[mask] > 0.2).mean() > 0.98
        assert np.isfinite(columns["sim_track"]).all()
        assert np.shape(columns["sim_track"]) == (NUM_FRAMES, 2)
        camera = episode.view("sim").camera
        assert camera is not None
        assert episode.state is not None
        seen = camera.project(episode.state[:, :3].astype(np.float64))
        np.testing.assert_allclose(columns["sim_track"], seen, atol=0.05)
        inside = ((seen >= -0.5) & (seen < SIZE - 0.5)).all(axis=1)
        assert columns["sim_track_valid"] == inside.tolist()


def test_variants_name_their_parents_start_like_them_and_keep_the_gripper(paired: Path) -> None:
    parents, root = read_lerobot(paired).episodes, variants_root(paired)
    found = read_lerobot(root)
    rows = read_columns(root, ("parent", "draw"))
    assert len(found.episodes) == 2 * NUM_EPISODES
    assert episode_names(root) == [f"{parent.name}_{draw}" for parent in parents for draw in range(2)]
    for episode, columns in zip(found.episodes, rows, strict=True):
        parent = parents[columns["parent"][0]]
        assert set(columns["draw"]) == {int(episode.name[-1])}
        assert episode.task == parent.task
        assert episode.state is not None
        assert parent.state is not None
        np.testing.assert_allclose(episode.state[0], parent.state[0], atol=2e-4)
        np.testing.assert_array_equal(episode.state[:, 6], parent.state[:, 6])
        np.testing.assert_array_equal(episode.action[:, 6], parent.action[:, 6])
        off = np.linalg.norm(episode.state[:, :3] - parent.state[:, :3], axis=1)
        assert off[-1] > 1e-3
        lead = np.linalg.norm(
            (episode.action - parent.action)[:-1, :3] - (episode.state - parent.state)[1:, :3], axis=1
        )
        assert lead.max() < 1e-3  # commands are moved as far as the states that they lead to
        np.testing.assert_array_equal(frames(episode, "sim")[0], frames(parent, "sim")[0])
    assert record(root)["rejected_proposals"]["rate"] < 1


def test_without_amplitude_a_variant_is_its_parent_bit_for_bit(source: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "set", perturb=STILL)
    parents, variants = (read_lerobot(root).episodes for root in (tmp_path / "set", tmp_path / "set-variants"))
    for parent, variant in zip(parents, variants, strict=True):
        for table in ("action", "state", "joint"):
            np.testing.assert_array_equal(getattr(parent, table), getattr(variant, table))
        np.testing.assert_array_equal(frames(parent, "sim"), frames(variant, "sim"))


@pytest.mark.parametrize("kind", ["mean", "plate"])
def test_an_episodes_own_background_is_stored_and_lies_behind_the_robot(
    source: Path, tmp_path: Path, kind: str
) -> None:
    from PIL import Image

    run(source, tmp_path / "set", variants=0, background=kind)
    pattern = record(tmp_path / "set")["background"]["files"]
    for index, episode in enumerate(read_lerobot(tmp_path / "set").episodes):
        picture = np.asarray(Image.open(tmp_path / "set" / pattern.format(index=index))).astype(float)
        sim, mask = frames(episode, "sim").astype(float), masks(episode)
        near = mask | np.roll(mask, 2, 1) | np.roll(mask, -2, 1) | np.roll(mask, 2, 2) | np.roll(mask, -2, 2)
        assert np.abs(sim - picture)[~near].mean() < 3
        assert np.abs(frames(episode, "real") - picture)[~near].mean() < 12


def test_another_size_moves_the_camera_with_the_frames(source: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "set", variants=0, size=(24, 32), track=True)
    episode = read_lerobot(tmp_path / "set").episodes[0]
    camera = episode.view("sim").camera
    assert camera is not None
    assert camera.size == episode.view("real").frames.size == (24, 32)
    assert camera.intrinsics is not None
    assert camera.intrinsics[0, 0] / camera.intrinsics[1, 1] == pytest.approx(32 / 24)
    real, sim, mask = frames(episode, "real").astype(float), frames(episode, "sim").astype(float), masks(episode)
    assert np.abs(real - sim).mean(axis=3)[mask].mean() < 45


def test_a_calibrations_lag_shifts_the_sim_and_its_verdict_leaves_episodes_out(
    source: Path, paired: Path, tmp_path: Path
) -> None:
    rejected = read_lerobot(source).episodes[1].name
    fitted = calibration_of(source, tmp_path / "calibration.json", lag=1, reject=rejected, fitted_frames=(2, 5))
    lines = run(source, tmp_path / "set", variants=0, calibration=fitted)
    assert any(f"episode {rejected} is left out: never in view" in line for line in lines)
    assert record(tmp_path / "set")["left_out"] == {rejected: "never in view"}
    kept = [episode for episode in read_lerobot(paired).episodes if episode.name != rejected]
    for before, after in zip(kept, read_lerobot(tmp_path / "set").episodes, strict=True):
        entry = record(tmp_path / "set")["episodes"][after.name]
        assert (entry["lag"], entry["iou"], entry["fitted_frames"]) == (1, 0.9, [2, 5])
        old, new = masks(before), masks(after)
        assert (new[1:] == old[:-1]).mean() > 0.995
        assert (new[0] == old[0]).mean() > 0.995
        np.testing.assert_array_equal(after.state, before.state)


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"fingerprint": "of yesterday"}, {}, "run `simforcing calibrate` on it again"),
        ({"robot": "aloha"}, {"robot": "tabletop_arm"}, "calibrated for robot aloha, asked for tabletop_arm"),
        ({"view": "wrist"}, {"view": VIEW}, "calibrated for view wrist, asked for front"),
        ({"view": "wrist"}, {}, "no view 'wrist'; views: front"),
        ({"robot": "r2d2"}, {}, "unknown robot 'r2d2'; choices: tabletop_arm"),
    ],
)
def test_a_calibration_of_something_else_is_refused(
    source: Path, tmp_path: Path, changes: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    fitted = calibration_of(source, tmp_path / "calibration.json", **changes)
    with pytest.raises(ValueError, match=message):
        run(source, tmp_path / "set", calibration=fitted, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["calibration.json"]


def without_cameras(source: Path, root: Path) -> Path:
    """The same set without cameras."""
    import shutil

    shutil.copytree(source, root)
    (root / "meta" / "cameras.json").unlink()
    return root


def test_without_a_camera_the_line_says_what_to_run(source: Path, tmp_path: Path) -> None:
    bare = without_cameras(source, tmp_path / "bare")
    with pytest.raises(ValueError, match=r"no camera of view front is known .* run `simforcing calibrate`"):
        run(bare, tmp_path / "set")


def test_an_episode_that_cannot_be_replayed_or_decoded_is_left_out_by_name(source: Path, tmp_path: Path) -> None:
    data = read_lerobot(source)
    root = tmp_path / "own"
    with LeRobotWriter(
        root,
        fps=5,
        views={VIEW: (SIZE, SIZE)},
        action_layout=data.action_layout,
        state_layout=data.state_layout,
        robot="tabletop_arm",
    ) as writer:
        for index, episode in enumerate(data.episodes):
            assert episode.state is not None
            state = episode.state.copy()
            if index == 1:
                state[4, :3] = (0.9, 0.3, 0.1)
            camera = episode.view(VIEW).camera
            assert camera is not None
            writer.add(frames={VIEW: frames(episode, VIEW)}, action=episode.action, state=state, cameras={VIEW: camera})
    lines = run(root, tmp_path / "set", variants=0)
    reason = record(tmp_path / "set")["left_out"]["episode_000001"]
    assert reason.startswith("frame 4: robot tabletop_arm replayed from states is ")
    assert any(line.endswith(f"episode episode_000001 is left out: {reason}") for line in lines)
    assert len(read_lerobot(tmp_path / "set").episodes) == NUM_EPISODES - 1


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("inverted", "the robot is in view in no frame; check the camera: is the pose inverted"),
        ("turned away", "the robot is in view in no frame"),
    ],
)
def test_a_camera_that_does_not_see_the_robot_leaves_its_episode_out(
    source: Path, tmp_path: Path, mistake: str, message: str
) -> None:
    def wrong(pose: np.ndarray) -> np.ndarray:
        if mistake == "inverted":
            return np.linalg.inv(pose)
        turned = pose.copy()
        turned[:3, :3] = pose[:3, :3] @ np.diag([-1.0, 1.0, -1.0])
        return turned

    data = read_lerobot(source)
    path = calibration_of(source, tmp_path / "calibration.json")
    fitted = read_calibration(path)
    group = fitted.groups[1]
    assert group.camera is not None
    assert group.camera.pose is not None
    groups = (
        fitted.groups[0],
        replace(group, camera=replace(group.camera, pose=wrong(group.camera.pose))),
        fitted.groups[2],
    )
    write_calibration(path, replace(fitted, groups=groups))
    run(source, tmp_path / "set", variants=0, calibration=path)
    left_out = record(tmp_path / "set")["left_out"]
    assert list(left_out) == [data.episodes[1].name]
    assert left_out[data.episodes[1].name].startswith(message)


def test_a_lag_that_shows_one_state_alone_leaves_the_episode_out(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no episode can be rendered"):
        run(source, tmp_path / "set", lag=NUM_FRAMES - 1)
    with pytest.raises(ValueError, match=r"calibration\.json: .*lag 10{30}: at most 20 frames"):
        run(source, tmp_path / "set", calibration=calibration_of(source, tmp_path / "calibration.json", lag=10**30))


def test_where_nothing_can_be_rendered_no_set_appears(source: Path, tmp_path: Path) -> None:
    from simforcing.sim.replay import TrackingLimits

    with pytest.raises(ValueError, match=r"no episode could be rendered \(3 left out: episode_000000: frame"):
        run(source, tmp_path / "set", limits=TrackingLimits(position_m=0.0, rotation_rad=0.0))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"robot": "r2d2"}, "unknown robot 'r2d2'; choices: tabletop_arm, widowx_250s"),
        ({"view": "wrist"}, "no view 'wrist'; views: front"),
        ({"size": (31, 32)}, "size 31x32: both sides must be even"),
        ({"variants": -1}, "variants -1: must not be negative"),
        ({"processes": 0}, "num_processes 0: must be at least 1"),
    ],
)
def test_impossible_options_are_refused_by_name(
    source: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        run(source, tmp_path / "set", **options)
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize(("folder", "view"), [("set", "real"), ("set", "sim"), ("set-variants", "sim")])
def test_training_takes_a_paired_set_as_it_is(trainable: Path, tmp_path: Path, folder: str, view: str) -> None:
    data = open_dataset(trainable / folder, cameras=(view,))
    options = RunOptions(held_out=2, views=(view,))
    bundle = execute(recipe_named("debug")(data, options), data, tmp_path / "run", report=lambda line: None)
    assert bundle.spec.views == (view,)


@pytest.fixture(scope="module")
def trainable(tabletop_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A paired set with windows long enough for the debug recipe."""
    root = tmp_path_factory.mktemp("trainable")
    run(tabletop_root / "episodes", root / "set")
    return root


def test_where_no_variant_is_possible_the_pairs_are_still_written(source: Path, tmp_path: Path) -> None:
    nowhere = PerturbConfig(workspace_m=((0.0, 0.0, 0.0), (1e-3, 1e-3, 1e-3)), translation_noise_m=0.5, max_draws=2)
    lines = run(source, tmp_path / "set", perturb=nowhere)
    assert lines[-1].startswith(f"{tmp_path / 'set-variants'}: 0 variants")
    assert any(
        line.endswith("set-variants: not written, no variant is possible; lower the amplitudes") for line in lines
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set"]
    entry = record(tmp_path / "set")["episodes"]["episode_000000"]["variants"][0]
    assert sum(entry["rejected"].values()) == 2
    assert record(tmp_path / "set")["rejected_proposals"]["reasons"] == {"workspace": 2 * NUM_EPISODES}
    assert entry["none"].startswith("none of 2 proposals of variant 0 is possible: ")


def test_a_variant_whose_commands_leave_their_layout_is_drawn_again(source: Path, tmp_path: Path) -> None:
    data, root = read_lerobot(source), tmp_path / "own"
    actions = np.concatenate([episode.action for episode in data.episodes])
    assert data.action_layout is not None
    columns = data.action_layout.slices["translation"]
    low, high = float(actions[:, columns].min()), float(actions[:, columns].max())
    parts = tuple(
        replace(part, low=low, high=high) if part.kind == "translation" else part for part in data.action_layout.parts
    )
    with LeRobotWriter(
        root,
        fps=5,
        views={VIEW: (SIZE, SIZE)},
        action_layout=replace(data.action_layout, parts=parts),
        state_layout=data.state_layout,
        robot="tabletop_arm",
    ) as writer:
        for episode in data.episodes:
            camera = episode.view(VIEW).camera
            assert camera is not None
            tables = {"action": episode.action, "state": episode.state}
            writer.add(frames={VIEW: frames(episode, VIEW)}, **tables, cameras={VIEW: camera})
    run(root, tmp_path / "set", variants=3, perturb=PerturbConfig(translation_bias_m=0.3, max_draws=200))
    reasons = record(tmp_path / "set")["rejected_proposals"]["reasons"]
    assert reasons["action layout"] > 0
    variants = read_lerobot(tmp_path / "set-variants")
    assert not variants.rejected
    assert len(variants.episodes) == 3 * NUM_EPISODES


def test_variants_of_a_set_that_is_replaced_go_with_it(source: Path, tmp_path: Path) -> None:
    root = tmp_path / "set"
    run(source, root)
    lines = run(source, root, variants=0, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
    assert any(line.endswith("set-variants: removed, it held variants of the set that is replaced") for line in lines)
    run(source, root, overwrite=True)
    nowhere = PerturbConfig(workspace_m=((0.0, 0.0, 0.0), (1e-3, 1e-3, 1e-3)), translation_noise_m=0.5, max_draws=2)
    run(source, root, overwrite=True, perturb=nowhere)
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_what_lies_in_the_variants_place_and_is_no_data_set_is_not_removed(source: Path, tmp_path: Path) -> None:
    (tmp_path / "set-variants").mkdir()
    (tmp_path / "set-variants" / "letter.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"set-variants is no LeRobot set .* it is not overwritten"):
        run(source, tmp_path / "set", variants=0, overwrite=True)
    assert (tmp_path / "set-variants" / "letter.txt").read_text() == "mine"
