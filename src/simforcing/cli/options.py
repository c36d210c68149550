"""What commands share: options of those that run a network, progress on stderr, the command as it was typed."""

import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

if TYPE_CHECKING:
    from simforcing.recipes.prediction import PredictionOptions
    from simforcing.recipes.requests import Asked
    from simforcing.recipes.sampling import SamplingOptions

_BEGUN_S = time.monotonic()
Repeated = Annotated[tuple[str, ...], tyro.conf.UseAppendAction]  # an option that may be given many times


@dataclass(frozen=True, kw_only=True)
class Compute:
    """Options of every command that runs a network.

    Args:
        device: auto, cpu, cuda, cuda:1 or mps.
        dtype: bfloat16 computes under autocast where the device has it.
        seed: decides everything random.
    """

    device: str = "cpu"
    dtype: Literal["float32", "bfloat16"] = "float32"
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Common(Compute):
    """Options of every command that runs a network and writes.

    Args:
        overwrite: replace what an earlier command left in the same place.
    """

    overwrite: bool = False


@dataclass(frozen=True, kw_only=True)
class Given:
    """What is brought instead of a data set's own clips. Any number of commands: beyond a window it is rolled out.

    Args:
        image: picture of the first view; once for each further view, in the model's order or as view=path.
        actions: commands of it, .npy, .csv or .json in the model's layout; default those of --episode.
        state: file of the measured state at the picture; default the --episode's, if one is given.
        task: what the robot is told to do.
        sim_image: the simulation at the picture, in the same way.
        segment: finds the robot in the picture, to make that simulation: mask:FILE, sam3:MODEL, appearance:FILE.
        camera: file of each view's camera in the robot's base frame (or of `calibrate`), to render it instead.
        sim_video: mp4 of the simulation of all frames, the picture's first, to follow in place of the model's own.
        background: what it stands on: white, grey, plate, or a picture without the robot; default as in training.
        requests: .json or .jsonl, a list of objects with these options as fields (docs/generate.md).
        resize: what happens to a picture of another aspect than the training's; default it is refused.
        rollout: whole episodes from their first frames, chunk after chunk.
    """

    image: Repeated = ()
    actions: str | None = None
    state: str | None = None
    task: str | None = None
    sim_image: Repeated = ()
    segment: str | None = None
    camera: Repeated = ()
    sim_video: Repeated = ()
    background: str | None = None
    requests: Path | None = None
    resize: Literal["pad", "crop", "squash"] | None = None
    rollout: bool = False


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How videos are drawn; defaults as the model's recipe says.

    Args:
        steps: sampling steps.
        shift: of their schedule; 1 is uniform.
        solver: euler, or heun with two passes a step.
        sim_guidance: w: 0 without the simulation, 1 by it alone, 0.6 published.
        action_guidance: above 1 exaggerates the actions.
        sim_source: self, or true: the recorded simulation of an episode of pairs.
        num_seeds: videos of each request.
        batch_size: videos at a time.
        swap: also each picture under the next one's actions, to see whether the model obeys.
    """

    steps: int | None = None
    shift: float | None = None
    solver: Literal["euler", "heun"] | None = None
    sim_guidance: float | None = None
    action_guidance: float | None = None
    sim_source: Literal["self", "true"] | None = None
    num_seeds: int = 1
    batch_size: int = 8
    swap: bool = False


How = Annotated[Common, tyro.conf.arg(name="")]
HowToCompute = Annotated[Compute, tyro.conf.arg(name="")]
WhatIsGiven = Annotated[Given, tyro.conf.OmitArgPrefixes]  # under a heading of their own in --help
HowToSample = Annotated[Sampling, tyro.conf.OmitArgPrefixes]
DEFAULT, DEFAULT_COMPUTE, NOTHING_GIVEN, AS_STORED = Common(), Compute(), Given(), Sampling()


def say(line: str) -> None:
    """One line of progress on stderr, with the seconds since the start; under torchrun, of rank 0 alone."""
    if os.environ.get("RANK", "0") == "0":
        print(f"[{time.monotonic() - _BEGUN_S:5.0f} s] {line}", file=sys.stderr, flush=True)


def prediction_options(
    how: Compute,
    *,
    data: str | None,
    view: str | None = None,
    num_steps: int | None = None,
    alternatives: bool = True,
) -> "PredictionOptions":
    """The shared options beside a command's own, as one value."""
    from simforcing.recipes.prediction import PredictionOptions

    return PredictionOptions(data=data, view=view, num_steps=num_steps, alternatives=alternatives, **asdict(how))


def sampling_options(sampling: Sampling) -> "SamplingOptions":
    """How videos are drawn, as one value."""
    from simforcing.recipes.sampling import SamplingOptions

    values = asdict(sampling)
    del values["steps"]  # an option of every use of a run
    return SamplingOptions(**values)


def asked(given: Given, *, data: str | None, episodes: tuple[str, ...], max_clips: int | None) -> "Asked":
    """What is asked for, as one value."""
    from simforcing.recipes.requests import Asked, RequestFields

    values = asdict(given)
    whole = {name: values.pop(name) for name in ("requests", "resize", "rollout")}
    return Asked(one=RequestFields(data=data, **values), episodes=episodes, max_clips=max_clips, **whole)


def command_line() -> str:
    """The command as it was typed, for the record."""
    return " ".join(["simforcing", *sys.argv[1:]])
