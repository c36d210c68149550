"""The Video DiT is Wan2.2's: equal to diffusers' WanTransformer3DModel, forward and gradients, at float32 rounding."""

import pytest
import torch

from simforcing.models.expert import ExpertConfig
from simforcing.models.weights import from_wan, to_wan
from simforcing.models.world_model import WorldModelConfig
from simforcing.nn.batch import Conditions, Streams
from simforcing.nn.strict import load_strictly

diffusers = pytest.importorskip("diffusers")

# heads, head width, layers, MLP width, channels, text width, latent frames, rows, columns
SHAPES = [(2, 16, 1, 48, 4, 24, 1, 4, 4), (4, 32, 3, 256, 8, 64, 3, 8, 12), (3, 24, 2, 100, 48, 32, 5, 6, 4)]
FORWARD_TOLERANCE = 5e-6  # measured: 3.5e-7 of the largest value
GRADIENT_TOLERANCE = 2e-5  # measured: 1.7e-6 of the largest value of each tensor


def pair(shape: tuple[int, ...]):
    heads, head_width, layers, mlp_width, channels, text_width = shape[:6]
    torch.manual_seed(sum(shape))
    wan = diffusers.WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=heads,
        attention_head_dim=head_width,
        in_channels=channels,
        out_channels=channels,
        text_dim=text_width,
        freq_dim=256,
        ffn_dim=mlp_width,
        num_layers=layers,
        cross_attn_norm=True,
        qk_norm="rms_norm_across_heads",
        eps=1e-6,
        rope_max_seq_len=32,
    )
    for parameter in wan.parameters():  # gains of one and biases of zero would hide a swapped tensor
        parameter.data += 0.05 * torch.randn_like(parameter)
    config = WorldModelConfig(
        video=ExpertConfig(
            width=heads * head_width,
            mlp_width=mlp_width,
            num_layers=layers,
            num_heads=heads,
            head_width=head_width,
            text_width=text_width,
        ),
        channels=channels,
        mask="full",
    )
    ours = config.build()
    load_strictly(ours, from_wan(wan.state_dict(), config), "wan")
    return wan, ours, config


@pytest.mark.parametrize("shape", SHAPES)
def test_forward_and_gradients_equal_the_reference(shape: tuple[int, ...]):
    wan, ours, config = pair(shape)
    channels, text_width, frames, rows, columns = shape[4:]
    z = torch.randn(2, 1, frames, channels, rows, columns)
    sigma = torch.rand(2, frames)
    text = torch.randn(2, 7, text_width)
    conditions = Conditions(
        action=torch.zeros(2, 0, 0),
        action_valid=torch.ones(2, 0, 0, dtype=torch.bool),
        action_frame=(),
        view_present=torch.ones(2, 1, dtype=torch.bool),
        text_features=text,
    )
    z_ours, z_wan = z.clone().requires_grad_(), z.clone().requires_grad_()
    out = ours(Streams(video=z_ours), Streams(video=sigma), conditions).video
    timestep = (1000 * sigma).repeat_interleave(rows * columns // 4, dim=1)
    reference = wan(z_wan[:, 0].transpose(1, 2), timestep, text).sample.transpose(1, 2)[:, None]
    assert (out - reference).abs().max() <= FORWARD_TOLERANCE * reference.abs().max()
    out.square().mean().backward()
    reference.square().mean().backward()
    assert z_ours.grad is not None
    assert z_wan.grad is not None
    assert (z_ours.grad - z_wan.grad).abs().max() <= GRADIENT_TOLERANCE * z_wan.grad.abs().max()
    gradients = to_wan({name: p.grad for name, p in ours.named_parameters()}, config)
    for name, parameter in wan.named_parameters():
        assert (gradients[name] - parameter.grad).abs().max() <= GRADIENT_TOLERANCE * parameter.grad.abs().max(), name


@pytest.mark.parametrize("shape", SHAPES)
def test_state_dicts_map_exactly_both_ways(shape: tuple[int, ...]):
    wan, ours, config = pair(shape)
    back = to_wan(ours.state_dict(), config)
    assert set(back) == set(wan.state_dict())
    assert all(torch.equal(back[name], tensor) for name, tensor in wan.state_dict().items())
    again = from_wan(back, config)
    assert all(torch.equal(again[name], tensor) for name, tensor in ours.state_dict().items())


def test_missing_extra_and_reshaped_tensors_are_listed():
    wan, ours, config = pair(SHAPES[0])
    state = dict(wan.state_dict())
    state["surplus.weight"] = state.pop("proj_out.bias")
    with pytest.raises(ValueError, match=r"missing proj_out\.bias; extra surplus\.weight"):
        from_wan(state, config)
    tensors = dict(ours.state_dict())
    tensors["video_in.bias"] = torch.zeros(3)
    with pytest.raises(ValueError, match=r"video_in\.bias has shape \[3\], expected \[32\]"):
        load_strictly(ours, tensors, "file")
