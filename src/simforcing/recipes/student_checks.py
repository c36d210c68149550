"""Checks of a run that learned from a teacher or reads simulation: what must hold exactly, shown on its own data."""

from pathlib import Path

import torch
from torch import nn

from simforcing.data.clips import Clips
from simforcing.data.latents import LatentWindows
from simforcing.evaluation.checks import Check
from simforcing.evaluation.doctor import equality_check, gradient_check, rate_check, untouched_check
from simforcing.models.bundle import MODEL, Bundle, bundle_sha256
from simforcing.models.world_model import WorldModelNetwork
from simforcing.nn.batch import Batch, Conditions, Draws, SimCondition, Streams
from simforcing.nn.strict import load_strictly
from simforcing.recipes.prediction import Ready
from simforcing.recipes.run import Start
from simforcing.recipes.start import NEW_PARTS, frozen_teacher
from simforcing.training.distillation import ConditionConfig, Distillation
from simforcing.training.draws import draw
from simforcing.training.objectives import FlowMatching
from simforcing.types import from_json

NUM_CLIPS = 4
NUM_DRAWN = 10_000


def student_checks(ready: Ready, seed: int) -> list[Check]:
    """As far as the run has them: its condition path, its teacher, its gradients, its random choices.

    Raises:
        ValueError: the run's own description of its objective or its start is damaged.
    """
    objective, start = stored_objective(ready.bundle), stored_start(ready.bundle)
    checks = []
    if ready.bundle.model.config.sim_condition:
        checks.append(condition_check(ready.bundle, batch_of(ready), seed))
    if start is not None:
        checks.append(teacher_check(start))
    if isinstance(objective, Distillation):
        if objective.needs_teacher and start is not None and checks[-1].passed:
            checks.append(student_gradients(objective, ready.bundle, start, batch_of(ready), seed))
        if objective.condition is not None:
            checks += rate_checks(objective.condition, seed)
    return checks


def stored_objective(bundle: Bundle) -> FlowMatching | Distillation | None:
    """The objective that the run was trained with; None where it is not recorded."""
    stored = bundle.about.get("run", {}).get("objective")
    where = f"{bundle.source}: about.run.objective"
    return None if stored is None else from_json(FlowMatching | Distillation, stored, where)


def stored_start(bundle: Bundle) -> Start | None:
    """The run that this one started from; None where it started from random weights."""
    stored = bundle.about.get("run", {}).get("start")
    return None if stored is None else from_json(Start, stored, f"{bundle.source}: about.run.start")


def batch_of(ready: Ready) -> Batch:
    """A few of the run's clips as the objective sees them."""
    spec, autoencoder = ready.spec, ready.bundle.autoencoder
    windows = Clips(ready.data.episodes, spec, stride=spec.num_frames - 1)
    step = max(1, len(windows) // NUM_CLIPS)
    encoded = LatentWindows.encode([windows[i] for i in range(0, len(windows), step)][:NUM_CLIPS], autoencoder, spec)
    return encoded.batch(range(encoded.num_windows))


@torch.no_grad()
def condition_check(bundle: Bundle, batch: Batch, seed: int) -> Check:
    """With the condition path as it is built, the network under gate 1 is the network without the path.

    The other weights are the trained ones: a network as it is built may answer nothing at all.
    """
    fresh = fresh_condition(bundle)
    draws = draw(batch, seed, 0, range(batch.size))
    level = draws.uniform[:, None] * ~batch.observed
    sim = batch.clean if batch.sim is None else batch.sim
    condition = SimCondition(latents=sim, gate=torch.ones(batch.size))
    without, under = (
        fresh(Streams(video=draws.noise), Streams(video=level), batch.conditions, path).video
        for path in (None, condition)
    )
    detail = f"largest difference of velocities of {batch.size} clips at step 0, gate 1 against no condition path"
    return equality_check("condition at step 0", without.numpy(), under.numpy(), detail)


def fresh_condition(bundle: Bundle) -> WorldModelNetwork:
    """The run's network, its condition path as it was before training."""
    model = bundle.model.config.build()
    built = {name: value for name, value in model.state_dict().items() if name.startswith(NEW_PARTS)}
    trained = {name: value.cpu() for name, value in bundle.model.state_dict().items() if name not in built}
    load_strictly(model, {**built, **trained}, bundle.source)
    return model.eval()


def teacher_check(start: Start) -> Check:
    """The teacher's folder holds byte for byte what the run started from."""
    path = Path(start.path)
    try:
        found = bundle_sha256(path) if (path / MODEL).is_file() else None
    except ValueError as error:
        return Check(name="teacher", passed=False, value="damaged", detail=str(error))
    return untouched_check(str(path), start.sha256, found)


def student_gradients(objective: Distillation, bundle: Bundle, start: Start, batch: Batch, seed: int) -> Check:
    """One step's gradients; the teacher is able to receive them here, which in training it is not."""
    student, teacher = fresh_copy(bundle), frozen_teacher(start).requires_grad_(True)
    draws = draw(batch, seed, 0, range(batch.size))
    objective(student, batch, draws, teacher=teacher).total.backward()
    return gradient_check(received(student), received(teacher))


def fresh_copy(bundle: Bundle) -> WorldModelNetwork:
    """The run's network in another place: no gradient may stay with the one that predicts."""
    model = bundle.model.config.build()
    load_strictly(model, {name: value.cpu() for name, value in bundle.model.state_dict().items()}, bundle.source)
    return model


def received(model: nn.Module) -> dict[str, bool]:
    """By parameter, whether it has a gradient."""
    return {name: parameter.grad is not None for name, parameter in model.named_parameters()}


def rate_checks(condition: ConditionConfig, seed: int) -> list[Check]:
    """How often the gate opens and the simulation is corrupted, drawn as in training."""
    sim = torch.ones(NUM_DRAWN, 1, 1, 1, 1, 1)
    drawn = condition.draw(sim, many_draws(sim, seed))
    corrupted = (drawn.latents != sim).flatten(1).any(dim=1)
    return [
        rate_check("gate", condition.rate, (drawn.gate > 0).numpy()),
        rate_check("corruption", condition.corruption_rate, corrupted.numpy()),
    ]


def many_draws(sim: torch.Tensor, seed: int) -> Draws:
    """The random numbers of one step with so many clips."""
    size = len(sim)
    conditions = Conditions(
        action=torch.zeros(size, 1, 1),
        action_valid=torch.ones(size, 1, 1, dtype=torch.bool),
        action_frame=(1.0,),
        view_present=torch.ones(size, 1, dtype=torch.bool),
    )
    batch = Batch(clean=sim, observed=torch.zeros(size, 1, dtype=torch.bool), conditions=conditions, sim=sim)
    return draw(batch, seed, 0, range(size))
