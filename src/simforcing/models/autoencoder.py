"""A tiny video autoencoder for CPU work: principal components of 8x8x4 patches, plus convolutional residuals.

The decoder's linear part reads a cell's 3x3 neighbourhood and has a closed form too, so that nothing needs to train.
Each latent cell is a function of its own group of frames alone, and frame 0 is encoded as four copies of itself, so the
latents of a static video are all equal and its latent motion is exactly zero.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from einops import rearrange, repeat
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn import functional

Video = Float[Tensor, "b f 3 h w"]
Clips = UInt8[Tensor, "b f 3 h w"] | Float[Tensor, "b f 3 h w"]


@dataclass(frozen=True, kw_only=True)
class TinyAutoencoderConfig:
    """A TinyAutoencoder's sizes.

    Args:
        channels: latent channels.
        spatial_factor: side of a patch in pixels.
        temporal_factor: frames of a group; frame 0 is a group by itself.
        width: channels of the residual branches.
        num_encoder_blocks: residual convolution blocks of the encoder. 0 leaves it linear: latents are then final
            once the closed form is fitted, can be cached while the decoder still trains, and are linear in the pixels.
        num_decoder_blocks: residual convolution blocks of the decoder; 0 leaves it linear.
    """

    channels: int = 48
    spatial_factor: int = 8
    temporal_factor: int = 4
    width: int = 128
    num_encoder_blocks: int = 0
    num_decoder_blocks: int = 2

    def __post_init__(self):
        for name in ("channels", "spatial_factor", "temporal_factor", "width"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least 1")
        if self.channels > self.patch_size:
            raise ValueError(f"channels is {self.channels}, expected at most the patch's {self.patch_size} numbers")
        if min(self.num_encoder_blocks, self.num_decoder_blocks) < 0:
            raise ValueError(
                f"num_encoder_blocks, num_decoder_blocks are {self.num_encoder_blocks}, {self.num_decoder_blocks}, "
                "expected 0 or more"
            )

    @property
    def patch_size(self) -> int:
        """Numbers in one patch of pixels."""
        return 3 * self.temporal_factor * self.spatial_factor**2

    def build(self) -> "TinyAutoencoder":
        return TinyAutoencoder(self)


class TinyAutoencoder(nn.Module):
    """Linear patch autoencoder with zero-initialised convolutional residuals in space.

    Call `initialise` on training clips, then `fit_autoencoder` to train the residuals. A window's latents depend on
    where it starts only through the grouping: windows whose starts differ by a multiple of `temporal_factor` share the
    latents of their common groups, frame 0 excepted.
    """

    latent_mean: Tensor
    latent_std: Tensor

    def __init__(self, config: TinyAutoencoderConfig):
        super().__init__()
        self.config = config
        self.project = nn.Linear(config.patch_size, config.channels)
        self.expand = nn.Conv2d(config.channels, config.patch_size, 3, padding=1, padding_mode="replicate")
        self.encoder_residual = _Residual(
            config.patch_size, config.width, config.channels, num_blocks=config.num_encoder_blocks
        )
        self.decoder_residual = _Residual(
            config.channels, config.width, config.patch_size, num_blocks=config.num_decoder_blocks
        )
        self.register_buffer("latent_mean", torch.zeros(config.channels))
        self.register_buffer("latent_std", torch.ones(config.channels))

    @property
    def temporal_factor(self) -> int:
        return self.config.temporal_factor

    @property
    def spatial_factor(self) -> int:
        return self.config.spatial_factor

    @property
    def channels(self) -> int:
        return self.config.channels

    def latent_statistics(self) -> tuple[Float[Tensor, " c"], Float[Tensor, " c"]]:
        """(mean, std) that raw latents are normalised with, one number per channel."""
        return self.latent_mean, self.latent_std

    def encode(self, video: Float[Tensor, "b f 3 h w"]) -> Float[Tensor, "b g c h2 w2"]:
        """Normalised latents (z - mean_c) / std_c of video in [-1, 1].

        Raises:
            ValueError: f is not temporal_factor * (g - 1) + 1, or a side is no multiple of spatial_factor.
        """
        latents = (self._raw_latents(self.patches(video)) - self.latent_mean) / self.latent_std
        return rearrange(latents, "b g h w c -> b g c h w")

    def decode(self, latents: Float[Tensor, "b g c h2 w2"]) -> Float[Tensor, "b f 3 h w"]:
        """Video in [-1, 1]; the first latent's four decoded frames are averaged into frame 0."""
        return self.reconstruct(latents).clamp(-1.0, 1.0)

    def reconstruct(self, latents: Float[Tensor, "b g c h2 w2"]) -> Float[Tensor, "b f 3 h w"]:
        """Decoded video before the clamp, so that gradients reach saturated pixels."""
        if latents.shape[2] != self.channels:
            raise ValueError(f"latents have {latents.shape[2]} channels, expected {self.channels}")
        raw = rearrange(latents, "b g c h w -> b g h w c") * self.latent_std + self.latent_mean
        return self._assemble(self._linear_patches(raw) + self.decoder_residual(raw))

    def patches(self, video: Float[Tensor, "b f 3 h w"]) -> Float[Tensor, "b g h2 w2 p"]:
        """Non-overlapping patches of pixels, frame 0 repeated to fill a group."""
        self._check(video)
        factor, side = self.temporal_factor, self.spatial_factor
        first = repeat(video[:, :1], "b 1 c h w -> b k c h w", k=factor)
        groups = torch.cat([first, video[:, 1:]], 1)
        return rearrange(groups, "b (g k) c (h y) (w x) -> b g h w (k y x c)", k=factor, y=side, x=side)

    def _assemble(self, patches: Float[Tensor, "b g h2 w2 p"]) -> Float[Tensor, "b f 3 h w"]:
        factor, side = self.temporal_factor, self.spatial_factor
        groups = rearrange(patches, "b g h w (k y x c) -> b (g k) c (h y) (w x)", k=factor, y=side, x=side, c=3)
        return torch.cat([groups[:, :factor].mean(1, keepdim=True), groups[:, factor:]], 1)

    def _raw_latents(self, patches: Float[Tensor, "b g h2 w2 p"]) -> Float[Tensor, "b g h2 w2 c"]:
        return self.project(patches) + self.encoder_residual(patches)

    def _linear_patches(self, raw: Float[Tensor, "b g h2 w2 c"]) -> Float[Tensor, "b g h2 w2 p"]:
        patches = self.expand(rearrange(raw, "b g h w c -> (b g) c h w"))
        return rearrange(patches, "(b g) p h w -> b g h w p", b=raw.shape[0])

    def _check(self, video: Float[Tensor, "b f 3 h w"]) -> None:
        num_frames, (height, width) = video.shape[1], video.shape[-2:]
        if num_frames < 1 or (num_frames - 1) % self.temporal_factor:
            raise ValueError(
                f"a video of {num_frames} frames cannot be encoded, "
                f"expected {self.temporal_factor} * n + 1 frames: 1, {self.temporal_factor + 1}, ..."
            )
        if height % self.spatial_factor or width % self.spatial_factor:
            raise ValueError(
                f"a video of {height} x {width} pixels cannot be encoded, "
                f"expected both sides to be multiples of {self.spatial_factor}"
            )

    def initialise(self, clips: Clips, *, seed: int = 0) -> None:
        """Fit everything that has a closed form: `fit_pca`, then `fit_linear_decoder`. Seconds on one CPU core."""
        self.fit_pca(clips, seed=seed)
        self.fit_linear_decoder(clips, seed=seed)
        self.fit_statistics(clips)  # again: the scale of a latent is what it is worth to the decoder that will be used

    @torch.no_grad()
    def fit_pca(self, clips: Clips, *, max_patches: int = 32768, seed: int = 0) -> Float[Tensor, " p"]:
        """Set the linear parts to the whitened principal components of the clips' patches, in closed form.

        The covariance and its eigenvectors are float64. Whitened: raw latents have unit variance over the patches used,
        so the residual branches see numbers of order one. Also sets the latent statistics.

        Args:
            clips: training clips, uint8 in [0, 255] or float in [-1, 1].
            max_patches: patches drawn at random; the covariance of 8x8x4 patches needs no more.
            seed: of the draw.

        Returns:
            all eigenvalues of the patches' covariance, largest first (pixel units squared, pixels in [-1, 1]).
        """
        mean, covariance = _patch_moments(self.patches, clips, max_patches, seed)
        eigenvalues, vectors = torch.linalg.eigh(covariance)
        eigenvalues, vectors = eigenvalues.flip(0).clamp_min(0.0), vectors.flip(1)
        basis = vectors[:, : self.channels]
        # An eigenvector's sign is arbitrary: fix it, so that two libraries give the same latents.
        largest = basis.gather(0, basis.abs().argmax(0, keepdim=True))
        basis = basis * largest.sign()
        # A patch of constant clips has no variance along some axes; those latents stay (numerically) zero.
        scale = eigenvalues[: self.channels].sqrt().clamp_min(1e-4)
        weight = (basis / scale).T
        self.project.weight.copy_(weight)
        self.project.bias.copy_(-weight @ mean)
        taps = torch.zeros_like(self.expand.weight)
        taps[:, :, 1, 1] = basis * scale
        self.expand.load_state_dict({"weight": taps, "bias": mean})
        self.fit_statistics(clips)
        return eigenvalues

    @torch.no_grad()
    def fit_linear_decoder(self, clips: Clips, *, max_cells: int = 65536, penalty: float = 1e-3, seed: int = 0) -> None:
        """Let the linear decoder read each cell's 3x3 neighbourhood: ridge regression of what it misses so far.

        A patch basis cannot see across patch edges; this can: 0.3 to 0.7 dB over `fit_pca` alone on held-out video.

        Args:
            clips: training clips, uint8 in [0, 255] or float in [-1, 1].
            max_cells: latent cells used, from whole clips drawn at random.
            penalty: ridge per cell, in units of the raw latents' variance (1 after `fit_pca`); pulls towards no change.
            seed: of the draw.
        """
        order = torch.randperm(clips.shape[0], generator=torch.Generator().manual_seed(seed))
        size = 9 * self.channels + 1
        gram = torch.zeros(size, size, dtype=torch.float64)
        moment = torch.zeros(size, self.config.patch_size, dtype=torch.float64)
        count = 0
        for index in order.tolist():
            patches = self.patches(to_signed(clips[index : index + 1], self.latent_mean))
            raw = self._raw_latents(patches)
            inputs = _neighbourhoods(raw)
            missed = (patches - self._linear_patches(raw)).flatten(0, -2)
            gram += (inputs.T @ inputs).double().cpu()
            moment += (inputs.T @ missed).double().cpu()
            count += inputs.shape[0]
            if count >= max_cells:
                break
        solution = torch.linalg.solve(gram + penalty * count * torch.eye(size, dtype=torch.float64), moment)
        taps = rearrange(solution[:-1], "(c y x) p -> p c y x", c=self.channels, y=3, x=3)
        for parameter, change in zip((self.expand.weight, self.expand.bias), (taps, solution[-1]), strict=True):
            assert parameter is not None
            parameter += change.to(parameter)

    @torch.no_grad()
    def fit_statistics(self, clips: Clips, *, batch_size: int = 32) -> None:
        """Measure the latents' mean and scale per channel (float64 sums) and store them in the model.

        A latent is divided by what one unit of it is worth in decoded pixels, not by its own deviation: normalised
        latents have unit variance on average, and an error in any channel costs about the same in pixels. Dividing each
        by its own deviation gave unpredictable detail the weight of position (docs/autoencoders.md).
        """
        total = torch.zeros(2, self.channels, dtype=torch.float64)
        count = 0
        for chunk in clips.split(batch_size):
            raw = self._raw_latents(self.patches(to_signed(chunk, self.latent_mean))).flatten(0, -2).double().cpu()
            total += torch.stack([raw.sum(0), raw.square().sum(0)])
            count += raw.shape[0]
        mean, square = (total / count).unbind()
        worth = self.expand.weight.double().square().sum(dim=(0, 2, 3)).sqrt().cpu().clamp_min(1e-4)
        energy = ((square - mean.square()).clamp_min(0.0) * worth.square()).mean().sqrt().clamp_min(1e-4)
        self.latent_mean.copy_(mean)
        self.latent_std.copy_(energy / worth)


class _Residual(nn.Module):
    """Convolutions over the latent grid, channels last in and out, zero at initialisation."""

    def __init__(self, in_channels: int, width: int, out_channels: int, *, num_blocks: int):
        super().__init__()
        self.out_channels = out_channels
        self.blocks = nn.ModuleList(_Block(width) for _ in range(num_blocks))
        if num_blocks:
            self.embed = nn.Linear(in_channels, width)
            self.head = nn.Linear(width, out_channels)
            nn.init.zeros_(self.head.weight)
            nn.init.zeros_(self.head.bias)

    def forward(self, cells: Float[Tensor, "b g h2 w2 i"]) -> Float[Tensor, "b g h2 w2 o"]:
        if not self.blocks:
            return cells.new_zeros(()).expand(*cells.shape[:-1], self.out_channels)
        batch = cells.shape[0]
        features = rearrange(self.embed(cells), "b g h w d -> (b g) d h w")
        for block in self.blocks:
            features = block(features)
        return self.head(rearrange(features, "(b g) d h w -> b g h w d", b=batch))


class _Block(nn.Module):
    """x + conv(silu(conv(x)))."""

    def __init__(self, width: int):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, features: Float[Tensor, "n d h2 w2"]) -> Float[Tensor, "n d h2 w2"]:
        return features + self.second(functional.silu(self.first(features)))


def autoencoder_loss(model: TinyAutoencoder, video: Video, *, absolute_weight: float = 0.0) -> Float[Tensor, ""]:
    """Mean squared error of the reconstruction, plus `absolute_weight` times the mean absolute error.

    Pixels in [-1, 1], before the clamp: -10 log10(loss / 4) is the PSNR in dB.
    """
    error = model.reconstruct(model.encode(video)) - video
    loss = error.square().mean()
    return loss + absolute_weight * error.abs().mean() if absolute_weight else loss


def fit_autoencoder(
    model: TinyAutoencoder,
    clips: Clips,
    *,
    num_steps: int,
    batch_size: int = 8,
    lr: float = 1e-3,
    seed: int = 0,
    progress: Callable[[int, float], None] | None = None,
) -> None:
    """Train the residuals and the linear decoder on random parts of clips; the linear encoder stays.

    Adam (0.9, 0.99), cosine to 2 % of `lr` after a short warm-up. A part is frame 0 and up to two groups, starting at
    any frame. The result is a function of model, clips and arguments alone. Where the encoder has blocks they train
    too, and the latent statistics are measured again at the end.

    Args:
        model: initialised by `TinyAutoencoder.initialise`.
        clips: training clips, uint8 in [0, 255] or float in [-1, 1].
        num_steps: optimiser steps.
        batch_size: clips per step.
        lr: peak learning rate.
        seed: of the draws.
        progress: called after each step with (steps done, loss).
    """
    if num_steps < 1 or batch_size < 1:
        raise ValueError(f"num_steps, batch_size are {num_steps}, {batch_size}, expected at least 1")
    generator = torch.Generator().manual_seed(seed)
    trained = [parameter for name, parameter in model.named_parameters() if not name.startswith("project.")]
    optimizer = torch.optim.Adam(trained, lr=lr, betas=(0.9, 0.99))
    num_warmup = max(1, min(30, num_steps // 10))
    length = min(clips.shape[1], 2 * model.temporal_factor + 1)
    length -= (length - 1) % model.temporal_factor
    model.train()
    for step in range(num_steps):
        scale = min(1.0, (step + 1) / num_warmup) * (0.51 + 0.49 * math.cos(math.pi * step / num_steps))
        optimizer.param_groups[0]["lr"] = lr * scale
        chosen = torch.randint(clips.shape[0], (batch_size,), generator=generator)
        start = int(torch.randint(clips.shape[1] - length + 1, (), generator=generator))
        loss = autoencoder_loss(model, to_signed(clips[chosen, start : start + length], model.latent_mean))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if progress is not None:
            progress(step + 1, loss.item())
    model.eval()
    if model.config.num_encoder_blocks:
        model.fit_statistics(clips)


def to_signed(clips: Clips, like: Tensor) -> Video:
    """Video in [-1, 1] with the dtype and device of `like`; uint8 is scaled, float is taken as it is."""
    moved = clips.to(like)
    return moved / 127.5 - 1.0 if clips.dtype == torch.uint8 else moved


def _neighbourhoods(cells: Float[Tensor, "b g h2 w2 c"]) -> Float[Tensor, "n k"]:
    """Each cell's 3x3 neighbourhood (channel, row, column; edges replicated) and a constant 1, flattened."""
    grid = functional.pad(rearrange(cells, "b g h w c -> (b g) c h w"), (1, 1, 1, 1), mode="replicate")
    rows = rearrange(functional.unfold(grid, 3), "m k n -> (m n) k")
    return torch.cat([rows, rows.new_ones(rows.shape[0], 1)], 1)


def _patch_moments(
    patches: Callable[[Video], Tensor], clips: Clips, max_patches: int, seed: int
) -> tuple[Float[Tensor, " p"], Float[Tensor, "p p"]]:
    """Mean and covariance, in float64, of up to `max_patches` patches, equally many from every clip."""
    generator = torch.Generator().manual_seed(seed)
    num_clips = clips.shape[0]
    per_clip = -(-max_patches // num_clips)
    total, gram, count = 0.0, 0.0, 0
    for clip in clips.split(1):
        cells = patches(to_signed(clip, torch.empty(0, dtype=torch.float64))).flatten(0, -2)
        chosen = cells[torch.randperm(cells.shape[0], generator=generator)[:per_clip]]
        total, gram, count = total + chosen.sum(0), gram + chosen.T @ chosen, count + chosen.shape[0]
    mean = torch.as_tensor(total / count)
    return mean, torch.as_tensor(gram / count) - torch.outer(mean, mean)
