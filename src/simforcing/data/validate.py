"""Which episodes are fit for use: the acceptance rules that every reader applies before training starts.

One surplus frame is trimmed and a wrong header rate overridden, each with one warning line; a larger length difference,
NaN, or a value more than 5 % outside its layout's declared range rejects the episode by name. Nothing is replaced.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from simforcing.types import Episode, EpisodeSet, FrameSource, Layout, Rejected, View

RANGE_TOLERANCE = 0.05  # of the declared range's width
SURPLUS_FRAMES = 1
RATE_TOLERANCE = 0.01
SHOWN_REASONS = 3


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An episode as a reader found it, before the rules.

    Args:
        name, task, views: as in Episode.
        fps: the data's own rate in Hz (metadata, or the format's known rate), which wins over the header.
        num_frames: frames that each view must have by the data's own tables.
        action, action_time_s: as in Episode; times default to i / rate, the layout's declared rate or the video's.
        state, state_time_s: likewise.
        joint: measured joints beside the state, one row per state (per frame, where there is none).
        header_fps: what the video files' headers say, one number per view that has a header.
    """

    name: str
    task: str
    fps: float
    num_frames: int
    views: tuple[View, ...]
    action: Float[np.ndarray, "k a"]
    action_time_s: Float[np.ndarray, " k"] | None = None
    state: Float[np.ndarray, "m s"] | None = None
    state_time_s: Float[np.ndarray, " m"] | None = None
    joint: Float[np.ndarray, "n j"] | None = None
    header_fps: tuple[float, ...] = ()


def range_fault(values: Float[np.ndarray, "m a"], layout: Layout) -> str | None:
    """The first value more than 5 % of its part's range outside it, in words; None where all fit."""
    start = 0
    for part in layout.parts:
        columns = values[:, start : start + part.size]
        start += part.size
        if part.kind == "unused" or part.low is None or part.high is None:
            continue
        margin = RANGE_TOLERANCE * (part.high - part.low)
        outside = np.argwhere((columns < part.low - margin) | (columns > part.high + margin))
        if len(outside):
            row, column = outside[0]
            return (
                f"{part.name}[{column}] of row {row} is {columns[row, column]:.6g},"
                f" layout {layout.name} declares {part.low:.6g} .. {part.high:.6g}"
            )
    return None


def table_fault(values: np.ndarray, layout: Layout | None, field: str) -> str | None:
    """Why a table of actions or states cannot be used, in words naming field, row and value; None where it can."""
    if values.ndim != 2 or values.shape[1] == 0 or len(values) == 0:
        return f"{field} has shape {values.shape}, expected rows x numbers"
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        return f"{field}[{row}, {column}] is {values[row, column]}, expected a finite number"
    if layout is None:
        return None
    if values.shape[1] != layout.dim:
        return f"{field} has {values.shape[1]} numbers per row, layout {layout.name} has {layout.dim}"
    fault = range_fault(values, layout)
    return None if fault is None else f"{field} {fault}"


def accept(
    candidate: Candidate,
    action_layout: Layout | None = None,
    state_layout: Layout | None = None,
    joint_layout: Layout | None = None,
) -> Episode | Rejected:
    """The episode, with a surplus frame left out, or why it is rejected. Warnings are the Inspector's affair.

    Layouts that are None are not checked: then only NaN, lengths and shapes count.
    """
    fault = (
        _view_fault(candidate)
        or _table_faults(candidate, action_layout, state_layout)
        or _joint_fault(candidate, joint_layout)
    )
    if fault is not None:
        return Rejected(name=candidate.name, reason=fault)
    action_time_s = _times(candidate.action, candidate.action_time_s, _rate_hz(candidate, action_layout))
    state_time_s = None
    measured = candidate.joint if candidate.state is None else candidate.state
    if measured is not None:
        state_time_s = _times(measured, candidate.state_time_s, _rate_hz(candidate, state_layout))
    for field, times in (("action_time_s", action_time_s), ("state_time_s", state_time_s)):
        if times is not None and not (np.isfinite(times).all() and (np.diff(times) > 0).all()):
            return Rejected(name=candidate.name, reason=f"{field} must be finite and rise at every row")
    return Episode(
        name=candidate.name,
        task=candidate.task,
        fps=candidate.fps,
        num_frames=candidate.num_frames,
        views=candidate.views,
        action=candidate.action.astype(np.float32),
        action_time_s=action_time_s,
        state=None if candidate.state is None else candidate.state.astype(np.float32),
        state_time_s=state_time_s,
        joint=None if candidate.joint is None else candidate.joint.astype(np.float32),
    )


def _rate_hz(candidate: Candidate, layout: Layout | None) -> float:
    """Rate of a table's rows where their times are not stored."""
    declared = None if layout is None else layout.rate_hz
    return candidate.fps if declared is None else declared


def disagreeing_rates(
    candidate: Candidate, action_layout: Layout | None, state_layout: Layout | None
) -> list[tuple[str, float, float]]:
    """(field, rate by its stored times, rate that its layout declares) where the two differ by more than 1 %."""
    tables = (("action", candidate.action_time_s, action_layout), ("state", candidate.state_time_s, state_layout))
    found = []
    for field, times_s, layout in tables:
        if times_s is None or layout is None or layout.rate_hz is None or len(times_s) < 2:
            continue
        rate_hz = 1.0 / float(np.median(np.diff(times_s)))
        if abs(rate_hz - layout.rate_hz) > RATE_TOLERANCE * layout.rate_hz:
            found.append((field, round(rate_hz, 3), layout.rate_hz))
    return found


def surplus_frames(candidate: Candidate) -> int:
    """The most frames that any view has beyond the data's own tables."""
    return max((view.frames.num_frames - candidate.num_frames for view in candidate.views), default=0)


class Inspector:
    """Applies the rules to one data set and collects episodes, rejections and warning lines.

    A reader calls `consider` (or `reject`) once per episode and `finish` once.

    Args:
        root: the data set, as named in messages.
        action_layout, state_layout, joint_layout: what its numbers mean; None where not declared.
        cameras: the views to read, in this order; None: all that an episode has.
    """

    def __init__(
        self,
        root: str,
        action_layout: Layout | None,
        state_layout: Layout | None,
        cameras: tuple[str, ...] | None = None,
        *,
        joint_layout: Layout | None = None,
    ) -> None:
        self.root = root
        self.cameras = cameras
        self.action_layout = action_layout
        self.state_layout = state_layout
        self.joint_layout = joint_layout
        self.episodes: list[Episode] = []
        self.rejected: list[Rejected] = []
        self._names: set[str] = set()
        self._cameras_seen: dict[str, None] = {}
        self._warnings: list[str] = []
        self._overridden: Counter[tuple[float, float]] = Counter()
        self._rates: Counter[tuple[str, float, float]] = Counter()

    def views(self, stored: dict[str, Callable[[], FrameSource]]) -> tuple[View, ...]:
        """The chosen views of one episode, opened; cameras that are not asked for are not opened."""
        self._cameras_seen.update(dict.fromkeys(stored))
        names = stored if self.cameras is None else [name for name in self.cameras if name in stored]
        return tuple(View(name=name, frames=stored[name]()) for name in names)

    def consider(self, name: str, build: Callable[[], Candidate]) -> Episode | Rejected:
        """Build one candidate and judge it; a ValueError or OSError while building rejects it by name."""
        try:
            candidate = build()
        except (ValueError, OSError) as error:
            return self.reject(name, str(error))
        return self.judge(candidate)

    def judge(self, candidate: Candidate) -> Episode | Rejected:
        """Apply `accept`, remember the verdict and what was trimmed or overridden."""
        verdict = accept(candidate, self.action_layout, self.state_layout, self.joint_layout)
        if isinstance(verdict, Rejected):
            return self.reject(verdict.name, verdict.reason)
        if verdict.name in self._names:
            return self.reject(verdict.name, "another episode of this data set has the same name")
        self._names.add(verdict.name)
        self.episodes.append(verdict)
        if surplus := surplus_frames(candidate):
            self.warn(
                f"{self.root}: episode {candidate.name}: video has {candidate.num_frames + surplus} frames,"
                f" the table {candidate.num_frames}: the last frame is left out"
            )
        for header_fps in candidate.header_fps:
            if abs(header_fps - candidate.fps) > 1e-3 * candidate.fps:
                self._overridden[(header_fps, candidate.fps)] += 1
        self._rates.update(disagreeing_rates(candidate, self.action_layout, self.state_layout))
        return verdict

    def reject(self, name: str, reason: str) -> Rejected:
        """Leave an episode out by name; the reason becomes one line."""
        rejected = Rejected(name=name, reason=" ".join(reason.split()))
        self.rejected.append(rejected)
        return rejected

    def warn(self, line: str) -> None:
        """Add one warning line."""
        self._warnings.append(" ".join(line.split()))

    def warn_once(self, line: str) -> None:
        """Add one warning line unless it is there."""
        if line not in self._warnings:
            self.warn(line)

    @property
    def warnings(self) -> tuple[str, ...]:
        """All lines so far; headers overridden from the same to the same rate share one."""
        overridden = (
            f"{self.root}: {count} video header(s) say {header:g} fps, the data has {fps:g}: the header is overridden"
            for (header, fps), count in sorted(self._overridden.items())
        )
        rates = (
            f"{self.root}: {field} times of {count} episode(s) are at {stored:g} Hz, the layout declares {declared:g}:"
            " the times are used"
            for (field, stored, declared), count in sorted(self._rates.items())
        )
        return (*self._warnings, *overridden, *rates)

    def finish(self, *, kind: str, robot: str | None, fingerprint: str) -> EpisodeSet:
        """The opened set; ValueError where a chosen camera exists nowhere or no episode is left (with the reasons)."""
        for camera in self.cameras or ():
            if self._cameras_seen and camera not in self._cameras_seen:
                raise ValueError(f"{self.root}: no camera {camera!r}; choices: {', '.join(self._cameras_seen)}")
        if not self.episodes:
            shown = "; ".join(f"{item.name}: {item.reason}" for item in self.rejected[:SHOWN_REASONS])
            more = len(self.rejected) - SHOWN_REASONS
            found = f"{len(self.rejected)} rejected: {shown}" if self.rejected else "none was found"
            raise ValueError(f"{self.root}: no usable episode ({found}{f'; and {more} more' if more > 0 else ''})")
        return EpisodeSet(
            root=self.root,
            kind=kind,
            episodes=tuple(self.episodes),
            rejected=tuple(self.rejected),
            warnings=self.warnings,
            action_layout=self.action_layout,
            state_layout=self.state_layout,
            robot=robot,
            fingerprint=fingerprint,
            joint_layout=self.joint_layout if any(episode.joint is not None for episode in self.episodes) else None,
        )


def describe(episode_set: EpisodeSet) -> tuple[str, ...]:
    """What a command prints when it opens a set: one summary line, then warnings, then each rejected episode."""
    episodes = episode_set.episodes
    frames = [episode.num_frames for episode in episodes]
    views = sorted({view.name for episode in episodes for view in episode.views})
    layout = episode_set.action_layout.name if episode_set.action_layout else "not declared"
    summary = (
        f"{episode_set.root}: {episode_set.kind}, {len(episodes)} episodes of {min(frames)} to {max(frames)} frames"
        f" at {episodes[0].fps:g} fps, views {', '.join(views)}, action layout {layout},"
        f" {len(episode_set.rejected)} rejected"
    )
    rejected = (f"{episode_set.root}: episode {item.name} is left out: {item.reason}" for item in episode_set.rejected)
    return (summary, *episode_set.warnings, *rejected)


def _view_fault(candidate: Candidate) -> str | None:
    if not candidate.views:
        return "no view is present"
    if not (np.isfinite(candidate.fps) and candidate.fps > 0):
        return f"fps is {candidate.fps}, expected a positive number"
    if candidate.num_frames < 2:
        return f"{candidate.num_frames} frame(s), expected at least 2"
    for view in candidate.views:
        surplus = view.frames.num_frames - candidate.num_frames
        if not 0 <= surplus <= SURPLUS_FRAMES:
            return f"view {view.name} has {view.frames.num_frames} frames, the table {candidate.num_frames}"
        if view.depth is not None and (fault := _depth_fault(view, candidate.num_frames)) is not None:
            return fault
    return None


def _depth_fault(view: View, num_frames: int) -> str | None:
    assert view.depth is not None
    if view.depth.num_frames < num_frames:
        return f"depth of view {view.name} has {view.depth.num_frames} frames, the table {num_frames}"
    if view.depth.size != view.frames.size:
        return f"depth of view {view.name} is of {view.depth.size}, its frames of {view.frames.size} pixels"
    return None


def _table_faults(candidate: Candidate, action_layout: Layout | None, state_layout: Layout | None) -> str | None:
    """Faults of both tables; without times a table has one row per frame, or one fewer."""
    tables = [("action", candidate.action, candidate.action_time_s, action_layout)]
    if candidate.state is not None:
        tables.append(("state", candidate.state, candidate.state_time_s, state_layout))
    for field, values, times_s, layout in tables:
        fault = table_fault(values, layout, field)
        if fault is None and times_s is None:
            fault = _length_fault(candidate, field, len(values), _rate_hz(candidate, layout))
        if fault is not None:
            return fault
    return None


def _joint_fault(candidate: Candidate, layout: Layout | None) -> str | None:
    """Joints are checked like states; beside states they have as many rows, and share their times."""
    if candidate.joint is None:
        return None
    if (fault := table_fault(candidate.joint, layout, "joint")) is not None:
        return fault
    if candidate.state is not None and len(candidate.joint) != len(candidate.state):
        return f"joint has {len(candidate.joint)} rows, state {len(candidate.state)}; they are measured together"
    if candidate.state is None and candidate.state_time_s is None:
        return _length_fault(candidate, "joint", len(candidate.joint), _rate_hz(candidate, layout))
    return None


def _length_fault(candidate: Candidate, field: str, num_rows: int, rate_hz: float) -> str | None:
    """Rows without times fill the video: as many as its frames last at the rows' rate, or up to one frame fewer."""
    per_frame = rate_hz / candidate.fps
    most = candidate.num_frames * per_frame
    if most - max(per_frame, 1) - 0.5 < num_rows < most + 0.5:
        return None
    if per_frame == 1:
        return f"{field} has {num_rows} rows for {candidate.num_frames} frames, expected as many or one fewer"
    seconds = candidate.num_frames / candidate.fps
    return f"{field} has {num_rows} rows at {rate_hz:g} Hz for {seconds:.3g} s of video, expected about {most:.0f}"


def _times(
    values: Float[np.ndarray, "m a"], times_s: Float[np.ndarray, " m"] | None, rate_hz: float
) -> Float[np.ndarray, " m"]:
    if times_s is None:
        return np.arange(len(values), dtype=np.float64) / rate_hz
    return np.asarray(times_s, np.float64)
