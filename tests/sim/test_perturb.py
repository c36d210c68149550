"""Perturbation: statistics of proposals, deviations that add up, and variants that stay where a robot can be."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.transform import Rotation

from simforcing.data.open import open_dataset
from simforcing.sim.kinematics import Kinematics
from simforcing.sim.lowest_point import LowestPoint
from simforcing.sim.model import RobotModel
from simforcing.sim.perturb import NoVariantError, PerturbConfig, Perturber, Proposal, Variant, accumulate, propose
from simforcing.sim.replay import Layouts, Replay, replay
from simforcing.sim.tabletop_arm import TABLETOP_ARM

NOTHING = PerturbConfig(
    translation_bias_m=0.0,
    translation_scale=0.0,
    translation_noise_m=0.0,
    rotation_bias_rad=0.0,
    rotation_scale=0.0,
    rotation_noise_rad=0.0,
)
NUM_FRAMES = 21


@pytest.fixture(scope="module")
def robot() -> RobotModel:
    return RobotModel(TABLETOP_ARM)


def parent_of(robot: RobotModel, centre_rad: np.ndarray, num_frames: int = NUM_FRAMES) -> Replay:
    """A smooth motion about a posture, the gripper closing."""
    phase = np.linspace(0, 1, num_frames)[:, None]
    joint_rad = centre_rad + 0.15 * np.sin(2 * phase * np.arange(1, 7)) * np.array([2, 1, -1, 2, -2, 2])
    openness = np.linspace(1, 0, num_frames)[:, None]
    zeros = np.zeros(num_frames)
    return Replay(
        qpos=robot.configuration(joint_rad, openness),
        joint_rad=joint_rad,
        openness=openness,
        source="joints",
        position_error_m=zeros,
        rotation_error_rad=zeros,
    )


@pytest.fixture(scope="module")
def parent(robot: RobotModel) -> Replay:
    return parent_of(robot, robot.home_rad)


@pytest.fixture(scope="module")
def low_rad() -> np.ndarray:
    """A posture with the gripper straight down, its tool 6 cm above the table."""
    return Kinematics(TABLETOP_ARM).reach(np.array([0.28, 0.0, 0.06, 0.0, 0.0, 0.0]))


def test_proposals_have_the_declared_distributions():
    """Before any rejection: uniform biases and scales, normal noise, by Kolmogorov-Smirnov."""
    config, rng = PerturbConfig(), np.random.default_rng(0)
    proposals = [propose(config, rng, 20) for _ in range(2000)]

    def check(values: list, expected: stats.rv_continuous | object) -> None:
        assert stats.kstest(np.ravel(values), expected.cdf).pvalue > 0.01  # type: ignore[attr-defined]

    check([p.translation_bias_m for p in proposals], stats.uniform(-0.04, 0.08))
    check([p.rotation_bias_rad for p in proposals], stats.uniform(-0.15, 0.3))
    check([p.translation_scale for p in proposals], stats.uniform(0.75, 0.5))
    check([p.rotation_scale for p in proposals], stats.uniform(0.75, 0.5))
    check([p.translation_noise_m for p in proposals], stats.norm(0, 0.002))
    check([p.rotation_noise_rad for p in proposals], stats.norm(0, 0.005))


def test_proposals_draw_everything_independently():
    config, rng = PerturbConfig(), np.random.default_rng(1)
    proposals = [propose(config, rng, 2) for _ in range(2000)]
    rows = np.array(
        [
            [
                *p.translation_bias_m,
                p.translation_scale,
                *p.translation_noise_m.ravel(),
                *p.rotation_bias_rad,
                p.rotation_scale,
                *p.rotation_noise_rad.ravel(),
            ]
            for p in proposals
        ]
    )
    assert np.abs(np.corrcoef(rows.T) - np.eye(rows.shape[1])).max() < 0.1


def test_deviation_is_the_sum_of_perturbed_increments():
    """p' and R' rebuilt step by step from the definition in the module's docstring."""
    rng = np.random.default_rng(2)
    poses = np.cumsum(rng.normal(0, 0.05, (9, 6)), axis=0)
    proposal = propose(PerturbConfig(), rng, 8)
    moved = accumulate(proposal, poses).applied(poses)
    position, rotation = poses[0, :3], Rotation.from_euler("xyz", poses[0, 3:])
    for i in range(8):
        turns = [Rotation.from_euler("xyz", poses[k, 3:]) for k in (i, i + 1)]
        step = poses[i + 1, :3] - poses[i, :3]
        position = position + (
            proposal.translation_scale * step + proposal.translation_bias_m / 8 + proposal.translation_noise_m[i]
        )
        turn = (turns[1] * turns[0].inv()).as_rotvec()
        turn = proposal.rotation_scale * turn + proposal.rotation_bias_rad / 8 + proposal.rotation_noise_rad[i]
        rotation = Rotation.from_rotvec(turn) * rotation
        np.testing.assert_allclose(moved[i + 1, :3], position, atol=1e-12)
        assert (Rotation.from_euler("xyz", moved[i + 1, 3:]) * rotation.inv()).magnitude() < 1e-9


@pytest.mark.parametrize("num_steps", [1, 20, 1000])
def test_bias_adds_up_to_what_was_drawn_whatever_the_length(num_steps: int):
    config = replace(PerturbConfig(), translation_noise_m=0.0, rotation_noise_rad=0.0)
    proposal = propose(config, np.random.default_rng(5), num_steps)
    deviation = accumulate(proposal, np.zeros((num_steps + 1, 6)))
    np.testing.assert_allclose(deviation.translation_m[-1], proposal.translation_bias_m, atol=1e-12)
    turned = Rotation.from_quat(deviation.rotation_wxyz[-1], scalar_first=True).as_rotvec()
    np.testing.assert_allclose(turned, proposal.rotation_bias_rad, atol=1e-12)


@pytest.mark.parametrize(("num_steps", "end_m"), [(20, 0.043), (50, 0.047), (200, 0.063), (1000, 0.117)])
def test_bias_and_noise_lead_as_far_as_documented(num_steps: int, end_m: float):
    rng, standing = np.random.default_rng(6), np.zeros((num_steps + 1, 6))
    config = PerturbConfig()
    proposals = [propose(config, rng, num_steps) for _ in range(400)]
    ends_m = [p.translation_bias_m + p.translation_noise_m.sum(axis=0) for p in proposals]
    assert np.sqrt(np.mean(np.sum(np.square(ends_m), axis=1))) == pytest.approx(end_m, rel=0.1)
    np.testing.assert_allclose(accumulate(proposals[0], standing).translation_m[-1], ends_m[0], atol=1e-12)


def test_long_episode_has_variants_that_end_near_their_parent(robot: RobotModel):
    parent = parent_of(robot, robot.home_rad, 400)
    (deviation,) = Perturber(robot, PerturbConfig()).variant(parent, seed=0, episode=0, draw=0).deviations
    assert 0.01 < np.linalg.norm(deviation.translation_m[-1]) < 0.3


def test_zero_amplitude_gives_the_parent_bit_for_bit(robot: RobotModel, parent: Replay):
    variant = Perturber(robot, NOTHING).variant(parent, seed=0, episode=0, draw=0)
    assert variant.qpos.tobytes() == parent.qpos.tobytes()
    assert variant.joint_rad.tobytes() == parent.joint_rad.tobytes()


def test_zero_amplitude_gives_a_parent_bit_for_bit_that_itself_exceeds_limits(robot: RobotModel, parent: Replay):
    joint_rad = parent.joint_rad.copy()
    joint_rad[5, 4] = robot.high_rad[4] + 0.02
    beyond = replace(parent, joint_rad=joint_rad, qpos=robot.configuration(joint_rad, parent.openness))
    variant = Perturber(robot, NOTHING).variant(beyond, seed=0, episode=0, draw=0)
    assert variant.qpos.tobytes() == beyond.qpos.tobytes()


def test_variant_follows_its_deviation_from_the_same_start_with_the_same_gripper(robot: RobotModel, parent: Replay):
    variant = Perturber(robot, PerturbConfig()).variant(parent, seed=3, episode=1, draw=2)
    kinematics = Kinematics(TABLETOP_ARM)
    poses = np.array([kinematics.forward(row) for row in parent.joint_rad])
    found = np.array([kinematics.forward(row) for row in variant.joint_rad])
    (deviation,) = variant.deviations
    np.testing.assert_allclose(found[:, :3], poses[:, :3] + deviation.translation_m, atol=1e-5)
    np.testing.assert_array_equal(variant.qpos[0], parent.qpos[0])
    np.testing.assert_array_equal(variant.openness, parent.openness)
    assert 0.005 < np.linalg.norm(deviation.translation_m[-1]) < 0.2
    assert (variant.joint_rad >= robot.low_rad).all()
    assert (variant.joint_rad <= robot.high_rad).all()


def test_variant_is_a_function_of_seed_episode_and_draw(robot: RobotModel, parent: Replay):
    def joints(seed: int, episode: int, draw: int) -> bytes:
        variant = Perturber(robot, PerturbConfig()).variant(parent, seed=seed, episode=episode, draw=draw)
        return variant.joint_rad.tobytes()

    assert joints(1, 2, 3) == joints(1, 2, 3)
    assert len({joints(*key) for key in ((1, 2, 3), (2, 2, 3), (1, 3, 3), (1, 2, 0), (1, 2, 1))}) == 5


def test_proposals_that_leave_the_box_are_rejected_and_counted(robot: RobotModel, parent: Replay):
    kinematics = Kinematics(TABLETOP_ARM)
    tool = np.array([kinematics.forward(row)[:3] for row in parent.joint_rad])
    low, high = (tool.min(axis=0) - 0.004).tolist(), (tool.max(axis=0) + 0.004).tolist()
    box = ((low[0], low[1], low[2]), (high[0], high[1], high[2]))
    perturber = Perturber(robot, PerturbConfig(workspace_m=box, max_draws=400))
    variants = [perturber.variant(parent, seed=0, episode=0, draw=draw) for draw in range(3)]
    assert sum(variant.rejected["workspace"] for variant in variants) > 3
    for variant in variants:
        found = tool + variant.deviations[0].translation_m
        assert (found >= box[0]).all()
        assert (found <= box[1]).all()


def test_proposals_that_reach_below_the_table_are_rejected_and_counted(low_rad: np.ndarray):
    plain = RobotModel(TABLETOP_ARM)
    parent, lowest = parent_of(plain, low_rad), LowestPoint(plain)
    table_m = float(lowest.heights_m(parent.qpos).min()) - 0.002
    robot = RobotModel(replace(TABLETOP_ARM, table_height_m=table_m))
    variants = [Perturber(robot, PerturbConfig()).variant(parent, seed=0, episode=0, draw=i) for i in range(5)]
    assert sum(variant.rejected.get("table", 0) for variant in variants) > 2
    assert all(lowest.heights_m(variant.qpos).min() >= table_m for variant in variants)
    unknown = RobotModel(replace(TABLETOP_ARM, table_height_m=None))  # then the caller may say it
    told = Perturber(unknown, PerturbConfig(table_height_m=table_m))
    again = [told.variant(parent, seed=0, episode=0, draw=i) for i in range(5)]
    assert [variant.rejected for variant in again] == [variant.rejected for variant in variants]


def test_what_the_caller_refuses_is_redrawn_and_counted_by_its_reason(robot: RobotModel, parent: Replay):
    seen: list[Variant] = []

    def fault(variant: Variant) -> str | None:
        seen.append(variant)
        return "too early" if len(seen) < 4 else None

    perturber = Perturber(robot, PerturbConfig(max_draws=9))
    variant = perturber.variant(parent, seed=0, episode=0, draw=0, fault=fault)
    assert variant.rejected["too early"] == 3
    assert variant is seen[3]
    assert len({one.joint_rad.tobytes() for one in seen}) == 4
    with pytest.raises(NoVariantError, match="too early") as stopped:
        perturber.variant(parent, seed=0, episode=0, draw=0, fault=lambda variant: "too early")
    assert sum(stopped.value.rejected.values()) == 9


def test_joints_at_their_limits_are_told_from_what_is_out_of_reach(robot: RobotModel, parent: Replay):
    """A wrist that may hardly turn stops proposals that only turn the tool."""
    tight = RobotModel(robot.robot)
    turning = replace(NOTHING, rotation_bias_rad=0.6, max_draws=3)
    tight.low_rad, tight.high_rad = (f(parent.joint_rad, axis=0) + d for f, d in ((np.min, -1e-3), (np.max, 1e-3)))
    tight.model.jnt_range[[tight.model.joint(name).id for name in tight.robot.joints]] = np.stack(
        [tight.low_rad, tight.high_rad], axis=1
    )
    with pytest.raises(NoVariantError) as stopped:
        Perturber(tight, turning).variant(parent, seed=0, episode=0, draw=0)
    assert stopped.value.rejected == {"joint limits": 3}


def test_proposals_beyond_reach_are_rejected_and_a_hopeless_variant_says_why(robot: RobotModel, parent: Replay):
    wild = PerturbConfig(translation_bias_m=6.0, max_draws=7)
    with pytest.raises(ValueError, match="none of 7 proposals of variant 4 is possible: reach 7"):
        Perturber(robot, wild).variant(parent, seed=0, episode=0, draw=4)


@pytest.mark.parametrize(
    ("robot", "folder"), [("widowx", "bridge_rlds/1.0.0"), ("panda", "droid"), ("panda", "droid_raw")]
)
def test_real_episodes_have_variants_that_stay_above_the_table(
    robot: str, folder: str, request: pytest.FixtureRequest, shared_data: Path
):
    plain: RobotModel = request.getfixturevalue(robot)
    data = open_dataset(shared_data / folder)
    model = RobotModel(replace(plain.robot, table_height_m=0.0))
    perturber, lowest = Perturber(model, PerturbConfig()), LowestPoint(model)
    num_rejected = 0
    for i, episode in enumerate(data.episodes[:2]):
        parent = replay(model, episode, Layouts.of(data))
        variant = perturber.variant(parent, seed=0, episode=i, draw=0)
        num_rejected += sum(variant.rejected.values())
        assert lowest.heights_m(variant.qpos).min() >= min(0.0, lowest.heights_m(parent.qpos).min())
        assert np.abs(np.diff(variant.joint_rad, axis=0)).max() < 0.5
        assert not np.array_equal(variant.joint_rad[1:], parent.joint_rad[1:])
    assert num_rejected < 20


def test_both_arms_of_two_are_perturbed_independently(two_arms: RobotModel):
    joint_rad = np.tile(two_arms.home_rad, (6, 1)) + np.linspace(0, 0.1, 6)[:, None]
    openness = np.ones((6, 2))
    both = Replay(
        qpos=two_arms.configuration(joint_rad, openness),
        joint_rad=joint_rad,
        openness=openness,
        source="joints",
        position_error_m=np.zeros(6),
        rotation_error_rad=np.zeros(6),
    )
    variant = Perturber(two_arms, PerturbConfig()).variant(both, seed=0, episode=0, draw=0)
    left, right = variant.deviations
    assert np.abs(left.translation_m[1:] - right.translation_m[1:]).min() > 0
    for side, columns in (("left", slice(0, 6)), ("right", slice(6, 12))):
        kinematics = Kinematics(two_arms, "left" if side == "left" else "right")
        deviation = left if side == "left" else right
        moved = [kinematics.forward(row[columns])[:3] for row in variant.joint_rad]
        before = [kinematics.forward(row[columns])[:3] for row in joint_rad]
        np.testing.assert_allclose(np.array(moved) - before, deviation.translation_m, atol=1e-5)


@pytest.mark.parametrize("field", ["translation_bias_m", "rotation_noise_rad", "translation_scale"])
def test_negative_amplitudes_are_refused_by_name(field: str):
    with pytest.raises(ValueError, match=f"{field} -1"):
        PerturbConfig(**{field: -1.0})


def test_box_with_swapped_corners_is_refused():
    with pytest.raises(ValueError, match="lowest and a highest corner"):
        PerturbConfig(workspace_m=((0.0, 0.0, 0.0), (1.0, 1.0, -1.0)))


def test_episode_of_one_frame_has_a_variant(robot: RobotModel, parent: Replay):
    one = Replay(**{key: value if key == "source" else value[:1] for key, value in vars(parent).items()})
    variant = Perturber(robot, PerturbConfig()).variant(one, seed=0, episode=0, draw=0)
    np.testing.assert_array_equal(variant.qpos, one.qpos)
    assert isinstance(propose(PerturbConfig(), np.random.default_rng(0), 0), Proposal)
