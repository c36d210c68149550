"""Laws of low-rank adapters: what they change, what they leave, and that a run with them resumes exactly."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from simforcing.models.adapters import (
    TARGETS,
    BaseNetwork,
    LoraConfig,
    LoraLinear,
    adapters_off,
    add_adapters,
    merged_state_dict,
)
from simforcing.models.expert import ExpertConfig
from simforcing.models.text import ByteEncoderConfig, encode_bytes
from simforcing.models.world_model import WorldModelConfig, WorldModelNetwork
from simforcing.nn.batch import Batch, Conditions, SimCondition, Streams
from simforcing.nn.strict import load_strictly
from simforcing.training.checkpoint import load_weights, read_checkpoint
from simforcing.training.objectives import FlowMatching
from simforcing.training.optim import Optimiser
from simforcing.training.trainer import TrainerConfig, train
from simforcing.types import from_json, to_json

B, V, G, C, H, W, K, A, S = 2, 1, 3, 4, 4, 4, 8, 5, 3
LORA = LoraConfig(rank=4, alpha=6.0)


def expert(width: int) -> ExpertConfig:
    return ExpertConfig(width=width, mlp_width=2 * width, num_layers=2, num_heads=2, head_width=12, text_width=16)


CONFIG = WorldModelConfig(
    video=expert(24),
    action=expert(16),
    channels=C,
    action_dim=A,
    state_dim=S,
    text=ByteEncoderConfig(width=16, max_bytes=16),
    sim_condition=True,
)


def plain_model(dtype: torch.dtype = torch.float64) -> WorldModelNetwork:
    torch.manual_seed(0)
    return CONFIG.build().to(dtype)


def adapted_model(dtype: torch.dtype = torch.float64, config: LoraConfig = LORA) -> WorldModelNetwork:
    model = plain_model(dtype)
    add_adapters(model, config)
    return model


def trained_model(dtype: torch.dtype = torch.float64) -> WorldModelNetwork:
    """With adapters and a condition path that do something."""
    model = adapted_model(dtype)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith("lora_b") or name.startswith("sim_injection"):
                value.normal_(std=0.2, generator=torch.Generator().manual_seed(3))
    return model


def conditions(dtype: torch.dtype = torch.float64) -> Conditions:
    generator = torch.Generator().manual_seed(1)
    return Conditions(
        action=torch.randn(B, K, A, generator=generator).to(dtype),
        action_valid=torch.ones(B, K, A, dtype=torch.bool),
        action_frame=tuple((i + 1) / 4 for i in range(K)),
        view_present=torch.ones(B, V, dtype=torch.bool),
        state=torch.randn(B, S, generator=generator).to(dtype),
        text=encode_bytes(["push", "reach"], 16),
    )


def arguments(dtype: torch.dtype = torch.float64) -> tuple[Streams, Streams, Conditions]:
    """Two branches of two clips."""
    z = torch.randn(2 * B, V, G, C, H, W, generator=torch.Generator().manual_seed(2)).to(dtype)
    sigma = torch.full((2 * B, G), 0.6, dtype=dtype)
    sigma[:, 0] = 0
    return Streams(video=z), Streams(video=sigma), conditions(dtype)


def velocity(model: WorldModelNetwork, dtype: torch.dtype = torch.float64, *, conditioned: bool = False) -> Tensor:
    gate = torch.tensor([0.0, 0.0, 1.0, 1.0], dtype=dtype)  # closed on the first branch
    sim = SimCondition(latents=torch.ones(B, V, G, C, H, W, dtype=dtype), gate=gate) if conditioned else None
    out = model(*arguments(dtype), sim).video
    assert out is not None
    return out


def step(model: WorldModelNetwork, optimiser: Optimiser, index: int) -> None:
    optimiser.zero_gradients()
    velocity(model, next(model.parameters()).dtype, conditioned=True).square().mean().backward()
    optimiser.clip()
    optimiser.step(index)


def optimiser_of(model: WorldModelNetwork, ema_decay: float | None = None) -> Optimiser:
    config = TrainerConfig(num_steps=10, batch_size=2, learning_rate=1e-2)
    return Optimiser(model, config.schedule, ema_decay=ema_decay)


@pytest.mark.parametrize("denoises", [("video",), ("video", "action")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_new_adapter_changes_no_bit(dtype: torch.dtype, denoises: tuple):
    model = replace(CONFIG, denoises=denoises).build().to(dtype)
    noisy, sigma, given = arguments(dtype)
    one_branch = Streams(video=noisy.video[:B]), Streams(video=sigma.video[:B]), given
    before = model(*one_branch)
    add_adapters(model, LORA)
    after = model(*one_branch)
    assert torch.equal(after.video, before.video)
    assert "action" not in denoises or torch.equal(after.action, before.action)


def test_adapters_hold_the_very_weights_of_the_model():
    model = plain_model()
    before = {name: value.data_ptr() for name, value in model.named_parameters()}
    add_adapters(model, LORA)
    after = {name: value.data_ptr() for name, value in model.named_parameters()}
    assert before == {name: address for name, address in after.items() if name in before}


def test_every_linear_map_of_every_block_gets_an_adapter_and_state_and_action_inputs_do():
    model = adapted_model()
    adapted = {name for name, module in model.named_modules() if isinstance(module, LoraLinear)}
    linear = {name for name, module in model.mixture.named_modules() if isinstance(module, torch.nn.Linear)}
    blocks = {f"mixture.{name}" for name in linear if ".blocks." in name}
    assert adapted == blocks | {"state_in", "action_in"}
    assert len(blocks) == 2 * 2 * 7  # experts, layers, maps


def test_targets_choose_the_maps():
    model = adapted_model(config=replace(LORA, targets=("qkv", "mlp")))
    adapted = {name for name, module in model.named_modules() if isinstance(module, LoraLinear)}
    leaves = {name.split(".blocks.")[-1][2:] for name in adapted if ".blocks." in name}
    assert leaves == {"qkv", "mlp.first", "mlp.second"}


def test_gradients_reach_adapters_and_the_condition_path_alone():
    model = trained_model()
    velocity(model, conditioned=True).square().mean().backward()
    reached = {name for name, value in model.named_parameters() if value.grad is not None and value.grad.any()}
    learns = {n for n, _ in model.named_parameters() if "lora_" in n or n.startswith("sim_injection")}
    # nobody reads the action stream after its last attention, nor the values of cross-attention in that layer
    last = "mixture.experts.action.blocks.1."
    unread = {name for name in learns if name.startswith(last) and not name.startswith(f"{last}qkv")}
    assert reached == learns - unread


def test_a_training_step_moves_what_is_trained_and_no_bit_of_the_base():
    model, base = adapted_model(), plain_model().state_dict()
    optimiser = optimiser_of(model)
    for index in range(3):
        step(model, optimiser, index)
    now = model.state_dict()
    changed = {name for name, value in base.items() if not torch.equal(value, now[name])}
    assert changed == {name for name in base if name.startswith("sim_injection")}
    assert not torch.equal(velocity(model), velocity(plain_model()))


def test_off_is_the_base_network_after_training_steps():
    model, base = adapted_model(), velocity(plain_model())
    optimiser = optimiser_of(model)
    for index in range(3):
        step(model, optimiser, index)
    assert not torch.equal(velocity(model), base)
    with adapters_off(model):
        assert torch.equal(velocity(model), base)
    assert torch.equal(BaseNetwork(model)(*arguments()).video, base)


def test_off_nests_and_is_undone_whatever_is_raised():
    model = trained_model()
    on, base = velocity(model), velocity(plain_model())
    with adapters_off(model):
        with adapters_off(model):
            assert torch.equal(velocity(model), base)
        assert torch.equal(velocity(model), base)  # the inner one did not switch them on
    assert torch.equal(velocity(model), on)
    with pytest.raises(KeyError, match="inner"), adapters_off(model), adapters_off(model):
        raise KeyError("inner")
    assert torch.equal(velocity(model), on)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("recompute", [False, True])
def test_a_base_pass_between_forward_and_backward_changes_no_gradient(recompute: bool):
    gradients = []
    for has_base_pass in (False, True):
        model = trained_model()
        model.mixture.recompute = recompute
        loss = velocity(model, conditioned=True).square().mean()
        if has_base_pass:
            out = BaseNetwork(model)(*arguments()).video
            assert out is not None
            assert not out.requires_grad
        loss.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert all(torch.equal(gradient, gradients[1][name]) for name, gradient in gradients[0].items())


def test_recomputing_layers_changes_no_bit_of_any_gradient():
    gradients = []
    for recompute in (False, True):
        model = trained_model()
        model.mixture.recompute = recompute
        velocity(model, conditioned=True).square().mean().backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    assert all(torch.equal(gradient, gradients[1][name]) for name, gradient in gradients[0].items())


def test_a_backward_pass_that_would_recompute_another_network_is_refused():
    model = trained_model()
    model.mixture.recompute = True
    loss = velocity(model).square().mean()
    with pytest.raises(ValueError, match="only outside of adapters_off"), adapters_off(model):
        loss.backward()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_merged_equals_unmerged(dtype: torch.dtype, tolerance: float):
    # measured: 3e-7 in float32, 1e-15 in float64, of the largest value
    model, plain = trained_model(dtype), CONFIG.build().to(dtype)
    load_strictly(plain, merged_state_dict(model), "merged")
    for conditioned in (False, True):
        ours, merged = (velocity(m, dtype, conditioned=conditioned) for m in (model, plain))
        assert (ours - merged).abs().max() <= tolerance * ours.abs().max()
        assert not torch.allclose(ours, velocity(plain_model(dtype), dtype), atol=100 * tolerance)


def test_merging_new_adapters_changes_no_bit():
    base, merged = plain_model().state_dict(), merged_state_dict(adapted_model())
    assert list(base) == list(merged)
    assert all(torch.equal(base[name], merged[name]) for name in base)


def test_branches_in_one_pass_equal_a_pass_each():
    model = trained_model()
    noisy, sigma, given = arguments()
    sim = SimCondition(latents=torch.ones(B, V, G, C, H, W, dtype=torch.float64), gate=torch.ones(B).double())
    apart = [
        model(Streams(video=noisy.video[rows]), Streams(video=sigma.video[rows]), given, condition).video
        for rows, condition in ((slice(0, B), None), (slice(B, 2 * B), sim))
    ]
    assert torch.allclose(torch.cat(apart), velocity(model, conditioned=True), atol=1e-12, rtol=0)


def test_under_autocast_off_is_the_base_network_and_the_student_differs_by_rounding():
    model, plain = trained_model(torch.float32), plain_model(torch.float32)
    exact = velocity(model, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = velocity(model, torch.float32)
        with adapters_off(model):
            assert torch.equal(velocity(model, torch.float32), velocity(plain, torch.float32))
        rounded.float().square().mean().backward()
    assert (rounded - exact).abs().max() < 0.05 * exact.abs().max()
    assert all(p.grad is None or (p.grad.dtype == torch.float32 and p.requires_grad) for p in model.parameters())


def test_the_average_is_of_what_is_trained_and_leaves_the_base():
    model = adapted_model()
    optimiser = optimiser_of(model, ema_decay=0.5)
    for index in range(3):
        step(model, optimiser, index)
    own = velocity(model)
    assert len(optimiser.average) == sum(p.requires_grad for p in model.parameters())
    with optimiser.averaged_weights(), torch.no_grad():
        averaged = velocity(model)
        assert torch.equal(BaseNetwork(model)(*arguments()).video, velocity(plain_model()))
    assert not torch.equal(averaged, own)
    assert torch.equal(velocity(model), own)


class Data:
    """Window i, made from its index alone."""

    num_windows = 5

    def __init__(self, breaks_at: int | None = None) -> None:
        self.calls_left = breaks_at

    def batch(self, indices: Sequence[int]) -> Batch:
        if self.calls_left is not None:
            self.calls_left -= 1
            if self.calls_left < 0:
                raise RuntimeError("the machine broke down")
        clean = torch.stack([torch.sin(0.1 * (1 + i) * torch.arange(V * G * C * H * W)) for i in indices])
        observed = torch.tensor([[True] + [False] * (G - 1)] * len(indices))
        given = replace(conditions(torch.float32), view_present=torch.ones(len(indices), V, dtype=torch.bool))
        return Batch(clean=clean.view(-1, V, G, C, H, W), observed=observed, conditions=given)


def train_adapted(run_dir: Path, data: Data) -> WorldModelNetwork:
    model = adapted_model(torch.float32)
    config = TrainerConfig(
        num_steps=6, batch_size=B, learning_rate=1e-2, ema_decay=0.9, checkpoint_every=2, recompute=True
    )
    train(model, FlowMatching(), data, config, run_dir, progress=False)
    return model


def test_a_run_that_broke_and_was_started_again_equals_a_straight_one(tmp_path: Path):
    straight = train_adapted(tmp_path / "straight", Data())
    with pytest.raises(RuntimeError, match="broke down"):
        train_adapted(tmp_path / "broken", Data(breaks_at=3))
    train_adapted(tmp_path / "broken", Data())
    name = "checkpoints/step_000000006.safetensors"
    first, second = (read_checkpoint(tmp_path / run / name).tensors for run in ("straight", "broken"))
    assert first.keys() == second.keys()
    assert all(torch.equal(value, second[key]) for key, value in first.items())
    moments = {key.removeprefix("exp_avg.") for key in first if key.startswith("exp_avg.")}
    assert moments == {key for key, value in straight.named_parameters() if value.requires_grad}


def test_a_checkpoint_gives_the_averaged_student_as_an_ordinary_network(tmp_path: Path):
    train_adapted(tmp_path, Data())
    student, plain = adapted_model(torch.float32), CONFIG.build()
    load_weights(student, tmp_path)
    load_strictly(plain, merged_state_dict(student), "merged")
    ours, merged = velocity(student, torch.float32), velocity(plain, torch.float32)
    assert (ours - merged).abs().max() <= 1e-6 * ours.abs().max()
    assert not torch.equal(merged, velocity(plain_model(torch.float32), torch.float32))


@pytest.mark.parametrize("targets", [("qkv", "head"), (), ("qkv", "qkv")])
def test_targets_that_are_none_are_refused_with_the_choices(targets: tuple[str, ...]):
    with pytest.raises(ValueError, match=f"expected some of {', '.join(TARGETS)}, each once"):
        LoraConfig(targets=targets)


@pytest.mark.parametrize(("changes", "message"), [({"rank": 0}, "rank is 0"), ({"alpha": 0.0}, "alpha is 0.0")])
def test_sizes_without_meaning_are_refused(changes: dict, message: str):
    with pytest.raises(ValueError, match=message):
        LoraConfig(**changes)


def test_adapters_are_added_once():
    model = adapted_model()
    with pytest.raises(ValueError, match="has adapters already"):
        add_adapters(model, LORA)


def test_the_config_survives_json():
    assert from_json(LoraConfig, to_json(LORA)) == LORA
