"""Writes the simulated tabletop as LeRobot data sets: `episodes` to learn from, held-out ones and counterfactuals.

A counterfactual set holds several true videos from each start: columns `start` and `branch` say which is which. The
truth about every episode, also where the set declares something else, stands in meta/tabletop_truth.json.
"""

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from simforcing.data.lerobot_writer import LeRobotWriter
from simforcing.sim.tabletop import BRANCHES, SimulatedEpisode, TabletopConfig
from simforcing.sim.tabletop_arm import TABLETOP_ARM
from simforcing.sim.tabletop_jobs import Job, simulate_jobs
from simforcing.types import Camera, layout_named, to_json
from simforcing.types.cameras import camera_from_json, camera_to_json
from simforcing.types.files import read_json

VIEW, MASK_VIEW = "front", "front_mask"
CONFIG_NAME = "tabletop.json"  # in meta/: the sets that it was written as one of
TRUTH_NAME = "tabletop_truth.json"  # in meta/: what a recording would not know
SET_NAMES = ("episodes", "held_out", "counterfactuals")
Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class TabletopSets:
    """Data sets of one simulator.

    Args:
        num_episodes, num_held_out, num_counterfactual_starts: sizes; a start has four branches. Of the latter two, 0
            writes no set.
        seed: with a number of episodes, decides everything in them; the number of processes does not.
        simulator: what is simulated.
        num_processes: all usable cores where None.
    """

    num_episodes: int
    num_held_out: int = 0
    num_counterfactual_starts: int = 0
    seed: int = 0
    simulator: TabletopConfig = field(default_factory=TabletopConfig)
    num_processes: int | None = None

    def __post_init__(self) -> None:
        if self.num_episodes < 1:
            raise ValueError(f"num_episodes {self.num_episodes}: must be at least 1")
        for name in ("num_held_out", "num_counterfactual_starts"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} {getattr(self, name)}: must not be negative")
        if self.seed < 0:
            raise ValueError(f"seed {self.seed}: must not be negative")

    @property
    def num_written(self) -> int:
        """Episodes in all sets together."""
        return sum(self.num_in(name) for name in SET_NAMES)

    @property
    def names(self) -> list[str]:
        """Folders that are written."""
        return [name for name in SET_NAMES if self.num_in(name)]

    def num_in(self, name: str) -> int:
        """Episodes in one set."""
        return len(self._jobs(name)) * (BRANCHES if name == "counterfactuals" else 1)

    def finished(self, root: Path) -> list[str]:
        """Sets below `root` that are exactly what would be written: a run that was stopped after them goes on."""
        return [name for name in self.names if _stored_config(root / name) == self._config()]

    def refuse_existing(self, root: Path) -> None:
        """ValueError where a set is there already that is not one of these, or where all of these are."""
        finished = self.finished(root)
        for name in self.names:
            if (root / name).exists() and (name not in finished or len(finished) == len(self.names)):
                raise ValueError(f"{root / name} exists already; choose another folder, or --overwrite")

    def write(self, root: str | Path, progress: Progress | None = None, *, overwrite: bool = False) -> None:
        """Write `<root>/episodes` and, if asked for, `<root>/held_out` and `<root>/counterfactuals`.

        Each set appears under its name when all of it is there; the same call keeps it and goes on with the next, where
        it was stopped between two. With `overwrite` each replaces an older one. Raises ValueError where another set
        is there or all are; RuntimeError where OpenGL is missing or a simulation process dies.
        """
        root = Path(root)
        if not overwrite:
            self.refuse_existing(root)
        kept = [] if overwrite else self.finished(root)
        done = sum(self.num_in(name) for name in kept)

        def count() -> None:
            nonlocal done
            done += 1
            if progress is not None:
                progress(done, self.num_written)

        missing = [name for name in self.names if name not in kept]
        jobs = [job for name in missing for job in self._jobs(name)]
        # One pool for all sets: processes start once.
        with closing(simulate_jobs(self.simulator, jobs, num_processes=self.num_processes)) as results:
            for name in missing:
                episodes = chain.from_iterable(islice(results, len(self._jobs(name))))
                with self._writer(root / name, overwrite) as writer:
                    _add_all(writer, episodes, count)

    def _jobs(self, name: str) -> list[Job]:
        if name == "counterfactuals":
            starts = range(self.num_counterfactual_starts)
            return [Job(kind="counterfactuals", seed=self.seed, index=index) for index in starts]
        if name == "held_out":
            return [Job(kind="held_out", seed=self.seed, index=index) for index in range(self.num_held_out)]
        return [Job(kind="episode", seed=self.seed, index=index) for index in range(self.num_episodes)]

    def _writer(self, root: Path, overwrite: bool) -> LeRobotWriter:
        size, with_truth = (self.simulator.size_px, self.simulator.size_px), self.simulator.truth
        layout = layout_named("tabletop")
        return LeRobotWriter(
            root,
            fps=self.simulator.control_hz,
            views={VIEW: size, **({MASK_VIEW: size} if with_truth else {})},
            action_layout=layout,
            state_layout=layout,
            joint_layout=layout_named("tabletop_joint"),
            robot=TABLETOP_ARM.name,
            masks={VIEW: MASK_VIEW} if with_truth else {},
            depth=(VIEW,) if with_truth else (),
            meta={CONFIG_NAME: self._config(), TRUTH_NAME: {}},
            overwrite=overwrite,
        )

    def _config(self) -> dict[str, Any]:
        """All that decides what is written."""
        value = to_json(self)
        del value["num_processes"]
        return value


def _stored_config(root: Path) -> Any:
    """What a set says it was written by; None where it says nothing."""
    try:
        return read_json(root / "meta" / CONFIG_NAME)
    except ValueError:
        return None


def _add_all(writer: LeRobotWriter, episodes: Iterable[SimulatedEpisode], count: Callable[[], None]) -> None:
    for episode in episodes:
        _add(writer, episode)
        count()


def _add(writer: LeRobotWriter, episode: SimulatedEpisode) -> None:
    rows, truths = len(episode.action), writer.meta[TRUTH_NAME]
    name = f"episode_{len(truths):06d}"
    frames, depth = {VIEW: episode.frames}, {}
    if episode.mask is not None and episode.depth_m is not None:
        frames[MASK_VIEW] = np.repeat(np.where(episode.mask, 255, 0).astype(np.uint8)[..., None], 3, axis=-1)
        depth[VIEW] = episode.depth_m
    writer.add(
        frames=frames,
        action=episode.action,
        state=episode.state,
        joint=np.concatenate([episode.joint_rad, episode.state[:, 6:]], axis=1),
        depth=depth,
        task=episode.task,
        name=name,
        cameras={} if episode.declared_camera is None else {VIEW: episode.declared_camera},
        extra={"start": np.full(rows, episode.start), "branch": np.full(rows, episode.branch)},
    )
    truths[name] = {"camera": camera_to_json(episode.camera), "kind": episode.kind, "lifted": episode.lifted}


def true_cameras(root: str | Path) -> dict[str, Camera]:
    """Episode name -> the camera that a tabletop set was truly seen by. Raises ValueError where it is no such set."""
    path = Path(root) / "meta" / TRUTH_NAME
    return {name: camera_from_json(truth["camera"], f"{path}: {name}") for name, truth in read_json(path).items()}
