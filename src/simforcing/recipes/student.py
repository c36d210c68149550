"""Stages 2 and 3 together: real video, taught the simulation's motion, conditioned on the simulation."""

from dataclasses import replace
from pathlib import Path

from simforcing.data.pair_streams import REAL, SIM
from simforcing.data.paired import require_paired, variants_beside
from simforcing.generation.sampler import stored_sampler
from simforcing.models.adapters import LoraConfig
from simforcing.models.bundle import Bundle, bundle_sha256, load_bundle
from simforcing.recipes.from_scratch import WINDOW_STRIDE
from simforcing.recipes.run import AutoencoderPlan, Run, RunOptions, Start
from simforcing.recipes.scale import SCALES
from simforcing.training.distillation import Distillation, DistillConfig
from simforcing.types import DataSpec, EpisodeSet

SIM_WEIGHT = 1.0  # of flow matching in simulation; published: 0.1, which starves it in so few steps (docs/laptop.md)


def student(data: EpisodeSet, options: RunOptions) -> Run:
    """Starts from a teacher's run and has its windows, latents and network; 6 minutes and 2 GB on one CPU core.

    Expected on held-out episodes: docs/paired-training.md.
    """
    objective = Distillation(weight="clean", flow_sim=SIM_WEIGHT, distill=DistillConfig(weighting="uniform"))
    return from_teacher("student", data, options, objective)


def joint(data: EpisodeSet, options: RunOptions) -> Run:
    """Joint flow matching: as `student`, without distillation and condition path; 5 minutes, 2 GB, one CPU core."""
    return from_teacher(
        "joint", data, options, Distillation(weight="clean", flow_sim=SIM_WEIGHT, distill=None, condition=None)
    )


def from_teacher(recipe: str, data: EpisodeSet, options: RunOptions, objective: Distillation) -> Run:
    """A run on pairs that starts from stage 1.

    Raises:
        ValueError: no teacher, or one that reads something else than this set gives: both sides are named.
    """
    if options.teacher is None:
        raise ValueError(f"recipe {recipe} starts from stage 1: give --teacher, the folder of a run of recipe teacher")
    require_paired(data, (REAL,), (SIM,))
    bundle = load_bundle(Path(options.teacher))
    scale = SCALES[options.scale]
    form = bundle.spec.action.form if options.action_form == "stored" else options.action_form
    held_out = held_out_of(bundle, data, options)
    ready = scale.prepare(data, replace(options, action_form=form), REAL, held_out=held_out)
    spec = student_spec(ready.spec, bundle, options.teacher)
    if options.preset == "release":  # statistics anew in each stage
        spec = replace(spec, action=ready.spec.action, state=ready.spec.state)
    num_windows = ready.num_windows(WINDOW_STRIDE)
    variants = variants_beside(data)
    return Run(
        recipe=recipe,
        spec=spec,
        window_stride=WINDOW_STRIDE,
        held_out=ready.held_out,
        max_episodes=options.max_episodes,
        variants_fingerprint=None if variants is None else variants.data.fingerprint,
        autoencoder=AutoencoderPlan(config=bundle.autoencoder.config),
        model=replace(bundle.model.config, sim_condition=objective.condition is not None),
        objective=objective,
        trainer=scale.trainer(options, num_windows),
        sampler=stored_sampler(bundle),
        lora=None if options.lora_rank is None else LoraConfig(rank=options.lora_rank, alpha=float(options.lora_rank)),
        start=Start(path=str(Path(options.teacher).resolve()), sha256=bundle_sha256(Path(options.teacher))),
    )


def held_out_of(bundle: Bundle, data: EpisodeSet, options: RunOptions) -> tuple[str, ...] | None:
    """The teacher's held-out episodes where the set has all of its episodes; None, for a split of its own, elsewhere.

    Raises:
        ValueError: another number is asked for: what the teacher learnt from must not be held out.
    """
    names = {episode.name for episode in data.episodes}
    theirs = tuple(bundle.about["held_out"])
    if not {*theirs, *bundle.about["training"]} <= names:
        return None
    if options.held_out not in (None, len(theirs)):
        raise ValueError(
            f"held_out is {options.held_out}, but the teacher holds out {len(theirs)} episodes of this set, which its"
            " student holds out too"
        )
    return theirs


def student_spec(mine: DataSpec, bundle: Bundle, where: str) -> DataSpec:
    """What the student reads: the real view beside its simulation, numbers normalised as in stage 1.

    Raises:
        ValueError: the teacher's windows, frame size, rate, layouts or kind of normaliser are others.
    """
    theirs = bundle.spec
    sides = {
        "frames per window": (mine.num_frames, theirs.num_frames),
        "frame size": (mine.resize, theirs.resize),
        "video rate": (mine.fps, theirs.fps),
        "actions per window": (mine.num_actions, theirs.num_actions),
        "action layout": (mine.action.layout, theirs.action.layout),
        "action normaliser": (mine.action.normaliser.kind, theirs.action.normaliser.kind),
        "form of actions": (mine.action.form, theirs.action.form),
        "state layout": (mine.state and mine.state.layout, theirs.state and theirs.state.layout),
        "robot": (mine.robot, theirs.robot),
        "view": (SIM, theirs.views[0]),
    }
    for name, (here, there) in sides.items():
        if here != there:
            sides = [getattr(side, "name", side) for side in (here, there)]
            same = " (of the same name, with other parts)" if sides[0] == sides[1] else ""
            raise ValueError(f"{name}: this run has {sides[0]}, its teacher {where} has {sides[1]}{same}")
    return replace(mine, action=theirs.action, state=theirs.state, sim_views=theirs.views, wording=theirs.wording)
