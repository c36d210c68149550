"""Commands that train, run or check a model. Heavy imports happen inside of them."""

from pathlib import Path
from typing import Literal

from simforcing.cli.options import (
    AS_STORED,
    DEFAULT,
    DEFAULT_COMPUTE,
    NOTHING_GIVEN,
    How,
    HowToCompute,
    HowToSample,
    Repeated,
    WhatIsGiven,
    asked,
    command_line,
    prediction_options,
    sampling_options,
    say,
)


def train(
    data: str,
    /,
    out: Path,
    recipe: str = "laptop",
    camera: tuple[str, ...] = (),
    frames: int | None = None,
    size: tuple[int, int] | None = None,
    resize: Literal["pad", "crop", "squash"] = "squash",
    held_out: int | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    normaliser: Literal["min_max", "quantile", "mean_std"] = "min_max",
    actions: Literal["stored", "delta", "absolute"] = "stored",
    autoencoder: Literal["tiny", "taef2"] = "tiny",
    taef2: str | None = None,
    scale: Literal["debug", "laptop"] = "laptop",
    teacher: str | None = None,
    lora_rank: int | None = None,
    max_episodes: int | None = None,
    cache: str | None = None,
    preset: Literal["ours", "release"] = "ours",
    set: Repeated = (),
    tensorboard: bool = False,
    how: How = DEFAULT,
) -> None:
    """Train a world model; the same command continues a run that was stopped.

    Args:
        data: data set with a declared action layout.
        out: folder of the run.
        recipe: debug | laptop | tabletop on any set; on pairs of `simulate`: teacher | student | joint, and to compare
            sft | rendered | modulation | cross_attention | maps.
        camera: views to learn; default the first.
        frames: frames of a window.
        size: height and width of the model's frames.
        resize: what happens where the aspect differs.
        held_out: episodes kept for evaluation; default a tenth.
        steps: training steps; default the recipe's.
        batch_size: clips per step; default the recipe's.
        normaliser: of actions and states.
        actions: read as stored, or converted exactly to increments (delta) or absolute targets.
        autoencoder: tiny (fitted in the run) or, in recipe laptop, taef2.
        taef2: folder or hub id of the TAEF2 weights; default the author's on the hub.
        scale: size of the recipes for pairs: laptop, or debug (seconds, learns nothing).
        teacher: finished run of recipe teacher that a student starts from.
        lora_rank: a student of adapters beside the teacher's weights, one copy in memory instead of two.
        max_episodes: train on at most so many episodes.
        cache: folder for encoded windows that several runs share; default in the run's own.
        preset: ours, or release: all that the authors' release does otherwise.
        set: name=value of any part of the run, as in objective.distill.target=value; run.json shows all names.
        tensorboard: write TensorBoard files beside log.jsonl.
    """
    from simforcing.recipes.run import RunOptions
    from simforcing.recipes.train import train_on

    options = RunOptions(
        views=camera or None,
        num_frames=frames,
        size=size,
        resize=resize,
        held_out=held_out,
        num_steps=steps,
        batch_size=batch_size,
        normaliser=normaliser,
        action_form=actions,
        autoencoder=autoencoder,
        taef2_path=taef2,
        scale=scale,
        teacher=teacher,
        lora_rank=lora_rank,
        max_episodes=max_episodes,
        cache=cache,
        preset=preset,
        settings=set,
        tensorboard=tensorboard,
        seed=how.seed,
        device=how.device,
        dtype=how.dtype,
    )
    train_on(data, out, recipe=recipe, options=options, overwrite=how.overwrite, command=command_line(), report=say)


def generate(
    model: str,
    /,
    data: str | None = None,
    episode: tuple[str, ...] = (),
    max_clips: int | None = None,
    view: str | None = None,
    out: Path | None = None,
    lerobot: Path | None = None,
    given: WhatIsGiven = NOTHING_GIVEN,
    sampling: HowToSample = AS_STORED,
    how: How = DEFAULT,
) -> None:
    """Videos from a picture and actions: `simforcing generate MODEL --image photo.png --actions moves.csv --out DIR`.

    Without a picture or actions, windows of held-out episodes are predicted and written beside the real ones. The same
    command goes on where it was stopped; videos of other settings are never mixed into one folder.

    Args:
        model: folder of a finished run, name of a model that ships with the package (tabletop), or hub id.
        data: data set of episodes; default the one that the model was trained on.
        episode: episodes by name; default the held-out ones. With --image: the one whose actions are taken.
        max_clips: at most so many windows, or with --rollout episodes.
        view: camera whose video is NAME.mp4; default the model's first, and others are NAME.VIEW.mp4.
        out: folder; default MODEL/generated for a data set's own clips.
        lerobot: folder of a LeRobot v3.0 data set to make of the videos, with their commands and states.
    """
    from simforcing.recipes.generate import generate as run

    run(
        model,
        asked(given, data=data, episodes=episode, max_clips=max_clips),
        out=out,
        lerobot=lerobot,
        options=prediction_options(how, data=data, view=view, num_steps=sampling.steps),
        sampling=sampling_options(sampling),
        report=say,
    )


def evaluate(
    run: Path,
    /,
    data: str | None = None,
    counterfactuals: str | None = None,
    protocol: str | None = None,
    view: str | None = None,
    steps: int | None = None,
    alternatives: bool = True,
    out: Path | None = None,
    how: How = DEFAULT,
) -> None:
    """Score held-out episodes beside the copy row and the autoencoder's ceiling; write report.html and results.json.

    Args:
        run: folder of a finished run.
        data: data set; default the run's own.
        counterfactuals: set of true videos from equal starts; default the one beside the data.
        protocol: evaluation protocol; default the one that fits.
        view: camera that is scored; default the run's first.
        steps: sampling steps; default the recipe's.
        alternatives: score other strengths of the simulation condition too, where the run has one.
        out: folder; default RUN/evaluation.
    """
    from simforcing.recipes.evaluate import evaluate_run, summary

    evaluated = evaluate_run(
        run,
        out=out,
        counterfactuals=counterfactuals,
        protocol=protocol,
        options=prediction_options(how, data=data, view=view, num_steps=steps, alternatives=alternatives),
        command=command_line(),
        report=say,
    )
    print("\n".join(summary(evaluated)))
    print(f"report: {evaluated.report}")


def demo(
    out: Path = Path("runs/demo"),
    data: str | None = None,
    smoke: bool = False,
    long: bool = False,
    how: How = DEFAULT,
) -> None:
    """Simulate, train teacher and student, predict and report, in one go; parts that are already there are kept.

    Args:
        out: folder for data, runs and report; a data set of your own gets a folder of its own in it.
        data: your own data set instead of the simulated table top; pairs of `simulate` get both stages.
        smoke: the same path at a size that takes seconds.
        long: with more data and steps, within a quarter of an hour.
    """
    from simforcing.recipes.demo import SIZES
    from simforcing.recipes.demo import demo as run

    if smoke and long:
        raise ValueError("demo: choose --smoke or --long")
    name = "smoke" if smoke else "long" if long else "full"
    folder = out if name == "full" else out / name
    run(folder, size=SIZES[name], options=prediction_options(how, data=data), report=say)


def doctor(run: Path | None = None, /, data: str | None = None, how: HowToCompute = DEFAULT_COMPUTE) -> None:
    """Check this machine, or that a run loads, fits its data and obeys its actions.

    Exit code 1 where a check fails, 2 where there is no such run.

    Args:
        run: folder of a finished run; none checks the machine.
        data: data set; default the run's own.
    """
    from simforcing.evaluation.checks import all_passed

    if run is None:
        if data is not None or how != DEFAULT_COMPUTE:
            raise ValueError("doctor: options are for a run; give its folder first")
        from simforcing.evaluation.environment import environment_checks

        checks = environment_checks()
    else:
        from simforcing.recipes.doctor import run_checks

        checks = run_checks(run, options=prediction_options(how, data=data), report=say)
    for check in checks:
        print(check)
    if not all_passed(checks):
        raise SystemExit(1)
