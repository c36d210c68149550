"""Commands from recordings to paired sets. Heavy imports happen inside of them."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import tyro

from simforcing.cli.options import say
from simforcing.sim.amplitudes import Amplitudes
from simforcing.sim.real_like import RealLike

Domain = Annotated[RealLike, tyro.conf.arg(name="")]
HowFar = Annotated[Amplitudes, tyro.conf.arg(name="")]
PLAIN, AMPLITUDES = RealLike(), Amplitudes()


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
    free_focal: bool = False,
    aspect: float | None = None,
    lags: tuple[int, ...] = (-1, 0, 1, 2, 3),
    groups: Literal["auto", "one", "each"] = "auto",
    stored_cameras: bool = True,
    masks: bool = False,
    min_iou: float = 0.15,
    seed: int = 0,
    processes: int | None = None,
    gl: Literal["egl", "osmesa"] | None = None,
    overwrite: bool = False,
) -> None:
    """Find the camera of each group of episodes and the lag of its frames, by matching the robot's silhouettes.

    Exit code 1 where no episode is accepted.

    Args:
        source: any readable data set.
        out: JSON file to write, for `simforcing simulate --calibration`; a sheet of overlays is written beside it.
        view: camera of the set; default the first.
        robot: name of the robot; default as the set declares.
        robot_path: its model file, or the folder that holds it.
        start: JSON of a camera to start from; default all around the robot.
        fovy_deg: vertical field of view, where it is known; default that of the start, or fitted.
        free_focal: fit the focal length although it is given.
        aspect: width over height of the picture that the camera took, where the stored one was squashed (1.778).
        lags: lags to try: frame i shows the state of row i - lag.
        groups: which episodes share a camera; auto compares their backgrounds.
        stored_cameras: start from the cameras that the set itself holds.
        masks: use the set's masks of the robot instead of what changes.
        min_iou: episodes whose silhouettes overlap less are left out.
        seed: of the search.
        processes: groups side by side; default one per core.
        gl: how to render without a screen; default egl, or what MUJOCO_GL says.
        overwrite: replace an older file and sheet.
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
        free_focal=free_focal,
        aspect=aspect,
        lags=lags,
        groups=groups,
        stored_cameras=stored_cameras,
        masks=masks,
        min_iou=min_iou,
        seed=seed,
    )
    found = run(source, out, options, processes=processes, overwrite=overwrite, report=say)
    print("\n".join(table(found)))
    if not any(fit.accepted for group in found.groups for fit in group.episodes):
        raise SystemExit(1)


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
    workspace: tuple[float, float, float, float, float, float] | None = None,
    table_height: float | None = None,
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
        workspace: box in the base frame that variants' tools stay in, in metres: lowest corner x y z, highest corner.
        table_height: height of the table's top in the base frame, in metres, below which variants do not reach;
            default as the robot declares it, if it does.
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
        perturb=PerturbConfig(
            **asdict(how_far),
            workspace_m=None if workspace is None else (workspace[:3], workspace[3:]),
            table_height_m=table_height,
        ),
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
