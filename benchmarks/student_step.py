"""Both branches of a student in one pass against a pass each (forward and backward), at batch 1 and the recipe's 16.

    OMP_NUM_THREADS=1 python benchmarks/student_step.py

The table top's network and clips: 5 x 8 x 8 latents of 96 channels, 16 actions. The simulation branch has no
condition path, the real one has it open. The third way shares what depends on neither branch between two passes; it
tells how much of the gain is sharing and how much is doing things at once. All three give the same numbers
(checked in float64). Ways take turns; CPU time is counted, ratios are medians of the rounds' ratios.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from statistics import median

import torch
from machine import cpu_seconds, describe, median_ratio
from torch import Tensor, nn

from simforcing.models.presets import tiny_world_model
from simforcing.models.text import encode_bytes
from simforcing.models.world_model import Context, WorldModelNetwork
from simforcing.nn.batch import Conditions, SimCondition, Streams

FRAMES, SIDE, CHANNELS, NUM_ACTIONS, ACTION_DIM, STATE_DIM = 5, 8, 96, 16, 7, 7
TASK = "push the yellow cylinder to the right"
AIMS = {1: 1.2, 16: 1.0}  # batch -> separate passes over one pass, at least
TOLERANCE = 1e-10


class Student:
    """A student with an open condition path, and one batch of pairs that share noise, sigma, actions and text."""

    def __init__(self, batch: int, dtype: torch.dtype) -> None:
        torch.manual_seed(0)
        config = tiny_world_model(channels=CHANNELS, action_dim=ACTION_DIM, state_dim=STATE_DIM)
        self.model: WorldModelNetwork = replace(config, sim_condition=True).build().to(dtype)
        for parameter in (*self.model.sim_injection.parameters(), *self.model.video_head.linear.parameters()):
            nn.init.normal_(parameter, std=0.02)  # both start at zero, where nothing could be compared
        shape = (batch, 1, FRAMES, CHANNELS, SIDE, SIDE)
        self.clean_sim, self.z_sim, self.z_real = (torch.randn(shape, dtype=dtype) for _ in range(3))
        self.sigma = torch.rand(batch, 1, dtype=dtype).repeat(1, FRAMES)
        self.sigma[:, 0] = 0
        self.gate = torch.ones(batch, dtype=dtype)
        action = torch.randn(batch, NUM_ACTIONS, ACTION_DIM, dtype=dtype)
        self.conditions = Conditions(
            action=action,
            action_valid=torch.ones_like(action, dtype=torch.bool),
            action_frame=tuple((i + 1) / 4 for i in range(NUM_ACTIONS)),
            view_present=torch.ones(batch, 1, dtype=torch.bool),
            state=torch.randn(batch, STATE_DIM, dtype=dtype),
            text=encode_bytes([TASK] * batch),
        )

    def together(self) -> tuple[Tensor, Tensor]:
        """(simulation, real) velocities, one pass."""
        sim = SimCondition(latents=self.clean_sim, gate=torch.cat([0 * self.gate, self.gate]))
        z, sigma = torch.cat([self.z_sim, self.z_real]), torch.cat([self.sigma, self.sigma])
        video = self.model(Streams(video=z), Streams(video=sigma), self.conditions, sim).video
        return video.chunk(2)

    def apart(self, *, shares_context: bool = False) -> tuple[Tensor, Tensor]:
        """The same by a pass each."""
        context = self.model.context(self.conditions, self.z_sim) if shares_context else None
        sim = SimCondition(latents=self.clean_sim, gate=self.gate)
        return self._pass(self.z_sim, None, context), self._pass(self.z_real, sim, context)

    def _pass(self, z: Tensor, sim: SimCondition | None, context: Context | None) -> Tensor:
        return self.model(Streams(video=z), Streams(video=self.sigma), self.conditions, sim, context).video

    def training_step(self, velocities: Callable[[], tuple[Tensor, Tensor]]) -> Callable[[], None]:
        def step() -> None:
            self.model.zero_grad()
            sim, real = velocities()
            (sim.square().mean() + real.square().mean()).backward()

        return step

    def ways(self) -> dict[str, Callable[[], tuple[Tensor, Tensor]]]:
        return {
            "a pass each": self.apart,
            "a pass each, context shared": lambda: self.apart(shares_context=True),
            "one pass": self.together,
        }


def largest_difference() -> float:
    """Of velocities and gradients between the ways, in float64, over the largest value."""
    student = Student(2, torch.float64)
    results = []
    for velocities in student.ways().values():
        student.training_step(velocities)()
        gradients = [p.grad for p in student.model.parameters() if p.grad is not None]
        with torch.no_grad():
            results.append([*velocities(), *gradients])
    first, *others = results
    return max(
        float((a - b).abs().max() / a.abs().max().clamp_min(1e-300))
        for other in others
        for a, b in zip(first, other, strict=True)
    )


def compare(batch: int, rounds: int) -> None:
    """One line per way, and whether the aim is reached where there is one."""
    student = Student(batch, torch.float32)
    spent = cpu_seconds({name: student.training_step(way) for name, way in student.ways().items()}, rounds)
    separate, *_, one = spent.values()
    for name, times in spent.items():
        print(f"batch {batch:2d}, {name:28s} {1e3 * median(times):8.2f} ms  {median_ratio(separate, times):.3f}x")
    if (aim := AIMS.get(batch)) is not None:
        ratio = median_ratio(separate, one)
        print(f"batch {batch:2d}: one pass {ratio:.3f}x; aim {aim:.1f}x: {'reached' if ratio >= aim else 'MISSED'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--batches", type=int, nargs="+", default=list(AIMS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"OMP_NUM_THREADS=1 python benchmarks/student_step.py --rounds {args.rounds}")
    print(f"{describe()}; medians, CPU time")
    found = largest_difference()
    print(f"largest relative difference of velocities and gradients, float64: {found:.1e}")
    if found > TOLERANCE:
        raise SystemExit(f"the ways differ by {found:.1e}, more than {TOLERANCE:.0e}")
    for batch in args.batches:
        compare(batch, args.rounds * max(1, 4 // batch))


if __name__ == "__main__":
    main()
