"""The product in one class: a trained model that turns a first picture and commands into video."""

from pathlib import Path
from typing import Any, Literal

from simforcing.generation.rollout import Predictor
from simforcing.generation.sampler import SamplerConfig, stored_sampler
from simforcing.models.bundle import Bundle, load_bundle


class WorldModel:
    """A trained model, ready to use."""

    def __init__(
        self,
        bundle: Bundle,
        sampler: SamplerConfig,
        *,
        device: str = "cpu",
        dtype: Literal["float32", "bfloat16"] = "float32",
    ) -> None:
        self.bundle, self.spec = bundle, bundle.spec
        self.predictor = Predictor(bundle, sampler, device=device, dtype=dtype)

    @classmethod
    def from_pretrained(cls, path: str | Path, **how: Any) -> "WorldModel":
        """A finished run's folder."""
        bundle = load_bundle(Path(path))
        return cls(bundle, stored_sampler(bundle), **how)
