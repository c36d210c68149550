"""Simulated episodes of the tabletop: a scene, a plan, contact physics and rendered frames as arrays.

Every episode is a function of (config, seed, index); counterfactual episodes share their scene and start.
"""

# MuJoCo ships no stubs:
# pyright: reportAttributeAccessIssue=false, reportInvalidTypeForm=false

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, get_args

import mujoco
import numpy as np
from jaxtyping import Float, UInt8

from simforcing.sim.kinematics import Kinematics, site_pose
from simforcing.sim.render import Renderer
from simforcing.sim.scene import Scene, SceneConfig, apply, compile_tabletop, pinhole, place_objects
from simforcing.sim.tabletop_arm import TABLETOP_ARM
from simforcing.sim.tasks import Command, Plan, Planner, TaskKind, Workspace
from simforcing.sim.workers import in_order
from simforcing.types import Camera

(ARM,) = TABLETOP_ARM.arms
assert ARM.gripper is not None
GRIPPER = ARM.gripper
EPISODES, COUNTERFACTUALS = 0, 1  # streams of random numbers: the two sets never share a scene
BRANCHES = 4
LIFT_M = 0.03
MAX_SIZE_PX = 2048  # supersampled, drivers still have such buffers
REFINEMENTS = (1, 2, 4)
UNSTABLE = (mujoco.mjtWarning.mjWARN_BADQPOS, mujoco.mjtWarning.mjWARN_BADQVEL, mujoco.mjtWarning.mjWARN_BADQACC)


@dataclass(frozen=True, kw_only=True)
class TabletopConfig:
    """A tabletop simulator.

    Args:
        scene: how much scenes vary.
        workspace: where the arm starts and is sent.
        num_frames: frames per episode; one control step between two of them.
        size_px: height and width of a frame, even: videos store colours at half the size.
        control_hz: rate of commands and frames.
        timestep_s: physics step; a control step must be a whole number of them.
        supersample: see `Renderer`.
        pace_m: mean travel of the gripper per control step between waypoints.
        task_weights: shares of reach, move, push, pick and miss among episodes.
    """

    scene: SceneConfig = field(default_factory=SceneConfig)
    workspace: Workspace = field(default_factory=Workspace)
    num_frames: int = 33
    size_px: int = 64
    control_hz: float = 5.0
    timestep_s: float = 0.005
    supersample: int = 2
    pace_m: float = 0.055
    task_weights: tuple[float, float, float, float, float] = (0.17, 0.2, 0.23, 0.33, 0.07)

    def __post_init__(self) -> None:
        if self.num_frames < 2:
            raise ValueError(f"num_frames {self.num_frames}: an episode needs at least 2 frames")
        if not 16 <= self.size_px <= MAX_SIZE_PX or self.size_px % 2:
            raise ValueError(f"size_px {self.size_px}: an even number of pixels from 16 to {MAX_SIZE_PX}")
        if abs(self.num_substeps * self.timestep_s * self.control_hz - 1) > 1e-9 or self.num_substeps < 1:
            raise ValueError(
                f"timestep_s {self.timestep_s}: a control step of {1 / self.control_hz} s must be a multiple of it"
            )
        if min(self.task_weights) < 0 or sum(self.task_weights) <= 0:
            raise ValueError(f"task_weights {self.task_weights}: must not be negative and must not all be 0")

    @property
    def num_substeps(self) -> int:
        """Physics steps in a control step."""
        return round(1 / (self.control_hz * self.timestep_s))

    def build(self) -> "Tabletop":
        """The simulator; opens this process's OpenGL context."""
        return Tabletop(self)


@dataclass(frozen=True, kw_only=True)
class SimulatedEpisode:
    """Frames, measured states and commands; row i of both belongs to frame i, the last command is the final one again.

    Args:
        camera: that the frames are seen by; poses of states and actions are in its base frame.
        lifted: the targeted object was clearly above the table at some frame.
        start, branch: number of the shared start and of the action sequence in a counterfactual set, else index and 0.
    """

    frames: UInt8[np.ndarray, "f h w 3"]
    action: Float[np.ndarray, "f 7"]
    state: Float[np.ndarray, "f 7"]
    joint_rad: Float[np.ndarray, "f 6"]
    camera: Camera
    task: str
    kind: TaskKind
    lifted: bool
    start: int
    branch: int


@dataclass(frozen=True, kw_only=True)
class _Record:
    """What one run of the physics gave, frame by frame."""

    frames: UInt8[np.ndarray, "f h w 3"]
    state: Float[np.ndarray, "f 7"]
    joint_rad: Float[np.ndarray, "f 6"]
    object_height_m: Float[np.ndarray, "f o"]


@contextmanager
def _quiet_warnings() -> Iterator[None]:
    """MuJoCo reports instability on the terminal and in a file of the current folder; it is handled here instead."""
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda message: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


class Tabletop:
    """One compiled model and one renderer, reused for every episode of a process."""

    def __init__(self, config: TabletopConfig) -> None:
        self.config = config
        self._model = compile_tabletop(num_slots=config.scene.num_objects[1], timestep_s=config.timestep_s)
        self._data = mujoco.MjData(self._model)
        self._kinematics = Kinematics(TABLETOP_ARM)
        self._planner = Planner(workspace=config.workspace, num_steps=config.num_frames - 1, pace_m=config.pace_m)
        self._renderer = Renderer(self._model, size=(config.size_px, config.size_px), supersample=config.supersample)
        self._site = self._model.site(ARM.site).id
        self._arm = np.array([self._model.joint(name).qposadr[0] for name in ARM.joints])
        self._objects = np.array([self._model.body(f"object_{i}").id for i in range(config.scene.num_objects[1])])
        self._fingers = np.array([self._model.joint(name).qposadr[0] for name in GRIPPER.joints])

    def episode(self, *, seed: int, index: int) -> SimulatedEpisode:
        """Episode `index` of the set with that seed."""
        rng = np.random.default_rng([seed, EPISODES, index])
        scene, start = self.config.scene.draw(rng), self.config.workspace.draw(rng)
        start[2] = max(start[2], 0.1)
        weights = np.array(self.config.task_weights)
        kind = get_args(TaskKind)[rng.choice(len(weights), p=weights / weights.sum())]
        chosen = self._planner.plan(kind, scene, start, rng)
        return self.simulate(scene, start, chosen, start_index=index, branch=0)

    def counterfactuals(self, *, seed: int, index: int) -> tuple[SimulatedEpisode, ...]:
        """Four episodes from start `index`: a pick, a grasp that closes beside an object, and two moves.

        Goals of the moves are chosen far from the other branches, so that the four soon look different.
        """
        rng = np.random.default_rng([seed, COUNTERFACTUALS, index])
        scene, start = self.config.scene.draw(rng), self.config.workspace.draw(rng)
        start[2] = max(start[2], 0.1)
        target = int(rng.integers(len(scene.objects)))
        other = (target + 1) % len(scene.objects)
        plans = [
            self._planner.plan("pick", scene, start, rng, target=target),
            self._planner.plan("miss", scene, start, rng, target=other),
        ]
        taken = [start[:3], *(np.array([*scene.objects[i].position_m, 0.05]) for i in (target, other))]
        for _ in range(BRANCHES - len(plans)):
            goal = self._far_goal(taken, rng)
            taken.append(goal[:3])
            plans.append(self._planner.move(goal, start, rng))
        return tuple(self.simulate(scene, start, p, start_index=index, branch=i) for i, p in enumerate(plans))

    def simulate(
        self, scene: Scene, start: Command, chosen: Plan, *, start_index: int, branch: int
    ) -> SimulatedEpisode:
        """Carry out a plan from rest at `start`.

        Where contact forces blow up, the episode is simulated again with finer physics steps, so that it depends on
        nothing but its own numbers. Raises RuntimeError where the finest steps do not help.
        """
        joint_rad = self._reset(scene, start)
        path = self._kinematics.follow(chosen.commands[:, :6], joint_rad)
        controls = np.concatenate([path, GRIPPER.positions(chosen.commands[:, 6])], axis=1)
        for refinement in REFINEMENTS:
            self._reset(scene, start)
            with _quiet_warnings():
                record = self._record(controls, refinement)
            if record is not None:
                break
        else:
            raise RuntimeError(
                f"start {start_index}, branch {branch}: unstable physics; lower timestep_s {self.config.timestep_s}"
            )
        lift_m = 0.0
        if chosen.target is not None:
            lift_m = record.object_height_m[:, chosen.target].max() - scene.objects[chosen.target].half_size_m[2]
        return SimulatedEpisode(
            frames=record.frames,
            action=np.concatenate([chosen.commands, chosen.commands[-1:]]).astype(np.float32),
            state=record.state.astype(np.float32),
            joint_rad=record.joint_rad,
            camera=pinhole(scene, self.config.size_px),
            task=chosen.task,
            kind=chosen.kind,
            lifted=bool(lift_m > LIFT_M),
            start=start_index,
            branch=branch,
        )

    def close(self) -> None:
        """Free the OpenGL context."""
        self._renderer.close()

    def _far_goal(self, taken: list[np.ndarray], rng: np.random.Generator) -> Command:
        goals = [self.config.workspace.draw(rng) for _ in range(24)]
        return max(goals, key=lambda goal: min(float(np.linalg.norm(goal[:3] - place)) for place in taken))

    def _reset(self, scene: Scene, start: Command) -> np.ndarray:
        apply(scene, self._model)
        self._renderer.reload_textures()
        mujoco.mj_resetData(self._model, self._data)
        place_objects(scene, self._model, self._data)
        home = np.array(ARM.home_rad)
        home[0] = np.arctan2(start[1], start[0])
        joint_rad = self._kinematics.inverse(start[:6], home)
        fingers_m = GRIPPER.positions(float(start[6]))
        self._data.qpos[self._arm], self._data.qpos[self._fingers] = joint_rad, fingers_m
        self._data.ctrl[:] = [*joint_rad, *fingers_m]
        mujoco.mj_forward(self._model, self._data)
        return joint_rad

    def _record(self, controls: Float[np.ndarray, "k 8"], refinement: int) -> _Record | None:
        """Frames and measurements along a sequence of controls; None where the physics became unstable."""
        config, data = self.config, self._data
        self._model.opt.timestep = config.timestep_s / refinement
        frames = np.empty((config.num_frames, config.size_px, config.size_px, 3), np.uint8)
        states, joints, heights = [], [], []
        for i in range(config.num_frames):
            frames[i] = self._renderer.render(data, "view")
            states.append(self._state())
            joints.append(data.qpos[self._arm].copy())
            heights.append(data.xpos[self._objects, 2].copy())
            if i < len(controls):
                self._advance(controls[i], config.num_substeps * refinement)
            if any(data.warning[kind].number for kind in UNSTABLE):
                return None
        return _Record(
            frames=frames, state=np.array(states), joint_rad=np.array(joints), object_height_m=np.array(heights)
        )

    def _advance(self, control: np.ndarray, num_substeps: int) -> None:
        """One control step: the servos' targets move evenly to the new command and wait there for its last fifth."""
        before = self._data.ctrl.copy()
        for substep in range(1, num_substeps + 1):
            self._data.ctrl[:] = before + (control - before) * min(1.0, 1.25 * substep / num_substeps)
            mujoco.mj_step(self._model, self._data)
        mujoco.mj_forward(self._model, self._data)

    def _state(self) -> np.ndarray:
        """The measured pose; the gripper's sensor ends at its stops, as fingers pressed into them do not count."""
        gripper = float(GRIPPER.openness(self._data.qpos[self._fingers].mean(keepdims=True)))
        return np.array([*site_pose(self._data, self._site), min(1.0, max(0.0, gripper))])


@dataclass(frozen=True, kw_only=True)
class Job:
    """One episode of the set with that seed, or all branches of one start."""

    kind: Literal["episode", "counterfactuals"]
    seed: int
    index: int


_simulators: dict[TabletopConfig, Tabletop] = {}  # of this process, kept from job to job


def simulate_jobs(
    config: TabletopConfig, jobs: Iterable[Job], *, num_processes: int | None = None
) -> Generator[tuple[SimulatedEpisode, ...], None, None]:
    """The episodes of every job, in order, whatever the number of processes; see `workers.in_order`."""
    try:
        with closing(in_order(jobs, partial(_simulate_job, config), num_processes=num_processes)) as results:
            yield from results
    finally:
        if config in _simulators:
            _simulators.pop(config).close()


def _simulate_job(config: TabletopConfig, job: Job) -> tuple[SimulatedEpisode, ...]:
    if config not in _simulators:
        _simulators[config] = config.build()
    simulator = _simulators[config]
    if job.kind == "episode":
        return (simulator.episode(seed=job.seed, index=job.index),)
    return simulator.counterfactuals(seed=job.seed, index=job.index)
