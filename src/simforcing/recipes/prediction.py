"""What every use of a finished run has in common: its options, its data, its sampler, its held-out episodes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from simforcing.data.open import open_dataset
from simforcing.data.spec import window_of
from simforcing.data.windows import window_starts
from simforcing.generation.rollout import Predictor
from simforcing.generation.sampler import stored_sampler
from simforcing.models.bundle import Bundle, load_bundle
from simforcing.recipes.estimate import verified
from simforcing.types import DataSpec, Episode, EpisodeSet, check_seed
from simforcing.types.progress import Report


@dataclass(frozen=True, kw_only=True)
class PredictionOptions:
    """How a finished run is used.

    Args:
        data: data set; default: the one that the run was trained on.
        view: camera that is decoded and compared; default: the run's first.
        num_steps: of the sampler; default: the recipe's.
        seed: of noise and bootstrap.
        device, dtype: of the world model.
        overwrite: replace what an earlier call left.
        alternatives: an evaluation also scores other strengths of the simulation condition, where the run has one.
    """

    data: str | None = None
    view: str | None = None
    num_steps: int | None = None
    seed: int = 0
    device: str = "cpu"
    dtype: Literal["float32", "bfloat16"] = "float32"
    overwrite: bool = False
    alternatives: bool = True

    def __post_init__(self) -> None:
        check_seed(self.seed)


DEFAULT = PredictionOptions()


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A run beside its data, ready to predict.

    Args:
        data: every usable episode, verified.
        held_out: the held-out episodes that have the view (of another set than the training one, all that have it).
    """

    bundle: Bundle
    data: EpisodeSet
    held_out: tuple[Episode, ...]
    predictor: Predictor

    @property
    def spec(self) -> DataSpec:
        return self.bundle.spec

    @property
    def view(self) -> str:
        """Name of the camera that is compared."""
        return self.spec.views[self.predictor.view]


def ready_to_predict(run_dir: Path, options: PredictionOptions, report: Report) -> Ready:
    """Load a run and open its data set or another one.

    Raises:
        ValueError: a run, data set or view that cannot be used, in one line.
    """
    bundle = load_bundle(run_dir)
    view = view_index(bundle.spec, options.view)
    opened = open_for(bundle, options.data)
    bundle.spec.check(opened)
    if opened.fingerprint != bundle.spec.fingerprint:
        report(
            f"{opened.root} is not the data that the run was trained on: all of its episodes are used as held out;"
            " see to it that none of them was trained on under another name"
        )
    opened = verified(opened, bundle.spec.streams, report)
    held_out = episodes_with(held_out_episodes(bundle, opened), bundle.spec.views[view])
    sampler = stored_sampler(bundle, options.num_steps)
    predictor = Predictor(bundle, sampler, view=view, device=options.device, dtype=options.dtype)
    return Ready(bundle=bundle, data=opened, held_out=tuple(held_out), predictor=predictor)


def view_index(spec: DataSpec, name: str | None) -> int:
    """Position of a camera among the run's; ValueError lists them."""
    if name is None:
        return 0
    if name not in spec.views:
        raise ValueError(f"the run has no view {name!r}; views: {', '.join(spec.views)}")
    return spec.views.index(name)


def episodes_with(episodes: list[Episode], view: str) -> list[Episode]:
    """The episodes that were filmed by this camera."""
    return [episode for episode in episodes if any(stored.name == view for stored in episode.views)]


def open_for(bundle: Bundle, data: str | None) -> EpisodeSet:
    """The run's data set, or another one.

    The views that the model reads are opened alone first: they are what a hub set was downloaded for, and their files
    are what the fingerprint is of. Where that is not the run's, the run may have been made with all views at hand.
    """
    source = data or bundle.about.get("data")
    if not source:
        raise ValueError("the run does not say what data it was trained on; give --data")
    opened = open_dataset(source, cameras=bundle.spec.streams)
    if opened.fingerprint != bundle.spec.fingerprint:
        whole = open_dataset(source)
        if whole.fingerprint == bundle.spec.fingerprint:
            return whole
        if data is None:
            raise ValueError(
                f"{source} has changed since the run was trained on it, so its held-out episodes are no longer known;"
                " give --data to use every episode of a data set"
            )
    return opened


def held_out_episodes(bundle: Bundle, opened: EpisodeSet) -> list[Episode]:
    """Held-out episodes by name; of another set than the training one, all."""
    if opened.fingerprint != bundle.spec.fingerprint:
        return list(opened.episodes)
    if "held_out" not in bundle.about:
        raise ValueError(f"{bundle.source}: about.held_out is missing, so the held-out episodes are not known")
    names = set(bundle.about["held_out"])
    return [episode for episode in opened.episodes if episode.name in names]


def starts_at_zero(episode: Episode, spec: DataSpec) -> bool:
    """Whether a window fits at the episode's first frame."""
    return window_starts(episode, window_of(spec))[:1] == [0]
