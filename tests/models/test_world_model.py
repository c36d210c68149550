"""Laws of the world model: who can influence whom, what observed frames do, and how predictions relate."""

from dataclasses import replace

import pytest
import torch

from simforcing.models.action_conditioning import driven_frames
from simforcing.models.expert import Block, ExpertConfig
from simforcing.models.text import ByteEncoderConfig, encode_bytes
from simforcing.models.world_model import WorldModelConfig, WorldModelNetwork, patches
from simforcing.nn.attention import MASKS
from simforcing.nn.batch import Conditions, SimCondition, Streams

B, V, G, C, H, W, K, A, S = 2, 1, 3, 4, 4, 8, 8, 5, 3


def expert(width: int) -> ExpertConfig:
    return ExpertConfig(width=width, mlp_width=2 * width, num_layers=2, num_heads=2, head_width=12, text_width=16)


def config(**changes) -> WorldModelConfig:
    base = WorldModelConfig(
        video=expert(24), action=expert(16), channels=C, action_dim=A, state_dim=S, text=ByteEncoderConfig(width=16)
    )
    return replace(base, **changes)


def model_of(configuration: WorldModelConfig) -> WorldModelNetwork:
    torch.manual_seed(0)
    return configuration.build().double()


def conditions(**changes) -> Conditions:
    generator = torch.Generator().manual_seed(1)
    base = Conditions(
        action=torch.randn(B, K, A, generator=generator, dtype=torch.float64),
        action_valid=torch.ones(B, K, A, dtype=torch.bool),
        action_frame=tuple((i + 1) / 4 for i in range(K)),
        view_present=torch.ones(B, V, dtype=torch.bool),
        state=torch.randn(B, S, generator=generator, dtype=torch.float64),
        state_valid=torch.ones(B, S, dtype=torch.bool),
        text=encode_bytes(["push the block", "reach"]),
    )
    return replace(base, **changes)


def noisy(views: int = V) -> torch.Tensor:
    return torch.randn(B, views, G, C, H, W, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def levels(sigma: float = 0.6) -> torch.Tensor:
    out = torch.full((B, G), sigma, dtype=torch.float64)
    out[:, 0] = 0
    return out


def velocity(model: WorldModelNetwork, z: torch.Tensor, sigma: torch.Tensor | None = None, **changes) -> torch.Tensor:
    with torch.no_grad():
        out = model(Streams(video=z), Streams(video=levels() if sigma is None else sigma), conditions(**changes))
    assert out.video is not None
    return out.video


@pytest.mark.parametrize("mask", MASKS)
def test_video_is_unchanged_by_exactly_what_the_mask_hides(mask: str):
    model, z = model_of(config(mask=mask)), noisy()
    reach = model.mask(z, conditions()).depends_on
    segments = model.mask(z, conditions()).segments
    before = velocity(model, z)
    for j, changed in enumerate(segments):
        moved, action = z.clone(), conditions().action.clone()
        if changed.stream == "video":
            moved[:, :, changed.index] += 1
        else:
            action[:, [i for i in range(K) if -(-(i + 1) // 4) == changed.index]] += 1
        after = velocity(model, moved, action=action)
        for i, segment in enumerate(segments):
            if segment.stream == "video" and segment != changed:
                same = torch.equal(before[:, :, segment.index], after[:, :, segment.index])
                assert same == (j not in reach[i]), f"{changed} on {segment}"


@pytest.mark.parametrize("mask", ["world_model", "causal"])
def test_actions_never_depend_on_video(mask: str):
    model = model_of(config(mask=mask, denoises=("video", "action")))
    outputs = []
    for z in (noisy(), noisy() + 1):
        with torch.no_grad():
            out = model(Streams(video=z), Streams(video=levels(), action=levels()[:, :1]), conditions())
        outputs.append(out.action)
    assert torch.equal(*outputs)


def test_under_the_full_mask_actions_do_depend_on_video():
    model = model_of(config(mask="full", denoises=("video", "action")))
    sigma = Streams(video=levels(), action=levels()[:, :1])
    first, second = (model(Streams(video=z), sigma, conditions()).action for z in (noisy(), noisy() + 1))
    assert not torch.allclose(first, second)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("num_given", range(1, G))
def test_keys_and_values_that_depend_on_no_noisy_segment_do_not_depend_on_sigma(
    mask: str, num_given: int, monkeypatch: pytest.MonkeyPatch
):
    """What caches rest on: these are the same bits at every solver step, in every layer of every expert."""
    model, z = model_of(config(mask=mask)).float(), noisy().float()
    given = {name: getattr(conditions(), name).float() for name in ("action", "state")}
    block_mask = model.mask(z, conditions())
    made: list[torch.Tensor] = []

    def recorded(block: Block, *args) -> tuple[torch.Tensor, ...]:
        out = made_by(block, *args)
        made.append(torch.stack(out[1:]))
        return out

    made_by = Block.queries_keys_values
    monkeypatch.setattr(Block, "queries_keys_values", recorded)
    steps = []
    for sigma in (0.9, 0.3):
        made.clear()
        frame_sigma = torch.full((B, G), sigma)
        frame_sigma[:, :num_given] = 0
        moving = z.clone()
        moving[:, :, num_given:] *= sigma
        velocity(model, moving, frame_sigma, **given)
        # one call per layer and expert: together, actions first, the tokens of a layer in the mask's order
        experts = ([keys for keys in made if keys.shape[2] == count] for count in (K, made[-1].shape[2]))
        steps.append([torch.cat(pair, dim=2) for pair in zip(*experts, strict=True)])
    noisy_segments = {i for i, s in enumerate(block_mask.segments) if s.stream == "video" and s.index >= num_given}
    for i, span in enumerate(block_mask.spans):
        layers = [torch.equal(*(layer[:, :, slice(*span)] for layer in pair)) for pair in zip(*steps, strict=True)]
        if block_mask.depends_on[i] & noisy_segments:
            assert not layers[-1], block_mask.segments[i]
        else:
            assert all(layers), block_mask.segments[i]


def test_recomputing_layers_changes_no_bit_of_any_gradient():
    model, z = model_of(config(denoises=("video", "action"))).float(), noisy().float()
    given = conditions(action=conditions().action.float(), state=conditions().state.float())
    sigma = Streams(video=levels().float(), action=levels()[:, 1:2].float())
    gradients = []
    for recompute in (False, True):
        model.zero_grad()
        model.mixture.recompute = recompute
        out = model(Streams(video=z), sigma, given)
        (out.video.square().mean() + out.action.square().mean()).backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    for name, gradient in gradients[0].items():
        assert torch.equal(gradient, gradients[1][name]), name


@pytest.mark.parametrize("mask", ["world_model", "causal"])
def test_frame_0_depends_on_no_later_frame_and_not_on_sigma(mask: str):
    model, z = model_of(config(mask=mask)), noisy()
    before = velocity(model, z)
    changed = torch.cat([z[:, :, :1], z[:, :, 1:] + 1], dim=2)
    assert torch.equal(velocity(model, changed)[:, :, 0], before[:, :, 0])
    assert torch.equal(velocity(model, z, levels(0.9))[:, :, 0], before[:, :, 0])
    assert not torch.allclose(velocity(model, z, levels(0.9))[:, :, 1:], before[:, :, 1:])


@pytest.mark.parametrize("change", ["action", "state", "text"])
def test_every_condition_reaches_the_video(change: str):
    model, z = model_of(config()), noisy()
    changed = {
        "action": conditions().action.roll(1, 0),
        "state": torch.zeros(B, S, dtype=torch.float64),
        "text": encode_bytes(["pull", "lift"]),
    }
    assert not torch.allclose(velocity(model, z), velocity(model, z, **{change: changed[change]}), atol=1e-6)


def test_invalid_action_entries_are_not_read():
    model, z = model_of(config()), noisy()
    valid = conditions().action_valid.clone()
    valid[:, :, 2] = False
    action = conditions().action.clone()
    before = velocity(model, z, action=action, action_valid=valid)
    action[:, :, 2] = 7
    assert torch.equal(velocity(model, z, action=action, action_valid=valid), before)


def test_invalid_state_entries_are_not_read():
    model, z = model_of(config()), noisy()
    valid = torch.tensor([[True, False, True]] * B)
    state = conditions().state.clone()
    before = velocity(model, z, state=state, state_valid=valid)
    state[:, 1] = 7
    assert torch.equal(velocity(model, z, state=state, state_valid=valid), before)


@pytest.mark.parametrize(
    ("action_frame", "driven"),
    [
        (tuple((i + 1) / 4 for i in range(8)), (1, 1, 1, 1, 2, 2, 2, 2)),  # video and control rates agree
        ((2.0, 4.0), (1, 3)),  # control slower than latents: an action drives from its start on
        ((0.5, 1.5, 2.5), (0, 1, 2)),  # the first was commanded before the window
        (tuple((i + 1) / 8 for i in range(4)), (1, 1, 1, 1)),  # control faster than video
    ],
)
def test_an_action_drives_from_the_frame_after_its_start(action_frame: tuple, driven: tuple):
    assert driven_frames(action_frame) == driven


def test_absent_views_are_seen_by_nobody():
    model, z = model_of(config()), noisy(views=2)
    present = torch.tensor([[True, False], [True, True]])
    before = velocity(model, z, view_present=present)
    moved = z.clone()
    moved[:, 1] += 1
    after = velocity(model, moved, view_present=present)
    assert torch.equal(before[0, 0], after[0, 0])
    assert not torch.allclose(before[1, 0], after[1, 0])


def test_views_are_told_apart_by_position():
    model, z = model_of(config()), noisy(views=2)
    swapped = velocity(model, z.flip(1), view_present=torch.ones(B, 2, dtype=torch.bool)).flip(1)
    assert not torch.allclose(velocity(model, z, view_present=torch.ones(B, 2, dtype=torch.bool)), swapped)


def test_noise_levels_may_be_given_per_token():
    model, z = model_of(config()), noisy()
    per_token = levels().repeat_interleave(H * W // 4, dim=1)
    with torch.no_grad():
        video = model.mixture.expert("video").sigma_embedding
        e_frames, _ = video(levels())
        e_tokens, _ = video(per_token)
    assert torch.allclose(e_frames.repeat_interleave(H * W // 4, dim=1), e_tokens)
    assert torch.allclose(velocity(model, z), velocity(model, z, per_token), atol=1e-12)


@pytest.mark.parametrize("positions", ["index", "aligned"])
def test_the_order_of_actions_matters(positions: str):
    model, z = model_of(config(action_positions=positions, mask="full")), noisy()
    assert not torch.allclose(velocity(model, z), velocity(model, z, action=conditions().action.flip(1)), atol=1e-6)


def test_aligned_positions_follow_the_clock_and_index_positions_do_not():
    z, late = noisy(), tuple((i + 1) / 4 + 0.25 for i in range(K))
    for positions, same in (("aligned", False), ("index", True)):
        model = model_of(config(action_positions=positions, mask="full"))
        assert torch.allclose(velocity(model, z), velocity(model, z, action_frame=late), atol=1e-9) == same


def test_a_first_frame_head_at_zero_copies_the_first_frame():
    model, z = model_of(config(predicts="clean", head="first_frame")), noisy()
    torch.nn.init.zeros_(model.video_head.linear.weight)
    torch.nn.init.zeros_(model.video_head.linear.bias)
    clean = z - levels()[:, None, :, None, None, None] * velocity(model, z)
    assert torch.allclose(clean, z[:, :, :1].expand_as(z), atol=1e-12)


def test_a_batch_is_its_clips_one_by_one():
    model, z = model_of(config()), noisy()
    together = velocity(model, z)
    one = replace(
        conditions(),
        **{
            name: getattr(conditions(), name)[1:]
            for name in ("action", "action_valid", "view_present", "state", "state_valid", "text")
        },
    )
    with torch.no_grad():
        alone = model(Streams(video=z[1:]), Streams(video=levels()[1:]), one).video
    assert torch.allclose(together[1:], alone, atol=1e-12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head": "first_frame"}, "predicts='clean'"),
        ({"action": None}, "give both or neither"),
        ({"action": None, "action_dim": 0, "denoises": ("action",)}, "needs an action expert"),
        ({"denoises": ()}, r"denoises is \(\); expected video, action or both"),
        ({"denoises": ("video", "video")}, "each once"),
        ({"denoises": ("action",), "predicts": "clean", "head": "first_frame"}, "must hold 'video'"),
    ],
)
def test_impossible_configs_are_refused(changes: dict, message: str):
    with pytest.raises(ValueError, match=message):
        config(**changes)


def test_latents_and_actions_of_another_width_are_refused():
    model = model_of(config())
    with pytest.raises(ValueError, match="4 channels"):
        velocity(model, torch.zeros(B, V, G, C + 1, H, W, dtype=torch.float64))
    with pytest.raises(ValueError, match="actions of 4 numbers; this model reads 5"):
        velocity(
            model,
            noisy(),
            action=torch.zeros(B, K, 4, dtype=torch.float64),
            action_valid=torch.ones(B, K, 4, dtype=torch.bool),
        )
    with pytest.raises(ValueError, match="state of 3 numbers"):
        velocity(model, noisy(), state=None)


def test_experts_must_share_depth_and_heads():
    with pytest.raises(ValueError, match="must share"):
        config(action=replace(expert(16), num_layers=3)).build()


@pytest.mark.parametrize("mask", ["world_model", "causal"])
def test_several_branches_of_the_same_clips_in_one_pass_equal_a_pass_each(mask: str):
    model = model_of(config(mask=mask))
    branches = [noisy(), noisy() + 1, 2 * noisy()]
    sigmas = [levels(0.9), levels(0.4), levels(0.1)]
    together = velocity(model, torch.cat(branches), torch.cat(sigmas)).split(B)
    for z, sigma, found in zip(branches, sigmas, together, strict=True):
        assert torch.allclose(velocity(model, z, sigma), found, atol=1e-12, rtol=0)


@pytest.mark.parametrize("mask", ["world_model", "causal"])
def test_a_context_made_before_changes_nothing(mask: str):
    model, z = model_of(config(mask=mask)), noisy()
    with torch.no_grad():
        context = model.context(conditions(), z + 1)
        out = model(Streams(video=z), Streams(video=levels()), conditions(), context=context).video
    assert out is not None
    assert torch.equal(out, velocity(model, z))


def test_videos_that_are_no_whole_number_of_branches_are_refused():
    with pytest.raises(ValueError, match="3 videos are no whole number of branches of 2 clips"):
        velocity(model_of(config()), torch.cat([noisy(), noisy()[:1]]), torch.cat([levels(), levels()[:1]]))


def sim_condition(gate: float) -> SimCondition:
    return SimCondition(latents=noisy() - 2, gate=torch.full((B,), gate, dtype=torch.float64))


def conditioned(model: WorldModelNetwork, sim: SimCondition | None) -> torch.Tensor:
    with torch.no_grad():
        out = model(Streams(video=noisy()), Streams(video=levels()), conditions(), sim).video
    assert out is not None
    return out


def trained_condition() -> WorldModelNetwork:
    model = model_of(config(sim_condition=True))
    for parameter in model.sim_injection.parameters():
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(3))
    return model


def test_a_new_condition_path_changes_no_bit():
    model = model_of(config(sim_condition=True))
    assert torch.equal(conditioned(model, sim_condition(1.0)), conditioned(model, None))


def test_a_closed_gate_is_the_path_removed():
    model = trained_condition()
    assert torch.equal(conditioned(model, sim_condition(0.0)), conditioned(model, None))


def test_an_open_gate_acts_on_predicted_frames_of_its_own_clip_alone():
    model = trained_condition()
    half_open = replace(sim_condition(1.0), gate=torch.tensor([1.0, 0.0], dtype=torch.float64))
    opened, closed = conditioned(model, half_open), conditioned(model, None)
    assert not torch.allclose(opened[0, :, 1:], closed[0, :, 1:])
    assert torch.equal(opened[1], closed[1])


def test_a_closed_and_an_open_branch_in_one_pass_equal_a_pass_each():
    model, branches = trained_condition(), [noisy(), noisy() + 1]
    gate = torch.cat([torch.zeros(B, dtype=torch.float64), torch.ones(B, dtype=torch.float64)])
    shared = SimCondition(latents=noisy() - 2, gate=gate)  # once for both branches
    with torch.no_grad():
        together = model(
            Streams(video=torch.cat(branches)), Streams(video=levels().repeat(2, 1)), conditions(), shared
        ).video
        opened = model(Streams(video=branches[1]), Streams(video=levels()), conditions(), sim_condition(1.0)).video
    assert torch.allclose(together[:B], velocity(model, branches[0]), atol=1e-10, rtol=0)
    assert torch.allclose(together[B:], opened, atol=1e-10, rtol=0)


def test_the_condition_is_a_convolution_whose_kernel_is_its_stride():
    model, latents = trained_condition(), noisy()
    for layer, added in zip(
        model.sim_injection.layers, model.sim_injection(patches(latents, 2), torch.ones(B)), strict=True
    ):
        assert isinstance(layer, torch.nn.Linear)
        weight = layer.weight.unflatten(1, (C, 1, 2, 2))
        maps = torch.nn.functional.conv3d(latents[:, 0].transpose(1, 2), weight, layer.bias, stride=(1, 2, 2))
        assert torch.allclose(maps.flatten(2).transpose(1, 2), added, atol=1e-12)
