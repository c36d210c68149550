"""Plans: commands inside the workspace, at the asked length, smooth."""

from typing import get_args

import numpy as np
import pytest

from simforcing.sim.kinematics import Kinematics, follow
from simforcing.sim.scene import SceneConfig
from simforcing.sim.tabletop_arm import TABLETOP_ARM
from simforcing.sim.tasks import Plan, Planner, TaskKind, Waypoint, Workspace, interpolate

PLANNER = Planner(workspace=Workspace(), num_steps=32)


def drawn_plan(kind: str, seed: int) -> tuple[np.ndarray, Plan]:
    rng = np.random.default_rng(seed)
    scene, start = SceneConfig().draw(rng), Workspace().draw(rng)
    return start, PLANNER.plan(kind, scene, start, rng)


@pytest.mark.parametrize("kind", get_args(TaskKind))
def test_every_command_of_every_task_can_be_reached(kind: str):
    kinematics = Kinematics(TABLETOP_ARM)
    for seed in range(8):
        start, plan = drawn_plan(kind, seed)
        assert plan.commands.shape == (32, 7)
        home = np.array([np.arctan2(start[1], start[0]), *TABLETOP_ARM.arms[0].home_rad[1:]])
        path = follow(kinematics, plan.commands[:, :6], kinematics.inverse(start[:6], home))
        reached = np.array([kinematics.forward(joint_rad) for joint_rad in path])
        np.testing.assert_allclose(reached, plan.commands[:, :6], atol=5e-3)


@pytest.mark.parametrize("kind", get_args(TaskKind))
def test_commands_never_jump(kind: str):
    for seed in range(8):
        start, plan = drawn_plan(kind, seed)
        steps = np.diff(np.concatenate([start[None], plan.commands]), axis=0)
        assert np.linalg.norm(steps[:, :3], axis=1).max() < 0.16
        assert np.abs(steps[:, 3:6]).max() < 0.9


def test_interpolation_ends_at_each_waypoint_and_holds_the_last():
    start, end = np.zeros(7), np.ones(7)
    commands = interpolate(start, [Waypoint(command=end, num_steps=4)], 6)
    assert commands.shape == (6, 7)
    np.testing.assert_allclose(commands[3:], 1.0)
    assert (np.diff(commands[:4, 0]) > 0).all()


def test_interpolation_is_cut_at_the_number_of_steps():
    assert interpolate(np.zeros(7), [Waypoint(command=np.ones(7), num_steps=9)], 5).shape == (5, 7)


def test_instructions_name_the_object_that_is_acted_on():
    rng = np.random.default_rng(0)
    scene = SceneConfig(num_objects=(2, 2)).draw(rng)
    plan = PLANNER.plan("pick", scene, Workspace().draw(rng), rng, target=1)
    assert plan.task == f"pick up the {scene.objects[1].phrase}"


def test_a_missed_grasp_closes_beside_the_object_with_the_words_of_a_pick():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        scene, start = SceneConfig().draw(rng), Workspace().draw(rng)
        plan = PLANNER.plan("miss", scene, start, rng, target=0)
        assert plan.task == f"pick up the {scene.objects[0].phrase}"
        lowest = plan.commands[np.argmin(plan.commands[:16, 2])]
        assert np.linalg.norm(lowest[:2] - np.array(scene.objects[0].position_m)) > 0.08
