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
from simforcing.nn.attention import BlockMask, attend, repeat_batch

KeysValues = tuple[Tensor, Tensor]  # each "b n heads e"
TextKeysValues = tuple[Tensor, Tensor]  # each "b l heads e"
Level = tuple[Tensor, Tensor]  # embedding "q s d", modulation "q s 6 d"


@dataclass(frozen=True, kw_only=True)
class Stream:
    """One expert's tokens on their way in.

    Args:
        tokens: embedded tokens; r branches of the same b clips where what they share comes once.
        level: noise levels (`SigmaEmbedding`); level j holds for the j-th of s equal runs of tokens (s = n: one per
            token), and one of q = 1 for all videos.
        rotors: of the tokens' positions.
        text: the text's keys and values in each layer (`Expert.text_keys_values`).
        added: what joins the tokens in each layer, between text and MLP. Branches that differ in nothing else may come
            once and part in the first layer (text and given tokens of that layer then come once, too).
    """

    tokens: Float[Tensor, "r n d"]
    level: Level
    rotors: Float[Tensor, "n 1 half 2"]
    text: Sequence[TextKeysValues]
    added: Sequence[Float[Tensor, "_r n d"]] | None = None


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
        present: Bool[Tensor, "r n"] | None = None,
        outputs: Collection[str] | None = None,
        given: Sequence[KeysValues] | None = None,
    ) -> dict[str, tuple[Float[Tensor, "r _n _d"], Float[Tensor, "_q _s _d"]]]:
        """(tokens after the last layer, noise-level embedding e) of each stream.

        Args:
            streams: one per expert, by name, in the mask's token order.
            mask: who sees whom, the given tokens too.
            present: False hides a token from every query (an absent view).
            outputs: streams that are read afterwards (default: all); the last layer of others ends at its attention.
            given: keys and values, in each layer, of the mask's first tokens (`keys_values`), in place of their stream.
        """
        read = [outputs is None or name in outputs for name in streams]
        lead, tokens = self._enter(streams)
        for i in range(lead.num_layers):
            goes_on = read if i == lead.num_layers - 1 else [True] * len(read)
            before = None if given is None else given[i]
            tokens, _ = self._checkpointed(lead.layer(i, goes_on, mask, present), tokens, before)
        results = zip(streams.items(), tokens, read, strict=True)
        return {name: (x, stream.level[0]) for (name, stream), x, is_read in results if is_read}

    def keys_values(
        self,
        name: str,
        stream: Stream,
        mask: BlockMask,
        present: Bool[Tensor, "r n"] | None = None,
        given: Sequence[KeysValues] | None = None,
    ) -> list[KeysValues]:
        """Keys and values of one stream in every layer: all that the tokens after it need to know of it.

        Args:
            mask: of the given tokens and this stream alone (`BlockMask.leading`).
            present, given: as in `forward`.
        """
        lead, tokens = self._enter({name: stream})
        out = []
        for i in range(lead.num_layers):
            before = None if given is None else given[i]
            goes_on = [i < lead.num_layers - 1]
            tokens, own = self._checkpointed(lead.layer(i, goes_on, mask, present), tokens, before)
            out.append(own)
        return out

    def expert(self, name: str) -> Expert:
        """The expert of that stream."""
        module = self.experts[name]
        assert isinstance(module, Expert)
        return module

    def _enter(self, streams: Mapping[str, Stream]) -> tuple["_Passage", list[Tensor]]:
        experts = [self.expert(name) for name in streams]
        tokens = [stream.tokens for stream in streams.values()]
        return _Passage(experts=experts, streams=list(streams.values())), tokens

    def _checkpointed(
        self, layer: "_Layer", tokens: list[Tensor], given: KeysValues | None
    ) -> tuple[list[Tensor], KeysValues]:
        if self.recompute and torch.is_grad_enabled():
            return checkpoint(layer, tokens, given, use_reentrant=False)
        return layer(tokens, given)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Passage:
    """What stays the same for some streams from layer to layer."""

    experts: list[Expert]
    streams: list[Stream]

    @property
    def num_layers(self) -> int:
        return len(self.experts[0].blocks)

    def layer(self, i: int, goes_on: Sequence[bool], mask: BlockMask, present: Tensor | None) -> "_Layer":
        return _Layer(
            blocks=[expert.layers[i] for expert in self.experts],
            vectors=[stream.level[1] for stream in self.streams],
            turns=[stream.rotors for stream in self.streams],
            text=[stream.text[i] for stream in self.streams],
            added=[None if stream.added is None else stream.added[i] for stream in self.streams],
            goes_on=goes_on,
            mask=mask,
            present=present,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Layer:
    """One layer of every expert around one joint attention; a stream that does not go on is left as it came."""

    blocks: list[Block]
    vectors: list[Tensor]
    turns: list[Tensor]
    text: list[TextKeysValues]
    added: list[Tensor | None]
    goes_on: Sequence[bool]
    mask: BlockMask
    present: Tensor | None

    def __call__(self, tokens: list[Tensor], given: KeysValues | None) -> tuple[list[Tensor], KeysValues]:
        """(tokens, own keys and values)."""
        modulations: list[Modulation] = [b.modulation(m) for b, m in zip(self.blocks, self.vectors, strict=True)]
        qkv = [
            block.queries_keys_values(x, m, r)
            for block, x, m, r in zip(self.blocks, tokens, modulations, self.turns, strict=True)
        ]
        q, k, v = (parts[0] if len(parts) == 1 else torch.cat(parts, dim=1) for parts in zip(*qkv, strict=True))
        own = (k, v)
        if not any(self.goes_on):
            return tokens, own
        if given is not None:
            k, v = (torch.cat([repeat_batch(g, x.shape[0]), x], dim=1) for g, x in zip(given, own, strict=True))
        present = None if self.present is None else self.present[: q.shape[0]]
        joint = attend(q, k, v, self.mask, present).split([x.shape[1] for x in tokens], dim=1)
        attended = [x.contiguous() for x in joint]  # linear maps would copy, and round otherwise than on rows
        rows = zip(self.blocks, tokens, attended, self.text, modulations, self.added, self.goes_on, strict=True)
        return [block.finish(x, y, text, m, a) if on else x for block, x, y, text, m, a, on in rows], own
