"""The named sizes are the published ones, counted on tensors without storage."""

import pytest
import torch
from torch import nn

from simforcing.models.presets import wan_5b_world_model
from simforcing.models.world_model import WorldModelNetwork


@pytest.fixture(scope="module")
def published() -> WorldModelNetwork:
    with torch.device("meta"):
        return wan_5b_world_model().build()


def count(*modules: nn.Module) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


def test_the_video_network_has_5_00_billion_parameters(published: WorldModelNetwork):
    video = count(published.mixture.expert("video"), published.video_in, published.video_head)
    assert round(video / 1e9, 2) == 5.00


def test_the_action_network_has_1_02_billion_parameters(published: WorldModelNetwork):
    assert round(count(published.mixture.expert("action"), published.action_in) / 1e9, 2) == 1.02


def test_every_parameter_of_the_published_network_is_in_one_of_its_named_parts(published: WorldModelNetwork):
    parts = (published.mixture, published.video_in, published.video_head, published.action_in, published.state_in)
    assert count(*parts) == count(published)
    assert count(published.state_in) == 7 * 4096 + 4096


def test_the_published_experts_share_one_attention_of_3072_channels(published: WorldModelNetwork):
    for name, width in (("video", 3072), ("action", 1024)):
        block = published.mixture.expert(name).blocks[0]
        assert block.qkv.weight.shape == (3 * 3072, width)
        assert block.out.weight.shape == (width, 3072)
    assert len(published.mixture.expert("video").blocks) == len(published.mixture.expert("action").blocks) == 30


def test_patches_of_48_channels_enter_and_leave_the_published_network(published: WorldModelNetwork):
    assert published.video_in.weight.shape == (3072, 48 * 2 * 2)
    assert published.video_head.linear.weight.shape == (2 * 2 * 48, 3072)
