"""The command line: parse, build, call. Heavy imports happen inside the commands."""

import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from simforcing.sim.amplitudes import Amplitudes
from simforcing.sim.real_like import RealLike

if TYPE_CHECKING:
    from simforcing.recipes.prediction import PredictionOptions

# Threads that spin while they wait take each other's cores: beside another busy process a step of two spinning threads
# was measured 2 to 6 times slower than of two sleeping ones. Read once by OpenMP when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
DESCRIPTION = (
    "Action-conditioned robot world models: give one camera frame, the measured state, the instruction and the actions"
    " that a robot is about to take, and get the video. `--version` prints the version."
)
_BEGUN_S = time.monotonic()


# Modules of optional packages -> the extra of pyproject.toml that installs them.
EXTRAS = {
    **dict.fromkeys(("mujoco", "mink", "daqp", "cmaes", "gymnasium"), "sim"),
    **dict.fromkeys(("diffusers", "transformers", "peft", "torchao"), "wan"),
    **dict.fromkeys(("websockets", "msgpack"), "serve"),
    "torchmetrics": "metrics",
    "ray": "cluster",
    "rerun": "view",
    "tensorboard": "tensorboard",
}


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


How = Annotated[Common, tyro.conf.arg(name="")]
HowToCompute = Annotated[Compute, tyro.conf.arg(name="")]
Domain = Annotated[RealLike, tyro.conf.arg(name="")]
HowFar = Annotated[Amplitudes, tyro.conf.arg(name="")]
DEFAULT, DEFAULT_COMPUTE, PLAIN, AMPLITUDES = Common(), Compute(), RealLike(), Amplitudes()


def say(line: str) -> None:
    """One line of progress on stderr, with the seconds since the start; under torchrun, of rank 0 alone."""
    if os.environ.get("RANK", "0") == "0":
        print(f"[{time.monotonic() - _BEGUN_S:5.0f} s] {line}", file=sys.stderr, flush=True)


def convert(
    source: str,
    destination: Path,
    /,
    layout: str | None = None,
    version: Literal["v3.0", "v2.1"] = "v3.0",
    camera: tuple[str, ...] = (),
    overwrite: bool = False,
) -> None:
    """Write any readable data set as a LeRobot set with its action layout declared.

    Args:
        source: LeRobot folder or hub id, RLDS record folder, or folder of mp4 + json / npz.
        destination: folder to create.
        layout: name of the actions' layout (or the layout to convert to, where the set's own is known).
        version: LeRobot format.
        camera: views to keep; default all.
        overwrite: replace an existing destination.
    """
    from simforcing.data.convert import convert as run

    run(source, destination, layout=layout, version=version, cameras=camera or None, overwrite=overwrite, report=say)


def tabletop(
    out: Path,
    /,
    episodes: int = 300,
    held_out: int = 0,
    counterfactual_starts: int = 0,
    frames: int = 33,
    size: int = 64,
    truth: bool = False,
    processes: int | None = None,
    seed: int = 0,
    overwrite: bool = False,
    real: Domain = PLAIN,
) -> None:
    """Simulate the table-top scene and write it as LeRobot sets, as plain or as real-like as asked for.

    Args:
        out: folder to create; gets `episodes`, `held_out` and `counterfactuals`.
        episodes: demonstrations.
        held_out: further episodes, always from all of the workspace.
        counterfactual_starts: starts from which four action sequences are truly rendered.
        frames: frames per episode, at 5 Hz.
        size: height and width in pixels.
        truth: also store the robot's true mask and depth in every frame.
        processes: simulators side by side; default one per core.
        seed: of scenes and tasks.
        overwrite: replace existing sets.
    """
    from simforcing.data.tabletop import TabletopSets
    from simforcing.recipes.tabletop_sets import simulate_tabletop
    from simforcing.sim.tabletop import TabletopConfig

    sets = TabletopSets(
        num_episodes=episodes,
        num_held_out=held_out,
        num_counterfactual_starts=counterfactual_starts,
        seed=seed,
        simulator=TabletopConfig(num_frames=frames, size_px=size, real=real, truth=truth),
        num_processes=processes,
    )
    simulate_tabletop(sets, out, overwrite=overwrite, report=say)


def calibrate(
    source: str,
    out: Path,
    /,
    view: str | None = None,
    robot: str | None = None,
    robot_path: Path | None = None,
    start: Path | None = None,
    fovy_deg: float | None = None,
    aspect: float | None = None,
    lags: tuple[int, ...] = (-1, 0, 1, 2, 3),
    groups: Literal["auto", "one", "each"] = "auto",
    stored_cameras: bool = True,
    masks: bool = False,
    min_iou: float = 0.15,
    seed: int = 0,
    processes: int | None = None,
    gl: Literal["egl", "osmesa"] | None = None,
) -> None:
    """Find the camera of each group of episodes and the lag of its frames, by matching the robot's silhouettes.

    Args:
        source: any readable data set.
        out: JSON file to write, for `simforcing simulate --calibration`; a sheet of overlays is written beside it.
        view: camera of the set; default the first.
        robot: name of the robot; default as the set declares.
        robot_path: its model file, or the folder that holds it.
        start: JSON of a camera to start from; default all around the robot.
        fovy_deg: vertical field of view, where it is known; else it is fitted.
        aspect: width over height of the picture that the camera took, where the stored one was squashed (1.778).
        lags: lags to try: frame i shows the state of row i - lag.
        groups: which episodes share a camera; auto compares their backgrounds.
        stored_cameras: start from the cameras that the set itself holds.
        masks: use the set's masks of the robot instead of what changes.
        min_iou: episodes whose silhouettes overlap less are left out.
        seed: of the search.
        processes: groups side by side; default one per core.
        gl: how to render without a screen; default egl, or what MUJOCO_GL says.
    """
    from simforcing.sim.gl import load_mujoco

    load_mujoco(gl)  # before anything else imports it
    from simforcing.recipes.calibrate import CalibrateOptions, read_camera, table
    from simforcing.recipes.calibrate import calibrate as run

    options = CalibrateOptions(
        view=view,
        robot=robot,
        robot_path=robot_path,
        start=None if start is None else read_camera(start),
        fovy_deg=fovy_deg,
        aspect=aspect,
        lags=lags,
        groups=groups,
        stored_cameras=stored_cameras,
        masks=masks,
        min_iou=min_iou,
        seed=seed,
    )
    print("\n".join(table(run(source, out, options, processes=processes, report=say))))


def simulate(
    source: str,
    destination: Path,
    /,
    robot: str | None = None,
    robot_path: Path | None = None,
    calibration: Path | None = None,
    view: str | None = None,
    lag: int = 0,
    background: Literal["grey", "white", "mean", "plate"] = "grey",
    size: tuple[int, int] | None = None,
    variants: int = 3,
    how_far: HowFar = AMPLITUDES,
    depth: bool = False,
    track: bool = False,
    seed: int = 0,
    processes: int | None = None,
    engine: Literal["local", "ray"] = "local",
    gl: Literal["egl", "osmesa"] | None = None,
    overwrite: bool = False,
) -> None:
    """Render the robot of real demonstrations through their own camera: a paired set, and perturbed variants beside it.

    Args:
        source: any readable data set.
        destination: folder to create; `<destination>-variants` is created beside it.
        robot: name of the robot; default as the set declares.
        robot_path: its model file, or the folder that holds it.
        calibration: file of `simforcing calibrate`; default the cameras that the set itself holds.
        view: camera to pair; default the calibrated one.
        lag: without a calibration: frame i shows the state of row i - lag.
        background: what the robot is put on.
        size: height and width of all frames; default as stored.
        variants: perturbed variants of each episode; 0 for none.
        depth: store the sim's depth as well.
        track: store where the end effector is seen, as columns.
        seed: of the variants.
        processes: episodes side by side; default one per core.
        engine: processes of this machine, or tasks of a Ray cluster (RAY_ADDRESS).
        gl: how to render without a screen; default egl, or what MUJOCO_GL says.
        overwrite: replace existing sets.
    """
    from simforcing.sim.gl import load_mujoco

    load_mujoco(gl)  # before anything else imports it
    from simforcing.recipes.simulate import SimulateOptions
    from simforcing.recipes.simulate import simulate as run
    from simforcing.sim.perturb import PerturbConfig

    options = SimulateOptions(
        robot=robot,
        robot_path=robot_path,
        calibration=calibration,
        view=view,
        lag=lag,
        background=background,
        size=size,
        variants=variants,
        perturb=PerturbConfig(**asdict(how_far)),
        depth=depth,
        track=track,
        seed=seed,
    )
    run(source, destination, options, engine=engine, processes=processes, overwrite=overwrite, report=say)


def agreement(
    paired_set: str,
    /,
    autoencoder: Literal["tiny", "taef2"] = "tiny",
    taef2: str | None = None,
    lags: tuple[int, ...] = (-2, -1, 0, 1, 2),
    backgrounds: tuple[Literal["white", "grey", "mean", "plate"], ...] = ("white", "grey", "mean", "plate"),
    size: tuple[int, int] | None = None,
    max_clips: int = 6,
    out: Path | None = None,
    seed: int = 0,
    overwrite: bool = False,
) -> None:
    """Go or no-go for a paired set and each of its episodes: does the sim move as the real video does?

    Exit code 1 where the verdict on the set is no-go.

    Args:
        paired_set: what `simforcing simulate` wrote.
        autoencoder: latent space: tiny (fitted to the set's own frames) or taef2.
        taef2: folder or hub id of the TAEF2 weights; default the author's on the hub.
        lags: shifts of the sim against the real video, by whole frames.
        backgrounds: that the sim is put on beside its own, without rendering again.
        size: height and width of the frames that are compared; default as stored.
        max_clips: clips of an episode, evenly spread.
        out: folder of agreement.json and agreement.png; default `<name of the set>-agreement` in the current folder.
        seed: of the tiny autoencoder and the intervals.
        overwrite: replace existing files.
    """
    from simforcing.evaluation.agreement import AgreementConfig
    from simforcing.evaluation.agreement_result import table
    from simforcing.recipes.agreement import AgreementOptions
    from simforcing.recipes.agreement import agreement as run

    compare = AgreementConfig(shifts=lags, backgrounds=backgrounds, max_clips=max_clips, seed=seed)
    options = AgreementOptions(autoencoder=autoencoder, taef2=taef2, size=size, compare=compare)
    folder = out or Path(f"{Path(paired_set).name}-agreement")
    result = run(paired_set, options, out=folder, overwrite=overwrite, report=say)
    print("\n".join(table(result)))
    if result.verdict == "no-go":
        raise SystemExit(1)


def view(
    data: str,
    /,
    episodes: tuple[str, ...] = (),
    out: Path | None = None,
    rerun: Path | None = None,
    robot_path: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Write one page to look at a data set: of a paired one real, sim, overlay and variants.

    Args:
        data: any readable data set.
        episodes: names or numbers; default a few.
        out: file; default the set's name with .html, in the current folder.
        rerun: also write a Rerun recording of a paired set (.rrd): the robot in 3D, its camera, the frames.
        robot_path: for the recording, the robot's model file, or the folder that holds it.
        overwrite: replace existing files.
    """
    from simforcing.recipes.view import view as run

    run(data, episodes=episodes, out=out, rerun=rerun, robot_path=robot_path, overwrite=overwrite, report=say)


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
    autoencoder: Literal["tiny", "taef2"] = "tiny",
    taef2: str | None = None,
    tensorboard: bool = False,
    how: How = DEFAULT,
) -> None:
    """Train a world model; the same command continues a run that was stopped.

    Args:
        data: data set with a declared action layout.
        out: folder of the run.
        recipe: debug | laptop | tabletop.
        camera: views to learn; default the first.
        frames: frames of a window.
        size: height and width of the model's frames.
        resize: what happens where the aspect differs.
        held_out: episodes kept for evaluation; default a tenth.
        steps: training steps; default the recipe's.
        batch_size: clips per step; default the recipe's.
        normaliser: of actions and states.
        autoencoder: tiny (fitted in the run) or, in recipe laptop, taef2.
        taef2: folder or hub id of the TAEF2 weights; default the author's on the hub.
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
        autoencoder=autoencoder,
        taef2_path=taef2,
        tensorboard=tensorboard,
        seed=how.seed,
        device=how.device,
        dtype=how.dtype,
    )
    train_on(data, out, recipe=recipe, options=options, overwrite=how.overwrite, command=command_line(), report=say)


def generate(
    run: Path,
    /,
    data: str | None = None,
    episode: tuple[str, ...] = (),
    max_clips: int | None = None,
    view: str | None = None,
    steps: int | None = None,
    out: Path | None = None,
    how: How = DEFAULT,
) -> None:
    """Predict clips and write them as mp4, alone and beside the real video.

    Args:
        run: folder of a finished run.
        data: data set; default the run's own.
        episode: episodes by name; default the held-out ones.
        max_clips: at most so many.
        view: camera whose video is written; default the run's first.
        steps: sampling steps; default the recipe's.
        out: folder; default RUN/generated.
    """
    from simforcing.recipes.generate import generate_clips

    generate_clips(
        run,
        out=out or run / "generated",
        episodes=episode,
        max_clips=max_clips,
        options=prediction_options(how, data=data, view=view, num_steps=steps),
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
        out: folder; default RUN/evaluation.
    """
    from simforcing.recipes.evaluate import evaluate_run, summary

    evaluated = evaluate_run(
        run,
        out=out,
        counterfactuals=counterfactuals,
        protocol=protocol,
        options=prediction_options(how, data=data, view=view, num_steps=steps),
        command=command_line(),
        report=say,
    )
    print("\n".join(summary(evaluated)))
    print(f"report: {evaluated.report}")


def demo(out: Path = Path("runs/demo"), data: str | None = None, smoke: bool = False, how: How = DEFAULT) -> None:
    """Simulate, train, predict and report, in one go; parts that are already there are kept.

    Args:
        out: folder for data, run and report; a data set of your own gets a folder of its own in it.
        data: your own data set instead of the simulated table top.
        smoke: the same path at a size that takes seconds.
    """
    from simforcing.recipes.demo import demo as run

    folder = out / "smoke" if smoke else out
    run(folder, smoke=smoke, options=prediction_options(how, data=data), report=say)


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


def prediction_options(
    how: Compute, *, data: str | None, view: str | None = None, num_steps: int | None = None
) -> "PredictionOptions":
    """The shared options beside a command's own, as one value."""
    from simforcing.recipes.prediction import PredictionOptions

    return PredictionOptions(data=data, view=view, num_steps=num_steps, **asdict(how))


def command_line() -> str:
    """The command as it was typed, for the record."""
    return " ".join(["simforcing", *sys.argv[1:]])


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
        unless = " without --overwrite" if "--overwrite" in arguments else ""
        return f"; the same command{unless} goes on where it stopped"
    return "; the same command starts again" if command in COMMANDS else ""


def one_line(error: BaseException) -> str:
    """An error's text without line breaks."""
    return " ".join(str(error).split()) or type(error).__name__
