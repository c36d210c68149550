"""Simulated episodes of the tabletop: a scene, a plan, contact physics and rendered frames as arrays.

Every episode is a function of (config, seed, index); counterfactual episodes share their scene and start.
"""

# MuJoCo ships no stubs:
# pyright: reportAttributeAccessIssue=false, reportInvalidTypeForm=false

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import get_args

import mujoco
import numpy as np
from jaxtyping import Bool, Float, UInt8

from simforcing.sim.camera_error import displaced_camera
from simforcing.sim.kinematics import follow, site_pose
from simforcing.sim.look import draw_look
from simforcing.sim.real_like import RealLike
from simforcing.sim.render import Renderer
from simforcing.sim.scene import Scene, SceneConfig, apply, compile_tabletop, pinhole, place_objects
from simforcing.sim.tabletop_arm import TABLETOP_ARM
from simforcing.sim.tabletop_ik import DampedInverse
from simforcing.sim.tasks import Command, Plan, Planner, TaskKind, Workspace
from simforcing.types import Camera

(ARM,) = TABLETOP_ARM.arms
assert ARM.gripper is not None
GRIPPER = ARM.gripper
# Streams of random numbers: no two sets share a scene. What the real-like domain adds is drawn from streams of its own,
# so that no knob changes what another one does.
EPISODES, COUNTERFACTUALS, HELD_OUT, CAMERAS = range(4)
LOOK, CAMERA_ERROR = 1, 2
BRANCHES = 4
LIFT_M = 0.03
CLEARANCE_M = 0.03  # of the finger tips above the highest object, where nothing may be touched
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
        real: knobs of the real-like domain; all off by default.
        truth: also render the robot's mask and the depth of every frame.
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
    real: RealLike = field(default_factory=RealLike)
    truth: bool = False

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
        if not self.real.contact and sum(self.task_weights[:2]) == 0:
            raise ValueError(f"task_weights {self.task_weights}: without contact there is only reach and move")
        if self.real.camera_error_px > self.size_px / 4:
            raise ValueError(f"camera_error_px {self.real.camera_error_px}: at most a quarter of {self.size_px} pixels")

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
        declared_camera: that the recording claims; None where it claims none.
        mask, depth_m: where the robot is seen in the frames, nothing in front of it, and metres along the camera's axis
            (0: nothing there); on request.
        lifted: the targeted object was clearly above the table at some frame.
        start, branch: number of the shared start and of the action sequence in a counterfactual set, else index and 0.
    """

    frames: UInt8[np.ndarray, "f h w 3"]
    action: Float[np.ndarray, "f 7"]
    state: Float[np.ndarray, "f 7"]
    joint_rad: Float[np.ndarray, "f 6"]
    camera: Camera
    declared_camera: Camera | None
    task: str
    kind: TaskKind
    lifted: bool
    start: int
    branch: int
    mask: Bool[np.ndarray, "f h w"] | None = None
    depth_m: Float[np.ndarray, "f h w"] | None = None


@dataclass(frozen=True, kw_only=True)
class Start:
    """What the branches of an episode share: number, scene, pose of the arm, and what is said about the camera."""

    index: int
    scene: Scene
    command: Command
    camera: Camera
    declared_camera: Camera | None


@dataclass(frozen=True, kw_only=True)
class _Record:
    """What one run of the physics gave, row by row; pictures without sensor noise, of rows that a frame shows."""

    pictures: UInt8[np.ndarray, "r h w 3"]
    mask: Bool[np.ndarray, "r h w"] | None
    depth_m: Float[np.ndarray, "r h w"] | None
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
        num_slots, real = config.scene.num_objects[1], config.real
        self._model = compile_tabletop(
            num_slots=num_slots, timestep_s=config.timestep_s, with_look=real.appearance != "none"
        )
        self._data = mujoco.MjData(self._model)
        self._kinematics = DampedInverse()
        self._planner = Planner(
            workspace=self._workspace(HELD_OUT),
            num_steps=config.num_frames - 1,
            pace_m=config.pace_m,
            lowest_m=self._lowest_m,
        )
        self._renderer = Renderer(self._model, size=(config.size_px, config.size_px), supersample=config.supersample)
        self._site = self._model.site(ARM.site).id
        self._arm = np.array([self._model.joint(name).qposadr[0] for name in ARM.joints])
        self._objects = np.array([self._model.body(f"object_{i}").id for i in range(num_slots)])
        self._fingers = np.array([self._model.joint(name).qposadr[0] for name in GRIPPER.joints])
        self._robot = _robot_bodies(self._model)
        self._robot_points = self._points_of_robot()
        self._robot_geoms = np.flatnonzero(np.isin(self._model.geom_bodyid, self._robot))
        self._applied: Scene | None = None
        _add_stiction(self._model, real.stiction_rad)

    def episode(self, *, seed: int, index: int, held_out: bool = False) -> SimulatedEpisode:
        """Episode `index` of the set with that seed; held-out ones are others, from all of the workspace."""
        stream = HELD_OUT if held_out else EPISODES
        start, rng = self._start(seed, stream, index)
        weights = np.array(self.config.task_weights)
        if not self.config.real.contact:
            weights[2:] = 0.0
        kind = get_args(TaskKind)[rng.choice(len(weights), p=weights / weights.sum())]
        planner = replace(self._planner, workspace=self._workspace(stream))
        return self.simulate(start, planner.plan(kind, start.scene, start.command, rng))

    def counterfactuals(self, *, seed: int, index: int) -> tuple[SimulatedEpisode, ...]:
        """Four episodes from start `index`: a pick, a grasp that closes beside an object, and two moves.

        Goals of the moves are chosen far from the other branches, so that the four soon look different. Without
        contact the arm reaches for the two objects instead of grasping.
        """
        start, rng = self._start(seed, COUNTERFACTUALS, index)
        scene, command = start.scene, start.command
        target = int(rng.integers(len(scene.objects)))
        other = (target + 1) % len(scene.objects)
        kinds: tuple[TaskKind, TaskKind] = ("pick", "miss") if self.config.real.contact else ("reach", "reach")
        plans = [
            self._planner.plan(kind, scene, command, rng, target=item)
            for kind, item in zip(kinds, (target, other), strict=True)
        ]
        taken = [command[:3], *(np.array([*scene.objects[i].position_m, 0.05]) for i in (target, other))]
        for _ in range(BRANCHES - len(plans)):
            goal = self._far_goal(taken, rng)
            taken.append(goal[:3])
            plans.append(self._planner.move(goal, command, rng))
        return tuple(self.simulate(start, plan, branch=branch) for branch, plan in enumerate(plans))

    def simulate(self, start: Start, chosen: Plan, *, branch: int = 0) -> SimulatedEpisode:
        """Carry out a plan from rest at a start.

        Where contact forces blow up, the episode is simulated again with finer physics steps, so that it depends on
        nothing but its own numbers. Raises RuntimeError where the finest steps do not help.
        """
        joint_rad = self._reset(start)
        path = follow(self._kinematics, chosen.commands[:, :6], joint_rad)
        controls = np.concatenate([path, GRIPPER.positions(chosen.commands[:, 6])], axis=1)
        for refinement in REFINEMENTS:
            self._reset(start)
            with _quiet_warnings():
                record = self._record(start, self._late(controls), refinement)
            if record is not None:
                break
        else:
            raise RuntimeError(
                f"start {start.index}, branch {branch}: unstable physics; lower timestep_s {self.config.timestep_s}"
            )
        lift_m = 0.0
        if chosen.target is not None:
            lift_m = record.object_height_m[:, chosen.target].max() - start.scene.objects[chosen.target].half_size_m[2]
        shown = np.maximum(0, np.arange(self.config.num_frames) - self.config.real.frame_lag)
        pictures, look = record.pictures[shown], start.scene.look
        return SimulatedEpisode(
            frames=pictures if look is None else look.exposed(pictures, branch),
            action=np.concatenate([chosen.commands, chosen.commands[-1:]]).astype(np.float32),
            state=record.state.astype(np.float32),
            joint_rad=record.joint_rad,
            camera=start.camera,
            declared_camera=start.declared_camera,
            task=chosen.task,
            kind=chosen.kind,
            lifted=bool(lift_m > LIFT_M),
            start=start.index,
            branch=branch,
            mask=None if record.mask is None else record.mask[shown],
            depth_m=None if record.depth_m is None else record.depth_m[shown],
        )

    def close(self) -> None:
        """Free the OpenGL context."""
        self._renderer.close()

    @property
    def _lowest_m(self) -> float:
        """Height above which nothing is touched, where nothing may be."""
        return 0.0 if self.config.real.contact else 2 * self.config.scene.half_height_m[1] + CLEARANCE_M

    def _workspace(self, stream: int) -> Workspace:
        """Where the arm goes in a set: demonstrations may see half."""
        workspace, real = self.config.workspace, self.config.real
        low, high = workspace.height_m
        return replace(
            workspace,
            height_m=(max(low, self._lowest_m), max(high, self._lowest_m)),
            left_only=workspace.left_only or (stream == EPISODES and real.coverage == "half"),
        )

    def _start(self, seed: int, stream: int, index: int) -> tuple[Start, np.random.Generator]:
        """A scene and a pose to start from, and the generator to draw what is done there."""
        rng, real, config = np.random.default_rng([seed, stream, index]), self.config.real, self.config.scene
        half = stream == EPISODES and real.coverage == "half"
        scene = replace(config, left_only=config.left_only or half).draw(rng)
        command = self._workspace(stream).draw(rng)
        command[2] = max(command[2], 0.1)
        # Beside the episode's own numbers, so that no knob changes the others' episodes.
        place = [seed, CAMERAS] if real.shared_camera else [seed, stream, index]
        if real.shared_camera:
            scene = scene.with_camera_of(config.draw(np.random.default_rng(place)))
        camera = pinhole(scene, self.config.size_px)
        if real.appearance != "none":
            look = draw_look(real.appearance, camera, np.random.default_rng([seed, stream, index, LOOK]))
            scene = replace(scene, look=look)
        scene = replace(scene, contact=real.contact)
        error = np.random.default_rng([*place, CAMERA_ERROR])
        declared = displaced_camera(camera, self._robot_points, real.camera_error_px, error)
        start = Start(
            index=index,
            scene=scene,
            command=command,
            camera=camera,
            declared_camera=declared if real.declare_camera else None,
        )
        return start, rng

    def _points_of_robot(self) -> Float[np.ndarray, "n 3"]:
        """Origins of the robot's parts at poses in the middle of the workspace and on both sides (m)."""
        data, points = mujoco.MjData(self._model), []
        for waist_rad in (-0.6, 0.0, 0.6):
            data.qpos[self._arm] = [waist_rad, *ARM.home_rad[1:]]
            mujoco.mj_kinematics(self._model, data)
            points.append(data.xpos[self._robot])
        return np.concatenate(points)

    def _far_goal(self, taken: list[np.ndarray], rng: np.random.Generator) -> Command:
        goals = [self._planner.workspace.draw(rng) for _ in range(24)]
        return max(goals, key=lambda goal: min(float(np.linalg.norm(goal[:3] - place)) for place in taken))

    def _late(self, controls: Float[np.ndarray, "k 8"]) -> Float[np.ndarray, "k 8"]:
        """The controls as they reach the servos, which hold where they are until the first one comes."""
        lag = min(self.config.real.actuator_lag, len(controls))
        return np.concatenate([np.tile(self._data.ctrl, (lag, 1)), controls[: len(controls) - lag]])

    def _reset(self, start: Start) -> np.ndarray:
        if start.scene is not self._applied:  # textures take longest, and branches share them
            apply(start.scene, self._model)
            self._renderer.reload_textures()
            self._applied = start.scene
        mujoco.mj_resetData(self._model, self._data)
        place_objects(start.scene, self._model, self._data)
        home = np.array(ARM.home_rad)
        home[0] = np.arctan2(start.command[1], start.command[0])
        joint_rad = self._kinematics.inverse(start.command[:6], home)
        fingers_m = GRIPPER.positions(float(start.command[6]))
        self._data.qpos[self._arm], self._data.qpos[self._fingers] = joint_rad, fingers_m
        self._data.ctrl[:] = [*joint_rad, *fingers_m]
        mujoco.mj_forward(self._model, self._data)
        return joint_rad

    def _record(self, start: Start, controls: Float[np.ndarray, "k 8"], refinement: int) -> _Record | None:
        """Pictures and measurements along a sequence of controls; None where the physics became unstable."""
        config, data = self.config, self._data
        self._model.opt.timestep = config.timestep_s / refinement
        pictures, masks, depths, states, joints, heights = [], [], [], [], [], []
        for i in range(config.num_frames):
            if i < config.num_frames - config.real.frame_lag or i == 0:
                pictures.append(self._renderer.render(data, "view"))
                if config.truth:
                    coverage, depth_m = self._renderer.seen(data, start.camera, self._robot_geoms)
                    masks.append(coverage >= 0.5)
                    depths.append(depth_m)
            states.append(self._state())
            joints.append(data.qpos[self._arm].copy())
            heights.append(data.xpos[self._objects, 2].copy())
            if i < len(controls):
                self._advance(controls[i], config.num_substeps * refinement)
            if any(data.warning[kind].number for kind in UNSTABLE):
                return None
        return _Record(
            pictures=np.array(pictures),
            mask=np.array(masks) if config.truth else None,
            depth_m=np.array(depths) if config.truth else None,
            state=np.array(states),
            joint_rad=np.array(joints),
            object_height_m=np.array(heights),
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


def _robot_bodies(model: mujoco.MjModel) -> np.ndarray:
    """The bodies below the arm's base, itself included."""
    base = model.body("base").id
    return np.flatnonzero(model.body_rootid == model.body_rootid[base])


def _add_stiction(model: mujoco.MjModel, dead_band_rad: float) -> None:
    """Friction that holds an arm's joint until its servo is off by the dead band."""
    for actuator in range(model.nu):
        joint = model.actuator_trnid[actuator, 0]
        if dead_band_rad > 0 and model.joint(joint).name in ARM.joints:
            model.dof_frictionloss[model.jnt_dofadr[joint]] = model.actuator_gainprm[actuator, 0] * dead_band_rad
