"""The action-conditioned world model: patches, actions, text and state in, velocities out (docs/paper-to-code.md).

Experts, mask, sigma policy and what is denoised are independent: the first expert reads video, an optional second one
actions; the mask is named; noise levels come with the call; `denoises` says which streams have a head.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from simforcing.flow.path import per_frame, velocity_from_clean
from simforcing.models.action_conditioning import ActionTokens, FrameModulation, driven_frames, map_layer
from simforcing.models.conditioning import SimInjection
from simforcing.models.expert import ExpertConfig, Head
from simforcing.models.mixture import KeysValues, Level, Mixture, Stream, TextKeysValues
from simforcing.models.text import ByteEncoderConfig
from simforcing.nn.attention import BlockMask, build_mask, repeat_batch
from simforcing.nn.batch import Conditions, SimCondition, Streams
from simforcing.nn.rope import one_axis, rotors, three_axes
from simforcing.types import check_choices


@dataclass(frozen=True, kw_only=True)
class WorldModelConfig:
    """Everything that fixes the network's tensors and arithmetic.

    Args:
        video, action: the experts; without an action expert this is the Wan network.
        channels: latent channels.
        patch: rows and columns of latents per token.
        action_dim, state_dim: widths of actions and proprioception; state_dim 0 = no state token.
        text: byte encoder of small models; None where text features are given.
        mask: full | world_model | causal.
        action_positions: `index` (0..k-1 on one axis) or `aligned` (on the video's time axis, at the grid's centre).
        predicts: what the head means: the velocity, or the clean latents (from which the velocity is derived).
        head: `plain`, or `first_frame`: z_hat = (1 + gate) z_0 + F, where frame 0 is given.
        denoises: streams with a head.
        sim_condition: simulation latents may join the video tokens in every layer, through maps that start at zero.
        actions: how they enter: an expert of their own, or into the video expert by frame-level modulation, by
            cross-attention beside the text, or as maps of trajectory and rays (docs/baselines.md).
        num_history: past states that cross-attention reads.
        map_channels: of the maps (`data.trajectory_maps.num_channels`).
    """

    video: ExpertConfig
    action: ExpertConfig | None = None
    channels: int
    patch: int = 2
    action_dim: int = 0
    state_dim: int = 0
    text: ByteEncoderConfig | None = None
    mask: Literal["full", "world_model", "causal"] = "world_model"
    action_positions: Literal["index", "aligned"] = "index"
    predicts: Literal["velocity", "clean"] = "velocity"
    head: Literal["plain", "first_frame"] = "plain"
    denoises: tuple[Literal["video", "action"], ...] = ("video",)
    sim_condition: bool = False
    actions: Literal["expert", "modulation", "cross_attention", "maps"] = "expert"
    num_history: int = 0
    map_channels: int = 0

    def __post_init__(self) -> None:
        check_choices(self)
        if self.patch < 1 or self.channels < 1:
            raise ValueError(f"patch is {self.patch} and channels {self.channels}; both must be at least 1")
        if self.head == "first_frame" and self.predicts != "clean":
            raise ValueError("head 'first_frame' predicts clean latents; set predicts='clean' or head='plain'")
        self._check_actions()
        if not self.denoises or len(set(self.denoises)) != len(self.denoises):
            raise ValueError(f"denoises is {self.denoises}; expected video, action or both, each once")
        if "action" in self.denoises and self.action is None:
            raise ValueError("denoises 'action' needs an action expert")
        if "video" not in self.denoises and self.head == "first_frame":
            raise ValueError("head 'first_frame' is the video's; denoises must hold 'video', or head be 'plain'")

    def _check_actions(self) -> None:
        """ValueError where the ways for actions to enter exclude each other."""
        if self.actions == "expert" and (self.action is not None) != (self.action_dim > 0):
            raise ValueError(f"action_dim is {self.action_dim} with action expert {self.action}; give both or neither")
        if self.actions != "expert" and (self.action is not None or self.action_dim < 1):
            raise ValueError(
                f"actions {self.actions!r} enter the video expert: give action_dim (found {self.action_dim}) and no"
                " action expert"
            )
        if self.actions == "cross_attention" and self.mask == "causal":
            raise ValueError("actions 'cross_attention' are seen by every frame; choose mask 'world_model' or 'full'")
        if self.num_history and (self.actions != "cross_attention" or not self.state_dim):
            raise ValueError(
                f"num_history is {self.num_history}; only actions 'cross_attention' with a state_dim read past states"
            )
        if (self.map_channels > 0) != (self.actions == "maps"):
            raise ValueError(f"map_channels is {self.map_channels} with actions {self.actions!r}; maps go with 'maps'")

    def build(self) -> "WorldModelNetwork":
        return WorldModelNetwork(self)


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a clip's conditions become, once for all noise levels and domains.

    Args:
        action, text: keys and values in every layer; tokens that enter by cross-attention are among the text's.
        joined: what joins the noise-level embedding of each latent frame.
        drawn: what joins the video tokens before the first layer.
    """

    action: Sequence[KeysValues] | None
    text: Sequence[TextKeysValues]
    joined: Float[Tensor, "b g d"] | None = None
    drawn: Float[Tensor, "b n d"] | None = None


class WorldModelNetwork(nn.Module):
    """Velocities of noisy latents (and actions), given per-frame noise levels and conditions."""

    def __init__(self, config: WorldModelConfig) -> None:
        super().__init__()
        self.config = config
        video, action = config.video, config.action
        per_patch = config.channels * config.patch**2
        # token order: actions first, so that most key sets of a mask are plain slices
        self.mixture = Mixture({"action": action, "video": video} if action else {"video": video})
        self.video_in = nn.Linear(per_patch, video.width)
        if "video" in config.denoises:
            self.video_head = Head(video.width, per_patch * (2 if config.head == "first_frame" else 1))
        if config.head == "first_frame":  # training starts from the copy of the given frame
            nn.init.zeros_(self.video_head.linear.weight)
            nn.init.zeros_(self.video_head.linear.bias)
        if config.text is not None:
            self.text_encoder = config.text.build()
        if config.state_dim:
            self.state_in = nn.Linear(config.state_dim, video.text_width)
        if action is not None:
            self.action_in = nn.Linear(config.action_dim, action.width)
            if "action" in config.denoises:
                self.action_head = Head(action.width, config.action_dim)
        self._build_conditioners(per_patch)

    def _build_conditioners(self, per_patch: int) -> None:
        config, video = self.config, self.config.video
        if config.sim_condition:
            self.sim_injection = SimInjection(per_patch, video.width, video.num_layers)
        if config.actions == "modulation":
            self.frame_modulation = FrameModulation(config.action_dim, video.width)
        elif config.actions == "cross_attention":
            widths = video.text_width, video.width
            self.action_tokens = ActionTokens(config.action_dim, config.state_dim, config.num_history, *widths)
        elif config.actions == "maps":
            self.map_in = map_layer(config.map_channels, config.patch, video.width)

    def forward(
        self,
        noisy: Streams,
        sigma: Streams,
        conditions: Conditions,
        sim: SimCondition | None = None,
        context: Context | None = None,
    ) -> Streams:
        """Velocities of the streams in `denoises`.

        The video may hold r branches of the b clips of the conditions, branch by branch (row j is clip j mod b): what
        depends on neither noise level nor domain is then computed once (`context`).

        Args:
            noisy: video latents "r*b v g c h w"; actions "b k a" where they are denoised (else the conditions' own).
            sigma: "r*b g" for video, 0 where a latent frame is given; "b 1" for actions (default 0).
            conditions: see Conditions.
            sim: the condition path; None: it is absent.
            context: of the same conditions, from an earlier call of `context`.

        Raises:
            ValueError: latents that the patch does not divide, widths that are not the configured ones, or a
                simulation that this model was not built for.
        """
        z = noisy.video
        assert z is not None
        assert sigma.video is not None
        self._check(z, conditions)
        mask = self.mask(z, conditions)
        if context is None and self.has_context:
            context = self.context(conditions, z)
        streams: dict[str, Stream] = {}
        if context is None:
            text = self.text_tokens(conditions)
            action = conditions.action if noisy.action is None else noisy.action
            streams["action"] = self._action_stream(action, sigma.action, conditions, text, z)
            context = Context(action=None, text=self.mixture.expert("video").text_keys_values(text))
        added = None if sim is None else self.simulation_maps(sim)
        streams["video"] = self.video_stream(z, self.video_level(sigma.video, context), context, added)
        present = token_presence(conditions, mask, z)
        outputs = self.mixture(streams, mask, present, self.config.denoises, context.action)
        video, action_velocity = None, None
        if "video" in outputs:
            video = self.video_velocity(z, sigma.video, outputs["video"])
        if "action" in outputs:
            action_velocity = self.action_head(*outputs["action"])
        return Streams(video=video, action=action_velocity)

    @property
    def has_context(self) -> bool:
        """Whether the actions depend on nothing but the conditions: they never see the video and are never noisy."""
        sees_video = self.config.mask == "full" or "action" in self.config.denoises
        return self.config.action is None or not sees_video

    @property
    def first_frame_stands_alone(self) -> bool:
        """Whether latent frame 0, where it is given, depends on nothing noisy."""
        return self.has_context and self.config.mask != "full"

    def context(self, conditions: Conditions, z: Float[Tensor, "r v g c h w"]) -> Context:
        """What depends on actions, text and maps alone: once per clip, for all noise levels, domains and steps.

        Args:
            z: latents of the clip's shape; only their grid is read.
        """
        text = self.text_tokens(conditions)
        action = joined = drawn = None
        way, grid = self.config.actions, (conditions.action_frame, z.shape[2])
        if self.config.action is not None:
            stream = self._action_stream(conditions.action, None, conditions, text, z)
            mask = self.mask(z, conditions)
            action = self.mixture.keys_values("action", stream, mask.leading(mask.num_segments("action")))
        elif way == "modulation":
            joined = self.frame_modulation(conditions.action, conditions.action_valid, *grid)
        elif way == "cross_attention":
            seen = (conditions.action, conditions.action_valid, *grid, conditions.pose_history)
            text = torch.cat([text, self.action_tokens(*seen)], dim=1)
            drawn = self.action_tokens.frame_positions(z.shape[2], self.frame_tokens(z))
        elif way == "maps":
            drawn = self.map_in(patches(self._maps(conditions, z), self.config.patch))
        layers = self.mixture.expert("video").text_keys_values(text)
        return Context(action=action, text=layers, joined=joined, drawn=drawn)

    def mask(self, z: Float[Tensor, "b v g c h w"], conditions: Conditions) -> BlockMask:
        """The configured mask for these latents and actions."""
        frames = driven_frames(conditions.action_frame) if self.config.action is not None else ()
        return build_mask(self.config.mask, z.shape[2], self.frame_tokens(z), frames)

    def frame_tokens(self, z: Tensor) -> int:
        """Tokens of one latent frame, of all views."""
        _, views, _, _, height, width = z.shape
        return views * (height // self.config.patch) * (width // self.config.patch)

    def text_tokens(self, conditions: Conditions) -> Float[Tensor, "b l e"]:
        """Text, with the state as one token at its end."""
        if conditions.text_features is not None:
            tokens = conditions.text_features
        elif self.config.text is not None and conditions.text is not None:
            tokens = self.text_encoder(conditions.text)
        else:
            raise ValueError(
                "conditions hold no text: give text (byte ids) to a model with a byte encoder, else features"
            )
        if not self.config.state_dim:
            return tokens
        if conditions.state is None:
            raise ValueError(f"this model reads a state of {self.config.state_dim} numbers; the conditions hold none")
        known = conditions.state if conditions.state_valid is None else conditions.state * conditions.state_valid
        return torch.cat([tokens, self.state_in(known)[:, None]], dim=1)

    def _maps(self, conditions: Conditions, z: Tensor) -> Float[Tensor, "b v g r h w"]:
        maps, wanted = conditions.maps, (*z.shape[1:3], self.config.map_channels, *z.shape[4:])
        if maps is None or maps.shape[1:] != wanted:
            found = "none" if maps is None else list(maps.shape[1:])
            raise ValueError(f"this model reads maps of {list(wanted)} (v g r h w); the conditions hold {found}")
        return maps

    def video_level(self, sigma: Float[Tensor, "q s"], context: Context) -> Level:
        """Embedding and modulation of noise levels, with what the clip's actions join to them."""
        joined = context.joined
        if joined is not None:
            num_videos = max(sigma.shape[0], joined.shape[0])
            joined = repeat_batch(joined, num_videos).repeat_interleave(sigma.shape[1] // joined.shape[1], dim=1)
        return self.mixture.expert("video").sigma_embedding(sigma, joined)

    def simulation_maps(self, sim: SimCondition) -> list[Float[Tensor, "r n d"]]:
        """What the condition path adds to the video tokens in each layer."""
        return self.sim_injection(patches(sim.latents, self.config.patch), sim.gate)

    def video_stream(
        self,
        z: Float[Tensor, "r v g c h w"],
        level: Level,
        context: Context,
        added: Sequence[Float[Tensor, "r n d"]] | None = None,
    ) -> Stream:
        """Video tokens of all latent frames on their way into the mixture."""
        embedded = self.video_in(patches(z, self.config.patch))
        if context.drawn is not None:
            embedded = embedded + repeat_batch(context.drawn, z.shape[0])
        turns = self.video_rotors(z)
        return Stream(tokens=embedded, level=level, rotors=turns, text=context.text, added=added)

    def video_rotors(self, z: Float[Tensor, "r v g c h w"]) -> Float[Tensor, "n 1 half 2"]:
        """Rotors of the video tokens: (latent frame, row, column), views side by side."""
        _, v, g, _, h, w = z.shape
        rows, columns = h // self.config.patch, w // self.config.patch
        index = torch.arange(g * v * rows * columns, device=z.device)
        view, row, column = index // (rows * columns) % v, index // columns % rows, index % columns
        frame, place = index // (v * rows * columns), view * columns + column
        angles = three_axes(frame.double(), row.double(), place.double(), self.config.video.head_width)
        return rotors(angles, torch.promote_types(z.dtype, torch.float32))

    def _action_stream(
        self, action: Tensor, sigma: Tensor | None, conditions: Conditions, text: Tensor, z: Tensor
    ) -> Stream:
        head_width, k = self.config.video.head_width, action.shape[1]
        if self.config.action_positions == "index":
            angles = one_axis(torch.arange(k, device=z.device).double(), head_width)
        else:
            middle = torch.ones(k, device=z.device)
            rows, columns = (side // self.config.patch for side in z.shape[-2:])
            centre = ((rows - 1) / 2 * middle, (columns - 1) / 2 * middle)
            angles = three_axes(torch.tensor(conditions.action_frame, device=z.device), *centre, head_width)
        tokens = self.action_in(action * conditions.action_valid)
        level = action.new_zeros(action.shape[0], 1) if sigma is None else sigma
        expert = self.mixture.expert("action")
        return Stream(
            tokens=tokens,
            level=expert.sigma_embedding(level),
            rotors=rotors(angles, torch.promote_types(tokens.dtype, torch.float32)),
            text=expert.text_keys_values(text),
        )

    def video_velocity(
        self, z: Float[Tensor, "r v g c h w"], sigma: Float[Tensor, "r s"], out: tuple[Tensor, Tensor]
    ) -> Float[Tensor, "r v g c h w"]:
        """Velocities of all latent frames, of which `out` holds (tokens, noise-level embedding)."""
        predicted = self.video_prediction(z[:, :, :1], out)
        return predicted if self.config.predicts == "velocity" else velocity_from_clean(z, predicted, per_frame(sigma))

    def video_prediction(
        self, first: Float[Tensor, "r v 1 c h w"], out: tuple[Tensor, Tensor]
    ) -> Float[Tensor, "r v f c h w"]:
        """What `predicts` names, of the latent frames of which `out` holds (tokens, noise-level embedding).

        Args:
            first: latent frame 0, which the head `first_frame` starts from.
        """
        tokens, e = out
        _, v, _, _, h, w = first.shape
        p, head = self.config.patch, self.config.head
        shape = {"v": v, "h": h // p, "w": w // p, "p": p, "q": p, "o": 2 if head == "first_frame" else 1}
        maps = rearrange(self.video_head(tokens, e), "b (g v h w) (p q o c) -> o b v g c (h p) (w q)", **shape)
        if head != "first_frame":
            return maps.squeeze(0)
        change, gate = maps.unbind(0)
        return change + (1 + gate) * first

    def _check(self, z: Tensor, conditions: Conditions) -> None:
        if z.shape[0] % conditions.action.shape[0]:
            raise ValueError(
                f"{z.shape[0]} videos are no whole number of branches of {conditions.action.shape[0]} clips"
            )
        p = self.config.patch
        if z.shape[3] != self.config.channels or z.shape[4] % p or z.shape[5] % p:
            raise ValueError(
                f"latents of {z.shape[3]} channels and {z.shape[4]}x{z.shape[5]}; this model reads"
                f" {self.config.channels} channels and sides that are multiples of {p}"
            )
        if self.config.action_dim and conditions.action.shape[-1] != self.config.action_dim:
            raise ValueError(
                f"actions of {conditions.action.shape[-1]} numbers; this model reads {self.config.action_dim}"
            )


def patches(z: Float[Tensor, "b v g c h w"], patch: int) -> Float[Tensor, "b n d"]:
    """Latents cut into tokens of patch x patch, frame by frame, view by view, row by row."""
    cut = F.pixel_unshuffle(rearrange(z, "b v g c h w -> (b g v) c h w"), patch)
    return rearrange(cut, "(b s) c h w -> b (s h w) c", b=z.shape[0])


def token_presence(conditions: Conditions, mask: BlockMask, z: Tensor) -> Tensor | None:
    """Which tokens exist, per video; None where every view is there (no mask is needed then)."""
    views = z.shape[1]
    if views == 1 or bool(conditions.view_present.all()):
        return None
    num_video = sum(s.length for s in mask.segments if s.stream == "video")
    num_frames = sum(s.stream == "video" for s in mask.segments)
    actions = conditions.view_present.new_ones(conditions.view_present.shape[0], mask.num_tokens - num_video)
    per_view = num_video // num_frames // views
    video = conditions.view_present.repeat_interleave(per_view, dim=1).repeat(1, num_frames)
    return torch.cat([actions, video], dim=1).repeat(z.shape[0] // len(video), 1)
