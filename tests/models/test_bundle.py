"""A bundle comes back as it was saved, or not at all."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from simforcing.models.autoencoder import TinyAutoencoderConfig
from simforcing.models.bundle import CONFIG, MODEL, STORED_HALF, Bundle, bundle_sha256, load_bundle
from simforcing.models.presets import tiny_world_model
from simforcing.nn.tensor_file import read_described, read_tensors, write_tensors
from simforcing.types import DataSpec, NetworkInput, Resize, layout_named


def bundle() -> Bundle:
    layout = layout_named("tabletop")
    reader = NetworkInput.fit(np.random.default_rng(0).uniform(-1, 1, (20, 7)), layout)
    spec = DataSpec(
        views=("front",),
        num_frames=9,
        fps=5.0,
        num_actions=8,
        resize=Resize(height=16, width=16),
        action=reader,
        state=reader,
        robot="arm",
        fingerprint="abc",
    )
    model = tiny_world_model(
        channels=4, action_dim=10, state_dim=10, width=24, action_width=12, num_layers=1, head_width=12, text_width=8
    )
    autoencoder = TinyAutoencoderConfig(channels=4, num_decoder_blocks=0).build()
    return Bundle(model=model.build(), autoencoder=autoencoder, spec=spec, about={"recipe": "debug", "held_out": ["a"]})


def test_a_bundle_comes_back_exactly(tmp_path: Path):
    saved = bundle()
    saved.save(tmp_path)
    loaded = load_bundle(tmp_path)
    assert loaded.spec == saved.spec
    assert loaded.model.config == saved.model.config
    assert loaded.about == saved.about
    for ours, theirs in ((saved.model, loaded.model), (saved.autoencoder, loaded.autoencoder)):
        assert all(torch.equal(tensor, theirs.state_dict()[name]) for name, tensor in ours.state_dict().items())
    assert not loaded.model.training


def test_a_run_without_config_is_not_finished(tmp_path: Path):
    with pytest.raises(ValueError, match="no such run"):
        load_bundle(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="has not finished training"):
        load_bundle(tmp_path)


def damaged(tmp_path: Path, change) -> None:
    bundle().save(tmp_path)
    config = json.loads((tmp_path / CONFIG).read_text())
    change(config)
    (tmp_path / CONFIG).write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("spec"), "field 'spec' is missing"),
        (lambda c: c.update(format=9), "not a bundle of format 1"),
        (lambda c: c["model"].update(mask="dense"), "model.mask: 'dense' is not one of"),
        (lambda c: c["model"].update(patch=4), "has shape"),
        (lambda c: c["model"].update(state_dim=0), "extra state_in.bias; extra state_in.weight"),
        (lambda c: c["model"].update(width=-8), "config.json: "),
        (lambda c: c.update(about=[]), "config.json: about: expected an object, found list"),
        (lambda c: c["about"].update(run=[]), "config.json: about.run: expected an object, found list"),
        (lambda c: c["about"].update(data=3), "config.json: about.data: expected a string, found int"),
        (lambda c: c["about"].update(held_out="a"), "config.json: about.held_out: expected a list, found str"),
        (lambda c: c["about"].update(training=[1]), "config.json: about.training: expected a list of names"),
        (lambda c: c["spec"].update(fps=0), "config.json: fps is 0.0; expected a finite number above 0"),
        (lambda c: c["spec"].update(num_actions=0), "config.json: a window of 9 frame"),
        (lambda c: c["spec"].update(num_frames=10), "config.json: spec: num_frames is 10; expected 1 and a multiple"),
        (lambda c: c["spec"]["resize"].update(height=63), "config.json: spec: frames of 63x16; expected sides"),
        (lambda c: c["spec"]["action"]["normaliser"].update(offset=[0.0]), "offset has 1 numbers, layout tabletop for"),
    ],
)
def test_a_damaged_bundle_is_refused_by_field(tmp_path: Path, change, message: str):
    damaged(tmp_path, change)
    with pytest.raises(ValueError, match=message.replace(".", r"\.").replace("(", r"\(")):
        load_bundle(tmp_path)


def test_cut_and_foreign_tensor_files_are_refused_by_name(tmp_path: Path):
    bundle().save(tmp_path)
    path = tmp_path / MODEL
    data = path.read_bytes()
    for broken in (data[: len(data) // 2], b"", b"\x00" * 64):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=r"model\.safetensors: damaged"):
            load_bundle(tmp_path)
    path.unlink()
    with pytest.raises(ValueError, match="no such file"):
        read_tensors(path)


def test_data_that_means_something_else_is_refused(tmp_path: Path):
    from simforcing.types import EpisodeSet

    spec = bundle().spec
    other = EpisodeSet(
        root="elsewhere",
        kind="x",
        episodes=(),
        rejected=(),
        warnings=(),
        action_layout=layout_named("droid"),
        state_layout=layout_named("tabletop"),
        robot=None,
        fingerprint="f",
    )
    with pytest.raises(ValueError, match="elsewhere: action layout is droid; the model was trained on tabletop"):
        spec.check(other)


def test_a_bundle_stored_in_float16_is_half_as_large_and_comes_back_in_float32(tmp_path: Path):
    saved = bundle()
    saved.save(tmp_path / "whole")
    saved.save(tmp_path / "half", dtype="float16")
    loaded = load_bundle(tmp_path / "half")
    assert loaded.spec == saved.spec
    for name, tensor in saved.model.state_dict().items():
        there = loaded.model.state_dict()[name]
        assert there.dtype == tensor.dtype
        assert torch.equal(there, tensor.to(torch.float16).to(tensor.dtype))
    sizes = [(tmp_path / folder / MODEL).stat().st_size for folder in ("half", "whole")]
    assert sizes[0] < 0.62 * sizes[1]  # names and checksum are as long as ever
    loaded.save(tmp_path / "again", dtype="float16")
    assert bundle_sha256(tmp_path / "again") == bundle_sha256(tmp_path / "half")


def test_half_precision_is_told_by_the_file_and_not_by_its_tensors(tmp_path: Path):
    bundle().save(tmp_path, dtype="float16")
    tensors, text = read_described(tmp_path / MODEL)
    assert text == STORED_HALF
    write_tensors(tmp_path / MODEL, tensors)
    with pytest.raises(ValueError, match=r"model\.safetensors: .* has dtype torch\.float16, expected torch\.float32"):
        load_bundle(tmp_path)


def test_numbers_that_float16_cannot_hold_are_refused_by_name(tmp_path: Path):
    large = bundle()
    with torch.no_grad():
        next(large.model.parameters()).view(-1)[0] = 1e6
    name = next(iter(dict(large.model.named_parameters())))
    with pytest.raises(ValueError, match=rf"{name} reaches 1e\+06; float16 holds up to 65504: store float32"):
        large.save(tmp_path, dtype="float16")
    assert not (tmp_path / CONFIG).exists()
