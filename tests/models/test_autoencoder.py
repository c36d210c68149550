"""Laws of the tiny video autoencoder."""

import numpy as np
import pytest
import torch

from simforcing.models.autoencoder import TinyAutoencoder, TinyAutoencoderConfig, autoencoder_loss, fit_autoencoder
from simforcing.nn.protocols import Autoencoder
from simforcing.types.config import from_json, to_json

CHANNELS = 6


def _clips(num_clips: int = 6, num_frames: int = 9, side: int = 16, seed: int = 0) -> torch.Tensor:
    """Smooth moving colour waves with a little noise, uint8."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.linspace(0, 3, side)
    phase = torch.rand(num_clips, 1, 3, 1, 1, generator=generator) * 6
    speed = torch.rand(num_clips, 1, 3, 1, 1, generator=generator) * 0.5
    time = torch.arange(num_frames).reshape(1, -1, 1, 1, 1)
    wave = torch.sin(phase + speed * time + rows[:, None] + 0.7 * rows[None])
    noise = torch.randn(wave.shape, generator=generator)
    return ((wave + 0.05 * noise).clamp(-1, 1) * 127.5 + 127.5).round().to(torch.uint8)


def _signed(clips: torch.Tensor) -> torch.Tensor:
    return clips.float() / 127.5 - 1.0


def _linear(**changes: int) -> TinyAutoencoder:
    sizes = {"channels": CHANNELS, "width": 16, "num_encoder_blocks": 0, "num_decoder_blocks": 0} | changes
    return TinyAutoencoderConfig(**sizes).build()


def _with_active_residuals(seed: int = 0) -> TinyAutoencoder:
    """A fitted model whose residual branches do something."""
    model = _linear(num_encoder_blocks=1, num_decoder_blocks=1)
    model.initialise(_clips())
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for head in (model.encoder_residual.head, model.decoder_residual.head):
            head.weight.copy_(torch.randn(head.weight.shape, generator=generator) * 0.05)
    return model.eval()


@pytest.mark.parametrize("model", [_linear(), _with_active_residuals()], ids=["linear", "residual"])
def test_it_is_an_autoencoder_of_the_protocol(model: TinyAutoencoder) -> None:
    assert isinstance(model, Autoencoder)
    video = _signed(_clips())
    latents = model.encode(video)
    assert latents.shape == (6, 3, CHANNELS, 2, 2)
    assert model.decode(latents).shape == video.shape


def test_reconstruction_is_the_projection_on_the_principal_components() -> None:
    clips = _clips()
    model = _linear()
    model.fit_pca(clips, max_patches=10**6)
    video = _signed(clips)
    patches = model.patches(video).flatten(0, -2).double().numpy()
    centred = patches - patches.mean(0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    projected = centred @ axes[:CHANNELS].T @ axes[:CHANNELS] + patches.mean(0)
    ours = model.patches(model.reconstruct(model.encode(video)))
    # Frame 0 leaves as the mean of its copies, which projects no further; the groups are compared.
    ours, projected = ours[:, 1:], projected.reshape(ours.shape)[:, 1:]
    # Measured: 4e-7 in pixels of range 2.
    np.testing.assert_allclose(ours.detach().numpy(), projected, atol=1e-5)


def test_all_channels_reconstruct_exactly() -> None:
    clips = torch.randint(0, 256, (40, 9, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    model = TinyAutoencoderConfig(
        channels=24, spatial_factor=2, temporal_factor=2, num_encoder_blocks=0, num_decoder_blocks=0
    ).build()
    model.fit_pca(clips)
    video = _signed(clips)
    # The first frame enters as two equal copies, and leaves as their mean: exact too.
    torch.testing.assert_close(model.decode(model.encode(video)), video, atol=1e-4, rtol=0)


def test_latents_of_a_static_video_are_all_equal() -> None:
    model = _with_active_residuals()
    still = _signed(_clips(num_frames=1)).expand(-1, 13, -1, -1, -1)
    latents = model.encode(still)
    assert latents.std() > 0.1
    torch.testing.assert_close(latents[:, 1:] - latents[:, :-1], torch.zeros_like(latents[:, 1:]), atol=1e-5, rtol=0)


def test_a_latent_depends_only_on_its_own_group_of_frames() -> None:
    model = _with_active_residuals()
    video = _signed(_clips(num_frames=13))
    before = model.encode(video)
    changed = video.clone()
    changed[:, 5:9] = -changed[:, 5:9]
    difference = (model.encode(changed) - before).abs().amax((0, 2, 3, 4))
    assert difference[2] > 0.1
    assert difference[[0, 1, 3]].max() < 1e-5


def test_a_frame_depends_only_on_its_own_latent() -> None:
    model = _with_active_residuals()
    latents = model.encode(_signed(_clips(num_frames=13)))
    before = model.decode(latents)
    changed = latents.clone()
    changed[:, 2] = -changed[:, 2]
    difference = (model.decode(changed) - before).abs().amax((0, 2, 3, 4))
    assert difference[5:9].min() > 0.01
    assert torch.cat([difference[:5], difference[9:]]).max() < 1e-5


def test_frame_0_is_the_mean_of_the_frames_its_latent_decodes_to() -> None:
    model = _with_active_residuals()
    latent = model.encode(_signed(_clips(num_frames=13)))[:, 2:3]
    video = model.reconstruct(torch.cat([latent, latent], 1))
    assert video[:, 1:].std(1).max() > 0.05
    torch.testing.assert_close(video[:, 0], video[:, 1:].mean(1), atol=1e-5, rtol=0)


def test_windows_that_start_a_group_apart_share_latents() -> None:
    model = _with_active_residuals()
    video = _signed(_clips(num_frames=13))
    torch.testing.assert_close(model.encode(video)[:, 2:], model.encode(video[:, 4:])[:, 1:], atol=1e-5, rtol=1e-5)


def test_residual_branches_change_nothing_before_training() -> None:
    clips = _clips()
    linear, residual = _linear(), _linear(num_encoder_blocks=2, num_decoder_blocks=2)
    linear.fit_pca(clips)
    residual.fit_pca(clips)
    video = _signed(clips)
    assert torch.equal(linear.encode(video), residual.encode(video))
    assert torch.equal(linear.decode(linear.encode(video)), residual.decode(residual.encode(video)))


def test_the_neighbourhood_decoder_is_the_ridge_regression_of_what_the_components_miss() -> None:
    clips, penalty = _clips(), 1e-3
    model = _linear()
    model.fit_pca(clips)
    patches = model.patches(_signed(clips))
    raw = model.project(patches).detach()
    grid = raw.flatten(0, 1).permute(0, 3, 1, 2)
    before = model.expand(grid).permute(0, 2, 3, 1).flatten(0, 2).detach().double().numpy()
    model.fit_linear_decoder(clips, penalty=penalty)
    after = model.expand(grid).permute(0, 2, 3, 1).flatten(0, 2).detach().double().numpy()

    padded = np.pad(raw.double().numpy(), ((0, 0), (0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")
    taps = [padded[:, :, row : row + 2, column : column + 2] for row in range(3) for column in range(3)]
    inputs = np.concatenate([*taps, np.ones_like(taps[0][..., :1])], -1).reshape(-1, 9 * CHANNELS + 1)
    missed = patches.flatten(0, 3).double().numpy() - before
    ridge = np.sqrt(penalty * len(inputs)) * np.eye(inputs.shape[1])
    expected = (
        inputs
        @ np.linalg.lstsq(
            np.concatenate([inputs, ridge]),
            np.concatenate([missed, np.zeros((len(ridge), missed.shape[1]))]),
            rcond=None,
        )[0]
    )
    np.testing.assert_allclose(after - before, expected, atol=1e-4)
    assert np.square(missed - expected).mean() < 0.9 * np.square(missed).mean()


def test_training_lowers_the_error_is_deterministic_and_leaves_a_linear_encoder_alone() -> None:
    clips = _clips()
    models = [_linear(num_decoder_blocks=1) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    losses: list[float] = []
    for model in models:
        model.initialise(clips)
        before = model.encode(_signed(clips))
        error = autoencoder_loss(model, _signed(clips))
        fit_autoencoder(model, clips, num_steps=15, batch_size=4, progress=lambda step, loss: losses.append(loss))
        assert autoencoder_loss(model, _signed(clips)) < error
        assert torch.equal(model.encode(_signed(clips)), before)
    assert losses[:15] == losses[15:]
    assert all(torch.equal(a, b) for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True))


def test_a_trained_encoder_measures_its_statistics_again() -> None:
    clips = _clips()
    model = _linear(num_encoder_blocks=1, num_decoder_blocks=1)
    model.initialise(clips)
    fit_autoencoder(model, clips, num_steps=10, batch_size=4, lr=1e-2)
    latents = model.encode(_signed(clips)).double().transpose(0, 2).flatten(1)
    assert latents.var(1, correction=0).mean().item() == pytest.approx(1, abs=1e-4)


def test_latents_of_the_fitted_clips_have_zero_mean_and_unit_variance_on_average() -> None:
    model = _with_active_residuals()
    clips = _clips()
    model.fit_statistics(clips, batch_size=4)
    latents = model.encode(_signed(clips)).double().transpose(0, 2).flatten(1)
    torch.testing.assert_close(latents.mean(1), torch.zeros(CHANNELS).double(), atol=1e-4, rtol=0)
    assert latents.var(1, correction=0).mean().item() == pytest.approx(1, abs=1e-4)


def test_fitting_is_the_same_for_uint8_and_float_clips_and_every_time() -> None:
    models = [_linear() for _ in range(3)]
    clips = _clips()
    for model, given in zip(models, (clips, clips, _signed(clips)), strict=True):
        model.initialise(given)
    again = models[1].state_dict()
    assert all(torch.equal(tensor, again[name]) for name, tensor in models[0].state_dict().items())
    latents = [model.encode(_signed(clips)) for model in models]
    torch.testing.assert_close(latents[0], latents[2], atol=1e-3, rtol=0)


def test_decoded_video_is_clamped() -> None:
    model = _with_active_residuals()
    latents = 100 * torch.randn(1, 2, CHANNELS, 2, 2, generator=torch.Generator().manual_seed(0))
    assert model.decode(latents).abs().max() == 1.0
    assert model.reconstruct(latents).abs().max() > 2.0


def test_it_is_restored_from_its_config_and_state_dict() -> None:
    model = _with_active_residuals()
    restored = from_json(TinyAutoencoderConfig, to_json(model.config)).build()
    restored.load_state_dict({name: tensor.clone() for name, tensor in model.state_dict().items()}, strict=True)
    video = _signed(_clips())
    assert torch.equal(restored.encode(video), model.encode(video))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 8, 3, 16, 16), r"8 frames .* expected 4 \* n \+ 1"),
        ((1, 5, 3, 20, 16), "20 x 16 pixels .* multiples of 8"),
    ],
)
def test_video_that_does_not_fit_is_refused_with_its_size(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _linear().encode(torch.zeros(shape))


def test_latents_with_another_channel_count_are_refused() -> None:
    with pytest.raises(ValueError, match="5 channels, expected 6"):
        _linear().decode(torch.zeros(1, 2, 5, 2, 2))


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="channels is 800, expected at most the patch's 768"):
        TinyAutoencoderConfig(channels=800)
    with pytest.raises(ValueError, match="width is 0"):
        TinyAutoencoderConfig(width=0)


def test_an_error_in_any_channel_costs_the_same_in_pixels() -> None:
    model = _linear()
    model.fit_pca(_clips())
    latents = model.encode(_signed(_clips()))
    cost = []
    for channel in range(CHANNELS):
        wrong = latents.clone()
        wrong[:, 1:, channel] += 0.01
        cost.append((model.reconstruct(wrong) - model.reconstruct(latents)).square().mean().item())
    assert max(cost) == pytest.approx(min(cost), rel=1e-3)


def test_its_statistics_take_normalised_latents_back_to_raw_ones() -> None:
    model = _with_active_residuals()
    video = _signed(_clips())
    mean, std = model.latent_statistics()
    assert mean.shape == std.shape == (model.channels,)
    raw = model.encode(video) * std[:, None, None] + mean[:, None, None]
    model.latent_mean.zero_()
    model.latent_std.fill_(1.0)
    torch.testing.assert_close(raw, model.encode(video))
