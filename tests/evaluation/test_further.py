"""Robot and background, and further rows: they recombine, they are paired, and they are n/a where nothing is known."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simforcing.evaluation.figures import Line, line_chart
from simforcing.evaluation.protocols import METRICS, ROBOT_METRICS, SCORES, Protocol, protocol_named, score_clip
from simforcing.evaluation.record import result_record
from simforcing.evaluation.report import report_html
from simforcing.evaluation.scoring import NO_ROBOT, Further, evaluate, true_mask
from simforcing.evaluation.training_charts import grouped, training_charts

FREE = protocol_named("predicted-frames")


def with_masks(clip, masks: np.ndarray):
    return replace(clip, masks=masks[None], mask_present=np.ones(1, bool))


@given(seed=st.integers(0, 2**32 - 1), share=st.floats(0.02, 0.98))
def test_errors_inside_and_outside_the_robot_recombine_to_that_of_the_frame(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    truth, predicted = rng.integers(0, 256, (2, 4, 16, 16, 3)).astype(np.uint8)
    robot = rng.random((4, 16, 16)) < share
    robot[:, 0, 0], robot[:, 0, 1] = True, False
    scores = score_clip(truth, predicted, Protocol(name="a", psnr_cap_db=np.inf), robot)
    area = robot[1:].mean(axis=(1, 2))
    inside, outside, whole = (
        10 ** (-np.array(x) / 10) for x in (scores.robot_psnr, scores.background_psnr, scores.psnr)
    )
    np.testing.assert_allclose(area * inside + (1 - area) * outside, whole, rtol=1e-10)


@pytest.mark.parametrize("everywhere", [True, False])
def test_a_robot_everywhere_or_nowhere_leaves_one_score_and_the_other_out(rng, everywhere: bool) -> None:
    truth, predicted = rng.integers(0, 256, (2, 4, 16, 16, 3)).astype(np.uint8)
    scores = score_clip(truth, predicted, FREE, np.full((4, 16, 16), everywhere))
    kept, left_out = (scores.robot_psnr, scores.background_psnr)[:: 1 if everywhere else -1]
    np.testing.assert_allclose(kept, scores.psnr, rtol=1e-12)
    assert np.isnan(left_out).all()


def test_a_fault_of_the_robot_alone_is_seen_in_its_score_alone(world, clips, reconstruct) -> None:
    def robotless(batch, seeds):
        return [np.where(c.masks[0][..., None], world.background, c.frames[0]) for c in batch]

    masked = [with_masks(c, (c.frames[0] != world.background).any(axis=-1)) for c in clips]
    result = evaluate(masked, robotless, reconstruct, FREE)
    assert result.robot_reason == ""
    assert result.interval("model", "background_psnr").mean == pytest.approx(FREE.psnr_cap_db)
    assert result.interval("model", "robot_psnr").mean < 12


def test_without_masks_scores_of_the_robot_are_null_with_one_reason(world, clips, reconstruct) -> None:
    result = evaluate(clips, world.obedient, reconstruct, FREE)
    record = json.loads(json.dumps(result_record(result), allow_nan=False))
    assert record["reasons"] == dict.fromkeys(ROBOT_METRICS, NO_ROBOT)
    for row in record["rows"].values():
        for metric in ROBOT_METRICS:
            assert row[metric]["mean"] is row[metric]["low"] is None
            assert row[metric]["num_values"] == 0
            assert set(row["curves"][metric]["mean"]) == {None}
        assert row["psnr"]["mean"] is not None
    page = report_html(result, title="a")
    assert page.count(NO_ROBOT) == 1
    assert page.count(">n/a <") == len(ROBOT_METRICS) * (3 + 2)


def test_clips_with_and_without_masks_count_those_that_have_them(world, clips, reconstruct) -> None:
    robot = (clips[0].frames[0] != world.background).any(axis=-1)
    bare = replace(with_masks(clips[1], robot), mask_present=np.zeros(1, bool))
    assert true_mask(bare, 0) is None
    result = evaluate([with_masks(clips[0], robot), bare, *clips[2:]], world.obedient, reconstruct, FREE)
    assert result.interval("model", "robot_psnr").num_values == 1
    assert result.interval("model", "psnr").num_values == len(clips)


def test_further_rows_are_of_the_same_clips_and_seeds_and_their_differences_paired(
    world, clips, blind, reconstruct
) -> None:
    asked = []

    def noted(batch, seeds):
        asked.append((tuple(c.episode for c in batch), tuple(seeds)))
        return world.obedient(batch, seeds)

    further = Further(
        alternatives={"w = 0": blind, "w = 1": noted}, comparisons=(("model", "w = 0"), ("model", "w = 1"))
    )
    result = evaluate(clips, noted, reconstruct, FREE, further=further)
    assert asked[0::2] == asked[1::2]
    assert list(result.rows) == ["model", "copy", "ceiling", "w = 0", "w = 1"]
    for metric in METRICS:
        same = result.difference("model", "w = 1", metric)
        assert (same.mean, same.low, same.high) == (0, 0, 0)
        paired = result.rows["model"].per_clip(metric) - result.rows["w = 0"].per_clip(metric)
        assert result.difference("model", "w = 0", metric).mean == pytest.approx(paired.mean())
    record = result_record(result)
    assert list(record["differences"]) == ["model - copy", "model - ceiling", "model - w = 0", "model - w = 1"]
    assert set(record["clips"][0]) >= {"w = 0", "w = 1"}
    assert set(record["rows"]["w = 0"]) >= set(SCORES)


def test_an_alternative_cannot_take_a_row_s_name(blind) -> None:
    with pytest.raises(ValueError, match="cannot be named 'copy'; taken: model, copy, ceiling"):
        Further(alternatives={"copy": blind})


def test_curves_show_the_three_rows_and_the_true_simulation_alone(world, clips, blind, reconstruct) -> None:
    rows = dict.fromkeys(("w = 0", "w = 0.3", "w = 1", "true simulation, w = 0.6"), blind)
    further = Further(alternatives=rows, comparisons=(("true simulation, w = 0.6", "w = 0"),), label="model, w = 0.6")
    result = evaluate(clips, world.obedient, reconstruct, FREE, further=further)
    assert result.drawn == ["model", "copy", "ceiling", "true simulation, w = 0.6"]
    page = report_html(result, title="a")
    chart = page[page.index("<svg") : page.index("</svg>")]
    assert chart.count("true simulation, w = 0.6") >= 1
    assert "w = 0.3" not in chart
    assert "(true simulation, w = 0.6) minus (w = 0)" in page
    assert "w = 0.3" in page


def records(*terms: str) -> list[dict]:
    steps = range(10, 200, 10)
    return [{"step": i, "loss": 1 / i, "terms": {t: (k + 1) / i for k, t in enumerate(terms)}} for i in steps]


def test_terms_of_one_kind_share_a_chart_and_every_branch_is_there() -> None:
    terms = ("flow_real", "flow_sim", "motion_real", "motion_sim", "value_real", "value_sim")
    groups = grouped(records(*terms))
    assert {group: list(series) for group, series in groups.items()} == {
        "loss": ["training"],
        "flow": ["flow_real", "flow_sim"],
        "motion": ["motion_real", "motion_sim"],
        "value": ["value_real", "value_sim"],
    }
    assert groups["motion"]["motion_sim"][1] == (20, 4 / 20)


def test_a_single_term_is_the_loss_and_other_terms_share_one_chart() -> None:
    assert list(grouped(records("video"))) == ["loss"]
    assert list(grouped(records("video", "action"))["terms"]) == ["video", "action"]


def test_a_validation_stands_beside_its_term() -> None:
    logged = records("flow_real", "flow_sim")
    logged[3]["validation"] = {"held_out_loss": 0.1, "held_out_flow_real": 0.2}
    groups = grouped(logged)
    assert list(groups["loss"]) == ["training", "validation held_out_loss"]
    assert list(groups["flow"]) == ["flow_real", "flow_sim", "validation held_out_flow_real"]


def test_charts_of_two_logs_have_titles_and_ids_of_their_own(tmp_path: Path) -> None:
    charts = []
    for name, terms in (("teacher", ("video",)), ("student", ("flow_real", "flow_sim", "motion_real", "motion_sim"))):
        (tmp_path / name).write_text("".join(json.dumps(record) + "\n" for record in records(*terms)))
        charts += training_charts(name, tmp_path / name)
    assert [chart["title"].partition(":")[0] for chart in charts] == ["teacher", "student", "student", "student"]
    assert len({chart["svg"] for chart in charts}) == 4
    assert training_charts("gone", tmp_path / "gone") == []


def test_an_axis_is_logarithmic_unless_a_value_is_negative_or_none_is_positive() -> None:
    x = np.arange(1.0, 9.0)
    for y, is_logarithmic in ((x, True), (x - 1, True), (x - 2, False), (0 * x, False)):
        line = Line(label="a", x=x, y=y, colour="#000000")
        linear, asked = (line_chart("c", [line], x_label="x", y_label="y", log_y=log) for log in (False, True))
        assert (linear != asked) is is_logarithmic
