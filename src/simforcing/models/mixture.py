"""Mixture of transformers: a list of experts through one masked attention per layer (docs/paper-to-code.md).

It knows tokens, positions and masks; not pixels, actions or what is being denoised.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from simforcing.models.expert import Block, Expert, ExpertConfig, Modulation
from simforcing.nn.attention import BlockMask, attend
from simforcing.nn.rope import rotors


@dataclass(frozen=True, kw_only=True)
class Stream:
    """One expert's tokens on their way in.

    Args:
        tokens: embedded tokens.
        sigma: noise levels; level j holds for the j-th of s equal runs of tokens (s = n: one per token).
        angles: rotary angles of the tokens, float64.
        text: text tokens before the expert's own projection.
    """

    tokens: Float[Tensor, "b n d"]
    sigma: Float[Tensor, "b s"]
    angles: Float[Tensor, "n half"]
    text: Float[Tensor, "b l e"]


class Mixture(nn.Module):
    """Experts with the same number of layers, heads and head width, and widths of their own."""

    def __init__(self, configs: Mapping[str, ExpertConfig]) -> None:
        super().__init__()
        shared = {(c.num_layers, c.num_heads, c.head_width) for c in configs.values()}
        if len(shared) != 1:
            raise ValueError(f"experts must share (num_layers, num_heads, head_width); found {sorted(shared)}")
        self.experts = nn.ModuleDict({name: config.build() for name, config in configs.items()})
        self.recompute = False  # recompute each layer in the backward pass instead of keeping its activations

    def forward(
        self,
        streams: Mapping[str, Stream],
        mask: BlockMask,
        present: Bool[Tensor, "b n"] | None = None,
        outputs: Collection[str] | None = None,
    ) -> dict[str, tuple[Float[Tensor, "b _n _d"], Float[Tensor, "b _s _d"]]]:
        """(tokens after the last layer, noise-level embedding e) of each stream.

        Args:
            streams: one per expert, by name, in the mask's token order.
            mask: who sees whom.
            present: False hides a token from every query (an absent view).
            outputs: streams that are read afterwards (default: all); the last layer of others ends at its attention.
        """
        experts = [self.expert(name) for name in streams]
        tokens = [stream.tokens for stream in streams.values()]
        dtype = torch.promote_types(tokens[0].dtype, torch.float32)
        turns = [rotors(stream.angles, dtype) for stream in streams.values()]
        embedded = [_embed(expert, stream) for expert, stream in zip(experts, streams.values(), strict=True)]
        read = [outputs is None or name in outputs for name in streams]
        layers = list(zip(*(expert.blocks for expert in experts), strict=True))
        for i, layer in enumerate(layers):
            goes_on = read if i == len(layers) - 1 else [True] * len(read)
            args = (layer, tokens, embedded, turns, mask, present, goes_on)
            recompute = self.recompute and torch.is_grad_enabled()
            tokens = checkpoint(_layer, *args, use_reentrant=False) if recompute else _layer(*args)
        results = zip(streams, tokens, embedded, read, strict=True)
        return {name: (x, e) for name, x, (e, _, _), is_read in results if is_read}

    def expert(self, name: str) -> Expert:
        """The expert of that stream."""
        module = self.experts[name]
        assert isinstance(module, Expert)
        return module


def _embed(expert: Expert, stream: Stream) -> tuple[Tensor, Tensor, Tensor]:
    e, vectors = expert.sigma_embedding(stream.sigma)
    return e, vectors, expert.text_projection(stream.text)


def _layer(
    blocks: Sequence[Block],
    tokens: list[Tensor],
    embedded: list[tuple[Tensor, Tensor, Tensor]],
    turns: list[Tensor],
    mask: BlockMask,
    present: Tensor | None,
    goes_on: Sequence[bool],
) -> list[Tensor]:
    """One layer of every expert around one joint attention; a stream that does not go on is left as it came."""
    modulations: list[Modulation] = [b.modulation(m) for b, (_, m, _) in zip(blocks, embedded, strict=True)]
    qkv = [
        block.queries_keys_values(x, m, r) for block, x, m, r in zip(blocks, tokens, modulations, turns, strict=True)
    ]
    q, k, v = (parts[0] if len(parts) == 1 else torch.cat(parts, dim=1) for parts in zip(*qkv, strict=True))
    attended = attend(q, k, v, mask, present).split([x.shape[1] for x in tokens], dim=1)
    return [
        block.finish(x, y, block.text_keys_values(text), m) if on else x
        for block, x, y, (_, _, text), m, on in zip(
            blocks, tokens, attended, embedded, modulations, goes_on, strict=True
        )
    ]
