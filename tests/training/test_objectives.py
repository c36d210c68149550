"""Laws of the flow-matching objective, against a transcription in NumPy."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from simforcing.nn.batch import Batch, Conditions, Draws, Streams, without_actions
from simforcing.training.objectives import FlowMatching, SigmaPolicy

B, V, G, C, H, W, K, A = 3, 1, 4, 2, 4, 4, 6, 5


def random_batch() -> tuple[Batch, Draws]:
    observed = torch.zeros(B, G, dtype=torch.bool)
    observed[:, 0] = True
    conditions = Conditions(
        action=torch.randn(B, K, A),
        action_valid=torch.ones(B, K, A, dtype=torch.bool),
        action_frame=tuple((i + 1) / 2 for i in range(K)),
        view_present=torch.ones(B, V, dtype=torch.bool),
    )
    batch = Batch(clean=torch.randn(B, V, G, C, H, W), observed=observed, conditions=conditions)
    draws = Draws(
        uniform=torch.rand(B),
        noise=torch.randn(B, V, G, C, H, W),
        action_noise=torch.randn(B, K, A),
        drop=torch.full((B, 8), 0.5),
    )
    return batch, draws


class Recorder(nn.Module):
    """A network that answers with a fixed velocity and remembers what it was shown."""

    def __init__(self, video: torch.Tensor, action: torch.Tensor | None = None) -> None:
        super().__init__()
        self.answer = Streams(video=video, action=action)

    def forward(self, noisy: Streams, sigma: Streams, conditions: Conditions) -> Streams:
        self.noisy, self.sigma, self.conditions = noisy, sigma, conditions
        return self.answer


def numpy_loss(batch: Batch, draws: Draws, answer: torch.Tensor, weight: str) -> float:
    """Section 4 of the method, clip by clip in float64."""
    total = 0.0
    for b in range(B):
        u = float(draws.uniform[b])
        sigma = 5 * u / (1 + 4 * u)
        scale = (np.exp(-2 * (sigma - 0.5) ** 2) - np.exp(-0.5)) / 0.189496 if weight == "published" else sigma**2
        target = draws.noise[b].double().numpy() - batch.clean[b].double().numpy()
        total += scale * np.mean((answer[b].double().numpy() - target)[:, 1:] ** 2)
    return total / B


@pytest.mark.parametrize("weight", ["published", "clean"])
def test_the_loss_is_the_method_s(weight: str):
    batch, draws = random_batch()
    answer = torch.randn_like(batch.clean)
    loss = FlowMatching(weight=weight)(Recorder(answer), batch, draws)
    assert loss.total.item() == pytest.approx(numpy_loss(batch, draws, answer, weight), rel=1e-5)


def test_the_true_velocity_has_no_loss():
    batch, draws = random_batch()
    assert FlowMatching()(Recorder(draws.noise - batch.clean), batch, draws).total.item() == 0


def test_frame_0_is_shown_clean_with_sigma_0_and_is_in_no_loss():
    batch, draws = random_batch()
    answer = draws.noise - batch.clean
    answer[:, :, 0] = 1e6
    network = Recorder(answer)
    assert FlowMatching()(network, batch, draws).total.item() == 0
    assert torch.equal(network.noisy.video[:, :, 0], batch.clean[:, :, 0])
    assert network.sigma.video[:, 0].abs().max() == 0
    assert network.sigma.video[:, 1:].min() > 0


def test_a_dropped_first_frame_is_noisy_and_joins_the_loss():
    batch, draws = random_batch()
    answer = draws.noise - batch.clean
    answer[:, :, 0] += 1
    network = Recorder(answer)
    assert FlowMatching(first_frame_dropout=1.0)(network, batch, draws).total.item() > 0
    assert not torch.allclose(network.noisy.video[:, :, 0], batch.clean[:, :, 0])


def test_action_dropout_zeroes_whole_clips_at_its_rate():
    batch, draws = random_batch()
    drop = draws.drop.clone()
    drop[:, 0] = torch.tensor([0.05, 0.5, 0.09])
    network = Recorder(torch.zeros_like(batch.clean))
    FlowMatching(action_dropout=0.1)(network, batch, replace(draws, drop=drop))
    kept = network.conditions.action.abs().amax(dim=(1, 2)) > 0
    assert kept.tolist() == [False, True, False]
    assert torch.equal(network.conditions.action[1], batch.conditions.action[1])


def test_dropping_actions_changes_nothing_else():
    conditions = random_batch()[0].conditions
    dropped = without_actions(conditions, torch.ones(B, dtype=torch.bool))
    assert replace(dropped, action=conditions.action) == conditions


def test_absent_views_are_in_no_loss():
    batch, draws = random_batch()
    two = replace(
        batch,
        clean=batch.clean.repeat(1, 2, 1, 1, 1, 1),
        conditions=replace(batch.conditions, view_present=torch.tensor([[True, False]] * B)),
    )
    noise = draws.noise.repeat(1, 2, 1, 1, 1, 1)
    answer = noise - two.clean
    answer[:, 1] = 1e6
    assert FlowMatching()(Recorder(answer), two, replace(draws, noise=noise)).total.item() == 0


def test_a_policy_noises_actions_and_leaves_video_clean():
    batch, draws = random_batch()
    network = Recorder(torch.zeros_like(batch.clean), draws.action_noise - batch.conditions.action)
    loss = FlowMatching(sigma=SigmaPolicy(video=False, action=True), action_dropout=0.0)(network, batch, draws)
    assert set(loss.terms) == {"action"}
    assert loss.total.item() == pytest.approx(0, abs=1e-12)
    assert torch.equal(network.noisy.video, batch.clean)
    assert network.sigma.action.min() > 0
    assert not torch.allclose(network.noisy.action, batch.conditions.action)


def test_a_joint_model_shares_or_separates_its_noise_levels():
    _, draws = random_batch()
    shared = SigmaPolicy(action=True).draw(draws)
    assert torch.equal(*shared)
    separate = SigmaPolicy(action=True, shared=False).draw(draws)
    assert not torch.allclose(*separate)


def test_impossible_settings_are_refused():
    with pytest.raises(ValueError, match="video, action or both"):
        SigmaPolicy(video=False)
    with pytest.raises(ValueError, match=r"action_dropout is 2\.0"):
        FlowMatching(action_dropout=2.0)
