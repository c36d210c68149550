"""How actions enter the video expert without an expert of their own, one small module each (docs/baselines.md).

Frame-level modulation; tokens beside the text, with past states; trajectory and ray maps added to the video tokens.
What each makes depends on neither noise level nor domain, so several branches of a clip share it.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from simforcing.nn.embed import Mlp, sinusoid

POSITION_WIDTH = 32
POSITION_SCALE = 16.0  # of one latent frame or one past state: its sixteenth is one radian of the fastest sinusoid
GRID_SLACK = 1e-3  # of a latent frame: `action_frame` is rounded


class FrameModulation(nn.Module):
    """What joins a latent frame's noise-level embedding: the mean of what each action that acts in it is mapped to.

    A mean, since their number per frame may differ; an action's place in the frame is an input beside its numbers, so
    that early and late ones are told apart as in a concatenation. The last map starts at zero: no bit changes then.
    """

    def __init__(self, action_dim: int, width: int) -> None:
        super().__init__()
        self.mlp = Mlp(action_dim + 1, width, width)
        _zero(self.mlp.second)

    def forward(
        self,
        action: Float[Tensor, "b k a"],
        valid: Bool[Tensor, "b k a"],
        action_frame: tuple[float, ...],
        num_frames: int,
    ) -> Float[Tensor, "b g d"]:
        """One vector per latent frame; zero for frame 0 and wherever no action acts."""
        pairs = acting(action_frame, num_frames)
        width = self.mlp.second.out_features
        if not pairs:
            return action.new_zeros(action.shape[0], num_frames, width)
        frames, actions = (list(column) for column in zip(*pairs, strict=True))
        offsets = [action_frame[j] - i for i, j in pairs]
        place = action.new_tensor(offsets)[None, :, None].expand(action.shape[0], -1, 1)
        mapped = self.mlp(torch.cat([(action * valid)[:, actions], place], dim=-1))
        # a product with a constant matrix: summing by index would not be deterministic on GPUs
        mean = mapped.new_zeros(num_frames, len(pairs))
        mean[frames, range(len(pairs))] = 1.0
        return (mean / mean.sum(dim=1, keepdim=True).clamp_min(1)) @ mapped


class ActionTokens(nn.Module):
    """Actions and past states as tokens that the video attends to beside the text.

    Rotary positions act in self-attention alone, so a video token could not ask for the actions of its own frame: its
    place in time is added to it.
    """

    def __init__(self, action_dim: int, state_dim: int, num_history: int, width: int, video_width: int) -> None:
        super().__init__()
        self.num_history = num_history
        self.action_in = nn.Linear(action_dim, width)
        self.action_position = nn.Linear(POSITION_WIDTH, width)
        self.frame_position = nn.Linear(POSITION_WIDTH, video_width)
        if num_history:
            self.history_in = nn.Linear(state_dim, width)
            self.history_position = nn.Linear(POSITION_WIDTH, width)

    def forward(
        self,
        action: Float[Tensor, "b k a"],
        valid: Bool[Tensor, "b k a"],
        action_frame: tuple[float, ...],
        num_frames: int,
        history: Float[Tensor, "b m s"] | None,
    ) -> Float[Tensor, "b n e"]:
        """Past states, oldest first, then the actions that act before the last latent frame ends.

        Raises:
            ValueError: another number of past states than the model was built for.
        """
        found = 0 if history is None else history.shape[1]
        if found != self.num_history:
            raise ValueError(f"this model reads {self.num_history} past states; the conditions hold {found}")
        kept = [j for j, frame in enumerate(driven_frames(action_frame)) if frame < num_frames]
        times = action.new_tensor([action_frame[j] for j in kept])
        tokens = [self.action_in((action * valid)[:, kept]) + self._at(times, self.action_position)]
        if history is not None:
            past = torch.arange(-self.num_history, 0, device=action.device).to(action)
            tokens.insert(0, self.history_in(history) + self._at(past, self.history_position))
        return torch.cat(tokens, dim=1)

    def frame_positions(self, num_frames: int, frame_tokens: int) -> Float[Tensor, "1 n d"]:
        """What is added to the video tokens, frame by frame."""
        frames = torch.arange(num_frames, device=self.frame_position.weight.device)
        places = self._at(frames.to(self.frame_position.weight), self.frame_position)
        return places.repeat_interleave(frame_tokens, dim=0)[None]

    def _at(self, place: Float[Tensor, " n"], layer: nn.Linear) -> Float[Tensor, "n e"]:
        return layer(sinusoid(POSITION_SCALE * place, POSITION_WIDTH).to(layer.weight.dtype))


def map_layer(map_channels: int, patch: int, width: int) -> nn.Linear:
    """One linear map of the drawn patches, that starts at zero."""
    layer = nn.Linear(map_channels * patch**2, width)
    _zero(layer)
    return layer


def driven_frames(action_frame: Sequence[float]) -> tuple[int, ...]:
    """First latent frame that each action drives: the one after its start, where `action_frame` holds its end."""
    step = _step(action_frame)
    return tuple(max(0, math.floor(end - step + GRID_SLACK) + 1) for end in action_frame)


@lru_cache(maxsize=64)
def acting(action_frame: tuple[float, ...], num_frames: int) -> tuple[tuple[int, int], ...]:
    """(latent frame i, action j) wherever action j is in force within (i - 1, i], for frames 1 .. num_frames - 1."""
    step = _step(action_frame)
    return tuple(
        (i, j)
        for i in range(1, num_frames)
        for j, end in enumerate(action_frame)
        if end - step < i - GRID_SLACK and end > i - 1 + GRID_SLACK
    )


def _step(action_frame: Sequence[float]) -> float:
    return action_frame[1] - action_frame[0] if len(action_frame) > 1 else action_frame[0]  # one: from the start on


def _zero(layer: nn.Linear) -> None:
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
