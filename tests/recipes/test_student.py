"""Stages 1 to 3 as runs: what a student takes from its teacher, what it refuses, and that a stopped one goes on."""

import os
import shutil
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from simforcing.data.clips import Clips
from simforcing.data.latents import LatentWindows
from simforcing.data.open import open_dataset
from simforcing.generation.rollout import Predictor
from simforcing.generation.sampler import stored_sampler
from simforcing.models.bundle import MODEL, bundle_sha256, load_bundle
from simforcing.nn.batch import Streams
from simforcing.nn.tensor_file import read_tensors
from simforcing.recipes.execute import execute
from simforcing.recipes.run import Run, RunOptions
from simforcing.recipes.start import bound_objective, starting_model
from simforcing.recipes.train import planned
from simforcing.training.interrupt import Interrupted
from simforcing.training.log import read_log
from simforcing.types import EpisodeSet


def quiet(line: str) -> None:
    """Nobody reads it."""


@pytest.fixture(scope="module")
def student_run(planned_run, square_pairs: EpisodeSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished student."""
    out = tmp_path_factory.mktemp("student") / "run"
    execute(planned_run("student"), square_pairs, out, report=quiet)
    return out


def test_a_student_starts_as_its_teacher_bit_for_bit(planned_run, square_teacher: Path):
    model = starting_model(planned_run("student")).state_dict()
    teacher = read_tensors(square_teacher / MODEL)
    assert all(torch.equal(model[name], tensor) for name, tensor in teacher.items())
    new = {name: tensor for name, tensor in model.items() if name not in teacher}
    assert new
    assert all(name.startswith("sim_injection") and not tensor.any() for name, tensor in new.items())


def test_a_student_reads_numbers_as_its_teacher_does(planned_run, square_teacher: Path):
    run, teacher = planned_run("student", max_episodes=2), load_bundle(square_teacher)
    assert run.spec.action == teacher.spec.action
    assert run.spec.state == teacher.spec.state
    assert run.spec.views == ("real",)
    assert run.spec.sim_views == teacher.spec.views == ("sim",)
    assert list(run.held_out) == teacher.about["held_out"]


def test_the_teacher_is_untouched_and_every_term_is_logged(student_run: Path, square_teacher: Path):
    bundle = load_bundle(student_run)
    assert bundle_sha256(square_teacher) == bundle.about["run"]["start"]["sha256"]
    records = read_log(student_run / "log.jsonl")
    names = {"flow_real", "flow_sim", "motion_real", "motion_sim", "value_real", "value_sim"}
    assert all(set(record["terms"]) == names for record in records)


def test_a_students_prediction_is_its_own_simulation_first(student_run: Path, square_pairs: EpisodeSet):
    bundle = load_bundle(student_run)
    predictor = Predictor(bundle, stored_sampler(bundle))
    clips = list(Clips(square_pairs.episodes[:2], bundle.spec, stride=bundle.spec.num_frames - 1))
    sim = predictor.sim_latents(clips, [0] * len(clips))
    assert len(predictor.predict_sim(clips, [0] * len(clips))[0]) == bundle.spec.num_frames
    without, guided = (predictor.using(sim_guidance=w).generate(clips, [0] * len(clips)).latents for w in (0.0, 1.0))
    assert not torch.equal(without, guided)
    assert torch.equal(sim[:, :, 0], predictor.using(sim_source="true").sim_latents(clips, [0] * len(clips))[:, :, 0])
    # the guided velocity is a blend, so the first of its steps lies between both
    half = predictor.using(sim_guidance=0.5, num_steps=1).generate(clips, [0] * len(clips)).latents
    ends = [predictor.using(sim_guidance=w, num_steps=1).generate(clips, [0] * len(clips)).latents for w in (0.0, 1.0)]
    assert torch.allclose(half, (ends[0] + ends[1]) / 2, atol=1e-5)


def test_only_the_given_frames_of_a_clip_are_read(student_run: Path, square_pairs: EpisodeSet):
    bundle = load_bundle(student_run)
    predictor = Predictor(bundle, stored_sampler(bundle))
    (clip,) = list(Clips(square_pairs.episodes[:1], bundle.spec, stride=bundle.spec.num_frames - 1))[:1]
    blank = clip.frames.copy()
    blank[:, 1:] = 0
    first, second = (predictor.generate([c], [0]).latents for c in (clip, replace(clip, frames=blank)))
    assert torch.equal(first, second)


def stopped_run(run: Run, data: EpisodeSet, out: Path) -> int:
    """Run until a few steps are logged, then ask it to stop, as Ctrl-C does; returns the step that was reached."""

    def stop() -> None:
        while len(read_log(out / "log.jsonl")) < 3:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(Interrupted):
        execute(run, data, out, report=quiet)
    thread.join()
    return read_log(out / "log.jsonl")[-1]["step"]


@pytest.mark.parametrize("lora_rank", [None, 2])
def test_a_student_that_was_stopped_goes_on_to_the_same_bits(
    lora_rank: int | None, planned_run, square_pairs: EpisodeSet, tmp_path: Path
):
    run = planned_run("student", num_steps=60, lora_rank=lora_rank)
    reached = stopped_run(run, square_pairs, tmp_path / "stopped")
    assert 0 < reached < 60
    resumed = execute(run, square_pairs, tmp_path / "stopped", report=quiet)
    straight = execute(run, square_pairs, tmp_path / "straight", report=quiet)
    for name, tensor in straight.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name]), name
    logs = [[{**r, "timing": None} for r in read_log(tmp_path / n / "log.jsonl")] for n in ("stopped", "straight")]
    assert logs[0] == logs[1]


def test_a_student_of_adapters_is_an_ordinary_run_afterwards(planned_run, square_pairs: EpisodeSet, tmp_path: Path):
    bundle = execute(planned_run("student", lora_rank=2), square_pairs, tmp_path, report=quiet)
    names = set(load_bundle(tmp_path).model.state_dict())
    assert names == set(starting_model(planned_run("student")).state_dict())
    assert not any("lora" in name for name in names)
    assert bundle.about["run"]["lora"]["rank"] == 2


def test_the_two_forms_of_the_teacher_teach_the_same(planned_run, square_pairs: EpisodeSet):
    """A second copy, and the base network inside a student with adapters that has moved away from it."""
    teachers, velocities, students = [], [], []
    for lora_rank in (None, 2):
        run = planned_run("student", lora_rank=lora_rank)
        assert run.start is not None
        autoencoder = load_bundle(Path(run.start.path)).autoencoder
        clips = Clips(square_pairs.episodes[:2], run.spec, stride=4)
        windows = LatentWindows.encode(clips, autoencoder, run.spec)
        batch = windows.batch([0, 1])
        model = starting_model(run)
        objective = bound_objective(run, model, torch.device("cpu"))
        if lora_rank is not None:  # a student that has moved: its teacher must not move with it
            generator = torch.Generator().manual_seed(0)
            moved = [p for name, p in model.named_parameters() if name.endswith("lora_b")]
            for parameter in moved:
                torch.nn.init.normal_(parameter, std=0.1, generator=generator)
        teachers.append(objective.keywords["teacher"])
        noisy, level = Streams(video=batch.sim), Streams(video=torch.full(batch.observed.shape, 0.5))
        with torch.no_grad():
            velocities.append(teachers[-1](noisy, level, batch.conditions).video)
            students.append(model(noisy, level, batch.conditions).video)
    assert torch.equal(*velocities)
    assert torch.equal(velocities[0], students[0])  # a second copy has not moved yet
    assert not torch.allclose(velocities[1], students[1])


def test_a_teacher_of_other_windows_or_normaliser_is_refused_with_both_sides(
    planned_run, square_pairs: EpisodeSet, square_teacher: Path
):
    with pytest.raises(ValueError, match=r"frames per window: this run has 5, its teacher .*teacher has 9"):
        planned_run("student", num_frames=5)
    with pytest.raises(ValueError, match=r"action normaliser: this run has mean_std, its teacher .* has min_max"):
        planned_run("student", normaliser="mean_std")
    with pytest.raises(ValueError, match=r"frame size: this run has .*16.*, its teacher"):
        planned_run("student", size=(16, 16))
    with pytest.raises(ValueError, match="starts from stage 1: give --teacher"):
        planned("student", square_pairs, RunOptions(scale="debug", held_out=1))


def test_a_student_is_no_teacher(planned_run, square_pairs: EpisodeSet, student_run: Path):
    with pytest.raises(ValueError, match=r"view: this run has sim, its teacher .* has real"):
        planned("student", square_pairs, RunOptions(scale="debug", held_out=1, teacher=str(student_run)))


def test_a_teacher_that_changed_is_never_taken_for_the_old_one(
    planned_run, square_pairs: EpisodeSet, square_teacher: Path, tmp_path: Path
):
    teacher = tmp_path / "teacher"
    shutil.copytree(square_teacher, teacher)
    run = planned("student", square_pairs, RunOptions(scale="debug", held_out=1, teacher=str(teacher)))
    other = execute(planned_run("teacher", seed=1), square_pairs, tmp_path / "other", report=quiet)
    assert other.spec == load_bundle(teacher).spec
    shutil.copy(tmp_path / "other" / MODEL, teacher / MODEL)
    with pytest.raises(ValueError, match="the run that it starts from has changed"):
        execute(run, square_pairs, tmp_path / "student", report=quiet)


def test_variants_join_the_students_simulation_branch_where_a_run_asks_for_it(paired: Path, tmp_path: Path):
    data = open_dataset(paired)
    options = RunOptions(scale="debug", held_out=1, num_steps=4)
    teacher = planned("teacher", data, options)
    assert teacher.variants
    assert teacher.variants_fingerprint
    execute(teacher, data, tmp_path / "teacher", report=quiet)
    lines: list[str] = []
    with_variants = replace(options, teacher=str(tmp_path / "teacher"), settings=("variants=true",))
    execute(planned("student", data, with_variants), data, tmp_path / "student", report=lines.append)
    assert any("perturbed variants" in line for line in lines)
    terms = read_log(tmp_path / "student" / "log.jsonl")[-1]["terms"]
    assert terms["flow_sim"] > 0


def test_options_that_a_recipe_would_ignore_are_refused(planned_run, square_set: EpisodeSet, square_pairs: EpisodeSet):
    for recipe, options, message in (
        ("laptop", {"max_episodes": 2}, "max_episodes is 2, but recipe laptop has none; recipes: student"),
        ("sft", {"lora_rank": 2}, "lora_rank is 2, but recipe sft has none; recipes: student, joint"),
        ("teacher", {"teacher": "elsewhere"}, "teacher is elsewhere, but recipe teacher has none"),
        ("rendered", {"preset": "release"}, "preset is release, but recipe rendered has none"),
        ("teacher", {"views": ("front",)}, "cameras front: recipe teacher learns the streams real and sim"),
    ):
        with pytest.raises(ValueError, match=message):
            planned(recipe, square_set if recipe == "laptop" else square_pairs, RunOptions(**options))


def test_a_student_of_any_seed_holds_out_what_its_teacher_does(planned_run, square_teacher: Path):
    held_out = load_bundle(square_teacher).about["held_out"]
    assert all(list(planned_run("student", seed=seed).held_out) == held_out for seed in range(6))


def test_a_student_is_not_asked_to_hold_out_another_number(planned_run):
    with pytest.raises(ValueError, match="held_out is 2, but the teacher holds out 1 episodes of this set"):
        planned_run("student", held_out=2)


def test_a_set_without_pairs_is_refused_in_one_line(square_set: EpisodeSet):
    with pytest.raises(ValueError, match="simforcing simulate"):
        planned("teacher", square_set, RunOptions(scale="debug"))


def test_preset_release_sets_what_the_release_does_otherwise(planned_run, square_pairs: EpisodeSet, tmp_path: Path):
    teacher = planned("teacher", square_pairs, RunOptions(scale="debug", held_out=1, preset="release"))
    assert (teacher.model.predicts, teacher.model.head, teacher.model.action_positions) == (
        "velocity",
        "plain",
        "index",
    )
    assert teacher.spec.wording == "sim"
    assert not teacher.variants
    execute(teacher, square_pairs, tmp_path, report=quiet)
    options = RunOptions(scale="debug", held_out=1, preset="release", teacher=str(tmp_path))
    student = planned("student", square_pairs, options)
    assert student.spec.wording == "neutral"
    assert student.sampler.sim_guidance == 1.0
    distill = student.objective.distill
    assert (distill.first_frame, distill.teacher_state, distill.weighting) == ("predicted", "student", "flow")
    assert student.objective.sigma.dtype == "bfloat16"
    execute(student, square_pairs, tmp_path / "student", report=quiet)


def test_adapters_have_no_second_way_to_read_proprioception(planned_run):
    with pytest.raises(ValueError, match="choose teacher_state=own, or no lora"):
        planned_run("student", lora_rank=2, settings=("objective.distill.teacher_state=student",))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("objective.distill.target", "expected name=value"),
        ("objective.distil.target=value", "'distil' has no fields here; fields: flow_real"),
        ("objective.distill.aim=value", "no field 'aim'; fields: target"),
        ("objective.distill.target=speed", "'speed' is not one of 'motion'"),
        ("objective.condition=null", "give both or neither"),
        ("objective.distill.first_frame=predicted", "choose first_frame=observed, or a teacher that predicts velocity"),
        ("objective.condition.kept=[2,3]", "kept is .*; expected a range within"),
    ],
)
def test_a_setting_that_means_nothing_is_refused_with_the_choices(setting: str, message: str, planned_run):
    with pytest.raises(ValueError, match=message):
        planned_run("student", settings=(setting,))


@pytest.fixture(scope="module")
def default_run(planned_run, square_pairs: EpisodeSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps with every choice as the recipe has it."""
    out = tmp_path_factory.mktemp("usual") / "run"
    execute(planned_run("student", num_steps=2), square_pairs, out, report=quiet)
    return out


@pytest.mark.parametrize(
    "settings",
    [
        ("objective.distill.target=value",),
        ("objective.distill.target=magnitude",),
        ("objective.distill.target=normalised",),
        ("objective.distill.teacher=self",),
        ("objective.distill.teacher=shuffled",),
        ("objective.distill.teacher=true",),
        ("objective.distill.sees=real",),
        ("objective.distill.first_difference=false",),
        ("objective.distill.weighting=flow",),
        ("objective.distill.weighting=falling",),
        ("objective.sigma.dtype=bfloat16",),
        ("objective.weight=published",),
        ("objective.distill=null",),
        ("objective.condition=null", "model.sim_condition=false"),
        ("objective.flow_sim=0", "objective.condition.rate=0.2"),
        ("objective.action_dropout=0.5",),
        ("spec.sim_wording=sim", "spec.wording=real"),
    ],
)
def test_every_choice_of_the_method_is_a_value_that_trains(
    settings: tuple[str, ...], planned_run, square_pairs: EpisodeSet, default_run: Path, tmp_path: Path
):
    run = planned_run("student", num_steps=2, settings=settings)
    execute(run, square_pairs, tmp_path, report=quiet)
    losses, usual = ([r["loss"] for r in read_log(folder / "log.jsonl")] for folder in (tmp_path, default_run))
    assert len(losses) == len(usual) == 2
    assert all(0 < loss < 100 for loss in losses)
    assert losses != usual
