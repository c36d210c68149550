"""A bundle: everything needed to use a trained model, in one folder that loads strictly or not at all.

config.json               package version, data spec, network, autoencoder, and how it was made
model.safetensors         the world model (averaged weights)
autoencoder.safetensors   the autoencoder, its latent statistics included
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from simforcing.models.autoencoder import TinyAutoencoder, TinyAutoencoderConfig
from simforcing.models.taef2 import Taef2, Taef2Config
from simforcing.models.world_model import WorldModelConfig, WorldModelNetwork
from simforcing.nn.strict import load_strictly
from simforcing.nn.tensor_file import read_checksum, read_described, write_tensors
from simforcing.types import DataSpec, from_json, to_json
from simforcing.types.files import read_json, write_json
from simforcing.types.version import package_version

FORMAT = 1
CONFIG, MODEL, AUTOENCODER = "config.json", "model.safetensors", "autoencoder.safetensors"
StoredDtype = Literal["float32", "float16"]
STORED_HALF = "float32 stored in float16"  # text of a tensor file: tensors are read back in float32
# Fields of `about` that later commands read -> their JSON type, in code and in words.
ABOUT = {
    "recipe": (str, "a string"),
    "data": (str, "a string"),
    "run": (dict, "an object"),
    "held_out": (list, "a list"),
    "training": (list, "a list"),
    "simulation": (dict, "an object"),
    "familiarity": (dict, "an object"),
}


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A world model with its autoencoder and the description of what it reads.

    Args:
        about: how it was made: recipe, seed, command, data, held-out episodes, training configs (JSON values).
        source: the file that it was read from, for messages.
    """

    model: WorldModelNetwork
    autoencoder: TinyAutoencoder | Taef2
    spec: DataSpec
    about: dict[str, Any] = field(default_factory=dict)
    source: str = CONFIG

    def save(self, folder: Path, dtype: StoredDtype = "float32") -> None:
        """Write the three files, config.json last: a folder with it is complete.

        Args:
            dtype: of the tensors as stored; float16 halves the files, and its rounding stays when it is read back.

        Raises:
            ValueError: a number too large for float16, by its tensor's name.
        """
        folder = Path(folder)
        save_module(folder / MODEL, self.model, dtype)
        save_module(folder / AUTOENCODER, self.autoencoder, dtype)
        write_json(
            folder / CONFIG,
            {
                "format": FORMAT,
                "package_version": package_version(),
                "spec": to_json(self.spec),
                "model": to_json(self.model.config),
                "autoencoder": to_json(self.autoencoder.config),
                "about": to_json(self.about),
            },
        )


def load_bundle(folder: Path) -> Bundle:
    """Rebuild a bundle, in eval mode.

    Raises:
        ValueError: a missing or damaged file, another format, or tensors that do not fit the config, each by name.
    """
    folder = Path(folder)
    require_finished(folder)
    where = str(folder / CONFIG)
    config = read_json(folder / CONFIG)
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ValueError(f"{where}: not a bundle of format {FORMAT}")
    missing = [key for key in ("spec", "model", "autoencoder", "about") if key not in config]
    if missing:
        raise ValueError(f"{where}: field {missing[0]!r} is missing")
    check_about(config["about"], where)
    with _naming(where):
        model = from_json(WorldModelConfig, config["model"], "model").build()
        autoencoder = from_json(TinyAutoencoderConfig | Taef2Config, config["autoencoder"], "autoencoder").build()
        spec = from_json(DataSpec, config["spec"], "spec")
    load_strictly(model, read_module(folder / MODEL), str(folder / MODEL))
    load_strictly(autoencoder, read_module(folder / AUTOENCODER), str(folder / AUTOENCODER))
    with _naming(where):
        require_whole_latents(spec, autoencoder, model.config.patch)
    return Bundle(model=model.eval(), autoencoder=autoencoder.eval(), spec=spec, about=config["about"], source=where)


def require_whole_latents(spec: DataSpec, autoencoder: TinyAutoencoder | Taef2, patch: int) -> None:
    """ValueError where a window is no whole number of latent frames, or a side no whole number of tokens."""
    if (spec.num_frames - 1) % autoencoder.temporal_factor:
        raise ValueError(
            f"spec: num_frames is {spec.num_frames}; expected 1 and a multiple of {autoencoder.temporal_factor}"
        )
    side = autoencoder.spatial_factor * patch
    if spec.resize.height % side or spec.resize.width % side:
        raise ValueError(
            f"spec: frames of {spec.resize.height}x{spec.resize.width}; expected sides that are multiples of {side}"
        )


def bundle_sha256(folder: Path) -> str:
    """Of what a bundle computes: tensors, spec and configs, not of how the files were written or by which command.

    Raises:
        ValueError: a file is missing or damaged, by name.
    """
    config = read_json(Path(folder) / CONFIG)
    known = [config.get(name) for name in ("spec", "model", "autoencoder")] if isinstance(config, dict) else None
    tensors = [read_checksum(Path(folder) / name) for name in (MODEL, AUTOENCODER)]
    return hashlib.sha256(json.dumps([known, tensors], sort_keys=True).encode()).hexdigest()


def require_finished(folder: Path) -> None:
    """ValueError where a folder holds no finished run."""
    if not Path(folder).is_dir():
        raise ValueError(f"{folder}: no such run; expected a folder with {CONFIG}")
    if not (Path(folder) / CONFIG).is_file():
        raise ValueError(f"{folder}: no {CONFIG}; the run has not finished training (run the same train command again)")


def check_about(about: Any, where: str) -> None:
    """ValueError, naming file and field, where what is known of a bundle's making has another type than it must."""
    if not isinstance(about, dict):
        raise ValueError(f"{where}: about: expected an object, found {type(about).__name__}")
    for name, (kind, words) in ABOUT.items():
        if name in about and not isinstance(about[name], kind):
            raise ValueError(f"{where}: about.{name}: expected {words}, found {type(about[name]).__name__}")
    for name in ("held_out", "training"):
        if not all(isinstance(item, str) for item in about.get(name, [])):
            raise ValueError(f"{where}: about.{name}: expected a list of names")


@contextmanager
def _naming(where: str) -> Iterator[None]:
    """Errors that values of a file cause, as one line that names it."""
    try:
        yield
    except (ValueError, TypeError, ArithmeticError, RuntimeError) as error:
        raise ValueError(f"{where}: {' '.join(str(error).split())}") from error


def save_module(path: Path, module: nn.Module, dtype: StoredDtype = "float32") -> None:
    """A module's state dict as one safetensors file, atomically. ValueError for what float16 cannot hold."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()}
    if dtype == "float16":
        tensors = {name: to_half(tensor, f"{path}: {name}") for name, tensor in tensors.items()}
    write_tensors(path, tensors, STORED_HALF if dtype == "float16" else "")


def read_module(path: Path) -> dict[str, Tensor]:
    """A state dict that `save_module` wrote, in float32 however it was stored. ValueError as `read_tensors`."""
    tensors, text = read_described(path)
    if text == STORED_HALF:
        return {name: t.float() if t.dtype == torch.float16 else t for name, t in tensors.items()}
    return tensors


def to_half(tensor: Tensor, name: str) -> Tensor:
    """A float32 tensor in float16; others stay. ValueError, by name, where a number is too large for it."""
    if tensor.dtype != torch.float32:
        return tensor
    half = tensor.to(torch.float16)
    if not torch.equal(half.isfinite(), tensor.isfinite()):
        raise ValueError(f"{name} reaches {tensor.abs().max().item():.3g}; float16 holds up to 65504: store float32")
    return half
