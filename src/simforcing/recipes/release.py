"""Preset `release`: all that the authors' release does otherwise than we do, in one place (docs/paired-training.md)."""

from dataclasses import replace

from simforcing.recipes.run import Run
from simforcing.training.distillation import Distillation
from simforcing.training.objectives import FlowMatching, SigmaPolicy

ROUNDED = SigmaPolicy(dtype="bfloat16")


def as_released(run: Run) -> Run:
    """The same stage with the release's choices; sizes, data and number of steps stay the run's.

    A student's network is its teacher's, so a release student wants a release teacher.
    """
    optimiser = {"learning_rate": 1e-4, "warmup_fraction": 0.05, "final_lr_fraction": 0.01, "ema_decay": None}
    network = {"predicts": "velocity", "head": "plain", "action_positions": "index"}
    shared = replace(
        run,
        variants=False,
        trainer=replace(run.trainer, **optimiser, betas=(0.9, 0.95), weight_decay=0.01, clip_norm=1.0),
        sampler=replace(run.sampler, num_steps=20, sim_guidance=1.0),
    )
    if isinstance(run.objective, FlowMatching):
        wording = "sim" if run.spec.views == ("sim",) else "real"
        return replace(
            shared,
            spec=replace(run.spec, wording=wording),
            model=run.model if run.start is not None else replace(run.model, **network),
            objective=replace(run.objective, sigma=ROUNDED, weight="published", action_dropout=0.0),
        )
    return replace(shared, spec=replace(run.spec, wording="neutral"), objective=released_distillation(run.objective))


def released_distillation(objective: Distillation) -> Distillation:
    """Published weights; frame 0 as predicted; the teacher reads proprioception through the student's layer."""
    distill = objective.distill
    if distill is not None:
        distill = replace(
            distill,
            first_frame="predicted",
            first_difference=True,
            weighting="flow",
            teacher_state="student",
            sees="sim",
            weight=0.5,
            real=1.0,
            sim=0.1,
        )
    return replace(
        objective, sigma=ROUNDED, weight="published", flow_real=1.0, flow_sim=0.1, action_dropout=0.0, distill=distill
    )
