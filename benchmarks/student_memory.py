"""Peak memory of one distillation step at batch 1: student and frozen teacher as two copies, or as one with adapters.

    OMP_NUM_THREADS=1 python benchmarks/student_memory.py

A network of more than 100 M parameters, the published window (6 x 14 x 20 latents of 48 channels), float32 on the CPU
with real tensors: teacher pass, student pass of both branches, backward pass, clipping, AdamW with its moments. Every
measurement is a process of its own (forms take turns, medians of the rounds): its largest resident size, less what
that was before anything was built, and after a small network had taken the same step, so that no library is counted.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch
from machine import describe
from torch import Tensor

from simforcing.models.adapters import BaseNetwork, LoraConfig, add_adapters
from simforcing.models.expert import ExpertConfig
from simforcing.models.world_model import WorldModelConfig, WorldModelNetwork
from simforcing.nn.batch import Batch, Conditions
from simforcing.training.distillation import Distillation, Teacher
from simforcing.training.draws import draw
from simforcing.training.optim import Optimiser
from simforcing.training.trainer import TrainerConfig

FRAMES, HEIGHT, WIDTH, CHANNELS, NUM_ACTIONS, ACTION_DIM, STATE_DIM = 6, 14, 20, 48, 20, 7, 7
TEXT_TOKENS, TEXT_WIDTH = 32, 512
FORMS = ("two copies", "adapters")
AIM = 0.6  # adapters over two copies, at most
MEBIBYTE = 2**20


def world_model(width: int, action_width: int, num_layers: int) -> WorldModelConfig:
    """A student with experts of these widths."""
    heads = {"num_heads": width // 64, "head_width": 64, "text_width": TEXT_WIDTH, "num_layers": num_layers}
    return WorldModelConfig(
        video=ExpertConfig(width=width, mlp_width=4 * width, **heads),
        action=ExpertConfig(width=action_width, mlp_width=4 * action_width, **heads),
        channels=CHANNELS,
        action_dim=ACTION_DIM,
        state_dim=STATE_DIM,
        sim_condition=True,
    )


SIZES = {"small": world_model(64, 64, 1), "large": world_model(768, 256, 12)}


def pair() -> Batch:
    """One clip in both domains."""
    shape = (1, 1, FRAMES, CHANNELS, HEIGHT, WIDTH)
    action = torch.randn(1, NUM_ACTIONS, ACTION_DIM)
    conditions = Conditions(
        action=action,
        action_valid=torch.ones_like(action, dtype=torch.bool),
        action_frame=tuple((i + 1) / 4 for i in range(NUM_ACTIONS)),
        view_present=torch.ones(1, 1, dtype=torch.bool),
        state=torch.randn(1, STATE_DIM),
        text_features=torch.randn(1, TEXT_TOKENS, TEXT_WIDTH),
    )
    observed = torch.tensor([[True] + [False] * (FRAMES - 1)])
    return Batch(clean=torch.randn(shape), sim=torch.randn(shape), observed=observed, conditions=conditions)


def student_and_teacher(form: str, config: WorldModelConfig, rank: int) -> tuple[WorldModelNetwork, Teacher]:
    """Both from the same weights."""
    student = config.build()
    if form == "adapters":
        add_adapters(student, LoraConfig(rank=rank))
        return student, BaseNetwork(student)
    teacher = replace(config, sim_condition=False).build().requires_grad_(False)
    teacher.load_state_dict({name: student.state_dict()[name] for name in teacher.state_dict()})
    return student, teacher


def training_step(form: str, config: WorldModelConfig, rank: int, *, recompute: bool) -> dict[str, int]:
    """Take one step; returns how many parameters there are and how many of them are trained."""
    student, teacher = student_and_teacher(form, config, rank)
    student.mixture.recompute = recompute
    schedule = TrainerConfig(num_steps=10, batch_size=1, learning_rate=1e-4).schedule
    optimiser = Optimiser(student, schedule)
    batch = pair()
    loss = Distillation()(student, batch, draw(batch, 0, 0, [0]), teacher)
    loss.total.backward()
    optimiser.clip()
    optimiser.step(0)
    held: dict[int, Tensor] = {id(p): p for p in student.parameters()}
    if isinstance(teacher, WorldModelNetwork):
        held |= {id(p): p for p in teacher.parameters()}
    return {"held": sum(p.numel() for p in held.values()), "trained": sum(p.numel() for p in optimiser.parameters)}


def peak_bytes() -> int:
    """Largest resident size of this process (Linux; unlike ru_maxrss it is not inherited from the parent)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def measure(form: str, size: str, rank: int, *, recompute: bool) -> dict[str, int]:
    """In this process: memory of one step above that before it."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    training_step(form, SIZES["small"], rank, recompute=recompute)
    before = peak_bytes()
    counted = training_step(form, SIZES[size], rank, recompute=recompute)
    return {**counted, "baseline": before, "peak": peak_bytes() - before}


def measured_apart(form: str, args: argparse.Namespace, *, recompute: bool) -> dict[str, int]:
    """`measure` in a fresh process."""
    command = [sys.executable, __file__, "--form", form, "--size", args.size, "--rank", str(args.rank)]
    command += ["--recompute"] if recompute else []
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def compare(args: argparse.Namespace, *, recompute: bool) -> None:
    """One line per form, and their ratio."""
    rounds = [{form: measured_apart(form, args, recompute=recompute) for form in FORMS} for _ in range(args.rounds)]
    peaks = {form: median(found[form]["peak"] for found in rounds) for form in FORMS}
    print("activations recomputed layer by layer" if recompute else "activations kept")
    for form, peak in peaks.items():
        last = rounds[-1][form]
        print(
            f"  {form:10s}  {last['held'] / 1e6:6.1f} M parameters held, {last['trained'] / 1e6:6.1f} M trained;"
            f" peak {peak / MEBIBYTE:6.0f} MiB above a baseline of {last['baseline'] / MEBIBYTE:.0f}"
        )
    ratio = peaks["adapters"] / peaks["two copies"]
    print(f"  adapters over two copies {ratio:.3f}; aim {AIM:.2f}: {'reached' if ratio <= AIM else 'MISSED'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--size", choices=tuple(SIZES), default="large")
    parser.add_argument("--form", choices=FORMS, help="measure this one here, and print JSON")
    parser.add_argument("--recompute", action="store_true", help="with --form: keep no activations inside a layer")
    args = parser.parse_args()
    if args.form:
        print(json.dumps(measure(args.form, args.size, args.rank, recompute=args.recompute)))
        return
    torch.set_num_threads(1)
    print("OMP_NUM_THREADS=1 python benchmarks/student_memory.py")
    print(f"{describe()}; {args.size} size, rank {args.rank}, medians of {args.rounds} processes")
    for recompute in (False, True):
        compare(args, recompute=recompute)


if __name__ == "__main__":
    main()
