"""Pair agreement tells right pairs from wrong ones, and its sums are the correlations that they stand for."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from simforcing.data.pair_frames import PairFrames
from simforcing.evaluation.agreement import (
    AgreementConfig,
    EpisodeMotion,
    Setting,
    clip_starts,
    clip_sums,
    interval,
    measure,
    motion_of,
)
from simforcing.evaluation.agreement_verdict import Thresholds, judged
from simforcing.evaluation.edge_agreement import edge_agreement, moving_edges
from simforcing.evaluation.intervals import Interval
from simforcing.models.autoencoder import TinyAutoencoder, TinyAutoencoderConfig

NUM_FRAMES, SIDE, BLOCK = 25, 64, 14
CONFIG = AgreementConfig(backgrounds=("grey", "white"))
OWN = Setting(background="grey")


def pair(seed: int = 0, *, robot: int = 210, down: int = 0, right: int = 0, delay: int = 0) -> PairFrames:
    """A textured block that wanders over a textured scene, and the same block, plain, on grey.

    Args:
        robot: grey level of the sim's block.
        down, right, delay: by which the sim is wrong.
    """
    rng = np.random.default_rng(seed)
    steps = np.cumsum(rng.uniform(-3, 3, (NUM_FRAMES + 4, 2)), axis=0)
    corners = np.clip(24 + steps - steps.mean(axis=0), 2, SIDE - BLOCK - 12).round().astype(int)
    scene = np.kron(rng.integers(60, 130, (16, 16, 3)), np.ones((4, 4, 1))).astype(np.uint8)
    texture = rng.integers(190, 230, (BLOCK, BLOCK, 3)).astype(np.uint8)
    real, sim = np.tile(scene, (NUM_FRAMES, 1, 1, 1)), np.full((NUM_FRAMES, SIDE, SIDE, 3), 128, np.uint8)
    mask = np.zeros((NUM_FRAMES, SIDE, SIDE), bool)
    for i in range(NUM_FRAMES):
        row, column = corners[i + 2]
        real[i, row : row + BLOCK, column : column + BLOCK] = texture
        row, column = corners[i + 2 - delay] + (down, right)
        sim[i, row : row + BLOCK, column : column + BLOCK] = robot
        mask[i, row : row + BLOCK, column : column + BLOCK] = True
    return PairFrames("block", real, sim, mask, np.full((SIDE, SIDE, 3), 128, np.uint8), "grey")


@pytest.fixture(scope="module")
def autoencoder() -> TinyAutoencoder:
    model = TinyAutoencoderConfig(channels=32, num_decoder_blocks=0).build()
    clips = [frames[i : i + 5] for seed in range(4) for frames in (pair(seed).real, pair(seed).sim) for i in (0, 8, 16)]
    model.initialise(torch.from_numpy(np.stack(clips)).movedim(-1, 2))
    return model.eval()


def signed(motion: EpisodeMotion, setting: Setting, other: EpisodeMotion | None = None) -> float:
    return float(measure("signed", motion.sums(setting, other).sum(axis=0)))


def test_sums_give_the_correlation_and_the_explained_share_of_numpy() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 5, 4, 6, generator=generator)
    y = 0.6 * x + torch.randn(3, 5, 4, 6, generator=generator)
    region = np.random.default_rng(0).random((3, 4, 6)) < 0.5
    sums = clip_sums(x, y, region)
    inside = torch.from_numpy(region)
    a, b = (v.movedim(1, -1)[inside].numpy() for v in (x, y))
    assert float(measure("signed", sums)) == pytest.approx(np.corrcoef(a.ravel(), b.ravel())[0, 1], abs=1e-6)
    lengths = [np.linalg.norm(v, axis=1) for v in (a, b)]
    assert float(measure("magnitude", sums)) == pytest.approx(np.corrcoef(*lengths)[0, 1], abs=1e-6)
    assert float(measure("explained", sums)) == pytest.approx(1 - np.square(a - b).sum() / np.square(a).sum(), abs=1e-6)
    assert float(measure("energy", sums)) == pytest.approx(np.square(b).sum() / np.square(a).sum(), abs=1e-6)
    with pytest.raises(ValueError, match="choices: signed, magnitude"):
        measure("size", sums)


def test_a_sim_equal_to_the_real_video_agrees_fully_and_a_still_one_has_no_number(autoencoder: TinyAutoencoder) -> None:
    same = pair()
    motion = EpisodeMotion(replace(same, sim=same.real), autoencoder, CONFIG)
    assert signed(motion, OWN) == pytest.approx(1.0, abs=1e-6)
    assert float(measure("explained", motion.sums(OWN).sum(axis=0))) == pytest.approx(1.0, abs=1e-6)
    still = replace(same, sim=np.repeat(same.sim[:1], NUM_FRAMES, axis=0))
    assert np.isnan(signed(EpisodeMotion(still, autoencoder, CONFIG), replace(OWN, region="all")))


def test_clips_leave_room_for_every_shift_and_too_short_an_episode_says_what_it_needs() -> None:
    starts, length = clip_starts(40, 4, CONFIG)
    assert length == 17
    assert starts == [2, 18]
    assert clip_starts(10, 1, AgreementConfig(clip_frames=9, shifts=(0,))) == ([0], 9)
    with pytest.raises(ValueError, match="8 frames, at least 9 are needed for shifts of 2 frames"):
        clip_starts(8, 4, CONFIG)


def test_wrong_pairs_correlate_less_in_sign_than_the_right_one(autoencoder: TinyAutoencoder) -> None:
    motion = EpisodeMotion(pair(), autoencoder, CONFIG)
    right = signed(motion, OWN)
    wrong = [signed(motion, replace(OWN, shift=shift)) for shift in (-2, -1, 1, 2)]
    wrong += [signed(motion, replace(OWN, moved_px=pixels)) for pixels in (4, 8)]
    wrong.append(signed(motion, replace(OWN, source="other"), EpisodeMotion(pair(1), autoencoder, CONFIG)))
    assert right > 0.6
    assert max(wrong) < right - 0.2


def test_the_shift_that_undoes_a_delay_agrees_best(autoencoder: TinyAutoencoder) -> None:
    """A sim that is a frame late fits once it is taken a frame earlier: shift -1."""
    motion = EpisodeMotion(pair(delay=1), autoencoder, CONFIG)
    by_shift = {shift: signed(motion, replace(OWN, shift=shift)) for shift in CONFIG.shifts}
    assert max(by_shift, key=lambda shift: by_shift[shift]) == -1


def test_a_robot_on_the_other_side_of_its_background_turns_the_sign_and_keeps_the_magnitude(
    autoencoder: TinyAutoencoder,
) -> None:
    bright, dark = (EpisodeMotion(pair(robot=level), autoencoder, CONFIG) for level in (210, 46))
    assert signed(bright, OWN) > 0.4
    assert signed(dark, OWN) < -0.4
    magnitudes = [float(measure("magnitude", motion.sums(OWN).sum(axis=0))) for motion in (bright, dark)]
    assert magnitudes[1] == pytest.approx(magnitudes[0], abs=0.05)


def test_real_pixels_in_the_sims_mask_agree_better_than_a_plain_robot(autoencoder: TinyAutoencoder) -> None:
    motion = EpisodeMotion(pair(), autoencoder, CONFIG)
    assert signed(motion, replace(OWN, source="cut-out")) >= signed(motion, OWN)


def test_intervals_resample_whole_clips(autoencoder: TinyAutoencoder) -> None:
    sums = np.concatenate([EpisodeMotion(pair(seed), autoencoder, CONFIG).sums(OWN) for seed in range(6)])
    clusters = [str(i) for i in range(len(sums))]
    found = interval("signed", sums, clusters, seed=0)
    assert found.low < found.mean < found.high
    assert found.num_clusters == len(sums)
    assert interval("signed", sums, clusters, seed=0) == found


def test_motion_of_a_still_clip_is_zero(autoencoder: TinyAutoencoder) -> None:
    still = np.repeat(pair().real[:1], 9, axis=0)
    assert float(motion_of(still, autoencoder).abs().max()) < 1e-4


@pytest.mark.parametrize(("down", "right"), [(0, 0), (3, -2), (-4, 5)])
def test_edges_say_by_how_much_the_sim_must_be_moved(down: int, right: int) -> None:
    shown = pair(down=down, right=right)
    found = edge_agreement(shown, shifts=CONFIG.shifts)
    assert found.offset_px == pytest.approx((-down, -right), abs=0.3)
    assert found.best_z > 3
    assert (found.correlation > 0.8 * found.best) == (down == right == 0)


@pytest.mark.parametrize("delay", [-2, 0, 1])
def test_edges_find_the_delay_of_the_sim(delay: int) -> None:
    shown = pair(delay=delay)
    found = edge_agreement(shown, shifts=CONFIG.shifts)
    assert max(found.by_shift, key=lambda shift: found.by_shift[shift]) == -delay


@pytest.mark.parametrize("robot", [46, 128, 210])
def test_edges_do_not_ask_whether_the_robot_is_brighter_than_what_is_behind_it(robot: int) -> None:
    shown = pair(robot=robot)
    found = edge_agreement(shown)
    assert found.distance_px < 0.3
    assert found.correlation > 0.3


def test_what_stands_still_has_no_moving_edges_and_two_frames_are_needed() -> None:
    shown = pair()
    assert np.abs(moving_edges(np.repeat(shown.real[:1], 3, axis=0))).max() < 1e-5
    with pytest.raises(ValueError, match="1 frames to compare edges in"):
        edge_agreement(replace(shown, real=shown.real[:1], sim=shown.sim[:1], mask=shown.mask[:1]))


def number(mean: float) -> Interval:
    return Interval(mean=mean, low=mean - 0.1, high=mean + 0.1, num_values=4, num_clusters=4)


def test_a_verdict_names_every_fault() -> None:
    limits = Thresholds()
    shown = pair()
    edges = edge_agreement(shown, shifts=CONFIG.shifts)
    assert judged(edges, number(0.6), number(0.0), SIDE, limits).verdict == "go"
    assert judged(edges, number(0.6), number(0.0), SIDE, limits).reasons == ()
    assert judged(edges, number(limits.go_signed - 0.01), number(0.0), SIDE, limits).verdict == "doubtful"
    assert judged(edges, number(np.nan), None, SIDE, limits).verdict == "no-go"
    assert judged(None, number(0.6), None, SIDE, limits).verdict == "doubtful"
    other = judged(edges, number(0.6), number(0.7), SIDE, limits)
    assert (other.verdict, other.reasons) == ("no-go", ("another episode's sim fits as well (0.70)",))
    moved = pair(down=4, right=-3)
    wrong = edge_agreement(moved, shifts=CONFIG.shifts)
    assert judged(wrong, number(0.6), number(0.0), SIDE, limits).verdict == "no-go"
    placed = replace(edges, offset_px=(-4.0, 3.0), by_shift=edges.by_shift | {2: 1.5 * edges.correlation})
    reasons = judged(placed, number(0.6), number(0.0), SIDE, limits).reasons
    assert reasons[0] == "edges fit best with the sim moved by (-4.0 down, 3.0 right) px"
    assert reasons[1].startswith("edges fit better at lag +2")
