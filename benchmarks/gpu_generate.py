"""The 5 B model on one CUDA device: exactness, seconds per clip, memory, share of the device's matrix rate.

    python benchmarks/gpu_generate.py [--device cuda] [--no-compile]

Random weights of the published size in bfloat16, one clip of 21 x 224 x 320 at 20 + 20 steps under guidance, decoding
included where an autoencoder of that size is at hand (TAEF2 weights by --taef2; without them the decoder is left out
and the line says so), segmentation not. Aim: at most 0.5 s on an H200, where 4.1 s are published. Ways: plain passes
(tests/generation/plain_sampler.py), ours, ours compiled with CUDA graphs. Without a CUDA device it says so, and
--device cpu --tiny runs the same path small.
"""

import argparse
from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch
from generate import large, operations, tiny
from torch import Tensor

from simforcing.models.prepared import compile_passes
from simforcing.models.taef2 import Taef2

AIM_S, PUBLISHED_S = 0.5, 4.1
TOLERANCE = {torch.bfloat16: 0.1, torch.float32: 1e-3}  # relative to the largest latent


def synchronise(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(way: Callable[[], object], device: torch.device, rounds: int) -> float:
    """Median wall time of one clip after two that warm up."""
    spent = []
    for i in range(rounds + 2):
        synchronise(device)
        begun = perf_counter()
        way()
        synchronise(device)
        if i >= 2:
            spent.append(perf_counter() - begun)
    return median(spent)


def matrix_rate(device: torch.device, dtype: torch.dtype, side: int) -> float:
    """Measured operations/s of square products."""
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    return 2 * side**3 / seconds(lambda: a @ b, device, 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-compile", action="store_true", help="leave out the compiled way")
    parser.add_argument("--tiny", action="store_true", help="the table top's network instead of the 5 B one")
    parser.add_argument("--taef2", help="folder of TAEF2 weights, to include decoding")
    args = parser.parse_args()
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        print("no CUDA device here: nothing measured (--device cpu --tiny runs the path small)")
        return
    device = torch.device(args.device)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    make = (lambda **how: tiny(1, 16, **how)) if args.tiny else large
    generation = make(device=args.device, dtype=dtype)
    decoder = None if args.taef2 is None else Taef2.from_pretrained(args.taef2).to(device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}, {dtype}; {'tiny' if args.tiny else '5 B'}; medians of {args.rounds}")

    plain, ours = generation.plain(), generation.ours()
    found = float((ours - plain).abs().max() / plain.abs().max())
    print(f"largest difference from plain passes, relative: {found:.1e} ({dtype})")
    if not found < TOLERANCE[dtype]:
        raise SystemExit(f"the ways differ by {found:.1e}, more than {TOLERANCE[dtype]:.0e}")

    def decoded(way: Callable[[], Tensor]) -> Callable[[], object]:
        return way if decoder is None else lambda: decoder.decode(way()[:, 0].float())

    plain_count, ours_count = operations(make(device="meta", dtype=dtype))
    rate = matrix_rate(device, dtype, 8192 if device.type == "cuda" else 512)
    print(f"matrix rate {rate / 1e12:.1f} TFLOP/s; {plain_count / 1e12:.3g} -> {ours_count / 1e12:.3g} TFLOP a clip")
    print(f"floor at that rate: {ours_count / rate:.3f} s")
    ways = {"plain passes": (generation.plain, plain_count), "ours": (generation.ours, ours_count)}
    if not args.no_compile:
        ways["ours, compiled"] = (generation.ours, ours_count)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    best = float("inf")
    for name, (way, count) in ways.items():
        if name == "ours, compiled":
            compile_passes(generation.model)
        spent = seconds(decoded(way), device, args.rounds)
        best = min(best, spent)
        print(f"{name:15s} {spent:7.3f} s a clip, {count / spent / rate:.0%} of the matrix rate")
    if device.type == "cuda":
        print(f"peak memory {torch.cuda.max_memory_allocated(device) / 2**30:.1f} GiB")
    print("decoding " + ("not included (give --taef2)" if decoder is None else "included"))
    if not args.tiny:
        print(f"aim {AIM_S} s (published {PUBLISHED_S} s): {'reached' if best <= AIM_S else 'MISSED'}")


if __name__ == "__main__":
    main()
