"""Carries a Run out: autoencoder -> latents -> world model -> bundle. Every step resumes, or repeats exactly.

RUN/run.json                  the Run; a folder is continued only with the same one
RUN/autoencoder.safetensors   fitted autoencoder          RUN/latents/   encoded windows, unless a cache is shared
RUN/log.jsonl, checkpoints/   the trainer's               RUN/config.json, model.safetensors   the finished bundle
"""

import json
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from simforcing.data.clips import Clips
from simforcing.data.latent_cache import cached_windows
from simforcing.data.latents import LatentWindows
from simforcing.data.pair_streams import SIM
from simforcing.data.sim_background import look_to_json, simulation_look
from simforcing.generation.familiarity import familiarity_of
from simforcing.models.autoencoder import TinyAutoencoder, fit_autoencoder
from simforcing.models.bundle import AUTOENCODER, CONFIG, MODEL, Bundle, read_module, save_module
from simforcing.models.taef2 import Taef2, Taef2Config
from simforcing.nn.strict import load_strictly
from simforcing.recipes.lots import training_clips
from simforcing.recipes.output import require_apart, require_writable
from simforcing.recipes.run import Run
from simforcing.recipes.start import bound_objective, finished_model, start_autoencoder, starting_model
from simforcing.recipes.validation import held_out_loss
from simforcing.training.checkpoint import CHECKPOINT_FOLDER, named_differences, sole_owner
from simforcing.training.distillation import Distillation
from simforcing.training.distributed import join_world
from simforcing.training.trainer import LOG_NAME, train
from simforcing.types import EpisodeSet, to_json
from simforcing.types.files import PARTIAL_SUFFIX, read_json, write_json
from simforcing.types.progress import Report

RUN, LATENTS = "run.json", "latents"
PREPARE_LOCK = ".prepare.lock"
LOCKS = (PREPARE_LOCK, ".lock")
# All that a run, and the commands that use it, write into its folder beside run.json.
WRITTEN = (AUTOENCODER, MODEL, CONFIG, LOG_NAME)
WRITTEN_FOLDERS = (LATENTS, CHECKPOINT_FOLDER, "tensorboard", "evaluation", "generated")


def execute(
    run: Run,
    data: EpisodeSet,
    out: Path,
    *,
    report: Report,
    command: str = "",
    overwrite: bool = False,
    cache: Path | None = None,
) -> Bundle:
    """Train to the end, or go on where a killed run stopped. Under torchrun, rank 0 alone prepares and writes.

    Args:
        data: the set that the run was made for, verified.
        out: folder of the run.
        report: takes one line at a time.
        command: stored with the result.
        overwrite: delete another run in `out` first, and nothing else there.
        cache: folder of encoded windows that several runs share; None: the run's own.

    Raises:
        ValueError: `out` holds another run (the differing field is named), cannot be written to, or holds the data set
            or lies in it; or the cache is of another autoencoder.
    """
    out = Path(out)
    latents = out / LATENTS if cache is None else Path(cache)
    require_writable(out)
    require_apart(out, data.root)
    require_writable(latents)
    require_apart(latents, data.root, option="--cache")
    if run.start is not None and out.resolve() == Path(run.start.path).resolve():
        raise ValueError(f"{out} is the folder of the teacher that this run starts from; choose another --out")
    training, prepared = run.training(data.episodes), None
    with join_world(run.trainer.device) as world, ExitStack() as stack:
        if world.size > 1 and run.variants and isinstance(run.objective, Distillation):
            raise ValueError(
                "variants is true: clips without real video fall unevenly on several processes, whose mean would"
                " not be that of one; train with variants=false, or in one process"
            )
        if world.is_first:
            stack.enter_context(sole_owner(out, PREPARE_LOCK))
            claim(run, out, overwrite=overwrite)
            prepared = prepare_files(run, data, out, latents, report)
        world.wait()
        autoencoder, windows, held_out = prepared or prepare_files(run, data, out, latents, report)
        model = starting_model(run)
        objective = bound_objective(run, model, world.device)
        if world.is_first:
            millions = sum(p.numel() for p in model.parameters()) / 1e6
            report(f"world model: {millions:.2f} M parameters, {run.trainer.num_steps} steps")
        validate = held_out_loss(run, objective, held_out) if held_out is not None else None
        metadata = {"run": json.loads(json.dumps(to_json(run)))}
        about = about_run(run, data, command=command, training=[episode.name for episode in training])
        if world.is_first:  # before training: a frame that cannot be decoded must not cost it
            about["familiarity"] = to_json(familiarity_of(training, run.spec, autoencoder))
        result = train(model, objective, windows, run.trainer, out, validate=validate, metadata=metadata)
        model = finished_model(run, model, result.checkpoint)
        bundle = Bundle(model=model, autoencoder=autoencoder, spec=run.spec, about=about)
        if world.is_first:
            bundle.save(out)
        world.wait()
    return bundle


def prepare_files(
    run: Run, data: EpisodeSet, out: Path, latents: Path, report: Report
) -> tuple[TinyAutoencoder | Taef2, LatentWindows, LatentWindows | None]:
    """(autoencoder, training windows, held-out windows if any fits), made once and read back afterwards."""
    held_out = [episode for episode in data.episodes if episode.name in run.held_out]
    lots = training_clips(run, data)
    held_clips = Clips(held_out, run.spec, stride=run.window_stride, fingerprint=data.fingerprint)
    if not (out / AUTOENCODER).exists():
        say_windows(run, data, lots, report)
    autoencoder = make_autoencoder(run, data, out, report)

    def encoded(clips: Clips) -> LatentWindows:
        return cached_windows(clips, autoencoder, run.spec, latents, report=report)

    windows = LatentWindows.joined([encoded(clips) for clips in lots])
    return autoencoder, windows, encoded(held_clips) if len(held_clips) else None


def say_windows(run: Run, data: EpisodeSet, lots: list[Clips], report: Report) -> None:
    """How many windows of how many episodes, and which episodes have none."""
    training = run.training(data.episodes)
    unused = sorted({e.name for e in training} - {episode.name for episode, _ in lots[0].keys})
    if unused:
        report(f"too short for a window of {run.spec.num_frames} frames: {', '.join(unused)}")
    counts = f"{len(training) - len(unused)} episodes, {len(run.held_out)} held out"
    report(f"{len(lots[0])} windows of {run.spec.num_frames} frames from {counts}")
    if run.variants_fingerprint is None and run.spec.views == (SIM,):
        report(f"no perturbed variants: there is no set of them beside {data.root}")
    for clips in lots[1:]:
        report(f"{len(clips)} windows of {len({e.name for e, _ in clips.keys})} perturbed variants")


def about_run(run: Run, data: EpisodeSet, *, command: str, training: list[str]) -> dict[str, Any]:
    """How a bundle was made, as JSON values: what a later command needs beside the networks."""
    root = Path(data.root)
    look = simulation_look(data, run.spec.sim_views)
    return {
        "recipe": run.recipe,
        "seed": run.seed,
        "command": command,
        "data": str(root.resolve()) if root.exists() else str(data.root),
        "training": training,
        "held_out": list(run.held_out),
        "rejected": [f"{item.name}: {item.reason}" for item in data.rejected],
        "frame_sizes": frame_sizes(data, run.spec.views),
        **({} if look is None else {"simulation": look_to_json(look)}),
        "run": to_json(run),
    }


def frame_sizes(data: EpisodeSet, views: Sequence[str]) -> dict[str, tuple[int, int]]:
    """View -> (height, width) of its stored frames, of the first episode that has it."""
    stored = {view.name: view.frames.size for episode in reversed(data.episodes) for view in episode.views}
    return {name: stored[name] for name in views if name in stored}


def claim(run: Run, out: Path, *, overwrite: bool = False) -> None:
    """Write run.json, or check that the folder's own is the same run.

    Raises:
        ValueError: the folder holds another run, or other files and no run.
    """
    mine = json.loads(json.dumps(to_json(run)))
    path = out / RUN
    if not path.exists():
        ours = {*LOCKS, *(item.name for item in half_written(out))}
        foreign = sorted(item.name for item in out.iterdir() if item.name not in ours)
        if foreign:
            raise ValueError(f"{out} holds no run but other files ({foreign[0]}, ...); choose another --out")
    elif overwrite:
        clear(out)
    for item in half_written(out):
        item.unlink(missing_ok=True)
    if overwrite or not path.exists():
        write_json(path, mine)
        return
    then = read_json(path)
    if not isinstance(then, dict):
        raise ValueError(f"{path}: damaged: expected an object, found {type(then).__name__}; --overwrite starts anew")
    differences = named_differences(then, mine)
    if differences:
        raise ValueError(f"{out} holds another run: {differences[0]}; choose another --out, or --overwrite")


def half_written(out: Path) -> list[Path]:
    """What killed processes were about to write into a run's folder: nobody is, while its lock is held."""
    return [item for name in (*WRITTEN, RUN) for item in out.glob(f"{name}.[0-9]*{PARTIAL_SUFFIX}")]


def clear(out: Path) -> None:
    """Delete what a run wrote, and nothing else. Its description stays, to be replaced."""
    for name in WRITTEN:
        (out / name).unlink(missing_ok=True)
    for item in half_written(out):
        item.unlink(missing_ok=True)
    for name in WRITTEN_FOLDERS:
        folder = out / name
        if folder.is_dir() and not folder.is_symlink():
            shutil.rmtree(folder)
        else:
            folder.unlink(missing_ok=True)


def make_autoencoder(run: Run, data: EpisodeSet, out: Path, report: Report) -> TinyAutoencoder | Taef2:
    """The run's autoencoder: read back, or its start's, or fitted on evenly spread training windows and saved."""
    plan, path = run.autoencoder, out / AUTOENCODER
    known = path if path.exists() or run.start is None else start_autoencoder(run.start)
    if known.exists():
        autoencoder = Taef2() if isinstance(plan.config, Taef2Config) else plan.config.build()
        load_strictly(autoencoder, read_module(known), str(known))
        if known != path:
            save_module(path, autoencoder)
        return autoencoder.eval()
    spec = replace(run.spec, views=plan.views, sim_views=()) if plan.views else run.spec
    clips = Clips(run.training(data.episodes), spec, stride=run.window_stride)
    chosen = np.unique(np.linspace(0, len(clips) - 1, min(plan.max_clips, len(clips))).round().astype(int))
    report(f"autoencoder: fitting on {len(chosen)} clips")
    frames = np.concatenate([clips[i].frames for i in chosen.tolist()])
    video = torch.from_numpy(frames).movedim(-1, -3).contiguous()
    torch.manual_seed(run.seed)
    autoencoder = plan.config.build()
    if isinstance(autoencoder, Taef2):
        autoencoder.fit_statistics(video)
    else:
        autoencoder.initialise(video, seed=run.seed)
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
