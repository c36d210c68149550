"""Laws of the ways for actions to enter the video expert: who sees what, nothing changes at the start, all do obey."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from simforcing.models.action_conditioning import ActionTokens, FrameModulation, acting
from simforcing.models.expert import ExpertConfig
from simforcing.models.text import ByteEncoderConfig, encode_bytes
from simforcing.models.world_model import WorldModelConfig, WorldModelNetwork
from simforcing.nn.batch import Conditions, Streams, without_actions

B, V, G, C, H, W, K, A, S, M, R = 2, 1, 3, 4, 4, 8, 8, 5, 3, 2, 6
WAYS = ("modulation", "cross_attention", "maps")
VIDEO = ExpertConfig(width=24, mlp_width=48, num_layers=2, num_heads=2, head_width=12, text_width=16)


def config(way: str, **changes) -> WorldModelConfig:
    base = {
        "video": VIDEO,
        "channels": C,
        "action_dim": A,
        "state_dim": S,
        "text": ByteEncoderConfig(width=16),
        "actions": way,
        "num_history": M if way == "cross_attention" else 0,
        "map_channels": R if way == "maps" else 0,
    }
    return WorldModelConfig(**(base | changes))


def model_of(configuration: WorldModelConfig, *, trained: bool = True) -> WorldModelNetwork:
    """A model; `trained`: what starts at zero has become something else."""
    torch.manual_seed(0)
    model = configuration.build().double()
    if trained:
        layers = [model.frame_modulation.mlp.second] if configuration.actions == "modulation" else []
        layers += [model.map_in] if configuration.actions == "maps" else []
        for layer in layers:
            torch.nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(3))
    return model


def randn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def conditions(**changes) -> Conditions:
    base = Conditions(
        action=randn(B, K, A, seed=1),
        action_valid=torch.ones(B, K, A, dtype=torch.bool),
        action_frame=tuple((i + 1) / 4 for i in range(K)),
        view_present=torch.ones(B, V, dtype=torch.bool),
        state=randn(B, S, seed=4),
        state_valid=torch.ones(B, S, dtype=torch.bool),
        text=encode_bytes(["push the block", "reach"]),
        pose_history=randn(B, M, S, seed=5),
        maps=randn(B, V, G, R, H, W, seed=6),
    )
    return replace(base, **changes)


def seen_by(way: str, **changes) -> Conditions:
    """Conditions with what this way reads and no more."""
    unread = {"modulation": ["pose_history", "maps"], "cross_attention": ["maps"], "maps": ["pose_history"]}[way]
    return replace(conditions(**changes), **dict.fromkeys(unread))


def levels(sigma: float = 0.6, count: int = B) -> torch.Tensor:
    out = torch.full((count, G), sigma, dtype=torch.float64)
    out[:, 0] = 0
    return out


def velocity(model: WorldModelNetwork, seen: Conditions, z: torch.Tensor | None = None) -> torch.Tensor:
    z = randn(B, V, G, C, H, W, seed=2) if z is None else z
    with torch.no_grad():
        video = model(Streams(video=z), Streams(video=levels(count=z.shape[0])), seen).video
    assert video is not None
    return video


def other_actions(way: str, **changes) -> Conditions:
    """The same clips under other actions, as this way is told of them."""
    if way == "maps":
        maps = conditions().maps.clone()
        maps[:, :, 1:] = -maps[:, :, 1:]
        return seen_by(way, maps=maps, **changes)
    return seen_by(way, action=-conditions().action, **changes)


@pytest.mark.parametrize("way", ["modulation", "maps"])
def test_what_starts_at_zero_changes_no_bit(way: str):
    model = model_of(config(way), trained=False)
    blind = model_of(config("expert", action_dim=0), trained=False)
    assert torch.equal(velocity(model, seen_by(way)), velocity(blind, seen_by(way)))


@pytest.mark.parametrize("way", ["modulation", "maps"])
def test_what_starts_at_zero_does_learn(way: str):
    model = model_of(config(way), trained=False)
    z = randn(B, V, G, C, H, W, seed=2)
    model(Streams(video=z), Streams(video=levels()), seen_by(way)).video.square().mean().backward()
    layer = model.map_in if way == "maps" else model.frame_modulation.mlp.second
    assert layer.weight.grad.abs().max() > 1e-6


@pytest.mark.parametrize("way", WAYS)
def test_other_actions_give_another_video(way: str):
    model = model_of(config(way))
    changed = (velocity(model, seen_by(way)) - velocity(model, other_actions(way))).abs()
    assert (changed[:, :, 1:].amax(dim=(1, 3, 4, 5)) > 1e-3).all()


def test_frame_0_is_not_modulated_and_later_drawings_do_not_reach_it():
    for way in ("modulation", "maps"):
        model = model_of(config(way))
        before, after = velocity(model, seen_by(way)), velocity(model, other_actions(way))
        assert torch.equal(before[:, :, 0], after[:, :, 0])


@pytest.mark.parametrize("way", WAYS)
def test_frame_0_depends_on_no_later_frame(way: str):
    model, z = model_of(config(way)), randn(B, V, G, C, H, W, seed=2)
    moved = torch.cat([z[:, :, :1], z[:, :, 1:] + 1], dim=2)
    assert torch.equal(velocity(model, seen_by(way), z)[:, :, 0], velocity(model, seen_by(way), moved)[:, :, 0])


@pytest.mark.parametrize("way", ["modulation", "maps"])
def test_under_the_causal_mask_no_frame_sees_the_actions_of_later_ones(way: str):
    model = model_of(config(way, mask="causal"))
    action, maps = conditions().action.clone(), conditions().maps.clone()
    action[:, 4:] += 1  # they lead to latent frame 2
    maps[:, :, 2] += 1
    before, after = velocity(model, seen_by(way)), velocity(model, replace(seen_by(way), action=action))
    if way == "maps":
        after = velocity(model, seen_by(way, maps=maps))
    assert torch.equal(before[:, :, :2], after[:, :, :2])
    assert not torch.allclose(before[:, :, 2], after[:, :, 2])


@pytest.mark.parametrize("way", ["modulation", "cross_attention"])
def test_actions_that_start_after_the_last_latent_frame_do_not_matter(way: str):
    model = model_of(config(way))
    late = tuple((i + 1) / 2 for i in range(K))  # 2.5 .. 4 lead beyond latent frame 2
    action = conditions().action.clone()
    action[:, 4:] += 1
    before = velocity(model, seen_by(way, action_frame=late))
    assert torch.equal(before, velocity(model, seen_by(way, action_frame=late, action=action)))


@pytest.mark.parametrize("way", ["modulation", "cross_attention"])
def test_invalid_numbers_are_not_read_and_the_order_of_actions_matters(way: str):
    model, valid, action = model_of(config(way)), conditions().action_valid.clone(), conditions().action.clone()
    valid[:, :, 2] = False
    before = velocity(model, seen_by(way, action_valid=valid))
    action[:, :, 2] = 7
    assert torch.equal(before, velocity(model, seen_by(way, action_valid=valid, action=action)))
    within = action[:, [1, 0, 2, 3, 4, 5, 6, 7]]  # two that lead to the same latent frame
    assert not torch.allclose(before, velocity(model, seen_by(way, action_valid=valid, action=within)), atol=1e-6)


@pytest.mark.parametrize("way", WAYS)
def test_branches_in_one_pass_equal_a_pass_each(way: str):
    model = model_of(config(way))
    branches = [randn(B, V, G, C, H, W, seed=seed) for seed in (2, 7, 8)]
    together = velocity(model, seen_by(way), torch.cat(branches)).split(B)
    for z, found in zip(branches, together, strict=True):
        assert torch.allclose(velocity(model, seen_by(way), z), found, atol=1e-12, rtol=0)


@pytest.mark.parametrize("way", WAYS)
def test_a_context_made_before_changes_nothing(way: str):
    model, z = model_of(config(way)), randn(B, V, G, C, H, W, seed=2)
    assert model.has_context
    with torch.no_grad():
        context = model.context(seen_by(way), z + 1)
        out = model(Streams(video=z), Streams(video=levels()), seen_by(way), context=context).video
    assert out is not None
    assert torch.equal(out, velocity(model, seen_by(way), z))


def test_noise_levels_may_be_given_per_token():
    model, z = model_of(config("modulation")), randn(B, V, G, C, H, W, seed=2)
    per_token = levels().repeat_interleave(H * W // 4, dim=1)
    with torch.no_grad():
        out = model(Streams(video=z), Streams(video=per_token), seen_by("modulation")).video
    assert out is not None
    assert torch.allclose(out, velocity(model, seen_by("modulation"), z), atol=1e-12)


@pytest.mark.parametrize(
    ("action_frame", "pairs"),
    [
        ((0.5, 1.0, 1.5, 2.0), ((1, 0), (1, 1), (2, 2), (2, 3))),  # two actions per latent frame
        ((2.0, 4.0), ((1, 0), (2, 0))),  # slower than latents: in force over two of them
        ((0.5, 1.5, 2.5), ((1, 0), (1, 1), (2, 1), (2, 2))),  # the first was commanded before the window
        ((3.0, 4.0), ()),  # all of them start after the last frame
    ],
)
def test_an_action_acts_in_the_latent_frames_that_it_is_in_force_in(action_frame: tuple, pairs: tuple):
    assert acting(action_frame, G) == pairs


def test_modulation_is_the_mean_of_the_mapped_actions_and_their_places():
    torch.manual_seed(0)
    module = FrameModulation(A, 10).double()
    for layer in (module.mlp.first, module.mlp.second):
        torch.nn.init.normal_(layer.weight)
        torch.nn.init.normal_(layer.bias)
    given = conditions()
    found = module(given.action, given.action_valid, given.action_frame, G).detach().numpy()
    assert not found[:, 0].any()
    w1, b1, w2, b2 = (p.detach().numpy() for p in module.parameters())
    for i in (1, 2):
        rows = []
        for j in range(4 * (i - 1), 4 * i):
            place = np.full((B, 1), (j + 1) / 4 - i)
            x = np.concatenate([given.action[:, j].numpy(), place], axis=1) @ w1.T + b1
            rows.append(x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) @ w2.T + b2)
        np.testing.assert_allclose(found[:, i], np.mean(rows, axis=0), atol=1e-12)


def test_past_states_reach_the_video_in_their_order():
    model = model_of(config("cross_attention"))
    before = velocity(model, seen_by("cross_attention"))
    for history in (conditions().pose_history + 1, conditions().pose_history.flip(1)):
        assert not torch.allclose(before, velocity(model, seen_by("cross_attention", pose_history=history)), atol=1e-6)


def test_tokens_are_past_states_then_actions():
    torch.manual_seed(0)
    module, given = ActionTokens(A, S, M, 16, 24).double(), conditions()
    tokens = module(given.action, given.action_valid, given.action_frame, G, given.pose_history)
    assert tokens.shape == (B, M + K, 16)
    moved = module(given.action + 1, given.action_valid, given.action_frame, G, given.pose_history)
    assert torch.equal(tokens[:, :M], moved[:, :M])
    assert not (tokens[:, M:] == moved[:, M:]).any()


def test_video_tokens_know_their_frame_where_they_ask_for_actions():
    """Without it nothing tells two frames with equal noisy latents and equal noise levels apart but their rotors."""
    torch.manual_seed(0)
    places = ActionTokens(A, S, M, 16, 24).double().frame_positions(G, 4)
    assert places.shape == (1, G * 4, 24)
    frames = places.unflatten(1, (G, 4))
    assert torch.equal(frames, frames[:, :, :1].expand_as(frames))
    assert (torch.cdist(frames[0, :, 0], frames[0, :, 0]) + torch.eye(G)).min() > 1e-2


def test_dropped_maps_stay_at_the_start():
    dropped = without_actions(conditions(), torch.tensor([True, False]))
    given, found = conditions().maps, dropped.maps
    assert found is not None
    assert torch.equal(found[0], given[0, :, :1].expand_as(given[0]))
    assert torch.equal(found[1], given[1])


@pytest.mark.parametrize(
    ("way", "changes", "message"),
    [
        ("modulation", {"action": VIDEO}, "no action expert"),
        ("maps", {"action_dim": 0}, r"give action_dim \(found 0\)"),
        ("cross_attention", {"mask": "causal"}, "choose mask 'world_model' or 'full'"),
        ("modulation", {"num_history": 2}, "only actions 'cross_attention' with a state_dim"),
        ("cross_attention", {"state_dim": 0}, "num_history is 2"),
        ("maps", {"map_channels": 0}, "map_channels is 0 with actions 'maps'"),
        ("modulation", {"map_channels": 3}, "map_channels is 3 with actions 'modulation'"),
        ("expert", {}, "action_dim is 5 with action expert None"),
        ("modulation", {"denoises": ("video", "action")}, "needs an action expert"),
    ],
)
def test_impossible_configs_are_refused(way: str, changes: dict, message: str):
    with pytest.raises(ValueError, match=message):
        config(way, **changes)


def test_conditions_without_what_a_way_reads_are_refused():
    with pytest.raises(ValueError, match="reads 2 past states; the conditions hold 0"):
        velocity(model_of(config("cross_attention")), seen_by("cross_attention", pose_history=None))
    with pytest.raises(ValueError, match="reads 0 past states; the conditions hold 2"):
        velocity(model_of(config("cross_attention", num_history=0)), seen_by("cross_attention"))
    with pytest.raises(ValueError, match=r"maps of \[1, 3, 6, 4, 8\] .* hold none"):
        velocity(model_of(config("maps")), seen_by("maps", maps=None))
    with pytest.raises(ValueError, match=r"hold \[1, 2, 6, 4, 8\]"):
        velocity(model_of(config("maps")), seen_by("maps", maps=conditions().maps[:, :, :2]))
