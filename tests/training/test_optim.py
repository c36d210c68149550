"""Laws of schedule, clip, average and update."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from simforcing.training.optim import Optimiser, Schedule, average_decay


def schedule(**changes) -> Schedule:
    return Schedule(**{"peak": 2e-3, "num_steps": 200, "warmup_fraction": 0.05, "final_fraction": 0.01, **changes})


def two_layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2)).double()


def test_schedule_starts_low_peaks_after_warmup_and_ends_at_the_final_fraction():
    rates = [schedule().rate(step) for step in range(200)]
    assert rates[0] == pytest.approx(2e-3 / 10)
    assert max(rates) == rates[9] == 2e-3
    assert rates[-1] == pytest.approx(2e-3 * 0.01, rel=1e-12)
    assert all(a < b for a, b in pairwise(rates[:10]))
    assert all(a > b for a, b in pairwise(rates[9:]))


def test_schedule_is_at_the_mean_of_its_ends_halfway_through_the_cosine():
    assert schedule(num_steps=210, warmup_fraction=10 / 210).rate(109) == pytest.approx(2e-3 * 1.01 / 2)


@pytest.mark.parametrize("num_steps", [1, 2, 3, 10, 1000])
def test_a_run_of_any_length_reaches_the_peak_and_is_never_all_warmup(num_steps):
    law = schedule(num_steps=num_steps)
    rates = [law.rate(step) for step in range(num_steps)]
    assert max(rates) == law.peak
    assert min(rates) > 0
    assert law.num_warmup_steps == max(1, round(0.05 * num_steps))


def test_average_has_its_closed_form():
    model, decay = two_layers(), 0.8
    optimiser = Optimiser(model, schedule(num_steps=20), ema_decay=decay)
    history = [[p.detach().clone() for p in model.parameters()]]
    for step in range(12):
        model(torch.ones(4, 3, dtype=torch.float64)).square().sum().backward()
        optimiser.step(step)
        optimiser.zero_gradients()
        history.append([p.detach().clone() for p in model.parameters()])
    expected = history[0]
    for step, weights in enumerate(history[1:]):
        kept = min(decay, (1 + step) / (10 + step))
        expected = [kept * a + (1 - kept) * w for a, w in zip(expected, weights, strict=True)]
    for average, value in zip(optimiser.average, expected, strict=True):
        torch.testing.assert_close(average, value, rtol=1e-12, atol=1e-14)


def test_the_average_forgets_its_start_early_and_reaches_its_decay():
    assert average_decay(0.995, 0) == 0.1
    assert average_decay(0.995, 10_000) == 0.995
    decays = [average_decay(0.995, step) for step in range(3000)]
    assert decays == sorted(decays)


def test_averaged_weights_are_lent_and_the_own_ones_come_back_exactly():
    model = two_layers()
    optimiser = Optimiser(model, schedule(), ema_decay=0.5)
    model(torch.ones(1, 3, dtype=torch.float64)).sum().backward()
    optimiser.step(0)
    own = [p.detach().clone() for p in model.parameters()]
    with optimiser.averaged_weights():
        assert all(torch.equal(p, a) for p, a in zip(model.parameters(), optimiser.average, strict=True))
        assert not torch.equal(next(model.parameters()), own[0])
    assert all(torch.equal(p, kept) for p, kept in zip(model.parameters(), own, strict=True))


@pytest.mark.parametrize("scale", [0.01, 1.0, 1000.0])
def test_clip_bounds_the_norm_of_all_gradients_together_and_keeps_their_direction(scale):
    model = two_layers()
    optimiser = Optimiser(model, schedule(), clip_norm=0.7)
    for p in model.parameters():
        p.grad = scale * torch.randn(p.shape, generator=torch.Generator().manual_seed(1), dtype=p.dtype)
    before = torch.cat([p.grad.flatten() for p in model.parameters()])
    norm = optimiser.clip()
    after = torch.cat([p.grad.flatten() for p in model.parameters()])
    assert norm.item() == pytest.approx(before.norm().item())
    assert after.norm().item() == pytest.approx(min(0.7, before.norm().item()), rel=1e-3)
    assert torch.nn.functional.cosine_similarity(before, after, dim=0).item() == pytest.approx(1.0)


def test_update_is_adamw_with_the_scheduled_rate():
    ours, reference = two_layers(), two_layers()
    optimiser = Optimiser(ours, schedule(num_steps=10))
    adamw = torch.optim.AdamW(reference.parameters(), betas=(0.9, 0.95), weight_decay=0.01, foreach=False)
    for step in range(10):
        for model in (ours, reference):
            model.zero_grad()
            model(torch.ones(4, 3, dtype=torch.float64)).square().sum().backward()
        adamw.param_groups[0]["lr"] = schedule(num_steps=10).rate(step)
        optimiser.step(step)
        adamw.step()
    for a, b in zip(ours.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-15)  # measured: 0


def test_frozen_parameters_stay_and_unreached_ones_only_decay():
    model = two_layers()
    model[0].weight.requires_grad_(False)
    model.register_parameter("unused", nn.Parameter(torch.ones(3, dtype=torch.float64)))
    frozen = model[0].weight.clone()
    optimiser = Optimiser(model, schedule(num_steps=1))
    (model[0](torch.ones(1, 3, dtype=torch.float64)).sum() + model[1].weight.sum() + model[1].bias.sum()).backward()
    optimiser.clip()
    optimiser.step(0)
    assert torch.equal(model[0].weight, frozen)
    torch.testing.assert_close(model.unused, torch.full_like(model.unused, 1 - 2e-3 * 0.01))


def test_a_model_without_anything_to_train_is_refused():
    with pytest.raises(ValueError, match="no parameter to train"):
        Optimiser(two_layers().requires_grad_(False), schedule())


def test_schedule_equals_the_cosine_of_its_definition():
    law = schedule(num_steps=100, warmup_fraction=0.2)
    for step in range(20, 100):
        cosine = 0.5 * (1 + math.cos(math.pi * (step - 19) / 80))
        assert law.rate(step) == pytest.approx(2e-3 * (0.01 + 0.99 * cosine))
