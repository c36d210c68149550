"""Our sampler against the published one: clips/s at 20 + 20 steps with guidance, and the operations that each needs.

    OMP_NUM_THREADS=1 python benchmarks/generate.py

The published way: a whole pass per step of the simulation, two per step of the real video, nothing computed once
(tests/generation/plain_sampler.py). The table top's network and clips: 5 x 8 x 8 latents of 96 channels, 16 actions.
Both give the same latents (checked in float64). They take turns; CPU time is counted, ratios are medians of the rounds'
ratios. Operations are counted on the meta device, for the tiny network and for the 5 B one at 21 x 224 x 320: two for
each multiplication of matrices and attention, nothing else; decoding left out. Their ratio is what a machine that
does nothing but multiply would gain.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch
from machine import cpu_seconds, describe, median_ratio
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from simforcing.generation.sampler import SamplerConfig, sample
from simforcing.models.prepared import Branch, Prepared
from simforcing.models.presets import tiny_world_model, wan_5b_world_model
from simforcing.models.world_model import WorldModelConfig
from simforcing.nn.batch import Conditions

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "generation"))
from plain_sampler import plain_sample

STEPS, W = 20, 0.6
AIMS = {(1, 16): 2.2, (16, 128): 1.4}  # (batch, text tokens) -> plain over ours, at least
SHARE_OF_COUNTED = 0.95  # of the ratio of operations: what counts as reached in large batches
H200_RATE = 989e12  # operations/s of bfloat16 products
TOLERANCE = 1e-10


class Generation:
    """A student with an open condition path, and what it needs for a batch of clips."""

    def __init__(
        self,
        config: WorldModelConfig,
        *,
        grid: tuple[int, int, int],
        num_actions: int,
        batch: int,
        num_text: int,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
    ) -> None:
        torch.manual_seed(0)
        frames, height, width = grid
        with torch.device(device):
            self.model = replace(config, sim_condition=True, text=None).build().to(dtype).eval()
            if device != "meta":
                zeros = [parameter for parameter in self.model.parameters() if not parameter.any()]
                for parameter in zeros:  # the condition path and the head start there: nothing could be compared
                    nn.init.normal_(parameter, std=0.02)
            shape = (batch, 1, frames, config.channels, height, width)
            self.real, self.sim, self.noise = (torch.randn(shape, dtype=dtype) for _ in range(3))
            self.observed = torch.zeros(batch, frames, dtype=torch.bool)
            self.observed[:, 0] = True
            action = torch.randn(batch, num_actions, config.action_dim, dtype=dtype)
            self.conditions = Conditions(
                action=action,
                action_valid=torch.ones_like(action, dtype=torch.bool),
                action_frame=tuple((i + 1) * (frames - 1) / num_actions for i in range(num_actions)),
                view_present=torch.ones(batch, 1, dtype=torch.bool),
                state=torch.randn(batch, config.state_dim, dtype=dtype),
                text_features=torch.randn(batch, num_text, config.video.text_width, dtype=dtype),
            )

    def ours(self) -> Tensor:
        """Simulation, then real video under guidance."""
        how = SamplerConfig(num_steps=STEPS, sim_guidance=W)
        sim = sample(self.model, self.sim, self.observed, self.conditions, self.noise, how)
        return sample(self.model, self.real, self.observed, self.conditions, self.noise, how, sim)

    def plain(self) -> Tensor:
        """The same by the published passes."""
        sim = plain_sample(self.model, self.sim, self.conditions, self.noise, STEPS)
        return plain_sample(self.model, self.real, self.conditions, self.noise, STEPS, sim=sim, w=W)


def tiny(batch: int, num_text: int, **how: object) -> Generation:
    """The table top's network and clips."""
    config = tiny_world_model(channels=96, action_dim=10, state_dim=10)
    return Generation(config, grid=(5, 8, 8), num_actions=16, batch=batch, num_text=num_text, **how)


def large(**how: object) -> Generation:
    """The published network and clip."""
    return Generation(wan_5b_world_model(), grid=(6, 14, 20), num_actions=20, batch=1, num_text=128, **how)


def operations(generation: Generation) -> tuple[float, float]:
    """(plain, ours) of one batch; `generation` lies on the meta device, where numbers cannot decide anything."""
    branches = [Branch(conditions=generation.conditions, gate=gate) for gate in (0.0, 1.0)]

    def ours(branches: list[Branch], given: Tensor, sim: Tensor | None) -> None:
        passes = Prepared(generation.model, branches, given, sim, [0.5])
        for _ in range(STEPS):
            passes.velocities(given[:, :, 1:], 0.5)

    with FlopCounterMode(display=False) as plain:
        generation.plain()
    with FlopCounterMode(display=False) as prepared, torch.no_grad():
        ours(branches[:1], generation.sim, None)
        ours(branches, generation.real, generation.sim)
    return float(plain.get_total_flops()), float(prepared.get_total_flops())


def compare(batch: int, num_text: int, rounds: int) -> None:
    """Clips/s of both, and whether the aim is reached."""
    generation = tiny(batch, num_text)
    spent = cpu_seconds({"plain": generation.plain, "ours": generation.ours}, rounds)
    ratio = median_ratio(spent["plain"], spent["ours"])
    plain, ours = operations(tiny(batch, num_text, device="meta"))
    for name, times in spent.items():
        print(f"batch {batch:2d}, {num_text:3d} text tokens, {name:5s} {batch / median(times):8.2f} clips/s")
    aim = AIMS[batch, num_text]
    is_reached = ratio >= aim or (batch > 1 and ratio >= SHARE_OF_COUNTED * plain / ours)
    print(
        f"batch {batch:2d}, {num_text:3d} text tokens: {ratio:.2f}x; operations {plain / ours:.2f}x"
        f" ({plain / batch / 1e9:.2f} -> {ours / batch / 1e9:.2f} GFLOP a clip);"
        f" aim {aim:.1f}x: {'reached' if is_reached else 'MISSED'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"OMP_NUM_THREADS=1 python benchmarks/generate.py --rounds {args.rounds}")
    print(f"{describe()}; medians, CPU time; {STEPS} + {STEPS} steps, w {W}")
    exact = tiny(2, 16, dtype=torch.float64)
    plain = exact.plain()
    found = float((exact.ours() - plain).abs().max() / plain.abs().max())
    print(f"largest relative difference of latents, float64: {found:.1e}")
    if found > TOLERANCE:
        raise SystemExit(f"the ways differ by {found:.1e}, more than {TOLERANCE:.0e}")
    for batch, num_text in AIMS:
        compare(batch, num_text, max(3, args.rounds // batch))
    plain_count, ours_count = operations(large(device="meta", dtype=torch.bfloat16))
    print(
        f"5 B, 21 x 224 x 320: {plain_count / 1e12:.0f} -> {ours_count / 1e12:.0f} TFLOP a clip"
        f" ({plain_count / ours_count:.2f}x); floor {ours_count / H200_RATE:.2f} s at an H200's data sheet rate"
    )


if __name__ == "__main__":
    main()
