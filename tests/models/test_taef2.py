"""TAEF2 against diffusers' AutoencoderTiny, on real frames, and its loading rules."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from simforcing.models.taef2 import Taef2, Taef2Config
from simforcing.nn.protocols import Autoencoder


def _random_taef2(seed: int = 0) -> Taef2:
    torch.manual_seed(seed)
    model = Taef2()
    model.latent_mean.zero_()
    model.latent_std.fill_(1.0)
    return model.eval()


@pytest.fixture(scope="module")
def model() -> Taef2:
    return _random_taef2()


@pytest.fixture(scope="module")
def weights(shared_dir: Path) -> Path:
    folder = shared_dir / "weights" / "taef2"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    return folder


@pytest.fixture
def folder(tmp_path: Path, model: Taef2) -> Path:
    """Random weights in the two files of the author's repository."""
    for part in ("encoder", "decoder"):
        save_file(getattr(model, part).state_dict(), tmp_path / f"taef2_{part}.safetensors")
    return tmp_path


def test_it_is_an_autoencoder_of_the_protocol(model: Taef2) -> None:
    assert isinstance(model, Autoencoder)
    video = torch.rand(2, 3, 3, 16, 24) * 2 - 1
    latents = model.encode(video)
    assert latents.shape == (2, 3, 32, 2, 3)
    assert model.decode(latents).shape == video.shape
    assert [len(numbers) for numbers in model.latent_statistics()] == [model.channels] * 2


def test_without_its_pool_branches_it_equals_diffusers_autoencoder_tiny() -> None:
    diffusers = pytest.importorskip("diffusers")
    ours = _random_taef2()
    for part in (ours.encoder, ours.decoder):
        for block in part:
            if getattr(block, "pool", None) is not None:
                block.pool[3].weight.zero_()
    reference = diffusers.AutoencoderTiny(latent_channels=32).eval()
    # Decoder layers are counted there without the leading clamp.
    named = {f"encoder.layers.{name}": tensor for name, tensor in ours.encoder.state_dict().items()}
    for name, tensor in ours.decoder.state_dict().items():
        index, rest = name.split(".", 1)
        named[f"decoder.layers.{int(index) - 1}.{rest}"] = tensor
    reference.load_state_dict({name: tensor for name, tensor in named.items() if ".pool." not in name}, strict=True)
    frames = torch.rand(2, 3, 32, 16) * 2 - 1
    with torch.no_grad():
        latents = reference.encode(frames).latents
        # Measured: 0 for both on one CPU thread.
        torch.testing.assert_close(ours.encode(frames[None])[0], latents, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(
            ours.decode(latents[None])[0], reference.decode(latents).sample.clamp(-1, 1), atol=1e-5, rtol=1e-5
        )


def test_real_frames_come_back_above_31_db(weights: Path, shared_data: Path) -> None:
    av = pytest.importorskip("av")
    file = sorted((shared_data / "bridge_mp4").glob("*.mp4"))[0]
    with av.open(str(file)) as container:
        frame = next(container.decode(video=0)).to_ndarray(format="rgb24")
    video = torch.from_numpy(np.ascontiguousarray(frame[:128, :128])).permute(2, 0, 1)[None, None] / 127.5 - 1.0
    model = Taef2.from_pretrained(weights)
    with torch.no_grad():
        latents = model.encode(video)
        error = (model.decode(latents) - video).square().mean()
    # Four whole frames of every episode of this set measure 33.0 dB on average.
    assert 10 * torch.log10(4 / error) > 31
    assert 0.4 < latents.std() < 2


def test_every_frame_is_encoded_by_itself(model: Taef2) -> None:
    video = torch.rand(1, 4, 3, 16, 16) * 2 - 1
    changed = video.clone()
    changed[:, 2] = 0
    difference = (model.encode(changed) - model.encode(video)).abs().amax((0, 2, 3, 4))
    assert difference[2] > 1e-4
    assert difference[[0, 1, 3]].max() < 1e-6


def test_latents_of_a_static_video_are_all_equal(model: Taef2) -> None:
    latents = model.encode((torch.rand(1, 1, 3, 16, 16) * 2 - 1).expand(-1, 4, -1, -1, -1))
    torch.testing.assert_close(latents, latents[:, :1].expand_as(latents), atol=1e-6, rtol=0)


def test_latents_are_normalised_with_the_fitted_statistics() -> None:
    model = _random_taef2()
    clips = torch.randint(0, 256, (3, 2, 3, 16, 16), dtype=torch.uint8)
    model.fit_statistics(clips)
    latents = model.encode(clips.float() / 127.5 - 1).transpose(0, 2).flatten(1).double()
    torch.testing.assert_close(latents.mean(1), torch.zeros(32).double(), atol=1e-3, rtol=0)
    # The statistics' floor of 1e-4 is far below what random weights give.
    torch.testing.assert_close(latents.std(1, correction=0), torch.ones(32).double(), atol=1e-3, rtol=0)


def test_decoded_video_is_clamped() -> None:
    model = _random_taef2()
    model.decoder[-1].weight.mul_(1e4)
    assert model.decode(torch.randn(1, 1, 32, 2, 2)).abs().max() == 1.0


def test_both_published_forms_give_the_same_model(folder: Path, model: Taef2, tmp_path: Path) -> None:
    pair = Taef2.from_pretrained(folder)
    hub = {f"encoder.layers.{name}": tensor for name, tensor in model.encoder.state_dict().items()}
    for name, tensor in model.decoder.state_dict().items():
        index, rest = name.split(".", 1)
        hub[f"decoder.layers.{int(index) - 1}.{rest}"] = tensor
    (tmp_path / "hub").mkdir()
    save_file(hub, tmp_path / "hub" / "taef2.safetensors")
    single = Taef2Config(path=str(tmp_path / "hub")).build()
    for name, tensor in pair.state_dict().items():
        assert torch.equal(tensor, single.state_dict()[name]), name
    torch.testing.assert_close(pair.encoder[0].weight, model.encoder[0].weight)


def test_a_checkpoint_restores_it_without_its_files(folder: Path) -> None:
    model = Taef2Config(path=str(folder)).build()
    restored = model.config.build()
    restored.load_state_dict(model.state_dict(), strict=True)
    video = torch.rand(1, 1, 3, 16, 16)
    assert torch.equal(restored.encode(video), model.encode(video))


def test_a_model_without_weights_refuses_to_encode() -> None:
    with pytest.raises(ValueError, match="no weights"):
        Taef2Config().build().encode(torch.zeros(1, 1, 3, 8, 8))


def test_every_missing_extra_and_reshaped_tensor_is_listed_at_once(folder: Path) -> None:
    file = folder / "taef2_encoder.safetensors"
    tensors = load_file(file)
    tensors["other"] = tensors.pop("14.bias")
    tensors["0.weight"] = torch.zeros(64, 4, 3, 3)
    save_file(tensors, file)
    with pytest.raises(ValueError, match="3 tensors do not fit") as caught:
        Taef2.from_pretrained(folder)
    message = str(caught.value)
    assert "missing encoder.14.bias" in message
    assert "extra encoder.other" in message
    assert "encoder.0.weight has shape [64, 4, 3, 3], expected [64, 3, 3, 3]" in message
    assert "\n" not in message


def test_unusable_sources_are_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="has neither taef2_encoder"):
        Taef2.from_pretrained(tmp_path / "empty")
    with pytest.raises(ValueError, match="neither a folder nor a hub id"):
        Taef2.from_pretrained("/no/such/folder")
    file = folder / "taef2_encoder.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(ValueError, match="not a readable safetensors file"):
        Taef2.from_pretrained(folder)


def test_inputs_that_do_not_fit_are_refused_with_their_size(model: Taef2) -> None:
    with pytest.raises(ValueError, match=r"20 x 16 pixels .* multiples of 8"):
        model.encode(torch.zeros(1, 1, 3, 20, 16))
    with pytest.raises(ValueError, match="31 channels, expected 32"):
        model.decode(torch.zeros(1, 1, 31, 2, 2))
