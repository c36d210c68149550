"""What is computed once changes nothing: the sampler equals one that repeats every pass."""

import pytest
import torch
from plain_sampler import plain_sample

from simforcing.generation.sampler import SamplerConfig, sample
from simforcing.models.expert import ExpertConfig
from simforcing.models.prepared import Branch, Prepared
from simforcing.models.text import ByteEncoderConfig, encode_bytes
from simforcing.models.world_model import WorldModelConfig, WorldModelNetwork
from simforcing.nn.batch import Conditions, without_actions

B, V, G, C, H, W, K, A, S, M, R = 2, 2, 3, 4, 4, 8, 8, 5, 3, 2, 6
TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-10}


def expert(width: int) -> ExpertConfig:
    return ExpertConfig(width=width, mlp_width=2 * width, num_layers=3, num_heads=2, head_width=12, text_width=16)


def network(**changes) -> WorldModelNetwork:
    """A network none of whose weights is zero."""
    base = {
        "video": expert(24),
        "action": expert(16),
        "channels": C,
        "action_dim": A,
        "state_dim": S,
        "text": ByteEncoderConfig(width=16),
        "sim_condition": True,
    }
    torch.manual_seed(0)
    model = WorldModelConfig(**(base | changes)).build()
    for parameter in model.parameters():
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def randn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def conditions(dtype: torch.dtype) -> Conditions:
    return Conditions(
        action=randn(B, K, A, seed=1).to(dtype),
        action_valid=torch.ones(B, K, A, dtype=torch.bool),
        action_frame=tuple((i + 1) / 4 for i in range(K)),
        view_present=torch.tensor([[True, False], [True, True]]),
        state=randn(B, S, seed=4).to(dtype),
        state_valid=torch.ones(B, S, dtype=torch.bool),
        text=encode_bytes(["push the block", "reach"]),
        null_action=randn(B, K, A, seed=7).to(dtype),
        pose_history=randn(B, M, S, seed=5).to(dtype),
        maps=randn(B, V, G, R, H, W, seed=6).to(dtype),
    )


def difference(model: WorldModelNetwork, dtype: torch.dtype, *, with_sim: bool, w: float = 0.6, a: float = 1.0):
    """Largest absolute difference between the sampler and the plain one."""
    model, seen = model.to(dtype), conditions(dtype)
    given, noise, sim = (randn(B, V, G, C, H, W, seed=seed).to(dtype) for seed in (8, 9, 10))
    sim = sim if with_sim else None
    observed = torch.tensor([[True, False, False]] * B)
    how = SamplerConfig(num_steps=4, sim_guidance=w, action_guidance=a)
    undirected = without_actions(seen, torch.ones(B, dtype=torch.bool))
    fast = sample(model, given, observed, seen, noise, how, sim)
    plain = plain_sample(model, given, seen, noise, 4, sim=sim, undirected=undirected, w=w, a=a)
    assert torch.isfinite(fast).all()
    assert not torch.allclose(fast[:, :, 1:], noise[:, :, 1:], atol=0.1)
    return (fast - plain).abs().max() / plain.abs().max()


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("a", [1.0, 1.5])
@pytest.mark.parametrize(("with_sim", "w"), [(False, 0.6), (True, 0.0), (True, 0.6), (True, 1.0), (True, 1.4)])
def test_sampling_equals_whole_passes_under_every_guidance(with_sim: bool, w: float, a: float, dtype: torch.dtype):
    assert difference(network(), dtype, with_sim=with_sim, w=w, a=a) < TOLERANCES[dtype]


@pytest.mark.parametrize(
    "changes",
    [
        {"mask": "causal"},
        {"mask": "full"},
        {"predicts": "clean"},
        {"predicts": "clean", "head": "first_frame", "action_positions": "aligned"},
        {"action": None, "action_dim": 0},
        {"action": None, "action_dim": 0, "mask": "full"},
        {"action": None, "actions": "modulation"},
        {"action": None, "actions": "modulation", "mask": "causal"},
        {"action": None, "actions": "cross_attention", "num_history": M},
        {"action": None, "actions": "maps", "map_channels": R},
    ],
    ids=lambda changes: "-".join(f"{name}={value}" for name, value in changes.items()),
)
@pytest.mark.parametrize("a", [1.0, 1.5])
def test_sampling_equals_whole_passes_for_every_network(changes: dict, a: float):
    assert difference(network(**changes), torch.float64, with_sim=True, a=a) < 1e-10


def test_the_given_frame_is_passed_once_and_no_step_reads_it_again():
    model, seen = network().double(), conditions(torch.float64)
    given, noise, sim = (randn(B, V, G, C, H, W, seed=seed) for seed in (8, 9, 10))
    counted: list[int] = []
    model.video_in.register_forward_hook(lambda _, inputs, __: counted.append(inputs[0].shape[1]))
    observed = torch.tensor([[True, False, False]] * B)
    sample(model, given, observed, seen, noise, SamplerConfig(num_steps=4), sim)
    frame = V * (H // 2) * (W // 2)
    assert counted == [frame] + 4 * [(G - 1) * frame]


def test_a_network_whose_first_frame_sees_noise_cannot_be_prepared():
    model = network(mask="full", action=None, action_dim=0).double()
    branches, z = [Branch(conditions=conditions(torch.float64))], randn(B, V, G, C, H, W, seed=8)
    assert not model.first_frame_stands_alone
    with pytest.raises(ValueError, match="sees later tokens"):
        Prepared(model, branches, z, None, [1.0])
