"""A bundle: everything needed to use a trained model, in one folder that loads strictly or not at all.

config.json               package version, data spec, network, autoencoder, and how it was made
model.safetensors         the world model (averaged weights)
autoencoder.safetensors   the autoencoder, its latent statistics included
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from simforcing.models.autoencoder import TinyAutoencoder, TinyAutoencoderConfig
from simforcing.models.taef2 import Taef2, Taef2Config
from simforcing.models.world_model import WorldModel, WorldModelConfig
from simforcing.nn.strict import load_strictly
from simforcing.nn.tensor_file import read_tensors, write_tensors
from simforcing.types import DataSpec, from_json, to_json
from simforcing.types.files import read_json, write_json
from simforcing.types.version import package_version

FORMAT = 1
CONFIG, MODEL, AUTOENCODER = "config.json", "model.safetensors", "autoencoder.safetensors"


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A world model with its autoencoder and the description of what it reads.

    Args:
        about: how it was made: recipe, seed, command, data, held-out episodes, training configs (JSON values).
    """

    model: WorldModel
    autoencoder: TinyAutoencoder | Taef2
    spec: DataSpec
    about: dict[str, Any] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Write the three files, config.json last: a folder with it is complete."""
        folder = Path(folder)
        save_module(folder / MODEL, self.model)
        save_module(folder / AUTOENCODER, self.autoencoder)
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
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such run; expected a folder with {CONFIG}")
    if not (folder / CONFIG).is_file():
        raise ValueError(f"{folder}: no {CONFIG}; the run has not finished training (run the same train command again)")
    config = read_json(folder / CONFIG)
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ValueError(f"{folder / CONFIG}: not a bundle of format {FORMAT}")
    missing = [key for key in ("spec", "model", "autoencoder", "about") if key not in config]
    if missing:
        raise ValueError(f"{folder / CONFIG}: field {missing[0]!r} is missing")
    where = str(folder / CONFIG)
    model = from_json(WorldModelConfig, config["model"], f"{where}: model").build()
    autoencoder_config = from_json(TinyAutoencoderConfig | Taef2Config, config["autoencoder"], f"{where}: autoencoder")
    autoencoder = autoencoder_config.build()
    load_strictly(model, read_tensors(folder / MODEL), str(folder / MODEL))
    load_strictly(autoencoder, read_tensors(folder / AUTOENCODER), str(folder / AUTOENCODER))
    spec = from_json(DataSpec, config["spec"], f"{where}: spec")
    return Bundle(model=model.eval(), autoencoder=autoencoder.eval(), spec=spec, about=config["about"])


def save_module(path: Path, module: nn.Module) -> None:
    """A module's state dict as one safetensors file, atomically."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()}
    write_tensors(path, tensors)
