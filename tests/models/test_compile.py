"""torch.compile wraps the model from outside and changes its numbers by rounding alone.

Every kernel costs a second of g++, so C++ code is made for the video expert alone; both experts are traced and
differentiated by the compiler (`aot_eager`), without code.
"""

import shutil

import pytest
import torch

from simforcing.generation.sampler import SamplerConfig, sample
from simforcing.models.expert import ExpertConfig
from simforcing.models.prepared import compile_passes
from simforcing.models.world_model import WorldModelConfig, WorldModelNetwork
from simforcing.nn.batch import Conditions, Streams

pytestmark = pytest.mark.compile


def model_of(*, joint: bool) -> WorldModelNetwork:
    sizes = {"mlp_width": 24, "num_layers": 1, "num_heads": 2, "head_width": 12, "text_width": 8}
    video = ExpertConfig(width=24, **sizes)
    action = ExpertConfig(width=12, **sizes) if joint else None
    return WorldModelConfig(video=video, action=action, channels=4, action_dim=3 if joint else 0).build()


def outputs_and_gradients(model: WorldModelNetwork, network: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    conditions = Conditions(
        action=torch.randn(2, 8, 3, generator=generator),
        action_valid=torch.ones(2, 8, 3, dtype=torch.bool),
        action_frame=tuple((i + 1) / 4 for i in range(8)),
        view_present=torch.ones(2, 1, dtype=torch.bool),
        text_features=torch.randn(2, 6, 8, generator=generator),
    )
    z, sigma = torch.randn(2, 1, 3, 4, 4, 4, generator=generator), torch.tensor([[0.0, 0.4, 0.4], [0.0, 0.9, 0.9]])
    model.zero_grad()
    out = network(Streams(video=z), Streams(video=sigma), conditions).video
    out.square().mean().backward()
    # where nothing reads a parameter, the compiler gives zeros for no gradient
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
    return out.detach(), torch.cat([gradient.flatten() for gradient in gradients])


def require_equal(model: WorldModelNetwork, compiled: torch.nn.Module) -> None:
    # measured: 4e-7 of the largest value, outputs and gradients alike
    for eager, ours in zip(outputs_and_gradients(model, model), outputs_and_gradients(model, compiled), strict=True):
        assert (eager - ours).abs().max() <= 1e-5 * eager.abs().max()


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile on a CPU needs g++")
def test_a_compiled_video_expert_equals_the_eager_one_forward_and_backward():
    model = model_of(joint=False)
    require_equal(model, torch.compile(model))


def test_both_experts_as_the_compiler_traces_them_equal_the_eager_ones_forward_and_backward():
    model = model_of(joint=True)
    require_equal(model, torch.compile(model, backend="aot_eager"))


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile on a CPU needs g++")
def test_sampling_with_compiled_layers_equals_sampling_without():
    model = model_of(joint=False)
    conditions = Conditions(
        action=torch.zeros(2, 0, 0),
        action_valid=torch.zeros(2, 0, 0, dtype=torch.bool),
        action_frame=(),
        view_present=torch.ones(2, 1, dtype=torch.bool),
        text_features=torch.randn(2, 6, 8),
    )
    given, noise, observed = torch.randn(2, 1, 3, 4, 4, 4), torch.randn(2, 1, 3, 4, 4, 4), torch.zeros(2, 3).bool()
    observed[:, 0] = True
    args = (model, given, observed, conditions, noise, SamplerConfig(num_steps=2))
    eager = sample(*args)
    compile_passes(model)
    assert (sample(*args) - eager).abs().max() <= 1e-5 * eager.abs().max()
