"""What `simulate` renders (colour, mask, robot on its background) against a bare loop of MuJoCo's own renderer.

    OMP_NUM_THREADS=1 python benchmarks/render.py --widowx FOLDER --panda panda.xml

Same model (shadows and reflections off in all), size, view and configurations, in turns, CPU time; medians of the
rounds' own ratios. Ours has smooth edges and a mask: the like of it is MuJoCo's renderer with its usual 4 samples.
Beside it are shown that renderer without smooth edges, and with a second picture of segments, its only mask.

Aims: 0.8 of the bare loop's frames/s, 1.7 times with two processes, cost linear in frames, memory flat. Two processes
are measured by wall time, which needs a quiet machine, and by CPU time, which tells what they cost each other beside
waiting for a core.
"""

import argparse
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import mujoco
import numpy as np
from machine import cpu_seconds, describe, median_ratio

from simforcing.data.backgrounds import plain
from simforcing.sim.model import RobotModel
from simforcing.sim.robots import robot_named
from simforcing.sim.studio import Studio, close_studios, studio_of
from simforcing.sim.workers import in_order
from simforcing.types import Camera
from simforcing.types.cameras import pinhole_intrinsics, pose_from

LOOK_AT_M, DISTANCE_M, AZIMUTH_DEG, ELEVATION_DEG, FOVY_DEG = (0.2, 0.0, 0.25), 1.3, 150.0, -20.0, 45.0
SAMPLES = 4  # of MuJoCo by default
MEMORY_FRAMES, MEMORY_WARM_UP = 10_000, 1_000


@dataclass(frozen=True)
class Case:
    """A robot and the size that it is rendered in."""

    robot: str
    path: Path | None
    size: tuple[int, int]


@dataclass(frozen=True)
class Job:
    """So many frames in a process; returns (CPU seconds, wall begin, wall end)."""

    case: Case
    num_frames: int


def camera(size: tuple[int, int]) -> Camera:
    """The pinhole of MuJoCo's free camera at the constants above, in the world's frame."""
    azimuth, elevation = np.deg2rad([AZIMUTH_DEG, ELEVATION_DEG])
    ahead = np.array([np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)])
    right = np.cross(ahead, [0, 0, 1.0])
    right /= np.linalg.norm(right)
    pose = np.eye(4)
    pose[:3, :3] = np.stack([right, np.cross(right, ahead), -ahead], axis=1)
    pose[:3, 3] = np.array(LOOK_AT_M) - DISTANCE_M * ahead
    intrinsics = pinhole_intrinsics(size, fovy_rad=float(np.deg2rad(FOVY_DEG)))
    return Camera(size=size, intrinsics=intrinsics, pose=pose_from(pose, "mujoco"))


def configurations(studio: Studio, num_frames: int) -> np.ndarray:
    """A slow swing of all joints about the home pose; no two frames are equal."""
    phase = 0.05 * np.arange(num_frames)[:, None]
    home = studio.robot.home_rad
    joint_rad = home + 0.3 * np.sin(phase + np.arange(len(home)))
    openness = np.repeat(0.5 + 0.5 * np.sin(phase), len(studio.robot.robot.arms), axis=1)
    return studio.robot.configuration(joint_rad, openness)


def ours(studio: Studio, qpos: np.ndarray, view: Camera, background: np.ndarray) -> None:
    """As the rendering job does it, without encoding."""
    for picture in studio.pictures(qpos, view):
        picture.over(background)
        np.repeat(picture.mask[..., None], 3, axis=2) * np.uint8(255)


def bare(robot: RobotModel, renderer: mujoco.Renderer, qpos: np.ndarray, *, with_mask: bool = False) -> None:
    """The colour picture alone, or with a second one of segments, without which that renderer has no mask."""
    view = free_camera()
    for row in qpos:
        robot.place(row)
        renderer.update_scene(robot.data, camera=view)
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            renderer.scene.flags[flag] = 0
        renderer.render()
        if with_mask:
            renderer.enable_segmentation_rendering()
            renderer.render()
            renderer.disable_segmentation_rendering()


def free_camera() -> mujoco.MjvCamera:
    view = mujoco.MjvCamera()
    view.type = mujoco.mjtCamera.mjCAMERA_FREE
    view.lookat, view.distance = LOOK_AT_M, DISTANCE_M
    view.azimuth, view.elevation = AZIMUTH_DEG, ELEVATION_DEG
    return view


def loops(case: Case, num_frames: int) -> Iterator[dict[str, Callable[[], object]]]:
    """Both loops over the same frames, while the renderers are open."""
    studio = Studio(robot_named(case.robot, case.path), case.size)
    studio.robot.model.vis.global_.fovy = FOVY_DEG
    renderer = mujoco.Renderer(studio.robot.model, *case.size)
    smooth = RobotModel(studio.robot.robot)
    smooth.model.vis.quality.offsamples, smooth.model.vis.global_.fovy = SAMPLES, FOVY_DEG
    smooth.model.vis.global_.offheight, smooth.model.vis.global_.offwidth = case.size
    smooth_renderer = mujoco.Renderer(smooth.model, *case.size)
    qpos, view, background = configurations(studio, num_frames), camera(case.size), plain("grey", case.size)
    yield {
        "ours": lambda: ours(studio, qpos, view, background),
        "smooth": lambda: bare(smooth, smooth_renderer, qpos),
        "bare": lambda: bare(studio.robot, renderer, qpos),
        "masks": lambda: bare(studio.robot, renderer, qpos, with_mask=True),
    }
    renderer.close()
    smooth_renderer.close()
    studio.close()


def run_job(job: Job) -> tuple[float, float, float]:
    """Render a job's frames in this process."""
    studio = studio_of(job.case.robot, job.case.path, job.case.size)
    view, background = camera(job.case.size), plain("grey", job.case.size)
    ours(studio, configurations(studio, 30), view, background)
    begun_s, cpu_s = time.time(), time.process_time()
    ours(studio, configurations(studio, job.num_frames), view, background)
    return time.process_time() - cpu_s, begun_s, time.time()


def side_by_side(case: Case, num_frames: int) -> tuple[float, float]:
    """Frames/s of two processes over those of one: by wall time and by CPU time."""
    spent = {}
    for count in (1, 2):
        with closing(in_order([Job(case, num_frames)] * count + [Job(case, 1)], run_job, num_processes=2)) as results:
            spent[count] = list(results)[:count]
    wall = {n: max(end for *_, end in runs) - min(begin for _, begin, _ in runs) for n, runs in spent.items()}
    cpu = {n: float(np.mean([seconds for seconds, *_ in runs])) for n, runs in spent.items()}
    return 2 * wall[1] / wall[2], 2 * cpu[1] / cpu[2]


def growth_mb(case: Case) -> float:
    """Peak memory after many frames over that after a warm-up."""
    studio = studio_of(case.robot, case.path, case.size)
    view, background, peaks = camera(case.size), plain("grey", case.size), []
    for num_frames in (MEMORY_WARM_UP, MEMORY_FRAMES):
        ours(studio, configurations(studio, num_frames), view, background)
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    close_studios()
    return peaks[1] - peaks[0]


def usable(case: Case) -> bool:
    """Whether the robot's model is there; says why not."""
    try:
        Studio(robot_named(case.robot, case.path), case.size).close()
    except ValueError as error:
        print(f"{case.robot}: skipped: {error}")
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--frames", type=int, default=40)
    parser.add_argument("--widowx", type=Path, default=None, help="folder of the WidowX 250s")
    parser.add_argument("--panda", type=Path, default=None, help="panda.xml of gym-hil; default: where it is installed")
    args = parser.parse_args()
    print(f"python {' '.join(Path(word).name for word in sys.argv)}\n{describe()}; MuJoCo {mujoco.__version__}")
    cases = [
        Case("tabletop_arm", None, (64, 64)),
        Case("widowx_250s", args.widowx, (256, 256)),
        Case("panda_robotiq_2f85", args.panda, (192, 320)),
    ]
    for case in filter(usable, cases):
        for work in loops(case, args.frames):
            spent = cpu_seconds(work, args.rounds)
        speed = {name: args.frames / median(seconds) for name, seconds in spent.items()}
        ratio = {name: median_ratio(spent[name], spent["ours"]) for name in ("smooth", "bare", "masks")}
        name = f"{case.robot} {case.size[0]}x{case.size[1]}"
        print(f"{name:28s} ours {speed['ours']:5.0f} frames/s (aim: 0.8 of the bare loop)")
        for kind, words in (("smooth", "smooth edges"), ("bare", "jagged edges"), ("masks", "jagged, and segments")):
            print(f"{'':28s} bare, {words:20s} {speed[kind]:5.0f} frames/s, ratio {ratio[kind]:.2f}")
        wall, cpu = side_by_side(case, 10 * args.frames)
        print(f"{'':28s} two processes over one: {wall:.2f} by wall time, {cpu:.2f} by CPU time (aim 1.7)", flush=True)
    case = cases[0]
    seconds = {num_frames: run_job(Job(case, num_frames))[0] for num_frames in (250, 500, 1000)}
    each = ", ".join(f"{n} frames {1e3 * s / n:.2f} ms each" for n, s in seconds.items())
    print(f"{case.robot}: {each} (CPU time)")
    print(f"{case.robot}: peak memory grows by {growth_mb(case):.1f} MB over {MEMORY_FRAMES} frames")


if __name__ == "__main__":
    main()
