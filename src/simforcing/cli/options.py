"""What commands share: options of those that run a network, progress on stderr, the command as it was typed."""

import os
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

if TYPE_CHECKING:
    from simforcing.recipes.prediction import PredictionOptions

_BEGUN_S = time.monotonic()


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


Repeated = Annotated[tuple[str, ...], tyro.conf.UseAppendAction]  # an option that may be given many times
How = Annotated[Common, tyro.conf.arg(name="")]
HowToCompute = Annotated[Compute, tyro.conf.arg(name="")]
DEFAULT, DEFAULT_COMPUTE = Common(), Compute()


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


def command_line() -> str:
    """The command as it was typed, for the record."""
    return " ".join(["simforcing", *sys.argv[1:]])
