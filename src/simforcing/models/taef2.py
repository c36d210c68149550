"""TAEF2, a small image autoencoder (8x, 32 channels; Ollin Boer Bohan, MIT), behind the Autoencoder protocol.

Every frame is encoded by itself, so the temporal factor is 1 and a static video has equal latents. The weights come
from the hub (`madebyollin/taef2`), a folder or two safetensors files; loading is strict.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from einops import rearrange
from huggingface_hub import snapshot_download
from jaxtyping import Float, UInt8
from safetensors.torch import load_file
from torch import Tensor, nn

from simforcing.nn.strict import refuse, tensor_faults

HUB_ID = "madebyollin/taef2"
CHANNELS = 32
WIDTH = 64
SPATIAL_FACTOR = 8
# Blocks at full, half, quarter and eighth of the resolution; the deepest ones have a pool branch.
NUM_BLOCKS = (1, 3, 3, 3)


@dataclass(frozen=True, kw_only=True)
class Taef2Config:
    """TAEF2 has no sizes to choose.

    Args:
        path: folder or hub id of the weights; None builds the structure alone, for a state dict to be loaded into, and
            refuses to encode until one is.
    """

    path: str | None = None

    def build(self) -> "Taef2":
        return Taef2() if self.path is None else Taef2.from_pretrained(self.path)


class Taef2(nn.Module):
    """Frozen image autoencoder; its latents are normalised with statistics measured on robot video.

    `config` describes how to rebuild the structure: a checkpoint holds the tensors, so it needs no path.
    """

    latent_mean: Tensor
    latent_std: Tensor

    def __init__(self):
        super().__init__()
        self.config = Taef2Config()
        self.encoder = _encoder()
        self.decoder = _decoder()
        # NaN until weights are loaded: see _check_loaded.
        self.register_buffer("latent_mean", torch.full((CHANNELS,), torch.nan))
        self.register_buffer("latent_std", torch.full((CHANNELS,), torch.nan))
        self.requires_grad_(False)

    @property
    def temporal_factor(self) -> int:
        return 1

    @property
    def spatial_factor(self) -> int:
        return SPATIAL_FACTOR

    @property
    def channels(self) -> int:
        return CHANNELS

    def latent_statistics(self) -> tuple[Float[Tensor, " c"], Float[Tensor, " c"]]:
        """(mean, std) that raw latents are normalised with, one number per channel."""
        return self.latent_mean, self.latent_std

    @classmethod
    def from_files(cls, encoder: str | Path, decoder: str | Path) -> "Taef2":
        """Read the two safetensors files of the author's repository (tensor names `<layer>.<...>`).

        Raises:
            ValueError: a file is missing or unreadable, or its tensors are not TAEF2's; every difference is listed.
        """
        tensors = {f"encoder.{name}": tensor for name, tensor in _read(Path(encoder)).items()}
        tensors |= {f"decoder.{name}": tensor for name, tensor in _read(Path(decoder)).items()}
        return cls._from_tensors(tensors, f"{encoder}, {decoder}")

    @classmethod
    def from_pretrained(cls, path: str | Path = HUB_ID) -> "Taef2":
        """Read the weights from a folder or a hub id.

        A folder holds `taef2_encoder.safetensors` and `taef2_decoder.safetensors`, or `taef2.safetensors` with both
        (the hub's form: names `encoder.layers.<i>`, decoder layers counted without the leading clamp).

        Raises:
            ValueError: neither form is there, or the tensors are not TAEF2's; every difference is listed.
        """
        folder = Path(path)
        if not folder.is_dir():
            if len(folder.parts) != 2 or folder.is_absolute():
                raise ValueError(f"{path} is neither a folder nor a hub id like {HUB_ID}")
            folder = Path(snapshot_download(str(path), allow_patterns=["*.safetensors"]))
        both = folder / "taef2.safetensors"
        pair = [folder / f"taef2_{part}.safetensors" for part in ("encoder", "decoder")]
        if all(file.is_file() for file in pair):
            return cls.from_files(*pair)
        if both.is_file():
            return cls._from_tensors(_from_hub_names(_read(both)), str(both))
        raise ValueError(f"{folder} has neither {pair[0].name} and {pair[1].name} nor {both.name}")

    @classmethod
    def _from_tensors(cls, tensors: Mapping[str, Tensor], source: str) -> "Taef2":
        model = cls()
        wanted = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith("latent_")}
        refuse(tensor_faults(tensors, wanted), source)
        mean, std = torch.tensor(_LATENT_MEAN), torch.tensor(_LATENT_STD)
        model.load_state_dict({**tensors, "latent_mean": mean, "latent_std": std}, strict=True)
        return model.eval()

    def encode(self, video: Float[Tensor, "b f 3 h w"]) -> Float[Tensor, "b g c h2 w2"]:
        """Normalised latents (z - mean_c) / std_c of video in [-1, 1], one per frame.

        Raises:
            ValueError: a side is no multiple of 8, or no weights were loaded.
        """
        self._check_loaded()
        latents = self._raw_latents(video)
        return (latents - _per_channel(self.latent_mean)) / _per_channel(self.latent_std)

    def decode(self, latents: Float[Tensor, "b g c h2 w2"]) -> Float[Tensor, "b f 3 h w"]:
        """Video in [-1, 1]."""
        self._check_loaded()
        if latents.shape[2] != CHANNELS:
            raise ValueError(f"latents have {latents.shape[2]} channels, expected {CHANNELS}")
        raw = latents * _per_channel(self.latent_std) + _per_channel(self.latent_mean)
        frames = self.decoder(rearrange(raw, "b g c h w -> (b g) c h w"))
        return rearrange(frames, "(b g) c h w -> b g c h w", b=latents.shape[0]).mul(2.0).sub(1.0).clamp(-1.0, 1.0)

    def _raw_latents(self, video: Float[Tensor, "b f 3 h w"]) -> Float[Tensor, "b g c h2 w2"]:
        height, width = video.shape[-2:]
        if height % SPATIAL_FACTOR or width % SPATIAL_FACTOR:
            raise ValueError(
                f"a video of {height} x {width} pixels cannot be encoded, "
                f"expected both sides to be multiples of {SPATIAL_FACTOR}"
            )
        frames = rearrange(video, "b f c h w -> (b f) c h w").add(1.0).mul(0.5)
        return rearrange(self.encoder(frames), "(b f) c h w -> b f c h w", b=video.shape[0])

    @torch.no_grad()
    def fit_statistics(self, clips: UInt8[Tensor, "b f 3 h w"] | Float[Tensor, "b f 3 h w"]) -> None:
        """Measure the latents' mean and standard deviation per channel (float64 sums) and store them in the model.

        Args:
            clips: video of the domain at hand, uint8 in [0, 255] or float in [-1, 1].
        """
        total = torch.zeros(2, CHANNELS, dtype=torch.float64)
        count = 0
        for clip in clips.split(1):
            signed = clip.to(self.latent_mean) / 127.5 - 1.0 if clip.dtype == torch.uint8 else clip.to(self.latent_mean)
            raw = rearrange(self._raw_latents(signed), "b g c h w -> (b g h w) c").double().cpu()
            total += torch.stack([raw.sum(0), raw.square().sum(0)])
            count += raw.shape[0]
        mean, square = (total / count).unbind()
        self.latent_mean.copy_(mean)
        self.latent_std.copy_((square - mean.square()).clamp_min(0.0).sqrt().clamp_min(1e-4))

    def _check_loaded(self) -> None:
        if not self.latent_std.is_meta and bool(self.latent_std.isnan().any()):
            raise ValueError(f"TAEF2 has no weights: give a path or the hub id {HUB_ID}, or load a state dict")


class _Block(nn.Module):
    """relu(x + convs(x)); with a pool branch, x <- x + pool(x) first (1x1 convolutions around a group norm)."""

    def __init__(self, *, pool: bool):
        super().__init__()
        self.conv = nn.Sequential(_conv(WIDTH, WIDTH), nn.ReLU(), _conv(WIDTH, WIDTH), nn.ReLU(), _conv(WIDTH, WIDTH))
        inner = 4 * WIDTH
        self.pool = (
            nn.Sequential(
                nn.Conv2d(WIDTH, inner, 1, bias=False),
                nn.GroupNorm(4, inner),
                nn.ReLU(),
                nn.Conv2d(inner, WIDTH, 1, bias=False),
            )
            if pool
            else None
        )

    def forward(self, features: Float[Tensor, "n d h w"]) -> Float[Tensor, "n d h w"]:
        if self.pool is not None:
            features = features + self.pool(features)
        return torch.relu(features + self.conv(features))


class _SoftClamp(nn.Module):
    """3 tanh(z / 3): keeps latents that no encoder would give from exploding."""

    def forward(self, latents: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        return 3.0 * torch.tanh(latents / 3.0)


def _conv(in_channels: int, out_channels: int, *, stride: int = 1, bias: bool = True) -> nn.Conv2d:
    return nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=bias)


def _encoder() -> nn.Sequential:
    layers: list[nn.Module] = [_conv(3, WIDTH)]
    for level, num_blocks in enumerate(NUM_BLOCKS):
        if level:
            layers.append(_conv(WIDTH, WIDTH, stride=2, bias=False))
        layers += [_Block(pool=level == len(NUM_BLOCKS) - 1) for _ in range(num_blocks)]
    return nn.Sequential(*layers, _conv(WIDTH, CHANNELS))


def _decoder() -> nn.Sequential:
    layers: list[nn.Module] = [_SoftClamp(), _conv(CHANNELS, WIDTH), nn.ReLU()]
    for level, num_blocks in enumerate(reversed(NUM_BLOCKS)):
        layers += [_Block(pool=level == 0) for _ in range(num_blocks)]
        if level < len(NUM_BLOCKS) - 1:
            layers += [nn.Upsample(scale_factor=2), _conv(WIDTH, WIDTH, bias=False)]
    return nn.Sequential(*layers, _conv(WIDTH, 3))


def _from_hub_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`encoder.layers.<i>.x` -> `encoder.<i>.x`; `decoder.layers.<i>.x` -> `decoder.<i + 1>.x`; others stay."""
    renamed = {}
    for name, tensor in tensors.items():
        parts = name.split(".")
        if len(parts) > 3 and parts[1] == "layers" and parts[2].isdigit():
            index = int(parts[2]) + (parts[0] == "decoder")
            renamed[".".join([parts[0], str(index), *parts[3:]])] = tensor
        else:
            renamed[name] = tensor
    return renamed


def _read(file: Path) -> dict[str, Tensor]:
    if not file.is_file():
        raise ValueError(f"{file}: no such file, expected TAEF2 weights as safetensors")
    try:
        tensors = load_file(file)
    except Exception as error:  # safetensors raises its own type for a truncated or foreign file
        raise ValueError(f"{file}: not a readable safetensors file ({error})") from error
    return {name: tensor.float() for name, tensor in tensors.items()}


def _per_channel(values: Float[Tensor, " c"]) -> Float[Tensor, "c 1 1"]:
    return values[:, None, None]


# Measured with this module on BridgeData V2 (7 episodes, 4 frames each, 256x256) and DROID (9 episodes, 2 cameras, 3
# frames each, 320x192), evenly spaced frames, the two sets weighted equally; `fit_statistics` measures another domain.
# fmt: off
_LATENT_MEAN = (
    0.3452, 0.0119, 0.2103, 0.0086, 0.078, -0.0931, 0.101, 0.2052, 0.1043, 0.1792, -0.1255, -0.2125, 0.0432, 0.1661,
    -0.3027, -0.288, -0.0037, 0.2878, -0.0679, -0.1815, -0.2998, 0.1442, 0.1421, -0.0511, -0.4151, 0.125, 0.4348,
    -0.2315, 0.3061, -0.0969, 0.214, 0.0796,
)
_LATENT_STD = (
    0.7123, 1.0194, 0.7319, 0.9508, 0.7029, 0.9624, 0.7543, 0.7381, 0.9859, 0.59, 0.566, 0.9443, 0.6699, 0.6272,
    0.7612, 1.1094, 0.7724, 0.6024, 0.6946, 1.074, 0.7838, 0.5639, 0.6654, 0.6415, 0.8535, 0.6406, 1.014, 0.7031,
    0.6, 0.8992, 0.799, 1.1847,
)
# fmt: on
