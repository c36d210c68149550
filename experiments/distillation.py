"""Does latent-motion distillation help, and with how much real data? Protocol, runs and table.

    python experiments/distillation.py FOLDER run [--part 0/2]     # resumable; parts side by side
    python experiments/distillation.py FOLDER cost                 # what a step of each arm costs, by turns
    python experiments/distillation.py FOLDER table                # hierarchical bootstrap
    python experiments/distillation.py FOLDER probe PAIRS          # obedience and motion energy on counterfactual PAIRS

Protocol (fixed before the first run): 608 table-top pairs of real-like looks (appearance light, one shared camera,
grey simulation). Each seed draws its own 512 training, 32 development and 64 test scenes. For each seed one teacher
learns from all 512 simulations and their variants; its autoencoder and normalisers, which all arms share, are fitted on
the training scenes of both domains. Students start from it and learn from the first N real episodes (by hash), N in 8,
32, 128, 512; all arms have the same steps, batches and noise, and the published weights. Arms:

    joint      flow matching in both domains
    motion     + latent motion of the simulation teacher
    full       + the simulation condition (w 0.6, self-made simulation)
    self       as motion, the target is the student's own simulation branch        (control)
    shuffled   as motion, the target is the teacher's motion of another clip       (control)
    true       as motion, the target is the motion of the true simulation latents  (bound)

Figures: PSNR of predicted frames on test scenes, difference to joint of the same seed and episode; interval from
resampling seeds, then episodes. Equal time is read from the development curves: each arm at the CPU time at which the
joint arm of its seed and N ended, by what a step of each arm costs (measured by turns in one process).
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from paired_lab import Scenes, curve, done, one_thread, parted, say, scores, trained

from simforcing.data.clips import Clips
from simforcing.data.counterfactuals import counterfactual_groups
from simforcing.data.latents import LatentWindows
from simforcing.data.open import open_dataset
from simforcing.evaluation.following import CounterfactualGroup, cost_of_swapped_actions
from simforcing.evaluation.protocols import protocol_named
from simforcing.generation.rollout import Predictor
from simforcing.generation.sampler import stored_sampler
from simforcing.models.bundle import bundle_sha256, load_bundle
from simforcing.recipes.run import Run, RunOptions
from simforcing.recipes.start import bound_objective, starting_model
from simforcing.training.draws import draw
from simforcing.types import EpisodeSet, from_json
from simforcing.types.files import read_json, write_json

SIZES = (8, 32, 128, 512)
SEEDS = (0, 1, 2)
STEPS, TEACHER_STEPS, BATCH = 240, 700, 12
# Fixed here, whatever the recipes' defaults become.
TEACHER = ("trainer.batch_size=16",)
PUBLISHED = ("objective.flow_sim=0.1",)
NO_CONDITION = ("objective.condition=null", "model.sim_condition=false")
ARMS = {
    "joint": ("objective.distill=null", *NO_CONDITION),
    "motion": NO_CONDITION,
    "full": (),
    "self": ("objective.distill.teacher=self", *NO_CONDITION),
    "shuffled": ("objective.distill.teacher=shuffled", *NO_CONDITION),
    "true": ("objective.distill.teacher=true", *NO_CONDITION),
}
SMALL = tuple(
    f"model.{expert}.{name}={value}"
    for expert, width in (("video", 96), ("action", 48))
    for name, value in (("width", width), ("mlp_width", 4 * width), ("num_layers", 3), ("num_heads", 3))
)


def units() -> list[tuple[int, int, str]]:
    """(seed, number of real episodes, arm), the most telling first."""
    return [(seed, size, arm) for seed in SEEDS for size in (32, 512, 8, 128) for arm in ARMS]


def run(folder: Path, part: int, num_parts: int) -> None:
    """All units of one part; every unit's result is a file."""
    one_thread()
    scenes = Scenes(root=folder / "data", num_training=512, num_development=32, num_test=64)
    data = scenes.open()
    for seed in SEEDS:
        if seed % num_parts == part:  # teachers of a part's own seeds first; the other part waits for none of them
            teacher_of(folder, data, scenes, seed)
    for seed, size, arm in units():
        path = folder / "results" / f"{arm}-{size}-{seed}.json"
        if seed % num_parts != part or path.exists():
            continue
        write_json(path, unit(folder, data, scenes, seed, size, arm))
        say(f"{path.name} {done(path)['mean']:.3f} dB")


def teacher_of(folder: Path, data: EpisodeSet, scenes: Scenes, seed: int) -> Path:
    """The teacher of a seed, trained once."""
    out = folder / "runs" / f"teacher-{seed}"
    if not (out / "config.json").exists():
        options = RunOptions(
            seed=seed, held_out=scenes.num_held_out, num_steps=TEACHER_STEPS, cache=str(folder / f"latents-{seed}")
        )
        trained(data, "teacher", replace(options, settings=(*SMALL, *TEACHER)), out)
        say(f"teacher {seed} is there")
    return out


def unit(folder: Path, data: EpisodeSet, scenes: Scenes, seed: int, size: int, arm: str) -> dict:
    """One student, trained and scored."""
    out = folder / "runs" / f"{arm}-{size}-{seed}"
    options = RunOptions(
        seed=seed,
        held_out=scenes.num_held_out,
        num_steps=STEPS,
        batch_size=BATCH,
        max_episodes=size,
        teacher=str(teacher_of(folder, data, scenes, seed)),
        cache=str(folder / f"latents-{seed}"),
        settings=(
            *ARMS[arm],
            *PUBLISHED,
            "objective.watched=false" if arm != "joint" else "trainer.log_every=10",
            "trainer.checkpoint_every=80",
            "trainer.keep_checkpoints=3",
            "trainer.validate_every=0",
            "sampler.num_steps=4",
        ),
    )
    plan, bundle, _ = trained(data, "student", options, out)
    development, test = parted(data, plan, scenes)
    found = scores(Predictor(bundle, plan.sampler), test)
    moving = scores(Predictor(bundle, plan.sampler), test, metric="moving_psnr")
    return {
        "seed": seed,
        "real_episodes": size,
        "arm": arm,
        "mean": float(np.mean([np.mean(values) for values in found.values()])),
        "psnr": found,
        "moving_psnr": moving,
        "development": curve(plan, bundle, out, development),
        "data_fingerprint": data.fingerprint,
    }


def hierarchical(differences: dict[int, dict[str, float]], num_resamples: int = 4000) -> tuple[float, float, float]:
    """Mean and 95 % interval of seed -> episode -> difference: seeds are resampled, then episodes within each."""
    rng = np.random.default_rng(0)
    tables = [np.array(list(by_episode.values())) for by_episode in differences.values()]
    means = []
    for _ in range(num_resamples):
        chosen = rng.integers(len(tables), size=len(tables))
        means.append(np.mean([rng.choice(tables[i], size=len(tables[i])).mean() for i in chosen]))
    low, high = np.quantile(means, (0.025, 0.975))
    return float(np.mean([table.mean() for table in tables])), float(low), float(high)


def table(folder: Path, metric: str = "psnr") -> list[str]:
    """Markdown: each arm's difference to joint, by number of real episodes."""
    found = {
        (arm, size, seed): result
        for arm in ARMS
        for size in SIZES
        for seed in SEEDS
        if (result := done(folder / "results" / f"{arm}-{size}-{seed}.json"))
    }
    lines = ["| arm | " + " | ".join(f"{size} real" for size in SIZES) + " |", "|---|" + "---|" * len(SIZES)]
    for arm in ARMS:
        cells = []
        for size in SIZES:
            seeds = [s for s in SEEDS if (arm, size, s) in found and ("joint", size, s) in found]
            if not seeds:
                cells.append("")
                continue
            means = {s: {e: float(np.mean(v)) for e, v in found[arm, size, s][metric].items()} for s in seeds}
            base = {s: {e: float(np.mean(v)) for e, v in found["joint", size, s][metric].items()} for s in seeds}
            if arm == "joint":
                cells.append(f"{np.mean([np.mean(list(base[s].values())) for s in seeds]):.2f} dB ({len(seeds)})")
                continue
            mean, low, high = hierarchical({s: {e: means[s][e] - base[s][e] for e in base[s]} for s in seeds})
            cells.append(f"{mean:+.2f} [{low:+.2f}, {high:+.2f}] ({len(seeds)})")
        lines.append(f"| {arm} | " + " | ".join(cells) + " |")
    return lines


def cost(folder: Path, num_rounds: int = 12) -> None:
    """CPU seconds of a step of each arm, taking turns on the same windows; written to costs.json."""
    one_thread()
    problems = {}
    for arm in ARMS:
        run = from_json(Run, read_json(folder / "runs" / f"{arm}-32-0" / "run.json"))
        bundle = load_bundle(Path(run.start.path))
        start = replace(run.start, sha256=bundle_sha256(Path(run.start.path)))  # older runs hashed it otherwise
        run = replace(run, start=start)
        data = Scenes(root=folder / "data", num_training=512, num_development=32, num_test=64).open()
        windows = LatentWindows.encode(Clips(data.episodes[:4], run.spec, stride=8), bundle.autoencoder, run.spec)
        model = starting_model(run)
        optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], fused=True)
        problems[arm] = (
            model,
            bound_objective(run, model, torch.device("cpu")),
            optimiser,
            windows.batch(range(BATCH)),
        )
    times: dict[str, list[float]] = {arm: [] for arm in ARMS}
    for step in range(num_rounds):
        for arm, (model, objective, optimiser, batch) in problems.items():
            begun = time.process_time()
            optimiser.zero_grad()
            objective(model, batch, draw(batch, 0, step, range(BATCH))).total.backward()
            optimiser.step()
            times[arm].append(time.process_time() - begun)
    write_json(folder / "costs.json", {arm: float(np.median(values)) for arm, values in times.items()})


def probe(folder: Path, counterfactuals: Path) -> list[str]:
    """Of the finished students of seed 0: cost of swapped actions, and motion energy of predicted over true frames."""
    one_thread()
    groups_of_set = counterfactual_groups(open_dataset(counterfactuals))
    lines = ["| real episodes | arm | swapped actions cost, dB | motion energy over the true |", "|---|---|---|---|"]
    for size in SIZES:
        for arm in ARMS:
            out = folder / "runs" / f"{arm}-{size}-0"
            if not (out / "config.json").exists():
                continue
            bundle = load_bundle(out)
            predictor = Predictor(bundle, stored_sampler(bundle))
            groups = [
                CounterfactualGroup(start=start, clips=tuple(Clips([e], bundle.spec, stride=1)[0] for e in episodes))
                for start, episodes in groups_of_set.items()
            ]
            swap = cost_of_swapped_actions(groups, predictor.predict, protocol_named("predicted-frames"))
            found = swap.cost(moving=False)
            ratio = motion_energy(groups, predictor)
            lines.append(f"| {size} | {arm} | {found.mean:.2f} [{found.low:.2f}, {found.high:.2f}] | {ratio:.2f} |")
    return lines


def motion_energy(groups: list[CounterfactualGroup], predictor: Predictor) -> float:
    """Mean square of differences of adjacent frames, predicted over true."""
    energy = np.zeros(2)
    for group in groups:
        videos = predictor.predict(list(group.clips), [0] * len(group.clips))
        for clip, video in zip(group.clips, videos, strict=True):
            for i, frames in enumerate((video, clip.frames[0])):
                energy[i] += np.square(np.diff(frames.astype(np.float64), axis=0)).mean()
    return float(energy[0] / energy[1])


def equal_time(folder: Path) -> list[str]:
    """Development PSNR of each arm at the CPU time at which joint ended, minus joint's."""
    costs = done(folder / "costs.json")
    if costs is None:
        return ["equal time: n/a until `cost` has run"]
    lines = ["| arm | " + " | ".join(f"{size} real" for size in SIZES) + " | CPU s a step |"]
    lines.append("|---|" + "---|" * (len(SIZES) + 1))
    for arm in ARMS:
        cells = []
        for size in SIZES:
            gaps = []
            for seed in SEEDS:
                mine, joint = (done(folder / "results" / f"{a}-{size}-{seed}.json") for a in (arm, "joint"))
                if mine is None or joint is None:
                    continue
                steps, values = np.array(mine["development"]).T
                step = STEPS * costs["joint"] / costs[arm]
                gaps.append(float(np.interp(min(step, STEPS), steps, values)) - joint["development"][-1][1])
            cells.append(f"{np.mean(gaps):+.2f}" if gaps else "")
        lines.append(f"| {arm} | " + " | ".join(cells) + f" | {costs[arm]:.2f} |")
    return lines


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("what", choices=("run", "cost", "table", "probe"))
    parser.add_argument("pairs", type=Path, nargs="?", help="of probe: a paired counterfactual set")
    parser.add_argument("--part", default="0/1", help="i/n: seeds whose number modulo n is i")
    arguments = parser.parse_args()
    if arguments.what == "run":
        part, num_parts = map(int, arguments.part.split("/"))
        run(arguments.folder, part, num_parts)
    elif arguments.what == "probe":
        print("\n".join(probe(arguments.folder, arguments.pairs)))
    elif arguments.what == "cost":
        cost(arguments.folder)
    else:
        print("\n".join([*table(arguments.folder), "", *table(arguments.folder, "moving_psnr"), ""]))
        print("\n".join(equal_time(arguments.folder)))


if __name__ == "__main__":
    main()
