"""One expert: a stack of adaptive-norm transformer blocks for one stream of tokens (docs/paper-to-code.md).

    x += g1 * O(attn(LN(x) * (1 + c1) + s1));  x += cross(LN_affine(x), text);  [video: x += gate * conv(z_sim)]
    x += g2 * MLP(LN(x) * (1 + c2) + s2)

The joint attention lives in `mixture`; a block only makes its own q, k, v and receives its share of the result.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from simforcing.nn.attention import cross_attend, repeat_batch
from simforcing.nn.embed import Mlp, SigmaEmbedding
from simforcing.nn.norm import RmsNorm, at_least_float32, gated_residual, modulated_layer_norm
from simforcing.nn.rope import rotate

EPS = 1e-6

Heads = Float[Tensor, "b n heads e"]
TextHeads = Float[Tensor, "b l heads e"]
Modulation = tuple[Tensor, ...]


@dataclass(frozen=True, kw_only=True)
class ExpertConfig:
    """Width and MLP width of one expert, and the depth and heads that all experts of a mixture share."""

    width: int
    mlp_width: int
    num_layers: int
    num_heads: int
    head_width: int
    text_width: int

    def __post_init__(self) -> None:
        if self.head_width % 2 or self.head_width < 6:
            raise ValueError(f"head_width is {self.head_width}; rotary positions need an even width of at least 6")
        if min(self.width, self.mlp_width, self.num_layers, self.num_heads, self.text_width) < 1:
            raise ValueError(f"every size of an expert must be at least 1: {self}")

    @property
    def attention_width(self) -> int:
        return self.num_heads * self.head_width

    def build(self) -> "Expert":
        return Expert(self)


class Block(nn.Module):
    """One layer of one expert."""

    def __init__(self, config: ExpertConfig) -> None:
        super().__init__()
        width, attention = config.width, config.attention_width
        self.num_heads = config.num_heads
        self.table = nn.Parameter(torch.randn(6, width) / width**0.5)
        self.qkv = nn.Linear(width, 3 * attention)
        self.q_norm, self.k_norm = RmsNorm(attention, EPS), RmsNorm(attention, EPS)
        self.out = nn.Linear(attention, width)
        self.cross_norm = nn.LayerNorm(width, eps=EPS)
        self.cross_q = nn.Linear(width, attention)
        self.cross_kv = nn.Linear(width, 2 * attention)
        self.cross_q_norm, self.cross_k_norm = RmsNorm(attention, EPS), RmsNorm(attention, EPS)
        self.cross_out = nn.Linear(attention, width)
        self.mlp = Mlp(width, config.mlp_width, width)

    def modulation(self, vectors: Float[Tensor, "q s 6 d"]) -> Modulation:
        """(s1, c1, g1, s2, c2, g2) = table + Linear(SiLU(e)), each "q s d"."""
        return (self.table + at_least_float32(vectors)).unbind(2)

    def queries_keys_values(
        self, x: Float[Tensor, "b n d"], modulation: Modulation, rotors: Float[Tensor, "n 1 half 2"]
    ) -> tuple[Heads, Heads, Heads]:
        """Normed, modulated, projected and rotated; q and k are RMS-normed across all heads."""
        shift, scale = modulation[0], modulation[1]
        q, k, v = self.qkv(modulated_layer_norm(x, scale, shift, EPS)).chunk(3, dim=-1)
        q, k, v = (y.unflatten(-1, (self.num_heads, -1)) for y in (self.q_norm(q), self.k_norm(k), v))
        return rotate(q, rotors), rotate(k, rotors), v

    def text_keys_values(self, text: Float[Tensor, "b l d"]) -> tuple[TextHeads, TextHeads]:
        """Keys and values of the text for this layer; they depend on nothing else."""
        k, v = self.cross_kv(text).chunk(2, dim=-1)
        return self.cross_k_norm(k).unflatten(-1, (self.num_heads, -1)), v.unflatten(-1, (self.num_heads, -1))

    def finish(
        self,
        x: Float[Tensor, "b n d"],
        attended: Float[Tensor, "b n a"],
        text: tuple[Float[Tensor, "t l heads e"], Float[Tensor, "t l heads e"]],
        modulation: Modulation,
        added: Float[Tensor, "r n d"] | None = None,
    ) -> Float[Tensor, "r n d"]:
        """The rest of the layer after the joint attention; `added` joins the tokens between text and MLP.

        Where it has more rows, branches of the same clips part here: row j of the result is of clip j mod b.
        """
        _, _, gate1, shift2, scale2, gate2 = modulation
        x = gated_residual(x, self.out(attended), gate1)
        q = self.cross_q_norm(self.cross_q(self.cross_norm(x))).unflatten(-1, (self.num_heads, -1))
        x = x + self.cross_out(cross_attend(q, *text))
        if added is not None:
            x = repeat_batch(x, added.shape[0]) + added
        return gated_residual(x, self.mlp(modulated_layer_norm(x, scale2, shift2, EPS)), gate2)


class Expert(nn.Module):
    """The blocks of one stream with its noise-level embedding and its own view of the text."""

    def __init__(self, config: ExpertConfig) -> None:
        super().__init__()
        self.config = config
        self.sigma_embedding = SigmaEmbedding(config.width)
        self.text_projection = Mlp(config.text_width, config.width, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))

    @property
    def layers(self) -> list[Block]:
        """The blocks, in order."""
        return [block for block in self.blocks if isinstance(block, Block)]

    def text_keys_values(self, text: Float[Tensor, "b l e"]) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of the text for every layer, each "b l heads e"."""
        projected = self.text_projection(text)
        return [block.text_keys_values(projected) for block in self.layers]


class Head(nn.Module):
    """Linear(LN(x) * (1 + c) + s) with (s, c) = table[2, d] + e."""

    def __init__(self, width: int, width_out: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(2, width) / width**0.5)
        self.linear = nn.Linear(width, width_out)

    def forward(self, x: Float[Tensor, "b n d"], e: Float[Tensor, "q s d"]) -> Float[Tensor, "b n o"]:
        shift, scale = (self.table + at_least_float32(e).unsqueeze(2)).unbind(2)
        return self.linear(modulated_layer_norm(x, scale, shift, EPS).to(self.linear.weight.dtype))
