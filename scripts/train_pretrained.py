"""Trains the table-top model that the package ships, and writes it where the package looks for it.

    python scripts/train_pretrained.py FOLDER            # resumable; about an hour on two quiet CPU cores
    python scripts/train_pretrained.py FOLDER --export   # the second part alone, of a finished student in FOLDER

The second part stores the student in float16, evaluates what it stored, and writes the model with its card and picture.
"""

import argparse
import json
import math
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from simforcing.data.open import open_dataset
from simforcing.evaluation.pictures import write_animation
from simforcing.generation.familiarity import familiarity_of
from simforcing.generation.world_model import WorldModel
from simforcing.models.bundle import Bundle, bundle_sha256, load_bundle
from simforcing.models.pretrained import PACKAGED
from simforcing.recipes.demo import SIZES, STUDENT, TEACHER, DemoSize, demo
from simforcing.recipes.evaluate import RESULTS, evaluate_run
from simforcing.recipes.execute import about_run
from simforcing.recipes.first_look import NAME, NUM_COLOURS, look_frames
from simforcing.recipes.prediction import PredictionOptions
from simforcing.recipes.run import Run
from simforcing.types import EpisodeSet, from_json, to_json
from simforcing.types.files import read_json, whole_file, write_text

SIZE = replace(
    SIZES["long"],
    cost="about an hour on two CPU cores, 1800 MB of disk",
    num_episodes=480,
    teacher_steps=4000,
    student_steps=10000,
)
COMMAND = "python scripts/train_pretrained.py FOLDER"
PICTURE = Path(__file__).resolve().parent.parent / "docs" / "media" / "tabletop-generation.gif"
TEMPLATE = Path(__file__).with_name("tabletop_card.md.j2")
EXPORT, CARD = "export", "README.md"
MAX_BYTES = 20_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for data, runs and report")
    parser.add_argument("--export", action="store_true", help="train nothing: FOLDER/student is finished")
    parser.add_argument("--teacher-steps", type=int, default=SIZE.teacher_steps)
    parser.add_argument("--student-steps", type=int, default=SIZE.student_steps)
    parser.add_argument("--to", type=Path, default=PACKAGED / NAME, help="folder of the model (default: the package's)")
    parser.add_argument("--picture", type=Path, default=PICTURE, help="animation (default: that of the documents)")
    given = parser.parse_args()
    if not given.export:
        demo(given.folder, size=replace(SIZE, teacher_steps=given.teacher_steps, student_steps=given.student_steps))
    try:
        export(given.folder, given.to, given.picture)
    except ValueError as error:
        raise SystemExit(f"train_pretrained: {error}") from None


@dataclass(frozen=True, kw_only=True)
class Made:
    """How a finished student was made, as read from the folder that it was made in.

    Args:
        data: its paired set.
        steps, seconds: of training, by stage, as logged.
        total_s: from the first file of the data to the student's last step, pauses included.
        command: that makes it again.
    """

    data: EpisodeSet
    steps: dict[str, int]
    seconds: dict[str, float]
    total_s: float
    command: str


def export(folder: Path, to: Path, picture: Path, *, size: DemoSize = SIZE) -> None:
    """Write the student of a folder as a packaged model, whole or not at all, and its picture.

    Raises:
        ValueError: nothing finished in the folder, paths of this machine in what would be written, or too many bytes.
    """
    student = load_bundle(folder / STUDENT)
    made = how_made(folder, student, size)
    stored = stored_half(folder, student, made)
    print(f"stored in float16: {stored}; evaluating it")
    options = PredictionOptions(overwrite=True)
    evaluate_run(stored, options=options, command=f"{made.command} --export", report=print)
    results = read_json(stored / "evaluation" / RESULTS)
    bundle = load_bundle(stored)
    clean = replace(bundle, about=without_paths(bundle.about, folder, made))
    partial = to.with_name(f"{to.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    clean.save(partial, dtype="float16")
    num_bytes = sum(path.stat().st_size for path in partial.iterdir())
    if num_bytes > MAX_BYTES:
        raise ValueError(f"{partial}: {num_bytes / 1e6:.1f} MB; a packaged model has at most {MAX_BYTES / 1e6:g}")
    if bundle_sha256(partial) != bundle_sha256(stored):
        raise ValueError(f"{partial} is not what was evaluated in {stored}")
    write_text(partial / CARD, card(clean, results, made, num_bytes))
    put_in_place(partial, to)
    print(f"model: {to}, {num_bytes / 1e6:.1f} MB")
    model = WorldModel.from_pretrained(to)
    with whole_file(picture) as unfinished:
        named = unfinished.with_suffix(picture.suffix)  # the ending says the format
        write_animation(look_frames(model), model.fps, named, num_colours=NUM_COLOURS)
        os.replace(named, unfinished)
    print(f"picture: {picture}, {picture.stat().st_size / 1e6:.2f} MB")


def how_made(folder: Path, student: Bundle, size: DemoSize) -> Made:
    """What the folder records. ValueError where there is not exactly one data set in it."""
    roots = [path.parents[1] for path in sorted(folder.glob("tabletop-*/pairs/episodes/meta"))]
    if len(roots) != 1:
        raise ValueError(f"{folder}: {len(roots)} paired sets (tabletop-*/pairs/episodes); expected the one trained on")
    data = open_dataset(roots[0] / "episodes")
    if data.fingerprint != student.spec.fingerprint:
        raise ValueError(f"{roots[0]} is not the data that {folder / STUDENT} was trained on")
    logs = {stage: read_log(folder / stage / "log.jsonl") for stage in (TEACHER, STUDENT)}
    steps = {stage: log[-1]["step"] for stage, log in logs.items()}
    begun_s = min(path.stat().st_mtime for path in roots[0].parent.rglob("*") if path.is_file())
    return Made(
        data=data,
        steps=steps,
        seconds={stage: training_s(log) for stage, log in logs.items()},
        total_s=logs[STUDENT][-1]["timing"]["time_s"] - begun_s,
        command=command_of(steps, size),
    )


def read_log(path: Path) -> list[dict[str, Any]]:
    """Records of training steps. ValueError where there are none."""
    lines = path.read_text().splitlines() if path.is_file() else []
    records = [record for record in map(json.loads, lines) if "step" in record and "timing" in record]
    if not records:
        raise ValueError(f"{path}: no log of a training")
    return records


def training_s(log: list[dict[str, Any]]) -> float:
    """Time spent in the logged steps, without pauses."""
    before = [0, *(record["step"] for record in log)]
    pairs = zip(before, log, strict=False)
    return sum(max(0, record["step"] - step) * record["timing"]["step_s"] for step, record in pairs)


def command_of(steps: dict[str, int], size: DemoSize) -> str:
    """The command that makes this model, from the steps that were run."""
    planned = {TEACHER: size.teacher_steps, STUDENT: size.student_steps}
    options = [f" --{stage}-steps {count}" for stage, count in steps.items() if count != planned[stage]]
    return COMMAND + "".join(options)


def stored_half(folder: Path, student: Bundle, made: Made) -> Path:
    """The student in float16, with all that inference without its data reads, in FOLDER/export."""
    run = from_json(Run, student.about["run"], f"{student.source}: about.run")
    training = run.training(made.data.episodes)
    about = about_run(run, made.data, command=made.command, training=[episode.name for episode in training])
    about["familiarity"] = to_json(familiarity_of(training, run.spec, student.autoencoder))
    replace(student, about=json.loads(json.dumps(about))).save(folder / EXPORT, dtype="float16")
    return folder / EXPORT


def without_paths(about: dict[str, Any], folder: Path, made: Made) -> dict[str, Any]:
    """What is known of a model, without places of this machine: data and teacher by their names in the folder.

    Raises:
        ValueError: a path is left, by its field.
    """
    run = json.loads(json.dumps(about["run"]))
    run["start"]["path"] = TEACHER
    clean = {**about, "command": made.command, "data": str(Path(made.data.root).relative_to(folder)), "run": run}
    for name, text in texts(clean, "about"):
        if text.startswith(("/", "~")) or str(folder.resolve()) in text:
            raise ValueError(f"{name}: {text!r} is a path of this machine")
    return clean


def texts(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Every text in JSON values with its place, keys too."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield f"{name} (a key)", key
            yield from texts(item, f"{name}.{key}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from texts(item, f"{name}[{i}]")


def put_in_place(partial: Path, to: Path) -> None:
    """Rename, keeping an older model until the new one has its name."""
    old = to.with_name(f"{to.name}.old.partial")
    shutil.rmtree(old, ignore_errors=True)
    if to.exists():
        os.replace(to, old)
    os.replace(partial, to)
    shutil.rmtree(old, ignore_errors=True)


def card(bundle: Bundle, results: dict[str, Any], made: Made, num_bytes: int) -> str:
    """The model card, from its template beside this script."""
    environment = Environment(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True)
    parameters = {
        "model": sum(p.numel() for p in bundle.model.parameters()) / 1e6,
        "autoencoder": sum(p.numel() for p in bundle.autoencoder.parameters()) / 1e6,
    }
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        spec=bundle.spec,
        about=bundle.about,
        made=made,
        megabytes=num_bytes / 1e6,
        parameters=parameters,
        counts=results["counts"],
        protocol=results["protocol"]["name"],
        scores=scores(results),
        drift=drift(results["drift"]),
    )


def scores(results: dict[str, Any]) -> str:
    """Tables of rows and of what else was measured."""
    lines = ["| | PSNR, dB | moving region, dB | SSIM |", "|---|---|---|---|"]
    for row in results["rows"].values():
        cells = (number(row["psnr"]), number(row["moving_psnr"]), number(row["ssim"], 3))
        lines.append(f"| {row['label']} | {' | '.join(cells)} |")
    gain, following, arms = results["differences"]["model - copy"], results["following"], results["silhouettes"]
    lines += ["", "| | |", "|---|---|"]
    lines.append(f"| over a copy of the given frame, moving region | {number(gain['moving_psnr'], sign='+')} dB |")
    lines.append(f"| over a copy, whole frame | {number(gain['psnr'], sign='+')} dB |")
    for key, label in (("cost_moving_psnr", "moving region"), ("cost_psnr", "whole frame")):
        cost = following.get("reason") or f"{number(following[key], sign='+')} dB"
        lines.append(f"| cost of swapped actions, {label} | {cost} |")
    for key, label in (("rollout", "its own simulation"), ("copy", "a copy"), ("ceiling", "the autoencoder's ceiling")):
        overlap = arms.get("reason") or number(arms["rows"][key]["iou"], 3)
        lines.append(f"| IoU of the arm in {label} | {overlap} |")
    return "\n".join(lines)


def drift(found: dict[str, Any]) -> str:
    """Long rollouts by chunk."""
    if "reason" in found:
        return f"Long rollouts: not measured ({found['reason']})."
    lines = ["Rollouts over whole episodes, on the model's own last frame:", ""]
    lines += [
        "| until | episodes | PSNR, dB | of a copy | moving region, dB | of a copy |",
        "|---|---|---|---|---|---|",
    ]
    for i, (end_s, count) in enumerate(zip(found["end_s"], found["episodes"], strict=True)):
        cells = [
            number({part: found["rows"][row][metric][part][i] for part in ("mean", "low", "high")})
            for metric in ("psnr", "moving_psnr")
            for row in ("model", "copy")
        ]
        lines.append(f"| {end_s:g} s | {count} | {' | '.join(cells)} |")
    return "\n".join(lines)


def number(found: dict[str, float | None], digits: int = 2, *, sign: str = "") -> str:
    """A mean with its interval, where there is one."""
    mean, low, high = (found[part] for part in ("mean", "low", "high"))
    if mean is None or not math.isfinite(mean):
        return "n/a"
    if low is None or high is None:
        return f"{mean:{sign}.{digits}f}"
    return f"{mean:{sign}.{digits}f} [{low:{sign}.{digits}f}, {high:{sign}.{digits}f}]"


if __name__ == "__main__":
    main()
