"""What a run that goes on from another one takes from it: weights, autoencoder, and the frozen teacher."""

from functools import partial
from pathlib import Path

import torch
from torch import nn

from simforcing.models.adapters import BaseNetwork, add_adapters, merged_state_dict
from simforcing.models.bundle import AUTOENCODER, MODEL, bundle_sha256, load_bundle, read_module
from simforcing.models.world_model import WorldModelNetwork
from simforcing.nn.protocols import Objective
from simforcing.nn.strict import load_strictly
from simforcing.recipes.run import Run, Start
from simforcing.training.checkpoint import load_weights
from simforcing.training.distillation import Distillation

NEW_PARTS = ("sim_injection.",)  # what a student has and its teacher has not; it starts at zero


def require_unchanged(start: Start) -> None:
    """ValueError where the folder no longer holds the run that this one was planned with."""
    found = bundle_sha256(Path(start.path))
    if found != start.sha256:
        raise ValueError(
            f"{start.path}: sha256 {found[:12]}, but this run started from {start.sha256[:12]};"
            " the run that it starts from has changed"
        )


def starting_model(run: Run) -> WorldModelNetwork:
    """The network with its first weights: drawn from the seed, or those of the start where it has them.

    Raises:
        ValueError: the start's tensors do not fit, by name, or have changed.
    """
    torch.manual_seed(run.seed)
    model = run.model.build()
    if run.start is not None:
        require_unchanged(run.start)
        path = Path(run.start.path) / MODEL
        own = {name: value for name, value in model.state_dict().items() if name.startswith(NEW_PARTS)}
        load_strictly(model, {**own, **read_module(path)}, str(path))
    if run.lora is not None:
        add_adapters(model, run.lora)
    return model


def finished_model(run: Run, model: WorldModelNetwork, checkpoint: Path) -> WorldModelNetwork:
    """The trained network as a plain one, adapters merged, on the CPU, in eval mode, from a checkpoint."""
    load_weights(model.cpu(), checkpoint)
    if run.lora is None:
        return model.eval()
    plain = run.model.build()
    load_strictly(plain, merged_state_dict(model), str(checkpoint))
    return plain.eval()


def bound_objective(run: Run, model: WorldModelNetwork, device: torch.device) -> Objective:
    """The run's objective with its frozen teacher on the device, where it has one."""
    objective = run.objective
    if not isinstance(objective, Distillation) or not objective.needs_teacher:
        return objective
    if run.lora is not None:
        return partial(objective, teacher=BaseNetwork(model))
    assert run.start is not None
    return partial(objective, teacher=frozen_teacher(run.start).to(device))


def frozen_teacher(start: Start) -> nn.Module:
    """The network of stage 1, in eval mode, without gradients."""
    require_unchanged(start)
    return load_bundle(Path(start.path)).model.requires_grad_(False)


def start_autoencoder(start: Start) -> Path:
    """The file of the start's autoencoder, whose latents the run keeps."""
    return Path(start.path) / AUTOENCODER
