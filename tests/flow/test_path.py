"""Laws of the path, the schedule and the motion, in float64."""

import math

import pytest
import torch

from simforcing.flow.guidance import guide
from simforcing.flow.motion import motion
from simforcing.flow.path import (
    clean_from_velocity,
    frame_sigma,
    interpolate,
    per_frame,
    velocity_from_clean,
    velocity_target,
)
from simforcing.flow.schedule import loss_weight, sampling_sigmas, shift_sigma


def latents(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def test_clean_latents_come_back_from_the_true_velocity():
    clean, noise = latents(2, 1, 5, 3, 4, 4), latents(2, 1, 5, 3, 4, 4)
    sigma = torch.rand(2, 1, 1, 1, 1, 1, dtype=torch.float64)
    noisy = interpolate(clean, noise, sigma)
    assert torch.allclose(clean_from_velocity(noisy, velocity_target(clean, noise), sigma), clean, atol=1e-14)


def test_velocity_and_clean_prediction_are_one_another_s_inverse():
    noisy, velocity = latents(3, 4), latents(3, 4)
    sigma = torch.full((3, 1), 0.3, dtype=torch.float64)
    back = velocity_from_clean(noisy, clean_from_velocity(noisy, velocity, sigma), sigma)
    assert torch.allclose(back, velocity, atol=1e-14)


def test_the_path_is_exact_at_both_ends():
    clean, noise = latents(7), latents(7)
    assert torch.equal(interpolate(clean, noise, torch.zeros(1, dtype=torch.float64)), clean)
    assert torch.equal(interpolate(clean, noise, torch.ones(1, dtype=torch.float64)), noise)


def test_a_given_frame_has_sigma_zero_and_no_velocity():
    observed = torch.tensor([[True, False, False]])
    sigma = frame_sigma(torch.tensor([0.7]), observed)
    assert sigma.tolist() == [[0.0, pytest.approx(0.7), pytest.approx(0.7)]]
    noisy, clean = torch.randn(1, 1, 3, 2, 2, 2), torch.randn(1, 1, 3, 2, 2, 2)
    velocity = velocity_from_clean(noisy, clean, per_frame(sigma))
    assert velocity[:, :, 0].abs().max() == 0
    assert velocity[:, :, 1:].abs().min() > 0


def test_velocity_from_clean_has_finite_gradients_where_sigma_is_zero():
    clean = torch.randn(4, requires_grad=True)
    velocity_from_clean(torch.randn(4), clean, torch.tensor([0.0, 0.5, 0.0, 1.0])).sum().backward()
    assert clean.grad is not None
    assert torch.isfinite(clean.grad).all()


def test_the_published_schedule_has_its_published_values():
    sigmas = sampling_sigmas(20)
    assert len(sigmas) == 21
    assert sigmas[0] == 1
    assert sigmas[-1] == 0
    assert [round(s, 3) for s in sigmas[[1, 2, 18, 19]].tolist()] == [0.990, 0.978, 0.357, 0.208]


def test_shift_one_is_the_uniform_schedule():
    assert torch.allclose(sampling_sigmas(4, shift=1.0), torch.tensor([1, 0.75, 0.5, 0.25, 0], dtype=torch.float64))


def test_shifted_noise_has_the_published_median_and_tail():
    u = torch.linspace(0, 1, 100_001, dtype=torch.float64)
    sigma = shift_sigma(u)
    assert sigma.median().item() == pytest.approx(0.833, abs=1e-3)
    assert (sigma > 0.95).double().mean().item() == pytest.approx(0.21, abs=5e-3)


def test_the_loss_weight_vanishes_at_both_ends_and_has_mean_one_under_the_noise_law():
    sigma = shift_sigma(torch.linspace(0, 1, 200_001, dtype=torch.float64))
    weight = loss_weight(sigma)
    assert weight[0].abs() < 1e-12
    assert weight[-1].abs() < 1e-12
    assert weight.mean().item() == pytest.approx(1.0, abs=1e-4)
    assert loss_weight(torch.tensor(0.5)).item() == pytest.approx((1 - math.exp(-0.5)) / 0.189496, rel=1e-6)


@pytest.mark.parametrize(("num_steps", "shift"), [(0, 5.0), (4, 0.0)])
def test_an_impossible_schedule_is_refused(num_steps: int, shift: float):
    with pytest.raises(ValueError, match=r"num_steps|shift"):
        sampling_sigmas(num_steps, shift)


def test_guidance_zero_and_one_are_the_two_velocities():
    off, on = latents(5), latents(5)
    assert torch.equal(guide(off, on, 0.0), off)
    assert torch.allclose(guide(off, on, 1.0), on, atol=1e-15)


def test_a_static_latent_has_no_motion_and_a_constant_changes_none():
    still = latents(2, 1, 1, 3, 4, 4).expand(2, 1, 5, 3, 4, 4)
    assert motion(still).abs().max() == 0
    moving, constant = latents(2, 1, 5, 3, 4, 4), latents(2, 1, 1, 3, 4, 4)
    assert torch.allclose(motion(moving + constant), motion(moving), atol=1e-14)
    assert motion(moving).shape == (2, 1, 4, 3, 4, 4)
