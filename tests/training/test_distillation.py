"""Laws of stages 2 and 3, and every term against a transcription of the equations in NumPy."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from simforcing.flow.path import frame_sigma, interpolate, per_frame
from simforcing.flow.schedule import shift_sigma
from simforcing.models.presets import tiny_world_model
from simforcing.models.text import encode_bytes
from simforcing.models.world_model import WorldModelNetwork
from simforcing.nn.batch import Batch, Conditions, Draws, Streams, map_tensors
from simforcing.nn.protocols import Loss
from simforcing.training.distillation import (
    CORRUPT,
    GATE,
    KEPT,
    STRENGTH,
    ConditionConfig,
    Distillation,
    DistillConfig,
    feature,
)
from simforcing.training.draws import draw
from simforcing.training.objectives import FlowMatching, SigmaPolicy

B, V, G, C, H, W, K, A, S = 4, 1, 3, 4, 4, 4, 8, 3, 2
OPEN = ConditionConfig(rate=1.0, corruption_rate=0.0)


def network(seed: int = 0, *, sim_condition: bool = True) -> WorldModelNetwork:
    """A small student with weights in every part, so that no term is trivially zero."""
    torch.manual_seed(seed)
    sizes = {"width": 32, "action_width": 16, "num_layers": 2, "head_width": 16, "text_width": 16}
    config = replace(
        tiny_world_model(channels=C, action_dim=A, state_dim=S, **sizes),
        sim_condition=sim_condition,
        predicts="velocity",
        head="plain",
    )
    model = config.build().double()
    for name, parameter in model.named_parameters():
        if name.startswith("sim_injection"):
            torch.nn.init.normal_(parameter, std=0.1)
    return model


def pairs() -> Batch:
    generator = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    observed = torch.zeros(B, G, dtype=torch.bool)
    observed[:, 0] = True
    return Batch(
        clean=normal(B, V, G, C, H, W),
        sim=normal(B, V, G, C, H, W),
        observed=observed,
        conditions=Conditions(
            action=normal(B, K, A),
            action_valid=torch.ones(B, K, A, dtype=torch.bool),
            action_frame=tuple((i + 1) / 4 for i in range(K)),
            view_present=torch.ones(B, V, dtype=torch.bool),
            state=normal(B, S),
            state_valid=torch.ones(B, S, dtype=torch.bool),
            text=encode_bytes(["push", "reach", "push", "lift the block"]),
        ),
    )


def draws_of(batch: Batch) -> Draws:
    found = draw(batch, 0, 0, range(B))
    double = {name: getattr(found, name).double() for name in ("uniform", "noise", "action_noise", "drop", "sim_noise")}
    return Draws(**double)


def loss_of(
    objective: Distillation,
    model: WorldModelNetwork,
    batch: Batch | None = None,
    teacher: WorldModelNetwork | None = None,
) -> Loss:
    batch = batch or pairs()
    return objective(model, batch, draws_of(batch), teacher=teacher)


def velocity(model: WorldModelNetwork, clean: torch.Tensor, batch: Batch, **sim) -> torch.Tensor:
    """One branch by itself, in a pass of its own."""
    draws = draws_of(batch)
    level = frame_sigma(shift_sigma(draws.uniform), batch.observed)
    noisy = interpolate(clean, draws.noise, per_frame(level))
    out = model(Streams(video=noisy), Streams(video=level), batch.conditions, **sim).video
    assert out is not None
    return out


def transcription(model: WorldModelNetwork, teacher: WorldModelNetwork, how: Distillation) -> dict[str, float]:
    """Section 5 in NumPy, from velocities of passes of their own."""
    batch = pairs()
    draws = draws_of(batch)
    assert batch.sim is not None
    assert how.condition is not None
    assert how.distill is not None
    u = draws.uniform.numpy()
    sigma = 5 * u / (1 + 4 * u)
    weight = (np.exp(-2 * (sigma - 0.5) ** 2) - np.exp(-0.5)) / 0.189496
    noise, real, sim = draws.noise.numpy(), batch.clean.numpy(), batch.sim.numpy()
    s = sigma[:, None, None, None, None, None]
    with torch.no_grad():
        condition = how.condition.draw(batch.sim, draws)
        v = {
            "real": velocity(model, batch.clean, batch, sim=condition).numpy(),
            "sim": velocity(model, batch.sim, batch).numpy(),
            "teacher": velocity(teacher, batch.sim, batch).numpy(),
        }
    clean = {"real": real, "sim": sim, "teacher": sim}
    hat = {}
    for name, z in clean.items():
        noisy = (1 - s) * z + s * noise
        noisy[:, :, 0] = z[:, :, 0]
        hat[name] = noisy - s * v[name]
        if how.distill.first_frame == "observed":
            hat[name][:, :, 0] = z[:, :, 0]
    out = {}
    for name in ("real", "sim"):
        error = (v[name] - (noise - clean[name]))[:, :, 1:] ** 2
        out[f"flow_{name}"] = float((weight * error.mean(axis=(1, 2, 3, 4, 5))).mean())
        motions = [hat[which][:, :, 1:] - hat[which][:, :, :-1] for which in (name, "teacher")]
        changed = ((motions[0] - motions[1]) ** 2)[:, :, 0 if how.distill.first_difference else 1 :]
        out[f"motion_{name}"] = float((weight * changed.mean(axis=(1, 2, 3, 4, 5))).mean())
        valued = ((hat[name] - hat["teacher"]) ** 2)[:, :, 1:]
        out[f"value_{name}"] = float((weight * valued.mean(axis=(1, 2, 3, 4, 5))).mean())
    flow = 0.5 * (1.0 * out["flow_real"] + 0.1 * out["flow_sim"])
    out["total"] = flow + 0.5 * 0.5 * (1.0 * out["motion_real"] + 0.1 * out["motion_sim"])
    return out


@pytest.mark.parametrize("first_frame", ["observed", "predicted"])
@pytest.mark.parametrize("first_difference", [True, False])
def test_every_term_equals_its_transcription(first_frame: str, first_difference: bool):
    how = Distillation(distill=DistillConfig(first_frame=first_frame, first_difference=first_difference))
    student, teacher = network(0), network(1)
    loss = loss_of(how, student, teacher=teacher)
    expected = transcription(student, teacher, how)
    assert float(loss.total.detach()) == pytest.approx(expected.pop("total"), rel=1e-9)
    assert {name: float(term) for name, term in loss.terms.items()} == pytest.approx(expected, rel=1e-9)


def test_a_student_that_is_its_teacher_has_nothing_to_learn_on_the_sim_branch():
    model = network()
    terms = loss_of(Distillation(), model, teacher=model).terms
    assert float(terms["motion_sim"]) < 1e-12
    assert float(terms["motion_real"]) > 1e-3


def test_where_real_is_sim_a_student_that_is_its_teacher_has_nothing_to_learn_on_either_branch():
    model, batch = network(), pairs()
    same = replace(batch, clean=batch.sim)
    terms = loss_of(Distillation(condition=ConditionConfig(rate=0.0)), model, same, teacher=model).terms
    assert float(terms["motion_sim"]) < 1e-12
    assert float(terms["motion_real"]) < 1e-12


def test_a_gate_that_never_opens_is_the_path_removed():
    model, teacher = network(), network(1)
    closed = loss_of(Distillation(condition=ConditionConfig(rate=0.0)), model, teacher=teacher)
    absent = loss_of(Distillation(condition=None), model, teacher=teacher)
    assert torch.equal(closed.total, absent.total)


def test_an_open_gate_changes_the_real_branch_alone():
    model, teacher = network(), network(1)
    opened = loss_of(Distillation(condition=OPEN), model, teacher=teacher).terms
    absent = loss_of(Distillation(condition=None), model, teacher=teacher).terms
    assert float(opened["flow_real"]) != pytest.approx(float(absent["flow_real"]), rel=1e-3)
    assert float(opened["flow_sim"]) == pytest.approx(float(absent["flow_sim"]), rel=1e-9)


def test_with_all_extra_weights_zero_the_loss_is_half_of_flow_matching():
    model, batch = network(sim_condition=False), pairs()
    plain = FlowMatching(action_dropout=0.0)(model, batch, draws_of(batch)).total.detach()
    for objective in (
        Distillation(flow_sim=0.0, distill=None, condition=None),
        Distillation(flow_sim=0.0, distill=DistillConfig(weight=0.0), condition=None),
    ):
        found = loss_of(objective, model, teacher=network(1))
        assert float(found.total.detach()) == pytest.approx(0.5 * float(plain), rel=1e-9)


def shift_of_all_frames(kind: str) -> float:
    """Largest change of a feature where a constant joins all frames: another look of the same motion."""
    clean_hat = pairs().clean
    look = torch.randn(1, 1, 1, C, H, W, dtype=torch.float64)
    return float((feature(clean_hat + look, kind) - feature(clean_hat, kind)).abs().max())


@pytest.mark.parametrize("kind", ["motion", "magnitude", "normalised"])
def test_motion_does_not_see_appearance(kind: str):
    assert shift_of_all_frames(kind) < 1e-10


def test_values_see_appearance():
    assert shift_of_all_frames("value") > 0.1


def test_motion_of_a_constant_latent_is_zero():
    still = pairs().clean[:, :, :1].expand(-1, -1, G, -1, -1, -1)
    for kind in ("motion", "normalised"):
        assert float(feature(still, kind).abs().max()) == 0


def test_magnitude_and_normalised_motion_are_what_they_say():
    clean_hat = pairs().clean
    change = clean_hat[:, :, 1:] - clean_hat[:, :, :-1]
    assert torch.allclose(feature(clean_hat, "magnitude"), change.square().mean(3, keepdim=True).sqrt(), atol=1e-4)
    assert torch.allclose(feature(3 * clean_hat, "normalised"), feature(clean_hat, "normalised"), atol=1e-6)
    assert feature(clean_hat, "normalised").square().mean().item() == pytest.approx(1, abs=1e-6)


def test_controls_and_the_bound_take_the_target_from_where_they_say():
    model, teacher, batch = network(), network(1), pairs()
    terms = {
        kind: loss_of(Distillation(distill=DistillConfig(teacher=kind)), model, teacher=teacher).terms
        for kind in ("sim", "self", "true", "shuffled")
    }
    assert float(terms["self"]["motion_sim"]) == 0
    assert float(terms["self"]["motion_real"]) > 0
    assert float(terms["shuffled"]["motion_sim"]) > float(terms["sim"]["motion_sim"])
    assert batch.sim is not None
    perfect = Distillation(distill=DistillConfig(teacher="true"))
    assert not perfect.needs_teacher
    assert float(loss_of(perfect, model).terms["motion_sim"]) == pytest.approx(float(terms["true"]["motion_sim"]))


def test_the_teacher_may_see_the_noisy_real_latents():
    model, teacher = network(), network(1)
    how = DistillConfig(sees="real")
    found = loss_of(Distillation(distill=how, condition=None), model, teacher=teacher).terms
    batch = pairs()
    swapped = replace(batch, sim=batch.clean)
    other = loss_of(Distillation(condition=None), model, swapped, teacher=teacher).terms
    assert float(found["motion_real"]) == pytest.approx(float(other["motion_real"]), rel=1e-9)


def test_the_release_reads_proprioception_through_the_students_layer():
    model, teacher = network(), network(1)
    shared = loss_of(Distillation(distill=DistillConfig(teacher_state="student")), model, teacher=teacher).terms
    with torch.no_grad():
        teacher.state_in.load_state_dict(model.state_in.state_dict())
    own = loss_of(Distillation(), model, teacher=teacher).terms
    assert float(shared["motion_sim"]) == pytest.approx(float(own["motion_sim"]), rel=1e-9)


def test_gradients_reach_the_student_alone():
    model, teacher = network(), network(1)
    loss_of(Distillation(condition=OPEN), model, teacher=teacher).total.backward()
    assert all(p.grad is None for p in teacher.parameters())
    without = [name for name, p in model.named_parameters() if p.grad is None]
    # the actions' last layer ends at its keys and values
    assert all(name.startswith("mixture.experts.action") for name in without), without


def test_the_target_is_detached_where_the_student_is_its_own_teacher():
    model, batch = network(), pairs()
    objective = Distillation(flow_real=0.0, flow_sim=0.0, distill=DistillConfig(teacher="self", sim=1.0, real=0.0))
    total = loss_of(objective, model, batch).total
    total.backward()
    assert float(total.detach()) == 0
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())


def test_no_gradient_reaches_the_sim_branch_through_the_target_that_it_gives():
    model, batch = network(), pairs()
    assert batch.sim is not None
    sim = batch.sim.clone().requires_grad_(True)
    objective = Distillation(
        flow_real=0.0, flow_sim=0.0, condition=None, distill=DistillConfig(teacher="self", real=1.0, sim=0.0)
    )
    loss_of(objective, model, replace(batch, sim=sim)).total.backward()
    assert sim.grad is None or not sim.grad.any()
    assert any(p.grad is not None and p.grad.any() for p in model.parameters())


def test_clips_of_simulation_alone_count_in_the_sim_terms_alone():
    model, teacher, batch = network(), network(1), pairs()
    half = replace(batch, has_real=torch.tensor([True, True, False, False]))
    terms, whole = (loss_of(Distillation(), model, b, teacher=teacher).terms for b in (half, batch))
    assert float(terms["flow_sim"]) == pytest.approx(float(whole["flow_sim"]))
    first, draws = (map_tensors(record, lambda tensor: tensor[:2]) for record in (batch, draws_of(batch)))
    only = Distillation()(model, first, draws, teacher=teacher).terms
    assert float(terms["flow_real"]) == pytest.approx(float(only["flow_real"]), rel=1e-9)
    assert float(terms["motion_real"]) == pytest.approx(float(only["motion_real"]), rel=1e-9)


def test_each_domain_may_have_its_own_words():
    model, teacher, batch = network(), network(1), pairs()
    worded = replace(batch, sim_text=encode_bytes(["a", "b", "c", "d"]))
    found = loss_of(Distillation(condition=None), model, worded, teacher=teacher).terms
    plain = loss_of(Distillation(condition=None), model, batch, teacher=teacher).terms
    assert float(found["flow_real"]) == pytest.approx(float(plain["flow_real"]), rel=1e-9)
    assert float(found["flow_sim"]) != pytest.approx(float(plain["flow_sim"]), rel=1e-9)


def test_gate_and_corruption_have_their_rates_and_the_corruption_its_formula():
    count = 4000
    sim = torch.randn(count, 1, 1, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1)
    draws = Draws(
        uniform=torch.zeros(count),
        noise=sim,
        action_noise=torch.zeros(count, 1, 1),
        drop=torch.rand(count, 8, generator=generator),
        sim_noise=torch.randn(sim.shape, generator=generator),
    )
    condition = ConditionConfig().draw(sim, draws)
    assert float(condition.gate.mean()) == pytest.approx(0.7, abs=3 * (0.21 / count) ** 0.5)
    corrupted = (condition.latents != sim).flatten(1).any(1)
    assert float(corrupted.double().mean()) == pytest.approx(0.4, abs=3 * (0.24 / count) ** 0.5)
    assert torch.equal(corrupted, draws.drop[:, CORRUPT] < 0.4)
    assert torch.equal(condition.gate > 0, draws.drop[:, GATE] < 0.7)
    assert draws.sim_noise is not None
    i = int(corrupted.nonzero()[0])
    alpha = 0.5 + 0.4 * draws.drop[i, KEPT]
    strength = 0.1 + 0.2 * draws.drop[i, STRENGTH]
    expected = alpha * sim[i] + (1 - alpha) * strength * draws.sim_noise[i]
    assert torch.allclose(condition.latents[i], expected)


def test_weighting_over_noise_levels():
    model, teacher, batch = network(), network(1), pairs()
    draws = draws_of(batch)
    one = replace(draws, uniform=torch.full((B,), 0.4, dtype=torch.float64))
    sigma = 5 * 0.4 / (1 + 4 * 0.4)
    found = {
        weighting: float(
            Distillation(distill=DistillConfig(weighting=weighting))(model, batch, one, teacher=teacher).terms[
                "motion_sim"
            ]
        )
        for weighting in ("flow", "uniform", "falling")
    }
    published = (np.exp(-2 * (sigma - 0.5) ** 2) - np.exp(-0.5)) / 0.189496
    assert found["falling"] == pytest.approx((1 - sigma) * found["uniform"], rel=1e-9)
    assert found["flow"] == pytest.approx(published * found["uniform"], rel=1e-9)


def test_sigma_may_be_rounded_as_in_the_release():
    model, batch = network(), pairs()
    rounded = Distillation(sigma=SigmaPolicy(dtype="bfloat16"), distill=None, condition=None, weight="clean")
    exact = replace(rounded, sigma=SigmaPolicy())
    first, second = (loss_of(how, model, batch).total.detach() for how in (rounded, exact))
    assert float(first) != float(second)
    assert float(first) == pytest.approx(float(second), rel=0.05)


def test_the_teacher_is_asked_in_the_words_of_what_it_sees():
    model, teacher, batch = network(), network(1), pairs()
    worded = replace(batch, sim_text=encode_bytes(["a", "b", "c", "d"]))
    said = replace(batch, conditions=replace(batch.conditions, text=worded.sim_text))
    alike = loss_of(Distillation(condition=None), model, said, teacher=teacher).terms
    found = loss_of(Distillation(condition=None), model, worded, teacher=teacher).terms
    assert float(found["motion_sim"]) == pytest.approx(float(alike["motion_sim"]), rel=1e-9)


def test_a_shuffled_teacher_needs_another_clip():
    one, draws = (map_tensors(record, lambda tensor: tensor[:1]) for record in (pairs(), draws_of(pairs())))
    objective = Distillation(distill=DistillConfig(teacher="shuffled"))
    with pytest.raises(ValueError, match="a batch of one clip has none"):
        objective(network(), one, draws, teacher=network(1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(Distillation, flow_sim=-1.0), "flow_sim is -1"),
        (partial(DistillConfig, weight=-0.5), "weight is -0.5; a weight must not be negative"),
        (partial(ConditionConfig, rate=1.5), "rate is 1.5; it must lie in"),
    ],
)
def test_settings_that_mean_nothing_are_refused(make, message: str):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_batch_without_simulation_and_a_missing_teacher_are_refused():
    model, batch = network(), pairs()
    with pytest.raises(ValueError, match="holds no simulation"):
        Distillation()(model, replace(batch, sim=None), draws_of(batch))
    with pytest.raises(ValueError, match="needs a teacher"):
        Distillation()(model, batch, draws_of(batch))
