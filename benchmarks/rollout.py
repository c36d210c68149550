"""A long rollout: is a late chunk made as fast as an early one, and does memory stay where it is?

    python benchmarks/rollout.py [--model RUN] [--frames 1000]

Aims: time of the last ten chunks over that of the first ten within 10 % of 1, and less than 5 MB per 1,000 frames. CPU
time of one thread; resident memory after each chunk, whose slope is fitted over the second half, after the allocator
has settled. Frames are dropped as they come, as a stream's reader does who keeps none.
"""

import argparse
import os
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import process_time

import numpy as np
import torch
from machine import describe

from simforcing import Start, WorldModel
from simforcing.generation.sampler import SamplerConfig
from simforcing.models.autoencoder import TinyAutoencoderConfig
from simforcing.models.bundle import Bundle
from simforcing.models.presets import tiny_world_model
from simforcing.types import DataSpec, NetworkInput, Resize, layout_named

EDGE = 10  # chunks at either end
TIME_AIM, MEMORY_AIM_MB = 0.1, 5.0


def random_model() -> WorldModel:
    """The size of the demo's: 64 px, windows of 17 frames and 16 actions, with simulation; random weights."""
    torch.manual_seed(0)
    layout = layout_named("tabletop")
    reader = NetworkInput.fit(np.random.default_rng(0).uniform(-0.5, 0.5, (100, layout.dim)), layout)
    spec = DataSpec(
        views=("real",),
        num_frames=17,
        fps=5.0,
        num_actions=16,
        resize=Resize(height=64, width=64),
        action=reader,
        state=reader,
        robot="tabletop_arm",
        fingerprint="random",
        sim_views=("sim",),
    )
    plain = tiny_world_model(channels=96, action_dim=reader.dim, state_dim=reader.dim)
    autoencoder = TinyAutoencoderConfig(channels=96, num_decoder_blocks=0).build()
    bundle = Bundle(model=replace(plain, sim_condition=True).build().eval(), autoencoder=autoencoder.eval(), spec=spec)
    return WorldModel(bundle, SamplerConfig(num_steps=4))


def resident_mb() -> float:
    """Memory of this process that is in RAM."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="a run's folder or a model's name; default: random weights of the demo's size")
    parser.add_argument("--frames", type=int, default=1000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = WorldModel.from_pretrained(args.model) if args.model else random_model()
    spec, rng = model.spec, np.random.default_rng(0)
    per_chunk = spec.num_frames - 1
    num_chunks = -(-args.frames // per_chunk)
    normaliser = spec.action.normaliser
    if normaliser.layout.dim == spec.action.layout.dim:
        table = normaliser.denormalise(rng.uniform(-0.5, 0.5, (num_chunks * spec.num_actions, spec.action.dim)))
    else:
        table = rng.uniform(0, 0.2, (num_chunks * spec.num_actions, spec.action.layout.dim))
    images = tuple(rng.integers(0, 256, (*model.size, 3), dtype=np.uint8) for _ in spec.streams)
    num_views = len(spec.views)
    state = np.zeros(spec.stored_state_dim, np.float32) if spec.state else None
    start = Start(images=images[:num_views], sim=images[num_views:] or None, state=state)
    times_s, memory_mb = [], []
    begun = process_time()
    for _ in model.stream(start, table.astype(np.float32)):
        times_s.append(process_time() - begun)
        memory_mb.append(resident_mb())
        begun = process_time()
    ratio = median(times_s[-EDGE:]) / median(times_s[:EDGE])
    late = np.arange(len(memory_mb))[len(memory_mb) // 2 :]
    slope_mb = float(np.polyfit(late * per_chunk, np.array(memory_mb)[late], 1)[0]) * 1000
    print(f"python benchmarks/rollout.py{f' --model {args.model}' if args.model else ''} --frames {args.frames}")
    print(describe())
    print(f"{num_chunks * per_chunk} frames, {num_chunks} chunks; {model.predictor.sampler.num_steps} steps")
    print(
        f"chunk: {1000 * median(times_s[:EDGE]):.1f} ms (first {EDGE}), {1000 * median(times_s[-EDGE:]):.1f} ms (last)"
    )
    print(f"last over first: {ratio:.3f}; aim 1 within {TIME_AIM}: {verdict(abs(ratio - 1) <= TIME_AIM)}")
    print(f"memory: {memory_mb[0]:.1f} MB after chunk 1, {memory_mb[-1]:.1f} MB at the end")
    print(f"{slope_mb:+.2f} MB per 1000 frames; aim below {MEMORY_AIM_MB:g}: {verdict(slope_mb < MEMORY_AIM_MB)}")


def verdict(reached: bool) -> str:
    return "reached" if reached else "MISSED"


if __name__ == "__main__":
    main()
