"""A predictor keeps its own simulation by value, and a window of one action holds it from start to end."""

from dataclasses import replace

import torch
from small_world import commands, small_start, small_world

from simforcing.data.conditions import conditions_of
from simforcing.generation.start import clip_from
from simforcing.models.action_conditioning import driven_frames


def test_a_clip_changed_in_place_gets_another_simulation():
    world = small_world()
    clip = clip_from(small_start(), commands(0, 8), world.spec)
    before = world.predictor.sim_latents([clip], [0])
    assert world.predictor.using(sim_guidance=0.3).sim_latents([clip], [0]) is before
    clip.action[:] = commands(1, 8)
    after = world.predictor.sim_latents([clip], [0])
    assert not torch.allclose(before, after)
    fresh = clip_from(small_start(), commands(1, 8), world.spec)
    assert torch.equal(after, small_world().predictor.sim_latents([fresh], [0]))


def test_the_only_action_of_a_window_acts_from_its_start_to_its_end():
    spec = replace(small_world().spec, num_frames=5, num_actions=1)
    seen = conditions_of([clip_from(small_start(), commands(0, 1), spec)], spec, 4)
    assert seen.action_frame == (1.0,)
    assert driven_frames(seen.action_frame) == (1,)
