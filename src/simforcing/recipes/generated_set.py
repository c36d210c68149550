"""Generated videos as a LeRobot data set: what trains a model or a policy as it is, and says that it is generated."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from simforcing.data.lerobot_episode import EncodedVideo
from simforcing.data.lerobot_stats import image_stats
from simforcing.data.lerobot_writer import LeRobotWriter
from simforcing.data.partial_folder import why_kept
from simforcing.data.video import VideoFrames
from simforcing.generation.session import held
from simforcing.generation.state import carry_state
from simforcing.recipes.generated_folder import MADE_BY, VIDEOS, view_ending
from simforcing.recipes.output import require_writable
from simforcing.types import Clip, DataSpec
from simforcing.types.files import read_json
from simforcing.types.progress import Report
from simforcing.types.version import package_version

if TYPE_CHECKING:
    from simforcing.recipes.generated_videos import Job

RECORD = "generated.json"


def require_fitting_set(
    root: Path, jobs: Sequence["Job"], spec: DataSpec, settings: dict[str, Any], *, overwrite: bool
) -> None:
    """See, before any work, that a set can be made there.

    Raises:
        ValueError: commands at another rate than the frames, no view that all videos have, or another set in the way.
    """
    if spec.num_actions != spec.num_frames - 1:
        raise ValueError(
            f"{root}: a LeRobot set has one action per frame; this model reads {spec.num_actions} actions in"
            f" {spec.num_frames - 1} frames"
        )
    common_views(jobs)
    require_writable(root)
    if overwrite and root.exists() and (reason := why_kept(root)) is not None:
        raise ValueError(f"{root} {reason}; choose another --lerobot")
    if not root.exists() or overwrite or is_written(root, jobs, settings):
        return
    raise ValueError(f"{root} exists and holds other data; choose another --lerobot, or --overwrite")


def is_written(root: Path, jobs: Sequence["Job"], settings: dict[str, Any]) -> bool:
    """Whether the set of these videos is there already."""
    path = root / "meta" / RECORD
    if not path.is_file():
        return False
    then = read_json(path)
    known = {name: value for name, value in then.items() if name != MADE_BY} if isinstance(then, dict) else then
    return known == record(jobs, settings)


def record(jobs: Sequence["Job"], settings: dict[str, Any]) -> dict[str, Any]:
    """What says of a set that it is generated: by which model, how, each episode with which seed."""
    return {**settings, VIDEOS: {job.video.name: {"seed": job.video.seed, "inputs": job.video.inputs} for job in jobs}}


def write_set(
    root: Path, jobs: Sequence["Job"], out: Path, *, spec: DataSpec, settings: dict[str, Any], report: Report
) -> None:
    """Make the set of videos that lie in `out`, with the commands that made them and the states that those lead to.

    States are written where every start has one. The last frame's command holds the one before, so that each frame has
    one. Video files are taken as they are.
    """
    if is_written(root, jobs, settings):
        report(f"{root} is there already")
        return
    views = common_views(jobs)
    tables = [(job, *table_of(job, spec)) for job in jobs]
    has_states = spec.state is not None and all(state is not None for *_, state in tables)
    if spec.state is not None and not has_states:
        without = sum(state is None for *_, state in tables)
        report(f"{root}: states are left out: {without} of {len(tables)} videos start without one")
    size = (spec.resize.height, spec.resize.width)
    with LeRobotWriter(
        root,
        fps=spec.fps,
        views=dict.fromkeys(views, size),
        action_layout=spec.action.layout,
        state_layout=spec.state.layout if spec.state is not None and has_states else None,
        robot=spec.robot,
        meta={RECORD: {MADE_BY: f"simforcing {package_version()}", **record(jobs, settings)}},
        overwrite=root.exists(),
    ) as writer:
        for job, action, task, state in tables:
            writer.add(
                frames={view: encoded(job, view, out) for view in views},
                action=action,
                state=state if has_states else None,
                task=task,
                name=job.video.name,
            )
    report(f"{root}: {len(jobs)} episodes written")


def common_views(jobs: Sequence["Job"]) -> list[str]:
    """Views that all videos have, in the first one's order. ValueError where there is none."""
    views = [view for view in jobs[0].views if all(view in job.views for job in jobs)]
    if not views:
        raise ValueError("no view is in every video; choose one with --view")
    return views


def table_of(job: "Job", spec: DataSpec) -> tuple[Float[np.ndarray, "f a"], str, Float[np.ndarray, "f s"] | None]:
    """Commands, words and states of a video, one row per frame."""
    source = job.read()
    if isinstance(source, Clip):
        known = bool(spec.stored_state_dim) and source.state_valid.all()
        action, task, state = source.action, source.task, source.state if known else None
    else:
        action, task, state = source.action, source.start.task, source.start.state
    num_frames = len(action) + 1
    after = carry_state(state, action, spec, num_frames)
    states = None if state is None or after is None else np.concatenate([state[None], after])
    return held(action, num_frames, spec.action.layout), task, states


def encoded(job: "Job", view: str, out: Path) -> EncodedVideo:
    """The finished video of a view."""
    ending = ".mp4" if view == job.views[0] else view_ending(view)
    path = out / f"{job.video.name}{ending}"
    source = VideoFrames(path)
    frames = source.read(0, source.num_frames)
    return EncodedVideo(path=path, num_frames=len(frames), size=source.size, stats=image_stats(frames))
