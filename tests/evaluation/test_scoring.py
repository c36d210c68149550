"""The evaluation as a whole: three rows on the same clips, reproducible, honest about what it left out."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simforcing.data.video import VideoFrames
from simforcing.evaluation.following import not_applicable
from simforcing.evaluation.protocols import METRICS, Protocol, protocol_named
from simforcing.evaluation.record import result_record, write_record
from simforcing.evaluation.result import EvaluationSettings, Provenance
from simforcing.evaluation.scoring import evaluate
from simforcing.types import Rejected

FREE = protocol_named("predicted-frames")


def test_rows_are_ordered_as_they_must_be(world, clips, reconstruct) -> None:
    result = evaluate(clips, world.obedient, reconstruct, FREE)
    for metric in METRICS:
        copied, model, ceiling = (result.interval(row, metric).mean for row in ("copy", "model", "ceiling"))
        assert copied < model < ceiling
    assert result.difference("model", "copy", "moving_psnr").low > 3


def test_a_model_that_copies_equals_the_copy_row(clips, reconstruct) -> None:
    def copies(batch, seeds):
        return [np.repeat(clip.frames[0][:1], clip.frames.shape[1], axis=0) for clip in batch]

    result = evaluate(clips, copies, reconstruct, FREE)
    for metric in METRICS:
        np.testing.assert_array_equal(result.rows["model"].per_clip(metric), result.rows["copy"].per_clip(metric))
        assert result.difference("model", "copy", metric).mean == 0


def test_a_perfect_model_reaches_the_cap_and_not_infinity(clips, reconstruct) -> None:
    result = evaluate(clips, lambda batch, seeds: [clip.frames[0] for clip in batch], reconstruct, FREE)
    assert result.interval("model", "psnr").mean == pytest.approx(FREE.psnr_cap_db)


@pytest.mark.parametrize("batch_size", [1, 5, 100])
def test_the_batch_size_changes_nothing(world, clips, reconstruct, batch_size: int) -> None:
    settings = EvaluationSettings(batch_size=batch_size)
    result = evaluate(clips, world.obedient, lambda batch: [clip.frames[0] for clip in batch], FREE, settings=settings)
    expected = evaluate(clips, world.obedient, lambda batch: [clip.frames[0] for clip in batch], FREE)
    for row in result.rows:
        np.testing.assert_array_equal(result.rows[row].psnr, expected.rows[row].psnr)
    assert [clip.seed for clip in result.clips] == list(range(len(clips)))


def test_kept_videos_are_spread_over_the_clips(world, clips, reconstruct) -> None:
    result = evaluate(clips, world.obedient, reconstruct, FREE, settings=EvaluationSettings(num_videos=3))
    assert [example.episode for example in result.examples] == ["episode 0", "episode 3", "episode 5"]
    np.testing.assert_array_equal(result.examples[0].truth, clips[0].frames[0])


def test_still_frames_and_clips_are_counted(world, reconstruct) -> None:
    late = np.repeat([[2.0, 0.0]], 4, axis=0)
    late[:2] = 0
    clips = [world.clip("late", (10, 10), late), world.clip("still", (10, 10), np.zeros((4, 2)))]
    result = evaluate(clips, world.obedient, reconstruct, FREE)
    assert (result.num_still_frames, result.num_still_clips) == (2 + 4, 1)
    assert result.interval("model", "moving_psnr").num_values == 1


@pytest.mark.parametrize(
    ("predict", "message"),
    [
        (lambda batch, seeds: [], "predict returned 0 videos for 8 clips"),
        (lambda batch, seeds: [clip.frames[0][1:] for clip in batch], r"predict returned uint8 \(8, 48, 48, 3\)"),
        (lambda batch, seeds: [clip.frames[0] / 255 for clip in batch], "predict returned float64"),
    ],
)
def test_a_prediction_of_a_wrong_form_is_refused(clips, reconstruct, predict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate(clips, predict, reconstruct, FREE)


def test_no_clip_is_an_error_that_says_why(world, reconstruct) -> None:
    with pytest.raises(ValueError, match="no held-out episode is long enough"):
        evaluate([], world.obedient, reconstruct, FREE)


def test_clips_of_two_sizes_are_refused_by_name(world, clips, reconstruct) -> None:
    small = replace(clips[1], frames=clips[1].frames[:, :, :40])
    with pytest.raises(ValueError, match="clip episode 0:0 has frames"):
        evaluate([clips[0], small], world.obedient, reconstruct, FREE)


def test_the_record_tells_all_that_is_needed_and_is_strict_json(world, clips, reconstruct, tmp_path: Path) -> None:
    provenance = Provenance(
        run="runs/a",
        command="simforcing evaluate runs/a",
        data_fingerprint="abc",
        sampler={"steps": 10},
        rejected=(Rejected(name="episode 9", reason="NaN in action"),),
    )
    still = world.clip("still", (10, 10), np.zeros((8, 2)))
    result = replace(evaluate([*clips, still], world.obedient, reconstruct, FREE), provenance=provenance)
    path = tmp_path / "evaluation.json"
    write_record(path, result, not_applicable("one branch per start"))
    record = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert record["protocol"]["name"] == "predicted-frames"
    assert record["counts"]["clips"] == 13
    assert record["counts"]["clips_without_motion"] == 1
    assert record["provenance"]["rejected"] == [{"type": "Rejected", "name": "episode 9", "reason": "NaN in action"}]
    assert record["provenance"]["sampler"] == {"steps": 10}
    assert {"python", "torch", "numpy"} <= set(record["provenance"]["versions"])
    assert record["following"] == {"reason": "one branch per start", "pairs_with_equal_actions": 0}
    assert [clip["seed"] for clip in record["clips"]] == list(range(13))
    assert record["clips"][-1]["copy"]["moving_psnr"] is None
    assert set(record["rows"]) == {"model", "copy", "ceiling"}
    assert not list(tmp_path.glob("*.partial"))


def test_the_record_holds_every_frame_of_every_clip_and_their_means_are_the_clip_s(world, clips, reconstruct) -> None:
    record = result_record(evaluate(clips, world.obedient, reconstruct, FREE))
    num_frames = record["counts"]["frames_per_clip"]
    for clip in record["clips"]:
        for row in record["rows"]:
            assert len(record["rows"][row]["curves"]["time_s"]) == num_frames
            for metric in METRICS:
                frames = clip[row]["frames"][metric]
                assert len(frames) == num_frames
                assert np.mean([score for score in frames if score is not None]) == pytest.approx(clip[row][metric])


def test_the_same_inputs_give_the_same_record(world, clips, reconstruct) -> None:
    first, second = (result_record(evaluate(clips, world.obedient, reconstruct, FREE)) for _ in range(2))
    assert first == second


def test_a_real_clip_scores_between_nothing_and_the_ceiling(shared_data: Path, world) -> None:
    paths = sorted((shared_data / "bridge_mp4").glob("*.mp4"))
    if not paths:
        pytest.skip(f"no mp4 in {shared_data / 'bridge_mp4'}")
    frames = VideoFrames(paths[0]).read(0, 9)
    clip = replace(world.clip(paths[0].stem, (0, 0), np.zeros((8, 2))), frames=frames[None])
    result = evaluate(
        [clip],
        lambda batch, seeds: [np.concatenate([frames[:1], frames[:-1]])],  # one frame late
        lambda batch: [(frames // 8) * 8],
        Protocol(name="any"),
    )
    copied, model, ceiling = (result.interval(row, "moving_psnr").mean for row in ("copy", "model", "ceiling"))
    assert 5 < copied < model < ceiling < 50
