"""A small trainable text encoder over bytes, for models without a pretrained one."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

PAD = 0  # byte value b is token b + 1


@dataclass(frozen=True, kw_only=True)
class ByteEncoderConfig:
    """Bytes are embedded, then `bytes_per_token` of them are joined into one text token."""

    width: int
    max_bytes: int = 128
    bytes_per_token: int = 8
    byte_width: int = 32

    def __post_init__(self) -> None:
        if self.max_bytes % self.bytes_per_token:
            raise ValueError(f"max_bytes {self.max_bytes} must be a multiple of bytes_per_token {self.bytes_per_token}")

    def build(self) -> "ByteEncoder":
        return ByteEncoder(self)


def encode_bytes(texts: Sequence[str], max_bytes: int = ByteEncoderConfig.max_bytes) -> Int[Tensor, "b l"]:
    """UTF-8 bytes plus one, cut or padded with 0 to `max_bytes`."""
    out = torch.zeros(len(texts), max_bytes, dtype=torch.int64)
    for row, text in enumerate(texts):
        data = text.encode("utf-8")[:max_bytes]
        out[row, : len(data)] = torch.tensor(list(data), dtype=torch.int64) + 1
    return out


class ByteEncoder(nn.Module):
    """Text tokens of bytes; rows that are padding throughout are zero, as with a pretrained encoder's padding."""

    def __init__(self, config: ByteEncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(257, config.byte_width, padding_idx=PAD)
        self.join = nn.Linear(config.byte_width * config.bytes_per_token, config.width)
        self.position = nn.Parameter(torch.randn(config.max_bytes // config.bytes_per_token, config.width) * 0.02)

    def forward(self, text: Int[Tensor, "b l"]) -> Float[Tensor, "b t e"]:
        if text.shape[1] != self.config.max_bytes:
            raise ValueError(f"text has {text.shape[1]} bytes per row; this encoder reads {self.config.max_bytes}")
        grouped = text.unflatten(1, (-1, self.config.bytes_per_token))
        tokens = self.join(self.embedding(grouped).flatten(2)) + self.position
        return tokens * (grouped != PAD).any(dim=-1, keepdim=True)
