"""Should w, the strength of the simulation condition, follow the noise level, or the clip?

    python experiments/trust.py RUN                  # sample and score; resumable, minutes on one thread
    python experiments/trust.py RUN table            # Markdown from experiments/results/trust

RUN is a student of the table top with its data; its teacher is taken from the folder that the run names.

Protocol, fixed before the first number of this script was seen. (Known before: the run's own evaluation, 48 held-out
clips at 4 steps, where self-made simulation at w = 0.6 gains 0.06 dB over w = 0, and the true simulation 1.3 dB.)

Clips: the 48 held-out ones of 24 episodes, windows and seeds as in `simforcing evaluate`; for obedience the
counterfactual branches (8 starts of 4), as they are and under the next branch's actions. Steps: 3 and 10, Euler.
Simulation: `self` (the student's own rollout), `true` (all frames given, an upper bound), `wrong` (the student's
rollout of other actions: on held-out clips those of the next episode, which begin elsewhere; on branches those of the
next branch, which begin at the same place). `mixed` = every clip once with its own and once with a wrong rollout.
Velocity: v_off + w (v_on - v_off), both at the same z; a constant w is `generation.sampler.sample` bit for bit (checked
on every call of the script).

Rows.
  fixed      w = 0, 0.3, 0.6, 1.
  schedules  w by step, between 0 and 1, mean 0.6 over steps: `early` (as many first steps at 1 as that mean allows),
             `late` (the last ones), `falling` from 1 to 0.2, `rising` from 0.2 to 1. With shift 5 the last step spans
             most of sigma, so `early` and `late` come a second time with the mean over sigma, not over steps.
  per clip   w_low where an estimate is above a threshold, w_high elsewhere; an estimate, larger = less trusted, is
    spread 2, spread 4  standard deviation of the simulation's latent motion over 2 or 4 seeds, over its size
    teacher             distance of its latent motion from that of the teacher's own rollout, over the latter's size
    area                mean |log| of the robot's area in its frames over that in the given rendering (frame 0)
    gap first, gap mean size of v_on - v_off over that of v_off, in the first step, or mean over steps at w = 0.6
    own motion          1 - correlation of where it moves and where the video moves that the model makes without it
  known      per clip by whether the rollout is wrong (mixed only): what a perfect detector would gain.
  oracle     per clip the best of the four fixed w by the true moving-region PSNR: the bound of any per-clip choice.
Choices: episodes (starts) in order are dealt to two halves; threshold (quartiles of the estimate), w_low and w_high (of
the four, either may be the larger) and the best fixed w are those of highest mean moving-region PSNR on one half and
are scored on the other, both ways round. For the cost of swapped actions they are made on all held-out clips.

Scores: moving-region and whole-frame PSNR (protocol predicted-frames); sharpness (mean square of spatial differences)
and motion energy (of temporal differences), each over the true video's, per clip; cost of swapped actions in the moving
region. All as paired difference to the best fixed w, 95 % bootstrap interval by episode or start.

Verdict: a row wins if with self-made simulation its moving-region gain has an interval above 0 at both numbers of
steps, is at least 0.05 dB at one of them, and no cost of swapped actions has an interval below 0. Anything else is
not kept. Sharpness and motion energy may name a row worth trying where pictures count; they do not make it win.

Added after the numbers of 3 steps were seen (self-made simulation leaves a per-clip choice 0.01 dB to win, while a
given rendering is worth 1.5 dB at w = 1): given renderings of which half are wrong. `true wrong` = the rendering of
those other actions, `true late` = the own rendering, 4 frames late (held-out clips). The estimates are the same, but
for the spread. Rules chosen there on half of the episodes are also scored on the other half where all renderings are
right, or half are late.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from paired_lab import one_thread, say
from torch import Tensor
from trust_table import table, unit_path

from simforcing.data.clips import Clips
from simforcing.data.conditions import conditions_of
from simforcing.data.latents import encode_clips
from simforcing.evaluation.following import with_actions_of
from simforcing.evaluation.protocols import protocol_named, score_clip
from simforcing.flow.guidance import guide
from simforcing.flow.motion import motion
from simforcing.flow.schedule import sampling_sigmas
from simforcing.generation.rollout import Predictor, sim_streams
from simforcing.generation.sampler import draw_noise
from simforcing.models.bundle import load_bundle
from simforcing.models.prepared import Branch, Prepared
from simforcing.recipes.evaluate import groups_of
from simforcing.recipes.prediction import PredictionOptions, Ready, ready_to_predict
from simforcing.types import Clip
from simforcing.types.files import write_json

RESULTS = Path(__file__).parent / "results" / "trust"
STEPS = (3, 10)
FIXED = (0.0, 0.3, 0.6, 1.0)
MEAN = 0.6
NUM_SEEDS = 4
SOURCES = ("self", "true", "wrong", "true wrong", "true late")
WITHOUT = {"wrong": ("swapped",), "true wrong": ("swapped",), "true late": ("swapped", "branches")}
SEED_STEP = 1000  # between the seeds of one clip's rollouts
BATCH = 16
LATE_FRAMES = 4
ROBOT_LEVELS = 30  # grey levels from the plain background
Scores = dict[str, list[float]]
Estimates = dict[str, np.ndarray]


def schedules(num_steps: int, shift: float) -> dict[str, list[float]]:
    """w of every step, row by row."""
    equal = np.full(num_steps, 1 / num_steps)
    spans = -np.diff(sampling_sigmas(num_steps, shift).numpy())
    falling = np.linspace(1.0, 2 * MEAN - 1, num_steps)
    return {
        **{f"w = {w:g}": [w] * num_steps for w in FIXED},
        "early": filled(equal),
        "late": filled(equal[::-1])[::-1],
        "falling": falling.tolist(),
        "rising": falling[::-1].tolist(),
        "early, by sigma": filled(spans),
        "late, by sigma": filled(spans[::-1])[::-1],
    }


def filled(weights: np.ndarray) -> list[float]:
    """1 from the first step on, until the weighted mean is reached."""
    before = np.concatenate([[0.0], np.cumsum(weights)[:-1]])
    return np.clip((MEAN - before) / weights, 0, 1).tolist()


class Sampler:
    """Videos of clips under any w by step, both velocities prepared once."""

    def __init__(self, predictor: Predictor, clips: Sequence[Clip], seeds: Sequence[int], sim: Tensor) -> None:
        spec, autoencoder = predictor.spec, predictor.bundle.autoencoder
        first = encode_clips(clips, autoencoder, streams=slice(len(spec.views)), num_frames=1)
        shape = sim.shape[1:]
        self.given = torch.cat([first, first.new_zeros(len(clips), shape[0], shape[1] - 1, *shape[2:])], dim=2)
        self.noise = draw_noise(shape, seeds)
        self.sigmas = sampling_sigmas(predictor.sampler.num_steps, predictor.sampler.shift)
        conditions = conditions_of(clips, spec, autoencoder.temporal_factor, autoencoder.spatial_factor)
        branches = [Branch(conditions=conditions, gate=gate) for gate in (0.0, 1.0)]
        self.passes = Prepared(predictor.bundle.model, branches, self.given, sim, self.sigmas[:-1].tolist())

    def latents(self, weights: Sequence[float]) -> tuple[Tensor, np.ndarray]:
        """Clean latents, and the gap of the two velocities by step and clip, relative to the one without."""
        z, gaps = self.noise[:, :, 1:], []
        for i, w in enumerate(weights):
            off, on = self.passes.velocities(z, float(self.sigmas[i])).chunk(2)
            gaps.append((size(on - off) / size(off)).numpy())
            z = z + (self.sigmas[i + 1] - self.sigmas[i]).to(z.dtype) * guide(off, on, w)
        return torch.cat([self.given[:, :, :1], z], dim=2), np.stack(gaps)


def size(values: Tensor) -> Tensor:
    """Root mean square of each clip."""
    return values.flatten(1).square().mean(dim=1).sqrt()


class Rollouts:
    """Simulation of clips: the one that conditions, and what tells whether to trust it."""

    def __init__(self, student: Predictor, teacher: Predictor, seeds: Sequence[int]) -> None:
        self.student, self.teacher, self.seeds = student, teacher, list(seeds)

    def self_made(self, clips: Sequence[Clip], repeat: int = 0) -> Tensor:
        """The student's simulation latents under another seed for each repeat."""
        return self.student.sim_latents(clips, [seed + repeat * SEED_STEP for seed in self.seeds])

    def estimates(self, clips: Sequence[Clip], simulated: Sequence[Clip], sim: Tensor, own_made: bool) -> Estimates:
        """By name, of each clip; `simulated` are the clips whose actions the rollout follows."""
        repeats = range(1, NUM_SEEDS if own_made else 1)
        motions = torch.stack([motion(sim), *(motion(self.self_made(simulated, k)) for k in repeats)])
        found = {}
        for number in (2, NUM_SEEDS) if own_made else ():
            spread = motions[:number].var(dim=0).flatten(1).mean(dim=1).sqrt()
            found[f"spread {number}"] = spread / size(motions[:number].mean(dim=0))
        in_sim = [replace(c, frames=c.frames[1:2], view_present=c.view_present[1:2]) for c in clips]
        taught = motion(self.teacher.generate(in_sim, self.seeds).latents)
        found["teacher"] = size(motions[0] - taught) / size(taught)
        return {name: values.numpy() for name, values in found.items()} | {
            "area": area_change(self.student.decode(sim)[:, 0], clips)
        }


def area_change(videos: np.ndarray, clips: Sequence[Clip]) -> np.ndarray:
    """How much the robot's area in simulated frames differs from that of the given rendering."""
    found = []
    for video, clip in zip(videos, clips, strict=True):
        rendering = clip.frames[1, 0].astype(np.float64)
        background = np.median(rendering.reshape(-1, 3), axis=0)
        areas = [(np.abs(f - background).max(axis=-1) > ROBOT_LEVELS).sum() + 1 for f in (rendering, *video[1:])]
        found.append(np.abs(np.log(np.array(areas[1:]) / areas[0])).mean())
    return np.array(found)


def disagreement(sim: Tensor, video: Tensor) -> np.ndarray:
    """1 - correlation, over latent frames and places, of how much either moves."""
    maps = [motion(latents).square().mean(dim=-3).sqrt().flatten(1).numpy() for latents in (sim, video)]
    return 1 - np.array([np.corrcoef(one, other)[0, 1] for one, other in zip(*maps, strict=True)])


def scored(clips: Sequence[Clip], videos: np.ndarray) -> Scores:
    """Four numbers of each clip."""
    rules = protocol_named("predicted-frames")
    found: Scores = {"psnr": [], "moving_psnr": [], "sharpness": [], "motion": []}
    for clip, video in zip(clips, videos, strict=True):
        truth = clip.frames[0]
        frames = score_clip(truth, video, rules)
        found["psnr"].append(frames.mean("psnr"))
        found["moving_psnr"].append(frames.mean("moving_psnr"))
        found["sharpness"].append(energy(video[1:], (1, 2)) / energy(truth[1:], (1, 2)))
        found["motion"].append(energy(video, (0,)) / energy(truth, (0,)))
    return found


def energy(video: np.ndarray, axes: Sequence[int]) -> float:
    """Mean square of differences along axes."""
    return float(sum(np.square(np.diff(video.astype(np.float64), axis=axis)).mean() for axis in axes))


def check_constant(predictor: Predictor, clips: Sequence[Clip], seeds: Sequence[int], sim: Tensor) -> None:
    """A constant w is the library's sampler, bit for bit."""
    w = predictor.sampler.sim_guidance
    own, _ = Sampler(predictor, clips, seeds, sim).latents([w] * predictor.sampler.num_steps)
    if not torch.equal(own, predictor.generate(clips, seeds).latents):
        raise RuntimeError(f"w = {w} at every step differs from the sampler of the library")


def unit(kit: tuple[Predictor, Predictor], source: str, clips: list[Clip], others: list[Clip], seeds: list[int]) -> Any:
    """All rows and estimates of some clips; `others`: whose actions a wrong rollout follows."""
    student, teacher = kit
    names = schedules(student.sampler.num_steps, student.sampler.shift)
    rows: dict[str, Scores] = {name: {} for name in names}
    estimates: dict[str, list[float]] = {}
    for start in range(0, len(clips), BATCH):
        part = slice(start, start + BATCH)
        own, rollouts = clips[part], Rollouts(student, teacher, seeds[part])
        simulated = simulated_clips(source, own, others[part])
        rendered = source.startswith("true")
        if rendered:
            sim = encode_clips(simulated, student.bundle.autoencoder, streams=sim_streams(student.spec))
        else:
            sim = rollouts.self_made(simulated)
        sampler = Sampler(student, own, seeds[part], sim)
        made = {name: sampler.latents(weights) for name, weights in names.items()}
        for name, (latents, _) in made.items():
            for key, values in scored(own, student.decode(latents)[:, 0]).items():
                rows[name].setdefault(key, []).extend(values)
        found = rollouts.estimates(own, simulated, sim, own_made=not rendered)
        gaps = made["w = 0.6"][1]
        found |= {"gap first": gaps[0], "gap mean": gaps.mean(axis=0)}
        found["own motion"] = disagreement(sim, made["w = 0"][0])
        for name, values in found.items():
            estimates.setdefault(name, []).extend(map(float, values))
    return {"rows": rows, "estimates": estimates}


def simulated_clips(source: str, clips: Sequence[Clip], others: Sequence[Clip]) -> list[Clip]:
    """The clips whose actions, or whose rendering, the simulation is of; the given frames stay."""
    if source.endswith("wrong"):
        return [with_actions_of(clip, other, 1) for clip, other in zip(clips, others, strict=True)]
    if source.endswith("late"):
        frame = np.maximum(np.arange(clips[0].frames.shape[1]) - LATE_FRAMES, 0)
        return [replace(clip, frames=np.concatenate([clip.frames[:1], clip.frames[1:, frame]])) for clip in clips]
    return list(clips)


def next_of_another(clips: Sequence[Clip]) -> list[Clip]:
    """For each clip the one at the same place of the next episode."""
    names = sorted({clip.episode for clip in clips})
    at = {(clip.episode, clip.start): clip for clip in clips}
    return [at[names[(names.index(c.episode) + 1) % len(names)], c.start] for c in clips]


@torch.no_grad()
def run(ready: Ready, folder: Path) -> None:
    """Every unit that has no file yet."""
    spec = ready.spec
    clips = list(Clips(ready.held_out, spec, stride=spec.num_frames - 1))
    groups = groups_of(ready, None)
    branches = [clip for group in groups for clip in group.clips]
    following = [clip for group in groups for clip in (*group.clips[1:], group.clips[0])]
    starts = [group.start for group in groups for _ in group.clips]
    seeds = [i for i, group in enumerate(groups) for _ in group.clips]
    swapped = [with_actions_of(c, o, len(spec.views)) for c, o in zip(branches, following, strict=True)]
    sets = {
        "held-out": (clips, next_of_another(clips), [c.episode for c in clips], list(range(len(clips)))),
        "branches": (branches, following, starts, seeds),
        "swapped": (swapped, [], starts, seeds),
    }
    teacher = load_bundle(Path(ready.bundle.about["run"]["start"]["path"]))
    for num_steps in STEPS:
        student = ready.predictor.using(num_steps=num_steps)
        kit = (student, Predictor(teacher, student.sampler))
        rolled = student.sim_latents(clips[:BATCH], list(range(BATCH)))
        check_constant(student, clips[:BATCH], list(range(BATCH)), rolled)
        for source in SOURCES:
            for name, (own, others, clusters, numbers) in sets.items():
                path = unit_path(folder, num_steps, source, name)
                if name in WITHOUT.get(source, ()) or path.exists():
                    continue
                found = unit(kit, source, own, others, numbers)
                write_json(path, {"clusters": clusters, "seeds": numbers, **found})
                say(f"{path.stem}: {len(own)} clips")


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("what", nargs="?", choices=("run", "table"), default="run")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.what == "run":
        one_thread()
        run(ready_to_predict(arguments.run, PredictionOptions(), say), arguments.results)
    else:
        print("\n".join(table(arguments.results, STEPS)))


if __name__ == "__main__":
    main()
