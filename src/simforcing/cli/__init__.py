"""The command line: parse, build, call. Commands stand in `data_commands` and `model_commands`."""

import os
import sys

import tyro

from simforcing.cli.data_commands import agreement, calibrate, convert, simulate, tabletop, view
from simforcing.cli.model_commands import demo, doctor, evaluate, generate, train

# Threads that spin while they wait take each other's cores: beside another busy process a step of two spinning threads
# was measured 2 to 6 times slower than of two sleeping ones. Read once by OpenMP when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
DESCRIPTION = (
    "Action-conditioned robot world models: give one camera frame, the measured state, the instruction and the actions"
    " that a robot is about to take, and get the video. `--version` prints the version."
)
# Modules of optional packages -> the extra of pyproject.toml that installs them.
EXTRAS = {
    **dict.fromkeys(("mujoco", "mink", "daqp", "cmaes", "gymnasium"), "sim"),
    **dict.fromkeys(("diffusers", "peft", "torchao"), "wan"),
    "transformers": "segment",
    **dict.fromkeys(("websockets", "msgpack"), "serve"),
    "torchmetrics": "metrics",
    "ray": "cluster",
    "rerun": "view",
    "tensorboard": "tensorboard",
}


COMMANDS = {
    "convert": convert,
    "tabletop": tabletop,
    "calibrate": calibrate,
    "simulate": simulate,
    "agreement": agreement,
    "view": view,
    "train": train,
    "generate": generate,
    "evaluate": evaluate,
    "demo": demo,
    "doctor": doctor,
}
RESUMING = ("simulate", "train", "generate", "demo")  # keep what an interrupted call has finished


def main() -> None:
    """Entry point. Exit code 1: failed; 2: input or options cannot be used, or no episode is left; 130: interrupted."""
    if sys.argv[1:] == ["--version"]:
        from simforcing import __version__

        print(f"simforcing {__version__}")
        return
    try:
        tyro.extras.subcommand_cli_from_dict(COMMANDS, prog="simforcing", description=DESCRIPTION)
    except ValueError as error:
        print(f"simforcing: {one_line(error)}", file=sys.stderr)
        raise SystemExit(2) from None
    except (OSError, RuntimeError, FloatingPointError) as error:
        print(f"simforcing: {one_line(error)}", file=sys.stderr)
        raise SystemExit(1) from None
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        print(f"simforcing: {package} is missing: pip install 'simforcing[{EXTRAS[package]}]'", file=sys.stderr)
        raise SystemExit(1) from None
    except MemoryError as error:
        print(f"simforcing: out of memory{f' ({one_line(error)})' if error.args else ''}", file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        print(f"simforcing: interrupted{after_interrupt(sys.argv[1:])}", file=sys.stderr)
        raise SystemExit(130) from None


def after_interrupt(arguments: list[str]) -> str:
    """What the same command will do once it was interrupted."""
    command = arguments[0] if arguments else ""
    if command in RESUMING:
        # `simulate` goes on with its parts either way, and replaces an older set only if told to.
        unless = " without --overwrite" if "--overwrite" in arguments and command != "simulate" else ""
        return f"; the same command{unless} goes on where it stopped"
    return "; the same command starts again" if command in COMMANDS else ""


def one_line(error: BaseException) -> str:
    """An error's text without line breaks."""
    return " ".join(str(error).split()) or type(error).__name__
