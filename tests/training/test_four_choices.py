"""Experts, mask, sigma policy and what is denoised are independent: every combination trains or is refused by name."""

from itertools import product

import pytest
import torch

from simforcing.models.expert import ExpertConfig
from simforcing.models.text import ByteEncoderConfig, encode_bytes
from simforcing.models.world_model import WorldModelConfig
from simforcing.nn.attention import MASKS
from simforcing.nn.batch import Batch, Conditions, Draws
from simforcing.training.objectives import FlowMatching, SigmaPolicy

B, V, G, C, H, W, K, A = 2, 1, 3, 4, 4, 4, 8, 5

POLICIES = {
    "video": SigmaPolicy(),
    "action": SigmaPolicy(video=False, action=True),
    "both, one sigma": SigmaPolicy(action=True),
    "both, two sigmas": SigmaPolicy(action=True, shared=False),
}
DENOISES = (("video",), ("video", "action"), ("action",))


def expert(width: int) -> ExpertConfig:
    return ExpertConfig(width=width, mlp_width=2 * width, num_layers=2, num_heads=2, head_width=12, text_width=16)


def batch_and_draws() -> tuple[Batch, Draws]:
    observed = torch.zeros(B, G, dtype=torch.bool)
    observed[:, 0] = True
    conditions = Conditions(
        action=torch.randn(B, K, A),
        action_valid=torch.ones(B, K, A, dtype=torch.bool),
        action_frame=tuple((i + 1) / 4 for i in range(K)),
        view_present=torch.ones(B, V, dtype=torch.bool),
        text=encode_bytes(["push the block", "reach"]),
    )
    batch = Batch(clean=torch.randn(B, V, G, C, H, W), observed=observed, conditions=conditions)
    draws = Draws(
        uniform=torch.tensor([0.2, 0.6]),
        noise=torch.randn(B, V, G, C, H, W),
        action_noise=torch.randn(B, K, A),
        drop=torch.full((B, 8), 0.4),
    )
    return batch, draws


def reached(mask: str, noised: set[str]) -> dict[str, bool]:
    """Which module gets a gradient: a stream's own loss, or a stream that is seen by one with a loss."""
    return {
        "video_head": "video" in noised,
        "action_head": "action" in noised,
        "video_in": "video" in noised or mask == "full",
        "action_in": True,  # every mask lets video see actions
        "mixture.experts.video": "video" in noised or mask == "full",
        "mixture.experts.action": True,
        "text_encoder": True,
    }


@pytest.mark.parametrize(("mask", "policy", "denoises"), list(product(MASKS, POLICIES, DENOISES)))
def test_every_combination_trains_or_is_refused_by_name(mask: str, policy: str, denoises: tuple[str, ...]):
    config = WorldModelConfig(
        video=expert(24),
        action=expert(12),
        channels=C,
        action_dim=A,
        text=ByteEncoderConfig(width=16),
        mask=mask,
        denoises=denoises,
    )
    model, (batch, draws), sigma = config.build(), batch_and_draws(), POLICIES[policy]
    objective = FlowMatching(sigma=sigma)
    noised = {name for name in ("video", "action") if getattr(sigma, name)}
    if missing := noised - set(denoises):
        with pytest.raises(ValueError, match=rf"noises .*{missing.pop()}.*, which the model does not denoise"):
            objective(model, batch, draws)
        return
    loss = objective(model, batch, draws)
    assert set(loss.terms) == noised
    loss.total.backward()
    for module, expected in reached(mask, noised).items():
        gradients = [p.grad for name, p in model.named_parameters() if name.startswith(f"{module}.")]
        given = [gradient for gradient in gradients if gradient is not None]
        assert all(bool(gradient.isfinite().all()) for gradient in given), module
        assert any(bool(gradient.any()) for gradient in given) == expected, module
    assert hasattr(model, "video_head") == ("video" in denoises)
    assert hasattr(model, "action_head") == ("action" in denoises)


def test_a_denoised_action_is_not_dropped():
    """Its velocity would be that of an action which the noisy one does not hold."""
    batch, draws = batch_and_draws()
    config = WorldModelConfig(
        video=expert(24),
        action=expert(12),
        channels=C,
        action_dim=A,
        text=ByteEncoderConfig(width=16),
        denoises=("video", "action"),
    )
    model = config.build()
    losses = [
        FlowMatching(sigma=SigmaPolicy(action=True), action_dropout=rate)(model, batch, draws) for rate in (0.0, 1.0)
    ]
    assert torch.equal(losses[0].total, losses[1].total)
