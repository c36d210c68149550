"""torch.compile wraps the model from outside and changes its numbers by rounding alone."""

import shutil

import pytest
import torch

from simforcing.models.expert import ExpertConfig
from simforcing.models.world_model import WorldModelConfig
from simforcing.nn.batch import Conditions, Streams


@pytest.mark.compile
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile on a CPU needs g++")
def test_a_compiled_model_equals_the_eager_one_forward_and_backward():
    """Both experts around one masked attention; the fewest other parts, since every kernel costs a second of g++."""
    sizes = {"mlp_width": 24, "num_layers": 1, "num_heads": 2, "head_width": 12, "text_width": 8}
    video, action = (ExpertConfig(width=width, **sizes) for width in (24, 12))
    model = WorldModelConfig(video=video, action=action, channels=4, action_dim=3).build()
    conditions = Conditions(
        action=torch.randn(2, 8, 3),
        action_valid=torch.ones(2, 8, 3, dtype=torch.bool),
        action_frame=tuple((i + 1) / 4 for i in range(8)),
        view_present=torch.ones(2, 1, dtype=torch.bool),
        text_features=torch.randn(2, 6, 8),
    )
    z, sigma = torch.randn(2, 1, 3, 4, 4, 4), torch.tensor([[0.0, 0.4, 0.4], [0.0, 0.9, 0.9]])
    outputs, gradients = [], []
    for network in (model, torch.compile(model)):
        model.zero_grad()
        out = network(Streams(video=z), Streams(video=sigma), conditions).video
        out.square().mean().backward()
        outputs.append(out.detach())
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    # measured: 4e-7 and 3e-7 of the largest value
    assert (outputs[0] - outputs[1]).abs().max() <= 1e-5 * outputs[0].abs().max()
    assert (gradients[0] - gradients[1]).abs().max() <= 1e-5 * gradients[0].abs().max()
