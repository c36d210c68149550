"""Low-rank adapters: a network learns W + alpha / rank * B A beside frozen weights W, which stay as they were.

So one copy of the weights is both student (adapters on) and frozen teacher (`adapters_off`). Only the simulation
condition path is trained in full: it starts at zero, so there is no base to keep, and a teacher's call never has it.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from simforcing.models.world_model import WorldModelNetwork
from simforcing.nn.batch import Conditions, Streams

TARGETS = ("qkv", "out", "cross_q", "cross_kv", "cross_out", "mlp")
# How state and actions are read must be free to change for the student and stay for the teacher: adapters do both, and
# at a rank of at least their few inputs they reach every weight.
INPUTS = ("state_in", "action_in")
TRAINED = "sim_injection"


@dataclass(frozen=True, kw_only=True)
class LoraConfig:
    """Which linear maps get adapters, and how large.

    Args:
        rank: width of the bottleneck; a map of n to m numbers gets rank * (n + m) parameters.
        alpha: alpha / rank multiplies what an adapter adds.
        targets: maps of every block of every expert (`mlp`: both of its maps). State and action inputs always have one.
    """

    rank: int = 16
    alpha: float = 16.0
    targets: tuple[str, ...] = TARGETS

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"rank is {self.rank}; it must be at least 1")
        if not 0 < self.alpha < math.inf:
            raise ValueError(f"alpha is {self.alpha}; it must be above 0 and finite")
        unknown = [target for target in self.targets if target not in TARGETS]
        if unknown or not self.targets or len(set(self.targets)) != len(self.targets):
            raise ValueError(f"targets are {self.targets}; expected some of {', '.join(TARGETS)}, each once")

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


class LoraLinear(nn.Linear):
    """A frozen linear map (its very parameters) and beside it a trained one through a bottleneck.

    B starts at zero, so a new adapter changes no bit; A is drawn from torch's global generator, as every new layer is.
    """

    def __init__(self, base: nn.Linear, config: LoraConfig) -> None:
        super().__init__(base.in_features, base.out_features, bias=base.bias is not None, device="meta")
        self.weight, self.bias = base.weight, base.bias
        like = {"dtype": base.weight.dtype, "device": base.weight.device}
        bound = base.in_features**-0.5
        self.lora_a = nn.Parameter(torch.empty(config.rank, base.in_features, **like).uniform_(-bound, bound))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, config.rank, **like))
        self.scale = config.scale
        self.is_on = True

    def forward(self, input: Float[Tensor, "*b i"]) -> Float[Tensor, "*b o"]:
        rows = input.flatten(0, -2)
        out = F.linear(rows, self.weight, self.bias)
        if self.is_on:
            # in place and on rows: of the size of the output, nothing but the output is ever allocated
            change = F.linear(rows, self.lora_a)
            out = out.addmm_(change, self.lora_b.to(out.dtype).t(), alpha=self.scale)
        elif torch.is_grad_enabled():
            # a backward pass in here would recompute layers without the adapters that they ran with
            raise ValueError("adapters are off: a gradient can be computed only outside of adapters_off")
        return out.unflatten(0, input.shape[:-1])

    def merged_weight(self) -> Float[Tensor, "o i"]:
        """W + alpha / rank * B A, summed in float64."""
        change = self.lora_b.detach().double() @ self.lora_a.detach().double()
        return (self.weight.detach().double() + self.scale * change).to(self.weight.dtype)


def add_adapters(model: WorldModelNetwork, config: LoraConfig) -> None:
    """Give a model adapters, in place, and freeze everything but them and the simulation condition path.

    Raises:
        ValueError: it has adapters already.
    """
    if _adapters(model):
        raise ValueError("this model has adapters already; merge them first (merged_state_dict)")
    model.requires_grad_(False)
    for expert in model.mixture.experts:
        for block in model.mixture.expert(expert).layers:
            for target in config.targets:
                _adapt(block, target, config)
    for name in INPUTS:
        if hasattr(model, name):
            _adapt(model, name, config)
    if hasattr(model, TRAINED):
        model.get_submodule(TRAINED).requires_grad_(True)


@contextmanager
def adapters_off(model: nn.Module) -> Iterator[None]:
    """Inside, the model is bit for bit the network that adapters were added to, and computes no gradients.

    May be nested, and leaves everything as it was whatever is raised inside. Not for two threads on one model.
    """
    adapters = _adapters(model)
    were_on = [adapter.is_on for adapter in adapters]
    try:
        for adapter in adapters:
            adapter.is_on = False
        with torch.no_grad():
            yield
    finally:
        for adapter, was_on in zip(adapters, were_on, strict=True):
            adapter.is_on = was_on


@dataclass(frozen=True)
class BaseNetwork:
    """The frozen teacher inside a student with adapters: called like the model, without condition path."""

    model: nn.Module

    def __call__(self, noisy: Streams, sigma: Streams, conditions: Conditions) -> Streams:
        with adapters_off(self.model):
            return self.model(noisy, sigma, conditions)


def merged_state_dict(model: WorldModelNetwork) -> dict[str, Tensor]:
    """State dict of the plain model that computes the same: adapters are added to their weights, names as before."""
    adapted = {name: module for name, module in model.named_modules() if isinstance(module, LoraLinear)}
    out = {name: value for name, value in model.state_dict().items() if not name.endswith((".lora_a", ".lora_b"))}
    return out | {f"{name}.weight": module.merged_weight() for name, module in adapted.items()}


def _adapters(model: nn.Module) -> list[LoraLinear]:
    return [module for module in model.modules() if isinstance(module, LoraLinear)]


def _adapt(parent: nn.Module, name: str, config: LoraConfig) -> None:
    """Replace one linear map, or every one inside a module, by one with an adapter."""
    module = getattr(parent, name)
    if isinstance(module, nn.Linear):
        setattr(parent, name, LoraLinear(module, config))
        return
    for inner, _ in module.named_children():
        _adapt(module, inner, config)
