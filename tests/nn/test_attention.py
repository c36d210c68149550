"""Laws of block masks: the plan equals the dense relation, and each named mask hides what it says."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from simforcing.nn.attention import MASKS, attend, build_mask

ACTIONS = (1, 1, 2, 2)


def relation(name: str) -> dict[tuple[str, int], set[tuple[str, int]]]:
    mask = build_mask(name, 3, 2, ACTIONS)
    keys = [(s.stream, s.index) for s in mask.segments]
    return {keys[i]: {keys[j] for j in seen} for i, seen in enumerate(mask.sees)}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("actions", [(), ACTIONS, (1, 1, 1, 2, 2)])
def test_attention_by_blocks_equals_dense_masked_attention(name: str, actions: tuple[int, ...]):
    mask = build_mask(name, 3, 4, actions)
    q, k, v = (torch.randn(2, mask.num_tokens, 2, 8, dtype=torch.float64) for _ in range(3))
    dense = scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), attn_mask=mask.dense())
    assert torch.allclose(attend(q, k, v, mask), dense.transpose(1, 2).flatten(2), atol=1e-12)


@pytest.mark.parametrize("name", MASKS)
def test_hidden_keys_change_nothing(name: str):
    mask = build_mask(name, 3, 4, ACTIONS)
    q, k, v = (torch.randn(2, mask.num_tokens, 2, 8, dtype=torch.float64) for _ in range(3))
    present = torch.ones(2, mask.num_tokens, dtype=torch.bool)
    present[1, 5::4] = False
    changed_k, changed_v = k.clone(), v.clone()
    changed_k[~present], changed_v[~present] = 9.0, -9.0
    before, after = attend(q, k, v, mask, present), attend(q, changed_k, changed_v, mask, present)
    assert torch.equal(before, after)
    assert not torch.allclose(before[1], attend(q, k, v, mask)[1])


def test_full_hides_nothing():
    assert build_mask("full", 3, 2, ACTIONS).dense().all()


def test_world_model_mask_is_the_published_one():
    sees = relation("world_model")
    actions = {("action", 1), ("action", 2)}
    video = {("video", i) for i in range(3)}
    assert sees[("video", 0)] == {("video", 0)} | actions
    assert sees[("video", 1)] == sees[("video", 2)] == video | actions
    assert sees[("action", 1)] == sees[("action", 2)] == actions


def test_causal_mask_sees_the_past_and_the_actions_up_to_it():
    sees = relation("causal")
    assert sees[("video", 0)] == {("video", 0)}
    assert sees[("video", 1)] == {("video", 0), ("video", 1), ("action", 1)}
    assert sees[("video", 2)] == {("video", i) for i in range(3)} | {("action", 1), ("action", 2)}
    assert sees[("action", 1)] == {("action", 1)}


@pytest.mark.parametrize("name", MASKS)
def test_what_a_token_can_depend_on_is_the_transitive_closure(name: str):
    mask = build_mask(name, 3, 1, (1, 2))
    reach = mask.dense().double()
    for _ in range(8):
        reach = ((reach @ reach) > 0).double()
    closure = torch.zeros_like(reach)
    for i, seen in enumerate(mask.depends_on):
        closure[i, list(seen)] = 1
    assert torch.equal(closure, reach)


def test_the_published_mask_needs_three_kernels_and_copies_no_keys():
    plan = build_mask("world_model", 6, 70, tuple(1 + i // 4 for i in range(20))).plan
    assert [keys for _, keys in plan] == [((0, 20),), ((0, 90),), ((0, 440),)]


def test_unknown_masks_and_actions_out_of_order_are_refused():
    with pytest.raises(ValueError, match="choices: full, world_model, causal"):
        build_mask("dense", 3, 2, ())
    with pytest.raises(ValueError, match="never fall"):
        build_mask("causal", 3, 2, (2, 1))
