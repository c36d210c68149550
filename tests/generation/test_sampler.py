"""Laws of sampling: given frames stay, seeds decide, guidance mixes two velocities."""

import pytest
import torch
from jaxtyping import TypeCheckError
from torch import nn

from simforcing.flow.path import per_frame, velocity_from_clean
from simforcing.generation.sampler import SamplerConfig, draw_noise, sample
from simforcing.nn.batch import Conditions, SimCondition, Streams

SHAPE = (1, 3, 2, 4, 4)


class Oracle(nn.Module):
    """Knows the clean latents: one constant where actions are given, another where they are zero."""

    def forward(self, noisy: Streams, sigma: Streams, conditions: Conditions) -> Streams:
        self.calls = getattr(self, "calls", 0) + 1
        value = conditions.action.abs().amax(dim=(1, 2)) > 0
        clean = torch.where(value[:, None, None, None, None, None], 2.0, 1.0) * torch.ones_like(noisy.video)
        return Streams(video=velocity_from_clean(noisy.video, clean, per_frame(sigma.video)))


def inputs(batch: int = 2) -> tuple:
    conditions = Conditions(
        action=torch.ones(batch, 4, 3),
        action_valid=torch.ones(batch, 4, 3, dtype=torch.bool),
        action_frame=(0.5, 1.0, 1.5, 2.0),
        view_present=torch.ones(batch, 1, dtype=torch.bool),
    )
    observed = torch.tensor([[True, False, False]] * batch)
    return torch.full((batch, *SHAPE), 7.0), observed, conditions, draw_noise(SHAPE, range(batch))


@pytest.mark.parametrize("solver", ["euler", "heun"])
def test_given_frames_stay_and_the_others_reach_the_clean_latents(solver: str):
    given, observed, conditions, noise = inputs()
    out = sample(Oracle(), given, observed, conditions, noise, SamplerConfig(num_steps=3, solver=solver))
    assert torch.equal(out[:, :, 0], given[:, :, 0])
    assert torch.allclose(out[:, :, 1:], torch.full_like(out[:, :, 1:], 2.0), atol=1e-5)


def test_action_guidance_extrapolates_from_zero_actions():
    given, observed, conditions, noise = inputs()
    out = sample(Oracle(), given, observed, conditions, noise, SamplerConfig(num_steps=4, action_guidance=1.5))
    assert torch.allclose(out[:, :, 1:], torch.full_like(out[:, :, 1:], 1.0 + 1.5), atol=1e-4)


@pytest.mark.parametrize(("settings", "calls"), [({}, 5), ({"solver": "heun"}, 9), ({"action_guidance": 2.0}, 10)])
def test_a_step_costs_the_velocities_it_says(settings: dict, calls: int):
    oracle = Oracle()
    sample(oracle, *inputs(), SamplerConfig(num_steps=5, **settings))
    assert oracle.calls == calls


def test_a_clip_s_noise_depends_on_its_own_seed_alone():
    together, alone = draw_noise(SHAPE, [3, 4]), draw_noise(SHAPE, [4])
    assert torch.equal(together[1], alone[0])
    assert not torch.equal(together[0], together[1])


def test_no_steps_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        SamplerConfig(num_steps=0)


class Policy(nn.Module):
    """Denoises actions alone."""

    def forward(self, noisy: Streams, sigma: Streams, conditions: Conditions) -> Streams:
        return Streams(action=conditions.action)


def test_a_model_that_does_not_denoise_video_is_refused():
    with pytest.raises(ValueError, match="does not denoise video"):
        sample(Policy(), *inputs(), SamplerConfig(num_steps=1))


class Steered(nn.Module):
    """Clean latents 1, plus 2 where actions are given, plus the simulation's where its gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.videos: list[int] = []

    def forward(
        self, noisy: Streams, sigma: Streams, conditions: Conditions, sim: SimCondition | None = None
    ) -> Streams:
        branches = noisy.video.shape[0] // conditions.action.shape[0]
        self.videos.append(noisy.video.shape[0])
        directed = (conditions.action.abs().amax(dim=(1, 2)) > 0).repeat(branches)
        clean = torch.ones_like(noisy.video) + 2.0 * directed[:, None, None, None, None, None]
        if sim is not None:
            clean = clean + sim.gate[:, None, None, None, None, None] * sim.latents.repeat(branches, 1, 1, 1, 1, 1)
        return Streams(video=velocity_from_clean(noisy.video, clean, per_frame(sigma.video)))


def steered(weight: float, **settings) -> tuple[torch.Tensor, list[int]]:
    """Where sampling ends under a simulation of fours, and how many videos each pass held."""
    given, observed, conditions, noise = inputs()
    model, sim = Steered(), torch.full_like(given, 4.0)
    how = SamplerConfig(num_steps=3, sim_guidance=weight, **settings)
    return sample(model, given, observed, conditions, noise, how, sim)[:, :, 1:], model.videos


@pytest.mark.parametrize("solver", ["euler", "heun"])
@pytest.mark.parametrize("weight", [-0.2, 0.0, 0.3, 0.6, 1.0, 1.5])
def test_guidance_mixes_with_and_without_simulation(weight: float, solver: str):
    found, _ = steered(weight, solver=solver)
    assert torch.allclose(found, torch.full_like(found, 3.0 + 4.0 * weight), atol=1e-4)


@pytest.mark.parametrize("weight", [0.3, 1.0])
def test_action_guidance_under_simulation_is_of_the_conditioned_velocity(weight: float):
    found, _ = steered(weight, action_guidance=1.5)
    # v + (a - 1) (v_on - v_on0), and dropping the actions takes 2 away
    assert torch.allclose(found, torch.full_like(found, 3.0 + 4.0 * weight + 0.5 * 2.0), atol=1e-4)


@pytest.mark.parametrize(("weight", "videos"), [(0.0, 2), (0.6, 4), (1.0, 2)])
def test_a_step_is_one_pass_and_guidance_doubles_its_videos(weight: float, videos: int):
    assert steered(weight)[1] == [videos] * 3


@pytest.mark.parametrize("name", ["sim_guidance", "action_guidance", "shift"])
def test_settings_that_are_no_numbers_are_refused(name: str):
    with pytest.raises(ValueError, match=f"{name} is nan; it must be a finite number"):
        SamplerConfig(**{name: float("nan")})


def test_a_shift_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match=r"shift is 0\.0; it must be positive"):
        SamplerConfig(shift=0.0)


@pytest.mark.parametrize("steps", [1.5, "4", True, None])
def test_steps_that_are_no_whole_number_are_refused(steps: object):
    with pytest.raises((ValueError, TypeCheckError), match="num_steps"):
        SamplerConfig(num_steps=steps)
