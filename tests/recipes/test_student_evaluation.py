"""A teacher and its student, trained for a few steps on pairs, scored and checked: all that an evaluation shows."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from simforcing.data.open import open_dataset
from simforcing.evaluation.checks import Check
from simforcing.evaluation.protocols import ROBOT_METRICS, SCORES
from simforcing.models.bundle import MODEL, load_bundle
from simforcing.nn.tensor_file import read_tensors, write_tensors
from simforcing.recipes import recipe_named
from simforcing.recipes.evaluate import RESULTS, evaluate_run, summary
from simforcing.recipes.execute import execute
from simforcing.recipes.further import further_of, with_robot_masks
from simforcing.recipes.prediction import PredictionOptions, ready_to_predict
from simforcing.recipes.run import RunOptions
from simforcing.recipes.student_checks import (
    batch_of,
    condition_check,
    rate_checks,
    stored_start,
    student_checks,
    teacher_check,
)
from simforcing.training.distillation import ConditionConfig

OWN, OTHERS, TRUE = "model", ["w = 0", "w = 0.3", "w = 1"], "true simulation, w = 0.6"


def quiet(line: str) -> None:
    """Reports go nowhere."""


@pytest.fixture(scope="module")
def runs(paired: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs of teacher and student on the pairs, by recipe."""
    root = tmp_path_factory.mktemp("runs")
    data = open_dataset(paired)
    options = RunOptions(scale="debug", num_steps=3, batch_size=2, held_out=1)
    for recipe in ("teacher", "student"):
        start = str(root / "teacher") if recipe == "student" else None
        run = recipe_named(recipe)(data, replace(options, teacher=start))
        execute(run, data, root / recipe, report=quiet)
    return {recipe: root / recipe for recipe in ("teacher", "student")}


@pytest.fixture(scope="module")
def evaluated(runs: dict[str, Path]) -> dict:
    lines: list[str] = []
    found = {name: evaluate_run(run, report=lines.append) for name, run in runs.items()}
    return {**found, "lines": lines}


def test_a_student_is_scored_with_other_guidance_and_the_true_simulation(evaluated: dict) -> None:
    result = evaluated["student"].result
    assert list(result.rows) == [OWN, "copy", "ceiling", *OTHERS, TRUE]
    assert result.rows[OWN].label == "model, w = 0.6"
    assert result.comparisons[2:] == ((OWN, "w = 0"), (TRUE, "w = 0"))
    assert any(line.startswith("further rows: w = 0; w = 0.3; w = 1;") for line in evaluated["lines"])
    for name in (*OTHERS, TRUE):
        assert np.isfinite(result.interval(name, "psnr").mean)


def test_rows_differ_as_their_guidance_does_once_the_path_has_weights(runs: dict[str, Path]) -> None:
    ready = ready_to_predict(runs["student"], PredictionOptions(), quiet)
    with torch.no_grad():
        for parameter in ready.bundle.model.sim_injection.parameters():
            parameter.normal_(0, 0.3)
    from simforcing.data.clips import Clips

    clip = Clips(ready.held_out, ready.spec, stride=1)[0]
    rows = further_of(ready, alternatives=True).alternatives
    videos = [ready.predictor.predict([clip], [0])[0], *(rows[name]([clip], [0])[0] for name in (*OTHERS, TRUE))]
    assert len({video.tobytes() for video in videos}) == len(videos)
    assert further_of(ready, alternatives=False).alternatives == {}


@pytest.mark.parametrize("recipe", ["teacher", "student"])
def test_robot_and_silhouettes_are_numbers_on_pairs_and_strict_json(evaluated: dict, recipe: str) -> None:
    found = evaluated[recipe]
    record = json.loads(found.results.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert record["reasons"] == {}
    for row in record["rows"].values():
        assert all(row[metric]["mean"] is not None for metric in SCORES)
    overlaps = {name: row["iou"]["mean"] for name, row in record["silhouettes"]["rows"].items()}
    assert set(overlaps) == {"rollout", "copy", "ceiling", "truth"}
    assert 0 <= overlaps["rollout"] <= 1
    assert overlaps["truth"] > max(0.6, overlaps["ceiling"])
    assert any(line.startswith("robot IoU of simulated rollouts: 0.") for line in summary(found))


def test_the_student_s_page_shows_its_simulation_and_every_term_of_both_logs(evaluated: dict) -> None:
    page = evaluated["student"].report.read_text()
    for title in ("teacher", "student", "student: flow matching", "student: distance to the teacher's latent motion"):
        assert f"<h3>{title.replace(chr(39), '&#39;')}</h3>" in page
    for term in ("flow_real", "flow_sim", "motion_real", "motion_sim", "value_real", "value_sim"):
        assert f">{term}<" in page
    student, teacher = (evaluated[name].result.examples[0] for name in ("student", "teacher"))
    assert student.simulated is not None
    assert teacher.simulated is None


def test_a_run_on_real_video_alone_finds_the_robot_by_the_pair_s_simulation(paired: Path, tmp_path: Path) -> None:
    data = open_dataset(paired)
    options = RunOptions(num_steps=1, batch_size=1, held_out=1, views=("real",))
    execute(recipe_named("debug")(data, options), data, tmp_path / "run", report=quiet)
    result = evaluate_run(tmp_path / "run", report=quiet).result
    assert result.robot_reason == ""
    assert result.silhouettes.reason == "only real video is predicted, which has no simulator's mask"
    assert list(result.rows) == ["model", "copy", "ceiling"]


def test_data_without_masks_has_no_scores_of_the_robot(debug_run: Path, tmp_path: Path) -> None:
    found = evaluate_run(debug_run, out=tmp_path / "report", report=quiet)
    record = json.loads((tmp_path / "report" / RESULTS).read_text())
    assert set(record["reasons"]) == set(ROBOT_METRICS)
    assert record["rows"]["model"]["robot_psnr"]["mean"] is None
    assert "no simulator's mask" in record["silhouettes"]["reason"]
    assert sum("n/a" in line for line in summary(found)) == 2


def test_a_view_s_own_mask_is_kept(paired: Path, runs: dict[str, Path]) -> None:
    episode, spec = open_dataset(paired).episodes[0], load_bundle(runs["student"]).spec
    real, sim = with_robot_masks([episode], spec)[0].views
    assert real.masks is sim.masks is episode.view("sim").masks
    own = replace(episode, views=(replace(episode.view("real"), masks=real.frames), episode.view("sim")))
    assert with_robot_masks([own], spec)[0].views[0].masks is real.frames


def checks_of(run: Path) -> dict[str, Check]:
    return {check.name: check for check in student_checks(ready_to_predict(run, PredictionOptions(), quiet), 0)}


def test_a_sound_student_passes_every_check_and_a_teacher_needs_none(runs: dict[str, Path]) -> None:
    found = checks_of(runs["student"])
    assert list(found) == ["condition at step 0", "teacher", "gradients", "gate", "corruption"]
    assert all(check.passed for check in found.values())
    assert checks_of(runs["teacher"]) == {}


def test_a_condition_path_that_does_not_start_at_zero_is_found(
    runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = ready_to_predict(runs["student"], PredictionOptions(), quiet)
    batch = batch_of(ready)
    assert condition_check(ready.bundle, batch, 0).value == 0
    monkeypatch.setattr(
        "simforcing.models.conditioning.nn.init.zeros_", lambda tensor: torch.nn.init.constant_(tensor, 0.1)
    )
    check = condition_check(ready.bundle, batch, 0)
    assert check.passed is False
    assert check.value > 0


def test_a_teacher_that_changed_is_found_and_one_that_is_gone_is_not_judged(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    start = stored_start(load_bundle(runs["student"]))
    assert start is not None
    moved = tmp_path / "teacher"
    shutil.copytree(runs["teacher"], moved)
    there = replace(start, path=str(moved))
    assert teacher_check(there).passed
    tensors = read_tensors(moved / MODEL)
    name = next(iter(tensors))
    write_tensors(moved / MODEL, {**tensors, name: tensors[name] + 1e-3})
    changed = teacher_check(there)
    assert changed.passed is False
    assert str(moved) in changed.detail
    shutil.rmtree(moved)
    gone = teacher_check(there)
    assert (gone.passed, gone.value) == (None, "n/a")


def test_rates_are_those_of_the_configuration_exactly_where_there_is_no_choice() -> None:
    for rate, corruption in ((0.7, 0.4), (0.0, 1.0), (1.0, 0.0)):
        gate, corrupted = rate_checks(ConditionConfig(rate=rate, corruption_rate=corruption), 0)
        assert gate.passed
        assert corrupted.passed
        assert gate.value == pytest.approx(rate, abs=0.015)
        assert corrupted.value == pytest.approx(corruption, abs=0.015)
