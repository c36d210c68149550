"""A training step (forward and backward) of the tiny world model against diffusers' Wan of the same size.

    OMP_NUM_THREADS=1 python benchmarks/train_step.py

Same width, depth, video tokens, text and batch; eager, one thread. The floor has our matrix products and attentions
and nothing else: no norms, modulation, rotary positions or activation. Rounds take every model in turn; CPU time is
counted, so that other programs disturb little, and the ratios are medians of the rounds' ratios.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from statistics import median

import torch
from diffusers import WanTransformer3DModel
from machine import cpu_seconds, describe, median_ratio
from torch import Tensor, nn

from simforcing.models.expert import Block, ExpertConfig
from simforcing.models.weights import from_wan
from simforcing.models.world_model import WorldModelConfig
from simforcing.nn.attention import BlockMask, attend, build_mask, cross_attend
from simforcing.nn.batch import Conditions, Streams
from simforcing.nn.strict import load_strictly

BATCH, FRAMES, SIDE, CHANNELS, PATCH = 16, 5, 8, 48, 2
NUM_ACTIONS, ACTION_DIM, TEXT_TOKENS, TEXT_WIDTH = 16, 7, 16, 128
AIM_WITHOUT_ACTIONS, AIM_WITH_ACTIONS = 1.15, 1.0

VIDEO = ExpertConfig(width=128, mlp_width=512, num_layers=4, num_heads=4, head_width=32, text_width=TEXT_WIDTH)
ACTION = replace(VIDEO, width=64, mlp_width=256)
PLAIN = WorldModelConfig(video=VIDEO, channels=CHANNELS, patch=PATCH, mask="full")
ACTING = replace(PLAIN, action=ACTION, action_dim=ACTION_DIM, mask="world_model")


class FloorBlock(nn.Module):
    """The linear maps of one layer of one expert."""

    def __init__(self, config: ExpertConfig) -> None:
        super().__init__()
        block = Block(config)
        self.num_heads, self.qkv, self.out, self.mlp = config.num_heads, block.qkv, block.out, block.mlp
        self.cross_q, self.cross_kv, self.cross_out = block.cross_q, block.cross_kv, block.cross_out

    def heads(self, x: Tensor, parts: int) -> tuple[Tensor, ...]:
        return x.unflatten(-1, (parts, self.num_heads, -1)).unbind(2)

    def finish(self, attended: Tensor, text: Tensor) -> Tensor:
        """Everything after the joint attention, without residuals."""
        (q,), (k, v) = self.heads(self.cross_q(self.out(attended)), 1), self.heads(self.cross_kv(text), 2)
        return self.mlp.second(self.mlp.first(self.cross_out(cross_attend(q, k, v))))


class Floor(nn.Module):
    """Matrix products and attentions of a world model alone: what no implementation can leave out."""

    def __init__(self, config: WorldModelConfig) -> None:
        super().__init__()
        model = config.build()
        self.outer = nn.ModuleDict({"in": model.video_in, "head": model.video_head.linear})
        experts = {"video": config.video} if config.action is None else {"action": config.action, "video": config.video}
        if config.action is not None:
            self.outer["action"] = model.action_in
        self.experts = model.mixture.experts
        self.layers = nn.ModuleList(
            nn.ModuleList(FloorBlock(e) for e in experts.values()) for _ in range(config.video.num_layers)
        )

    def forward(self, tokens: Tensor, actions: Tensor, text: Tensor, mask: BlockMask) -> Tensor:
        xs = [self.outer["in"](tokens)]
        if "action" in self.outer:
            xs.insert(0, self.outer["action"](actions))
        texts = [e.text_projection.second(e.text_projection.first(text)) for e in self.experts.values()]
        for layer in self.layers:
            joint = [block.heads(block.qkv(x), 3) for block, x in zip(layer, xs, strict=True)]
            q, k, v = (parts[0] if len(parts) == 1 else torch.cat(parts, dim=1) for parts in zip(*joint, strict=True))
            attended = attend(q, k, v, mask).split([x.shape[1] for x in xs], dim=1)
            xs = [block.finish(y, t) for block, y, t in zip(layer, attended, texts, strict=True)]
        return self.outer["head"](xs[-1])


def reference() -> WanTransformer3DModel:
    """diffusers' network of the same size."""
    return WanTransformer3DModel(
        patch_size=(1, PATCH, PATCH),
        num_attention_heads=VIDEO.num_heads,
        attention_head_dim=VIDEO.head_width,
        in_channels=CHANNELS,
        out_channels=CHANNELS,
        text_dim=TEXT_WIDTH,
        freq_dim=256,
        ffn_dim=VIDEO.mlp_width,
        num_layers=VIDEO.num_layers,
        cross_attn_norm=True,
        qk_norm="rms_norm_across_heads",
        eps=1e-6,
        rope_max_seq_len=64,
    )


def training_step(model: nn.Module, output: Callable[[], Tensor]) -> Callable[[], None]:
    def step() -> None:
        model.zero_grad()
        output().square().mean().backward()

    return step


def steps() -> dict[str, Callable[[], None]]:
    """Name -> one forward and backward pass on the same latents, noise levels and text."""
    torch.manual_seed(0)
    z, sigma = torch.randn(BATCH, 1, FRAMES, CHANNELS, SIDE, SIDE), torch.rand(BATCH, FRAMES)
    text, actions = torch.randn(BATCH, TEXT_TOKENS, TEXT_WIDTH), torch.randn(BATCH, NUM_ACTIONS, ACTION_DIM)
    conditions = Conditions(
        action=actions,
        action_valid=torch.ones_like(actions, dtype=torch.bool),
        action_frame=tuple((i + 1) / 4 for i in range(NUM_ACTIONS)),
        view_present=torch.ones(BATCH, 1, dtype=torch.bool),
        text_features=text,
    )
    wan, plain, acting = reference(), PLAIN.build(), ACTING.build()
    load_strictly(plain, from_wan(wan.state_dict(), PLAIN), "reference")
    frame_tokens = (SIDE // PATCH) ** 2
    wan_z, timestep = z[:, 0].transpose(1, 2).contiguous(), (1000 * sigma).repeat_interleave(frame_tokens, dim=1)

    def ours(model: nn.Module) -> Callable[[], None]:
        return training_step(model, lambda: model(Streams(video=z), Streams(video=sigma), conditions).video)

    def floor(config: WorldModelConfig) -> Callable[[], None]:
        model = Floor(config)
        frames = tuple(-(-(i + 1) // 4) for i in range(NUM_ACTIONS)) if config.action else ()
        mask = build_mask(config.mask, FRAMES, frame_tokens, frames)
        tokens = z.view(BATCH, FRAMES * frame_tokens, -1)
        return training_step(model, lambda: model(tokens, actions, text, mask))

    return {
        "diffusers WanTransformer3DModel": training_step(wan, lambda: wan(wan_z, timestep, text).sample),
        "ours, no action stream": ours(plain),
        "floor, no action stream": floor(PLAIN),
        "ours, with action stream": ours(acting),
        "floor, with action stream": floor(ACTING),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    args = parser.parse_args()
    torch.set_num_threads(1)
    spent = cpu_seconds(steps(), args.rounds)
    wan, plain, plain_floor, acting, acting_floor = spent.values()
    print(f"OMP_NUM_THREADS=1 python benchmarks/train_step.py --rounds {args.rounds}")
    print(f"{describe()}; medians of {args.rounds} rounds, CPU time")
    print(f"{'training step':34s} {'ms':>7s} {'against Wan':>12s} {'over floor':>11s}")
    floors = {"ours, no action stream": plain_floor, "ours, with action stream": acting_floor}
    for name, times in spent.items():
        over = f"{median_ratio(times, floors[name]):10.2f}x" if name in floors else ""
        print(f"{name:34s} {1e3 * median(times):7.1f} {median_ratio(wan, times):11.3f}x {over:>11s}")
    for name, times, aim in (("without", plain, AIM_WITHOUT_ACTIONS), ("with", acting, AIM_WITH_ACTIONS)):
        ratio = median_ratio(wan, times)
        print(f"{name} action stream {ratio:.3f}x; aim {aim:.2f}x: {'reached' if ratio >= aim else 'MISSED'}")


if __name__ == "__main__":
    main()
