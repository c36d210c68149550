"""What a recipe decides about a data set before it chooses networks: views, windows, sizes, splits, normalisers."""

from collections.abc import Callable
from dataclasses import dataclass

from simforcing.data.clips import Clips
from simforcing.data.spec import fit_spec
from simforcing.data.windows import WindowSpec, split_episodes
from simforcing.recipes.run import RunOptions
from simforcing.types import DataSpec, Episode, EpisodeSet, Resize


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What a recipe decides about a data set before it chooses networks."""

    spec: DataSpec
    training: tuple[Episode, ...]
    held_out: tuple[str, ...]

    def num_windows(self, stride: int) -> int:
        """Training windows that start every `stride` frames."""
        return len(Clips(self.training, self.spec, stride=stride))

    @property
    def state_dim(self) -> int:
        return self.spec.state_dim

    @property
    def action_dim(self) -> int:
        return self.spec.action_dim


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a recipe allows.

    Args:
        max_frames: longest window.
        multiple: what both sides of a frame must be multiples of.
        size: stored (height, width) -> the recipe's own frame size.
        temporal_factor: windows hold n * temporal_factor + 1 frames.
    """

    max_frames: int
    multiple: int
    size: Callable[[tuple[int, int]], tuple[int, int]]
    temporal_factor: int = 4


def prepare(
    data: EpisodeSet,
    options: RunOptions,
    limits: Limits,
    *,
    views: tuple[str, ...] = (),
    held_out: tuple[str, ...] | None = None,
) -> Prepared:
    """Choose views, window, frame size and held-out episodes, and fit the normalisers.

    Args:
        views: cameras that the recipe learns whatever is asked for.
        held_out: names of the episodes that are not trained on; None: drawn from the seed.

    Raises:
        ValueError: a choice that does not fit the data or the autoencoder.
    """
    factor, multiple = limits.temporal_factor, limits.multiple
    views = views or options.views or (data.episodes[0].views[0].name,)
    if held_out is None:
        count = options.held_out or max(1, round(0.1 * len(data.episodes)))
        held_out = tuple(e.name for e in split_episodes(data.episodes, count=count, seed=options.seed)[1])
    training = [episode for episode in data.episodes if episode.name not in held_out]
    num_frames = options.num_frames or _longest_window(training, limits.max_frames, factor)
    if (num_frames - 1) % factor or num_frames < factor + 1:
        raise ValueError(f"windows of {num_frames} frames; this autoencoder needs {factor} * n + 1, n >= 1")
    stored = data.episodes[0].view(views[0]).frames.size
    height, width = options.size or limits.size(stored)
    if height % multiple or width % multiple:
        raise ValueError(f"frames of {height}x{width}; both sides must be multiples of {multiple} for this recipe")
    window = WindowSpec(
        num_frames=num_frames, views=views, resize=Resize(height=height, width=width, policy=options.resize)
    )
    spec = fit_spec(data, training, window=window, normaliser=options.normaliser, action_form=options.action_form)
    return Prepared(spec=spec, training=tuple(training), held_out=held_out)


def require_tiny(options: RunOptions, recipe: str) -> None:
    """ValueError where another autoencoder is asked for than the one that this recipe fits."""
    if options.autoencoder != "tiny":
        raise ValueError(f"recipe {recipe} fits its own autoencoder; {options.autoencoder} goes with recipe laptop")


def _longest_window(training: list[Episode], max_frames: int, temporal_factor: int) -> int:
    """The longest window that at least nine of ten episodes have room for, at most `max_frames`.

    One short episode must not shorten every window: it is left out by name when windows are cut.
    """
    lengths = sorted(episode.num_frames for episode in training)
    room = min(lengths[len(lengths) // 10], max_frames)
    return max(1, (room - 1) // temporal_factor) * temporal_factor + 1
