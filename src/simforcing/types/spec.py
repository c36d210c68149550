"""DataSpec: what a model was trained to read. It travels in every checkpoint and is checked at every use."""

from dataclasses import dataclass
from typing import Literal

from simforcing.types.config import check_choices
from simforcing.types.episodes import EpisodeSet, Resize
from simforcing.types.inputs import NetworkInput

FPS_TOLERANCE = 0.01  # relative
Wording = Literal["task", "neutral", "sim", "real"]


@dataclass(frozen=True, kw_only=True)
class DataSpec:
    """How stored episodes become a network's input.

    Args:
        views: cameras, in the order of the view axis.
        num_frames: pixel frames of a window.
        fps: video rate in Hz.
        num_actions: actions of a window (num_frames - 1 where control and video rate agree).
        resize: frame size and policy.
        action, state: how stored numbers are read, each with its layout; no state = the set has none.
        robot: name of the robot, if declared.
        fingerprint: of the data set it was fitted on.
        sim_views: the aligned simulation of each view, or none.
        wording: the prompt around the task: the task alone, or the published sentence, neutral or naming a domain.
        sim_wording: the same for the simulation of pairs; None: as `wording`.
        num_history: states measured before the window that the network reads.
        history_span_s: how far back the first of them lies; they are evenly spaced in time.
        with_maps: the network reads maps of trajectory and rays, so cameras must be known.
    """

    views: tuple[str, ...]
    num_frames: int
    fps: float
    num_actions: int
    resize: Resize
    action: NetworkInput
    state: NetworkInput | None
    robot: str | None
    fingerprint: str
    sim_views: tuple[str, ...] = ()
    wording: Wording = "task"
    sim_wording: Wording | None = None
    num_history: int = 0
    history_span_s: float = 2.0
    with_maps: bool = False

    def __post_init__(self) -> None:
        check_choices(self)
        if not 0 < self.fps < float("inf"):
            raise ValueError(f"fps is {self.fps}; expected a finite number above 0")
        if self.num_frames < 2 or self.num_actions < 1:
            raise ValueError(
                f"a window of {self.num_frames} frame(s) and {self.num_actions} action(s); expected at least 2 and 1"
            )
        if self.sim_views and len(self.sim_views) != len(self.views):
            raise ValueError(f"sim_views {self.sim_views} must name one simulation for each of the views {self.views}")
        if self.num_history < 0 or not self.history_span_s > 0:
            raise ValueError(
                f"num_history is {self.num_history} over {self.history_span_s:g} s; expected at least 0, and above 0 s"
            )
        if self.num_history and self.state is None:
            raise ValueError(f"num_history is {self.num_history}, but the set has no states")

    @property
    def streams(self) -> tuple[str, ...]:
        """All that is decoded: the views, then the simulation of each."""
        return (*self.views, *self.sim_views)

    @property
    def action_dim(self) -> int:
        """Numbers per action that the network reads."""
        return self.action.dim

    @property
    def state_dim(self) -> int:
        """Numbers per state that the network reads; 0 = none."""
        return 0 if self.state is None else self.state.dim

    @property
    def stored_state_dim(self) -> int:
        """Numbers per state as stored; 0 = none is read."""
        return 0 if self.state is None else self.state.layout.dim

    def check(self, data: EpisodeSet) -> None:
        """Refuse a data set that means something else by its numbers.

        Raises:
            ValueError: names the field and both sides: action or state layout, fps, robot.
        """
        pairs = [
            ("action layout", self.action.layout, data.action_layout),
            ("state layout", self.state.layout if self.state else None, data.state_layout if self.state else None),
            ("robot", self.robot, data.robot if data.robot is not None else self.robot),
        ]
        for field, mine, theirs in pairs:
            if mine != theirs:
                raise ValueError(f"{data.root}: {field} is {_name(theirs)}; the model was trained on {_name(mine)}")
        present = {view.name for episode in data.episodes for view in episode.views}
        if missing := [name for name in self.streams if name not in present]:
            raise ValueError(
                f"{data.root}: no view {missing[0]!r}, which the model was trained on;"
                f" views: {', '.join(sorted(present))}"
            )
        for episode in data.episodes:
            if abs(episode.fps - self.fps) > FPS_TOLERANCE * self.fps:
                raise ValueError(
                    f"{data.root}: episode {episode.name} has {episode.fps:g} frames/s;"
                    f" the model was trained on {self.fps:g}"
                )


def _name(value: object) -> str:
    return str(getattr(value, "name", value))
