"""Features of a frozen text encoder, made once for each distinct prompt and kept on disk, a file each.

FOLDER/text-<encoder>/cache.json   name, weights and number of tokens of the encoder; a cache of another one is refused
FOLDER/text-<encoder>/<hash>.safetensors   the features of one prompt, and in the header the prompt
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from simforcing.data.cache_folder import CacheFolder
from simforcing.nn.tensor_file import read_described, write_tensors
from simforcing.types.progress import Report

FORMAT = 1
FEATURES = "features"


@runtime_checkable
class TextEncoder(Protocol):
    """A frozen text encoder. Its weights are told apart by `sha256`; rows of its features that are padding are zero."""

    @property
    def name(self) -> str: ...

    @property
    def sha256(self) -> str: ...

    @property
    def num_tokens(self) -> int: ...

    def encode(self, prompts: Sequence[str]) -> Float[Tensor, "b l e"]: ...


@dataclass(frozen=True, kw_only=True)
class TextIdentity:
    """What features depend on beside the prompt."""

    encoder: str
    sha256: str
    num_tokens: int
    format: int = FORMAT


@dataclass(frozen=True, kw_only=True)
class TextFeatures:
    """Features of distinct prompts, and which of them each window has: few episodes share many windows.

    Args:
        features: one row per distinct prompt.
        index: row of each window.
    """

    features: Float[Tensor, "p l e"]
    index: Int[Tensor, " n"]

    def of(self, windows: Int[Tensor, " b"]) -> Float[Tensor, "b l e"]:
        """Features of some windows."""
        return self.features[self.index[windows]]


def cached_texts(prompts: Sequence[str], encoder: TextEncoder, folder: Path, *, report: Report) -> TextFeatures:
    """Features of the windows' prompts, from the cache; those that it lacks are encoded one by one and added.

    Raises:
        ValueError: the cache is of other weights or another number of tokens; both sides are named.
        OSError: the disk is full; finished files stay.
    """
    cache = _TextCache(folder, encoder)
    distinct = list(dict.fromkeys(prompts))
    found = {text: values for text in distinct if (values := cache.read(text, report)) is not None}
    missing = [text for text in distinct if text not in found]
    if missing:
        with cache.held(report):
            for done, text in enumerate(missing, 1):
                values = cache.read(text, lambda line: None)  # another process may have added it
                found[text] = cache.add(text, encoder) if values is None else values
                report(f"encoding texts: {done}/{len(missing)}")
    rows = {text: row for row, text in enumerate(distinct)}
    return TextFeatures(
        features=torch.stack([found[text] for text in distinct]),
        index=torch.tensor([rows[text] for text in prompts]),
    )


class _TextCache(CacheFolder):
    def __init__(self, folder: Path, encoder: TextEncoder) -> None:
        identity = TextIdentity(encoder=encoder.name, sha256=encoder.sha256, num_tokens=encoder.num_tokens)
        name = re.sub(r"[^A-Za-z0-9._-]", "_", encoder.name)
        super().__init__(Path(folder) / f"text-{name}", identity, "text features")

    def read(self, text: str, report: Report) -> Float[Tensor, "l e"] | None:
        """The features, or None where they are not there; a damaged file is reported and counts as not there."""
        path = self._path(text)
        if not path.is_file():
            return None
        try:
            tensors, header = read_described(path)
            found: dict[str, Any] = json.loads(header)
            identity, prompt, features = found["identity"], found["prompt"], tensors[FEATURES]
        except (ValueError, KeyError, TypeError) as error:
            report(f"{error}; it is encoded again")
            return None
        self.require_mine(identity, path)
        if prompt != text:
            raise ValueError(f"{path}: features of {prompt!r:.80}, expected those of {text!r:.80}; delete it")
        return features

    @torch.no_grad()
    def add(self, text: str, encoder: TextEncoder) -> Float[Tensor, "l e"]:
        """Encode one prompt and write its features."""
        features = encoder.encode([text])[0].detach().cpu().contiguous()
        assert len(features) == encoder.num_tokens, "an encoder gives as many tokens as it declares"
        header = json.dumps({"identity": self.identity, "prompt": text})
        write_tensors(self._path(text), {FEATURES: features}, header)
        return features

    def _path(self, text: str) -> Path:
        return self.root / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.safetensors"
