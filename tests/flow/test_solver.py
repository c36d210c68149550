"""Order of the solvers by regression, and closed forms of Gaussian flows."""

import pytest
import torch

from simforcing.flow.schedule import sampling_sigmas
from simforcing.flow.solver import SOLVERS, euler, heun


def same(z: torch.Tensor) -> torch.Tensor:
    return z


def gaussian_velocity(z: torch.Tensor, sigma: torch.Tensor, mean: float = 2.0, std: float = 0.5) -> torch.Tensor:
    """The exact marginal velocity between N(mean, std^2) and N(0, 1): E[noise - clean | z_sigma]."""
    alpha = 1 - sigma
    variance = alpha**2 * std**2 + sigma**2
    residual = z - alpha * mean
    expected_noise = sigma / variance * residual
    expected_clean = mean + alpha * std**2 / variance * residual
    return expected_noise - expected_clean


def error_at(solver, num_steps: int) -> float:
    z = torch.linspace(-2, 2, 9, dtype=torch.float64)
    exact = 2.0 + 0.5 * z  # the flow between two Gaussians transports quantiles
    return (solver(gaussian_velocity, z, sampling_sigmas(num_steps, shift=1.0), same) - exact).abs().max().item()


@pytest.mark.parametrize(("solver", "order"), [(euler, 1), (heun, 2)])
def test_the_error_falls_with_the_solver_s_order(solver, order: int):
    steps = torch.tensor([16.0, 32.0, 64.0, 128.0], dtype=torch.float64)
    errors = torch.tensor([error_at(solver, int(n)) for n in steps], dtype=torch.float64)
    x = torch.stack([steps.log(), torch.ones_like(steps)], dim=1)
    slope = torch.linalg.lstsq(x, errors.log()[:, None]).solution[0].item()
    assert -slope == pytest.approx(order, abs=0.25)


@pytest.mark.parametrize("name", SOLVERS)
def test_a_straight_flow_is_exact_in_any_number_of_steps(name: str):
    noise, clean = torch.randn(4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    for num_steps in (1, 3):
        z = SOLVERS[name](lambda z, s: noise - clean, noise, sampling_sigmas(num_steps), same)
        assert torch.allclose(z, clean, atol=1e-12)


@pytest.mark.parametrize("name", SOLVERS)
def test_given_frames_come_out_as_they_went_in(name: str):
    given = torch.zeros(3, dtype=torch.float64)
    keep = torch.tensor([True, False, False])
    z = SOLVERS[name](
        lambda z, s: torch.ones_like(z),
        torch.randn(3, dtype=torch.float64),
        sampling_sigmas(5),
        lambda z: torch.where(keep, given, z),
    )
    assert z[0] == 0


def test_heun_never_asks_for_a_velocity_at_sigma_zero():
    asked = []

    def velocity(z, sigma):
        asked.append(float(sigma))
        return z

    heun(velocity, torch.ones(1, dtype=torch.float64), sampling_sigmas(3), same)
    assert min(asked) > 0
    assert len(asked) == 5
