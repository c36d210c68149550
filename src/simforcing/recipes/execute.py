"""Carries a Run out: autoencoder -> latents -> world model -> bundle. Every step resumes, or repeats exactly.

RUN/run.json                  the Run; a folder is continued only with the same one
RUN/autoencoder.safetensors   fitted autoencoder          RUN/latents.safetensors   encoded training windows
RUN/log.jsonl, checkpoints/   the trainer's               RUN/config.json, model.safetensors   the finished bundle
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from simforcing.data.clips import Clips
from simforcing.data.latents import LatentWindows
from simforcing.models.autoencoder import TinyAutoencoder, fit_autoencoder
from simforcing.models.bundle import AUTOENCODER, Bundle, save_module
from simforcing.models.taef2 import Taef2, Taef2Config
from simforcing.nn.strict import load_strictly
from simforcing.nn.tensor_file import read_tensors
from simforcing.recipes.run import Run
from simforcing.training.checkpoint import load_weights, named_differences
from simforcing.training.distributed import join_world
from simforcing.training.trainer import train
from simforcing.types import EpisodeSet, to_json
from simforcing.types.files import read_json, write_json

Report = Callable[[str], None]
RUN, LATENTS = "run.json", "latents.safetensors"


def execute(
    run: Run,
    data: EpisodeSet,
    out: Path,
    *,
    report: Report,
    command: str = "",
    overwrite: bool = False,
) -> Bundle:
    """Train to the end, or go on where a killed run stopped. Under torchrun, rank 0 alone prepares and writes.

    Args:
        data: the set that the run was made for, verified.
        out: folder of the run.
        report: takes one line at a time.
        command: stored with the result.
        overwrite: delete another run in `out` first.

    Raises:
        ValueError: `out` holds another run (the differing field is named).
    """
    out = Path(out)
    training = [episode for episode in data.episodes if episode.name not in run.held_out]
    clips = Clips(training, run.spec, stride=run.window_stride)
    with join_world(run.trainer.device) as world:
        if world.is_first:
            claim(run, out, overwrite=overwrite)
            counts = f"{len(training)} episodes, {len(run.held_out)} held out"
            report(f"{len(clips)} windows of {run.spec.num_frames} frames from {counts}")
            encoded_windows(run, clips, make_autoencoder(run, clips, out, report), out, report)
        world.wait()
        autoencoder = make_autoencoder(run, clips, out, report)
        windows = encoded_windows(run, clips, autoencoder, out, report)
        torch.manual_seed(run.seed)
        model = run.model.build()
        about = about_run(run, data)
        if world.is_first:
            millions = sum(p.numel() for p in model.parameters()) / 1e6
            report(f"world model: {millions:.2f} M parameters, {run.trainer.num_steps} steps")
        result = train(model, run.objective, windows, run.trainer, out, metadata=about)
        load_weights(model.cpu(), result.checkpoint)
        about = {**about, "command": command}
        bundle = Bundle(model=model.eval(), autoencoder=autoencoder, spec=run.spec, about=about)
        if world.is_first:
            bundle.save(out)
        world.wait()
    return bundle


def about_run(run: Run, data: EpisodeSet) -> dict[str, Any]:
    """What a run was made of, as JSON values; equal whenever the run is continued."""
    return {
        "recipe": run.recipe,
        "seed": run.seed,
        "data": str(data.root),
        "held_out": list(run.held_out),
        "rejected": [f"{item.name}: {item.reason}" for item in data.rejected],
        "run": to_json(run),
    }


def claim(run: Run, out: Path, *, overwrite: bool = False) -> None:
    """Write run.json, or check that the folder's own is the same run."""
    mine = json.loads(json.dumps(to_json(run)))
    path = out / RUN
    if overwrite and path.exists():
        shutil.rmtree(out)
    if not path.exists():
        write_json(path, mine)
        return
    differences = named_differences(read_json(path), mine)
    if differences:
        raise ValueError(f"{out} holds another run: {differences[0]}; choose another --out, or --overwrite")


def make_autoencoder(run: Run, clips: Clips, out: Path, report: Report) -> TinyAutoencoder | Taef2:
    """The run's autoencoder: read back if it is there, else fitted on evenly spread training windows and saved."""
    plan, path = run.autoencoder, out / AUTOENCODER
    if path.exists():
        autoencoder = Taef2() if isinstance(plan.config, Taef2Config) else plan.config.build()
        load_strictly(autoencoder, read_tensors(path), str(path))
        return autoencoder.eval()
    chosen = np.unique(np.linspace(0, len(clips) - 1, min(plan.max_clips, len(clips))).round().astype(int))
    frames = np.concatenate([clips[i].frames for i in chosen.tolist()])
    video = torch.from_numpy(frames).movedim(-1, -3).contiguous()
    torch.manual_seed(run.seed)
    autoencoder = plan.config.build()
    if isinstance(autoencoder, Taef2):
        autoencoder.fit_statistics(video)
    else:
        autoencoder.initialise(video, seed=run.seed)
        report(f"autoencoder: closed form from {len(video)} clips, then {plan.num_steps} steps")
        if plan.num_steps:
            every = max(1, plan.num_steps // 5)
            fit_autoencoder(
                autoencoder,
                video,
                num_steps=plan.num_steps,
                batch_size=plan.batch_size,
                lr=plan.learning_rate,
                seed=run.seed,
                progress=lambda step, loss: (
                    report(f"autoencoder: step {step}/{plan.num_steps}, loss {loss:.4g}") if step % every == 0 else None
                ),
            )
    save_module(path, autoencoder)
    return autoencoder.eval()


def encoded_windows(
    run: Run, clips: Clips, autoencoder: TinyAutoencoder | Taef2, out: Path, report: Report
) -> LatentWindows:
    """All training windows as latents with their conditions, from the run's file where it is there."""
    path = out / LATENTS
    if path.exists():
        return LatentWindows.load(path)

    def progress(done: int, total: int) -> None:
        report(f"encoding windows: {done}/{total}")

    windows = LatentWindows.encode(clips, autoencoder, run.spec, progress=progress)
    windows.save(path)
    return windows
