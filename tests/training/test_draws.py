"""Order and noise are functions of (seed, step, position) alone."""

import pytest
import torch
from training_problem import SmallData

from simforcing.training.draws import draw, seed_model, window_indices


@pytest.mark.parametrize("num_windows", [1, 7, 12, 40])
def test_every_epoch_visits_every_window_once(num_windows):
    batch_size, num_epochs = 6, 12
    num_steps = num_windows * num_epochs // batch_size
    visits = [i for step in range(num_steps) for i in window_indices(num_windows, batch_size, 3, step)]
    for start in range(0, len(visits) - num_windows + 1, num_windows):
        assert sorted(visits[start : start + num_windows]) == list(range(num_windows))


def test_order_changes_with_seed_and_epoch():
    orders = {tuple(window_indices(30, 30, seed, step)) for seed in range(3) for step in range(3)}
    assert len(orders) == 9


def test_draws_of_a_position_do_not_depend_on_who_computes_it():
    data = SmallData()
    whole = draw(data.batch(range(6)), 5, 11, range(6))
    part = draw(data.batch(range(2)), 5, 11, range(4, 6))
    for name in ("uniform", "noise", "action_noise", "drop"):
        assert torch.equal(getattr(whole, name)[4:], getattr(part, name))


def test_no_two_of_seed_step_position_share_their_noise():
    batch = SmallData().batch(range(3))
    draws = [draw(batch, seed, step, range(3)) for seed in range(3) for step in range(3)]
    assert len({float(x) for d in draws for x in d.noise[:, 0, 0, 0, 0, 0]}) == 27


def test_draws_have_their_distributions():
    batch = SmallData().batch([0] * 16)
    draws = [draw(batch, 0, step, range(16)) for step in range(50)]
    noise = torch.cat([d.noise.flatten() for d in draws])  # 38400 numbers: standard error 0.005
    uniform = torch.cat([torch.cat([d.uniform, d.drop.flatten()]) for d in draws])  # 7200 numbers
    assert abs(noise.mean().item()) < 0.025
    assert abs(noise.std().item() - 1) < 0.025
    assert uniform.min().item() >= 0
    assert uniform.max().item() < 1
    assert abs(uniform.mean().item() - 0.5) < 0.02


def test_the_models_own_draws_repeat_by_step_and_differ_by_rank():
    def drawn(*key: int) -> float:
        seed_model(*key, torch.device("cpu"))
        return torch.rand(()).item()

    assert drawn(1, 2, 0) == drawn(1, 2, 0)
    assert len({drawn(1, 2, 0), drawn(1, 2, 1), drawn(1, 3, 0), drawn(2, 2, 0)}) == 4


def test_empty_data_is_refused():
    with pytest.raises(ValueError, match="no window"):
        window_indices(0, 4, 0, 0)
