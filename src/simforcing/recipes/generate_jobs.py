"""Which videos a call of `generate` makes: one of each window or request, each draw, each swap of actions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from simforcing.data.clips import Clips
from simforcing.generation.rollout import Predictor
from simforcing.recipes.generated_folder import Video
from simforcing.recipes.generated_videos import Job, endings_of
from simforcing.recipes.prediction import Ready
from simforcing.recipes.requests import Request, swapped
from simforcing.recipes.sampling import SamplingOptions
from simforcing.types import Clip, Episode, check_seed

DRAW_STRIDE = 1_000_003  # between seeds of one request: beyond any number of requests


def jobs_of_requests(
    predictor: Predictor, requests: Sequence[Request], seed: int, sampling: SamplingOptions
) -> list[Job]:
    """A job for each request, each draw, and each swap."""
    spec = predictor.spec
    main = spec.views[predictor.view]
    views = (main, *(view for view in spec.views if view != main))
    others = swapped(requests) if sampling.swap else []
    if others and predictor.sampler.sim_source == "true":
        raise ValueError("swapped actions have no true simulation; leave out --sim-source true")
    jobs = []
    for number, request in enumerate(requests):
        first_seed = seed + number if request.seed is None else request.seed
        for draw, own_seed in enumerate(draw_seeds(first_seed, sampling.num_seeds)):
            for chosen in (request, *others[number : number + 1]):
                video = Video(
                    name=f"{chosen.name}{draw_suffix(draw)}",
                    seed=own_seed,
                    inputs=chosen.digest,
                    endings=endings_of(predictor, views, has_truth=chosen.has_truth(views)),
                )
                jobs.append(Job(video=video, num_actions=len(chosen.action), views=views, read=lambda r=chosen: r))
    return jobs


def jobs_of_clips(ready: Ready, clips: Clips, count: int, seed: int, sampling: SamplingOptions) -> list[Job]:
    """A job for each of the first `count` windows, each draw, and each swap."""
    spec, predictor = ready.spec, ready.predictor
    numbers = window_numbers(ready)
    require_distinct(clips.keys[:count])
    if sampling.swap and predictor.sampler.sim_source == "true":
        raise ValueError("swapped actions have no true simulation; leave out --sim-source true")
    others = other_windows(clips, count) if sampling.swap else {}
    jobs = []
    for number, (episode, start) in enumerate(clips.keys[:count]):
        name, place = window_name(episode, start), window_place(clips, number)
        filmed = [view.name for view in episode.views]
        views = (ready.view, *(view for view in spec.views if view != ready.view and view in filmed))
        for draw, own_seed in enumerate(draw_seeds(seed + numbers[episode.name, start], sampling.num_seeds)):
            for is_swapped in (False, True) if sampling.swap else (False,):
                other = others[number] if is_swapped else number
                video = Video(
                    name=f"{name}{'.swapped' if is_swapped else ''}{draw_suffix(draw)}",
                    seed=own_seed,
                    inputs=place + (f", actions of {window_place(clips, other)}" if is_swapped else ""),
                    endings=endings_of(predictor, views, has_truth=not is_swapped),
                )
                read = ClipReader(clips, number, other)
                jobs.append(Job(video=video, num_actions=spec.num_actions, views=views, read=read))
    return jobs


@dataclass(frozen=True)
class ClipReader:
    """A window, under its own commands or another one's."""

    clips: Clips
    number: int
    commands: int

    def __call__(self) -> Clip:
        clip = self.clips[self.number]
        if self.commands == self.number:
            return clip
        other = self.clips.reading(with_frames=False)[self.commands]
        return replace(clip, action=other.action, action_valid=other.action_valid, action_time_s=other.action_time_s)


def window_name(episode: Episode, start: int) -> str:
    """Of a window's files."""
    return f"{episode.name.replace('/', '_')}-{start:05d}"


def window_place(clips: Clips, number: int) -> str:
    """Where a window is in its data set, whatever else was chosen of it."""
    episode, start = clips.keys[number]
    return f"{episode.name} at frame {start}"


def require_distinct(keys: Sequence[tuple[Episode, int]]) -> None:
    """ValueError where the windows of two episodes would be files of one name."""
    known: dict[str, str] = {}
    for episode, start in keys:
        first = known.setdefault(window_name(episode, start), episode.name)
        if first != episode.name:
            raise ValueError(
                f"episodes {first!r} and {episode.name!r} would share the file {window_name(episode, start)}.mp4; give"
                " one of them with --episode, and the other another --out"
            )


def other_windows(clips: Clips, count: int) -> dict[int, int]:
    """Window -> the next one, around the end, whose commands are not the same.

    Raises:
        ValueError: all windows have the same commands, or there is one alone.
    """
    read = clips.reading(range(count), with_frames=False)
    held = [(clip.action, clip.action_valid) for clip in read]
    others: dict[int, int] = {}
    for number in range(count):
        following = [(number + step) % count for step in range(1, count)]
        differ = (other for other in following if not all(map(np.array_equal, held[number], held[other])))
        found = next(differ, None)
        if found is None:
            raise ValueError(f"swapped actions need two clips with different actions, found {count} alike")
        others[number] = found
    return others


def draw_seeds(first: int, count: int) -> list[int]:
    """Of the videos of one request. ValueError where one is none that a generator takes."""
    seeds = [first + draw * DRAW_STRIDE for draw in range(count)]
    check_seed(seeds[-1])
    return seeds


def draw_suffix(draw: int) -> str:
    """Of the further videos of one request."""
    return f".draw{draw}" if draw else ""


def window_numbers(ready: Ready) -> dict[tuple[str, int], int]:
    """(episode, start) -> number of the window in the whole set: a clip's seed does not depend on what was asked."""
    keys = Clips(ready.data.episodes, ready.spec, stride=ready.spec.num_frames - 1).keys
    return {(episode.name, start): number for number, (episode, start) in enumerate(keys)}
