"""Attention under masks that are declared by block structure, never as dense tensors.

A mask is a list of segments (runs of tokens that see the same keys) and, for each, the segments it sees. From that
follow the kernels (one dense attention per distinct set of keys, over slices) and what each token can depend on at
any depth (`BlockMask.depends_on`), which is what caches rest on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

Span = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A run of tokens of one stream, e.g. ("video", latent frame 0)."""

    stream: str
    index: int
    length: int


@dataclass(frozen=True, kw_only=True)
class BlockMask:
    """Which segment sees which. Segments stand in token order; `sees[i]` lists those that segment i attends to."""

    name: str
    segments: tuple[Segment, ...]
    sees: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        assert len(self.segments) == len(self.sees)
        assert all(i in seen for i, seen in enumerate(self.sees)), "every segment sees itself"

    @property
    def num_tokens(self) -> int:
        return sum(segment.length for segment in self.segments)

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """Token range of each segment."""
        ends = [0]
        for segment in self.segments:
            ends.append(ends[-1] + segment.length)
        return tuple((ends[i], ends[i + 1]) for i in range(len(self.segments)))

    @cached_property
    def plan(self) -> tuple[tuple[Span, tuple[Span, ...]], ...]:
        """(query range, key ranges) of each dense attention: adjacent segments with the same keys are one."""
        steps: list[tuple[Span, tuple[Span, ...]]] = []
        for (start, stop), seen in zip(self.spans, self.sees, strict=True):
            keys = merge_spans([self.spans[i] for i in sorted(seen)])
            if steps and steps[-1][1] == keys:
                steps[-1] = ((steps[-1][0][0], stop), keys)
            else:
                steps.append(((start, stop), keys))
        return tuple(steps)

    @cached_property
    def depends_on(self) -> tuple[frozenset[int], ...]:
        """Segments that each segment's output can depend on after any number of layers: the closure of `sees`."""
        reach = [set(seen) for seen in self.sees]
        for _ in self.segments:
            for seen in reach:
                seen.update(*(reach[i] for i in tuple(seen)))
        return tuple(frozenset(seen) for seen in reach)

    def leading(self, num_segments: int) -> "BlockMask":
        """The mask of the first segments alone.

        Raises:
            ValueError: they see a later segment, so they cannot be computed without it.
        """
        if any(seen >= num_segments for row in self.sees[:num_segments] for seen in row):
            stream = self.segments[num_segments - 1].stream
            raise ValueError(f"under mask {self.name!r} stream {stream} sees later tokens; it has no life of its own")
        return BlockMask(name=self.name, segments=self.segments[:num_segments], sees=self.sees[:num_segments])

    def num_segments(self, stream: str) -> int:
        """How many segments a stream has."""
        return sum(segment.stream == stream for segment in self.segments)

    def dense(self) -> Bool[Tensor, "n n"]:
        """The same relation as a matrix (rows see columns), for tests and pictures only."""
        out = torch.zeros(self.num_tokens, self.num_tokens, dtype=torch.bool)
        for (start, stop), seen in zip(self.spans, self.sees, strict=True):
            for i in seen:
                out[start:stop, slice(*self.spans[i])] = True
        return out


def merge_spans(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Join ranges that touch."""
    out: list[Span] = []
    for start, stop in spans:
        if out and out[-1][1] == start:
            out[-1] = (out[-1][0], stop)
        else:
            out.append((start, stop))
    return tuple(out)


MASKS = ("full", "world_model", "causal")


@lru_cache(maxsize=64)
def build_mask(name: str, num_frames: int, frame_tokens: int, action_frames: tuple[int, ...]) -> BlockMask:
    """A named mask over [actions, latent frame 0, 1, ...].

    full: everything sees everything (Wan, without actions).
    world_model: video sees all, except that latent frame 0 sees itself and the actions; actions see actions only.
    causal: latent frame i sees frames 0..i and the actions that lead to them; an action sees those up to its frame.

    Args:
        name: one of MASKS.
        num_frames, frame_tokens: latent frames, and tokens in each (all views).
        action_frames: latent frame that each action leads to, never falling; empty without an action expert.

    Raises:
        ValueError: unknown name, or actions out of order.
    """
    if name not in MASKS:
        raise ValueError(f"unknown mask {name!r}; choices: {', '.join(MASKS)}")
    if list(action_frames) != sorted(action_frames):
        raise ValueError(f"action_frames {action_frames} must never fall")
    actions = [
        Segment(stream="action", index=frame, length=action_frames.count(frame)) for frame in sorted(set(action_frames))
    ]
    video = [Segment(stream="video", index=frame, length=frame_tokens) for frame in range(num_frames)]
    segments = (*actions, *video)
    sees = tuple(
        tuple(j for j, key in enumerate(segments) if i == j or _sees(name, query, key))
        for i, query in enumerate(segments)
    )
    return BlockMask(name=name, segments=segments, sees=sees)


def _sees(name: str, query: Segment, key: Segment) -> bool:
    if name == "full":
        return True
    if query.stream == "action" and key.stream == "video":
        return False
    if name == "causal":
        return key.index <= query.index
    first_frame = query.stream == "video" and query.index == 0
    return key.stream == "action" or not first_frame


def attend(
    q: Float[Tensor, "b m heads e"],
    k: Float[Tensor, "b n heads e"],
    v: Float[Tensor, "b n heads e"],
    mask: BlockMask,
    present: Bool[Tensor, "b n"] | None = None,
) -> Float[Tensor, "b m heads*e"]:
    """Joint attention under a block mask, scale 1/sqrt(e). `present` hides the keys of absent views, per sample.

    The queries are the mask's last m tokens, where the first n - m come as keys and values alone.
    """
    num_given = k.shape[1] - q.shape[1]
    steps = [step for step in mask.plan if step[0][0] >= num_given]
    queries = q.split([stop - start for (start, stop), _ in steps], dim=1)  # backward: one cat, no zero fill
    parts = []
    for query, (_, keys) in zip(queries, steps, strict=True):
        hidden = None if present is None else _take(present, keys)[:, None, None]
        parts.append(_attention(query, _take(k, keys), _take(v, keys), hidden))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    out = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask)
    return out.transpose(1, 2).flatten(2)


def _take(x: Tensor, spans: tuple[Span, ...]) -> Tensor:
    if spans == ((0, x.shape[1]),):
        return x
    parts = [x[:, start:stop] for start, stop in spans]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def cross_attend(
    q: Float[Tensor, "r n heads e"], k: Float[Tensor, "b l heads e"], v: Float[Tensor, "b l heads e"]
) -> Float[Tensor, "r n heads*e"]:
    """Attention of tokens to text, unmasked: zeroed padding rows take part (docs/paper-to-code.md)."""
    return _attention(q, repeat_batch(k, q.shape[0]), repeat_batch(v, q.shape[0]))


def repeat_batch(x: Float[Tensor, "b ..."], size: int) -> Float[Tensor, "r ..."]:
    """What several branches of the same clips share, once for each of them: row j of the result is row j mod b."""
    return x if x.shape[0] == size else x.repeat(size // x.shape[0], *(1 for _ in x.shape[1:]))
