"""Which of the small-scale departures from the published recipe matters? One at a time, two seeds.

    python experiments/departures.py FOLDER run [--part 0/2]     # resumable; parts side by side
    python experiments/departures.py FOLDER table

320 table-top pairs of real-like looks, 24 held out; real video alone (recipe sft), 300 steps of 16 clips, one thread:
about a minute a run. `ours` is the recipe; every other row changes what its name says and nothing else. The rows of
students are of one teacher a seed (400 and 200 steps of 16): the weight of flow matching in simulation.
Figures: PSNR of predicted frames above the copy row, of the whole frame and where something moves, and the cost of
swapped actions between true counterfactual branches, in dB.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from paired_lab import Scenes, done, one_thread, parted, say, scores, trained

from simforcing.data.clips import Clips
from simforcing.data.counterfactuals import counterfactual_groups
from simforcing.data.open import open_dataset
from simforcing.evaluation.following import CounterfactualGroup, cost_of_swapped_actions
from simforcing.evaluation.protocols import protocol_named
from simforcing.generation.rollout import Predictor
from simforcing.recipes.run import Run, RunOptions
from simforcing.types import Clip, EpisodeSet
from simforcing.types.files import write_json

SEEDS = (0, 1)
STEPS, TEACHER_STEPS, STUDENT_STEPS = 300, 400, 200
BATCH = 16  # fixed here, whatever the recipe's default becomes
VELOCITY = ("model.head=plain", "model.predicts=velocity")
NARROW_LATENTS = ("autoencoder.config.channels=24", "model.channels=24")
WIDE = (
    "model.video.width=192",
    "model.video.mlp_width=768",
    "model.video.num_heads=6",
    "model.action.num_heads=6",
)
ROWS: dict[str, dict[str, Any]] = {
    "ours": {},
    "batch 8, 600 steps": {"batch_size": 8, "num_steps": 2 * STEPS},
    "student": {"recipe": "student", "settings": ("objective.flow_sim=0.1",)},
    "student, sim weight 1": {"recipe": "student", "settings": ("objective.flow_sim=1.0",)},
    "plain head": {"settings": ("model.head=plain",)},
    "velocity, plain head": {"settings": VELOCITY},
    "velocity, plain head, published weight": {"settings": (*VELOCITY, "objective.weight=published")},
    "velocity, plain head, 24 channels, width 192": {"settings": (*VELOCITY, *NARROW_LATENTS, *WIDE)},
    "24 channels, width 192": {"settings": (*NARROW_LATENTS, *WIDE)},
    "delta actions": {"action_form": "delta"},
    "actions by index": {"settings": ("model.action_positions=index",)},
    "learning rate 1e-3": {"settings": ("trainer.learning_rate=0.001",)},
    "learning rate 1e-4": {"settings": ("trainer.learning_rate=0.0001",)},
}


def run(folder: Path, part: int, num_parts: int) -> None:
    """All units of one part; every unit's result is a file."""
    one_thread()
    scenes = Scenes(root=folder / "data", num_training=296, num_development=0, num_test=24, num_starts=8)
    data = scenes.open()
    units = [(name, seed) for seed in SEEDS for name in ROWS]
    for name, seed in units:
        path = result_path(folder, name, seed)
        if seed % num_parts != part or path.exists():
            continue
        found = unit(folder, data, scenes, name, seed)
        write_json(path, found)
        say(f"{name}, seed {seed}: +{found['moving_gain']:.2f} dB where something moves, swap {found['swap']:.2f} dB")


def result_path(folder: Path, name: str, seed: int) -> Path:
    """Where a unit's result lies."""
    return folder / "results" / f"{name.replace(', ', '-').replace(' ', '_')}-{seed}.json"


def unit(folder: Path, data: EpisodeSet, scenes: Scenes, name: str, seed: int) -> dict[str, Any]:
    """One run, trained and scored."""
    changes = dict(ROWS[name])
    recipe = changes.pop("recipe", "sft")
    shared = {"seed": seed, "held_out": scenes.num_held_out}
    if recipe == "student":
        teacher = folder / "runs" / f"teacher-{seed}"
        cache = str(folder / f"latents-teacher-{seed}")
        trained(data, "teacher", RunOptions(num_steps=TEACHER_STEPS, batch_size=BATCH, cache=cache, **shared), teacher)
        changes |= {"teacher": str(teacher), "num_steps": STUDENT_STEPS, "cache": cache}
    settings = (*changes.pop("settings", ()), "sampler.num_steps=4")
    options = RunOptions(**({"num_steps": STEPS, "batch_size": BATCH} | shared | changes), settings=settings)
    plan, bundle, cpu_s = trained(data, recipe, options, folder / "runs" / result_path(folder, name, seed).stem)
    _, test = parted(data, plan, scenes)
    predictor = Predictor(bundle, plan.sampler)
    gains = {
        metric: mean_of(scores(predictor, test, metric=metric)) - mean_of(scores(Copy(), test, metric=metric))
        for metric in ("psnr", "moving_psnr")
    }
    return {
        "row": name,
        "seed": seed,
        "gain": gains["psnr"],
        "moving_gain": gains["moving_psnr"],
        "swap": swap_cost(folder, plan, predictor),
        "cpu_s": cpu_s * plan.trainer.num_steps,
        "data_fingerprint": data.fingerprint,
    }


class Copy:
    """The copy row: the given frame, repeated."""

    def predict(self, clips: list[Clip], seeds: list[int]) -> list[np.ndarray]:
        """Frames of each clip."""
        return [np.repeat(clip.frames[0][:1], len(clip.frames[0]), axis=0) for clip in clips]


def mean_of(found: dict[str, list[float]]) -> float:
    """Mean over episodes of the means over their clips."""
    return float(np.mean([np.mean(values) for values in found.values()]))


def swap_cost(folder: Path, plan: Run, predictor: Predictor) -> float:
    """Mean cost of swapped actions, whole frame, in dB."""
    branches = open_dataset(folder / "data" / "pairs" / "counterfactuals")
    groups = [
        CounterfactualGroup(start=start, clips=tuple(Clips([e], plan.spec, stride=1)[0] for e in episodes))
        for start, episodes in counterfactual_groups(branches).items()
    ]
    rules = protocol_named("predicted-frames")
    return cost_of_swapped_actions(groups, predictor.predict, rules).cost(moving=False).mean


def table(folder: Path) -> list[str]:
    """Markdown, both seeds in every cell."""
    lines = [
        "| | above copy, dB | where something moves, dB | swapped actions cost, dB | CPU s |",
        "|---|---|---|---|---|",
    ]
    for name in ROWS:
        found = [result for seed in SEEDS if (result := done(result_path(folder, name, seed)))]
        cells = [" / ".join(f"{one[key]:+.2f}" for one in found) for key in ("gain", "moving_gain", "swap")]
        cost = f"{np.mean([one['cpu_s'] for one in found]):.0f}" if found else ""
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {cost} |")
    return lines


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("--part", default="0/1", help="i/n: seeds whose number modulo n is i")
    arguments = parser.parse_args()
    if arguments.what == "run":
        part, num_parts = map(int, arguments.part.split("/"))
        run(arguments.folder, part, num_parts)
    else:
        print("\n".join(table(arguments.folder)))


if __name__ == "__main__":
    main()
