"""Latents of pairs: real and simulated streams apart, variants as simulation, single views as ever; prompts."""

from dataclasses import replace

import array_pairs as pairs
import numpy as np
import pytest
import torch

from simforcing.data.latents import LatentWindows, encode_clips
from simforcing.data.prompts import prompt
from simforcing.data.spec import window_of
from simforcing.data.windows import read_clip
from simforcing.models.text import encode_bytes
from simforcing.types import View

SPEC = pairs.student_spec()


def encoded(data=pairs.PAIRS, spec=SPEC) -> LatentWindows:
    return LatentWindows.encode(pairs.clips_of(data, spec), pairs.autoencoder(), spec)


def single(stream: str, data=pairs.PAIRS) -> LatentWindows:
    """The windows of a spec that reads one stream alone."""
    return encoded(data, replace(SPEC, views=(stream,), sim_views=()))


def test_real_and_simulated_latents_are_those_of_either_stream_alone():
    windows = encoded()
    assert torch.equal(windows.clean, single("real").clean)
    assert windows.sim is not None
    assert torch.equal(windows.sim, single("sim").clean)
    assert not torch.equal(windows.clean, windows.sim)
    assert windows.has_real is None
    assert windows.batch([3, 0]).has_real is None


def test_a_variant_is_its_simulation_and_its_views_exist():
    windows = encoded(pairs.VARIANTS)
    assert windows.sim is not None
    assert torch.equal(windows.clean, single("sim", pairs.VARIANTS).clean)
    assert torch.equal(windows.clean, windows.sim)
    assert windows.has_real is not None
    assert not windows.has_real.any()
    assert windows.conditions.view_present.tolist() == [[True]] * windows.num_windows


def test_pairs_and_variants_join_in_order():
    joined = LatentWindows.joined([encoded(), encoded(pairs.VARIANTS)])
    together = encoded(replace(pairs.PAIRS, episodes=pairs.PAIRS.episodes + pairs.VARIANTS.episodes))
    count = encoded().num_windows
    batch, expected = (source.batch([0, count, count - 1]) for source in (joined, together))
    assert batch.has_real is not None
    assert batch.has_real.tolist() == [True, False, True]
    assert expected.has_real is not None
    assert expected.has_real.tolist() == batch.has_real.tolist()
    assert torch.equal(batch.clean, expected.clean)
    assert torch.equal(batch.conditions.action, expected.conditions.action)
    assert batch.sim is not None
    assert expected.sim is not None
    assert torch.equal(batch.sim, expected.sim)


def test_windows_of_other_shapes_do_not_join():
    with pytest.raises(ValueError, match=r"latents of \[1, 3, 6, 2, 2\] cannot join those of \[1, 2, 6, 2, 2\]"):
        LatentWindows.joined([encoded(spec=replace(SPEC, num_frames=5, num_actions=4)), encoded()])
    with pytest.raises(ValueError, match="sim is given for 1 of 2 parts"):
        LatentWindows.joined([encoded(), single("real")])


def test_latents_of_a_video_are_the_same_bits_whatever_is_encoded_beside_it():
    clips = pairs.clips_of(pairs.PAIRS, SPEC)[:5]
    together = encode_clips(clips, pairs.autoencoder())
    for row, clip in zip(together, clips, strict=True):
        assert torch.equal(row, encode_clips([clip], pairs.autoencoder())[0])
        assert torch.equal(row[1:], encode_clips([clip], pairs.autoencoder(), streams=slice(1, None))[0])


def test_absent_streams_are_zero():
    clip = pairs.clips_of(pairs.VARIANTS, SPEC)[0]
    latents = encode_clips([clip], pairs.autoencoder())[0]
    assert not latents[0].any()
    assert latents[1].any()


def test_a_clip_without_frames_is_otherwise_the_same_and_reads_no_video():
    for data in (pairs.PAIRS, pairs.VARIANTS):
        clips = pairs.clips_of(data, SPEC)
        seen = clips[:]
        before = pairs.CountedFrames.num_reads
        for clip, blind in zip(seen, clips.reading(with_frames=False), strict=True):
            assert not blind.frames.any()
            assert blind.frames.base is not None  # no memory of its own
            for name in ("action", "action_valid", "action_time_s", "state", "state_valid", "view_present"):
                assert np.array_equal(getattr(clip, name), getattr(blind, name))
            assert (clip.episode, clip.start, clip.task) == (blind.episode, blind.start, blind.task)
        assert pairs.CountedFrames.num_reads == before


def test_masks_of_a_clip_without_frames_are_still_read():
    episode = pairs.PAIRS.episodes[0]
    white = pairs.CountedFrames(np.full((pairs.NUM_FRAMES, pairs.SIDE, pairs.SIDE, 3), 255, np.uint8))
    masked = replace(episode, views=(View(name="real", frames=episode.views[0].frames, masks=white), episode.views[1]))
    clip = read_clip(masked, 0, window_of(SPEC, with_masks=True, with_frames=False), 7, 7)
    assert clip.masks is not None
    assert clip.masks[0].all()
    assert not clip.frames.any()


def test_the_published_sentence_names_the_domain_or_none():
    assert prompt("push", "task") == "push"
    assert prompt("push", "neutral") == "video from a robot's point of view executing: push"
    assert prompt("push", "sim") == "simulation-rendered video from a robot's point of view executing: push"
    assert prompt("push", "real") == "real-world video from a robot's point of view executing: push"


def test_the_simulation_has_its_own_text_only_where_its_wording_differs():
    tasks = [clip.task for clip in pairs.clips_of(pairs.PAIRS, SPEC)]
    plain = encoded(spec=pairs.student_spec(wording="neutral", sim_wording="neutral"))
    assert plain.sim_text is None
    assert torch.equal(plain.conditions.text, encode_bytes([prompt(task, "neutral") for task in tasks]))
    own = encoded(spec=pairs.student_spec(wording="real", sim_wording="sim"))
    assert own.sim_text is not None
    assert torch.equal(own.sim_text, encode_bytes([prompt(task, "sim") for task in tasks]))
    assert torch.equal(own.batch([1]).sim_text, own.sim_text[1:2])
    assert torch.equal(own.conditions.text, encode_bytes([prompt(task, "real") for task in tasks]))


def test_an_over_long_prompt_is_cut_at_its_end():
    text = encode_bytes([prompt("x" * 200, "sim")])[0]
    whole = prompt("x" * 200, "sim").encode()[: len(text)]
    assert bytes((text - 1).tolist()) == whole
