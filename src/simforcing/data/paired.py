"""What training on pairs asks of a data set: real and simulated streams that agree, and the variants beside the set.

`simulate` writes both sets (`pairs`); here they are read, and refused in one line where they do not belong together.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simforcing.data.lerobot import episode_names, read_columns
from simforcing.data.open import open_dataset
from simforcing.data.pair_streams import RECORD_NAME, job_of, variants_root
from simforcing.data.video import VideoFrames, probe
from simforcing.types import Episode, EpisodeSet, View

COLUMNS = ("parent", "draw")
RATE_TOLERANCE = 0.01  # relative


def require_paired(data: EpisodeSet, views: Sequence[str], sim_views: Sequence[str]) -> None:
    """See that every episode has these views and the simulation of each, frame by frame.

    Raises:
        ValueError: naming the episode and both sides.
    """
    for episode in data.episodes:
        where = f"{data.root}: episode {episode.name}"
        stored = {view.name: view for view in episode.views}
        for real, sim in zip(views, sim_views, strict=True):
            if missing := [name for name in (real, sim) if name not in stored]:
                raise ValueError(
                    f"{where} is no pair of {real} and {sim}: it has {', '.join(stored)}, and no {missing[0]};"
                    f" `simforcing simulate {data.root} PAIRS` makes pairs"
                )
            _require_aligned(where, stored[real], stored[sim])


def _require_aligned(where: str, real: View, sim: View) -> None:
    """One simulated frame for each real one, at the same times."""
    lengths = real.frames.num_frames, sim.frames.num_frames
    if lengths[0] != lengths[1]:
        raise ValueError(
            f"{where}: {real.name} has {lengths[0]} frames, {sim.name} {lengths[1]}; pairs have one for each other"
        )
    if isinstance(real.frames, VideoFrames) and isinstance(sim.frames, VideoFrames):
        rates = probe(real.frames.path).fps, probe(sim.frames.path).fps
        if abs(rates[0] - rates[1]) > RATE_TOLERANCE * rates[0]:
            raise ValueError(
                f"{where}: {real.name} is a video at {rates[0]:g} frames/s, {sim.name} at {rates[1]:g};"
                " pairs have one rate"
            )


@dataclass(frozen=True, kw_only=True)
class Variants:
    """Perturbed variants of a paired set, in simulation alone.

    Args:
        data: the set of variants.
        parents: variant's name -> name of the episode that it is a variant of.
    """

    data: EpisodeSet
    parents: dict[str, str]

    def of(self, episodes: Sequence[Episode]) -> list[Episode]:
        """The variants of these episodes alone: those of a held-out episode must not train."""
        names = {episode.name for episode in episodes}
        return [variant for variant in self.data.episodes if self.parents[variant.name] in names]


def variants_beside(data: EpisodeSet) -> Variants | None:
    """The set `<root>-variants`, checked against its parents; None where there is none.

    Variants whose parents are not among the set's usable episodes are left out.

    Raises:
        ValueError: they come from another simulation, or differ in layout, robot, rate or length; both sides are named.
    """
    root = Path(os.path.abspath(data.root))  # `.` has no name to add to
    folder = variants_root(root)
    if not (folder / "meta" / "info.json").is_file():
        return None
    _require_same_simulation(root, folder)
    variants = open_dataset(folder)
    _require_same_meaning(data, variants)
    parents = _parents(root, folder)
    usable = {episode.name: episode for episode in data.episodes}
    kept = tuple(variant for variant in variants.episodes if parents[variant.name] in usable)
    for variant in kept:
        _require_same_length(folder, variant, usable[parents[variant.name]])
    return Variants(
        data=EpisodeSet(**{**vars(variants), "episodes": kept}),
        parents={variant.name: parents[variant.name] for variant in kept},
    )


def _require_same_simulation(root: Path, folder: Path) -> None:
    jobs = [job_of(one / "meta" / RECORD_NAME) for one in (root, folder)]
    if jobs[0] is None or jobs[0] != jobs[1]:
        mine, theirs = (f"of simulation {job}" if job else f"without meta/{RECORD_NAME}" for job in jobs)
        raise ValueError(f"{folder} is {theirs}, but {root} is {mine}; simulate both again, or move the variants away")


def _require_same_meaning(data: EpisodeSet, variants: EpisodeSet) -> None:
    for field in ("action_layout", "state_layout", "joint_layout", "robot"):
        theirs, mine = getattr(variants, field), getattr(data, field)
        if theirs != mine:
            names = [getattr(value, "name", value) for value in (theirs, mine)]
            raise ValueError(
                f"{variants.root}: {field.replace('_', ' ')} is {names[0]}, that of {data.root} is {names[1]}"
            )


def _parents(root: Path, folder: Path) -> dict[str, str]:
    """Variant's name -> parent's name, of all variants."""
    names = episode_names(root)
    found = {}
    try:
        rows = read_columns(folder, COLUMNS)
    except KeyError as error:  # declared, but not in the table
        raise ValueError(f"{folder}: {error.args[0]}") from None
    for variant, row in zip(episode_names(folder), rows, strict=True):
        index = row["parent"][0]
        if not isinstance(index, int) or not 0 <= index < len(names):
            raise ValueError(
                f"{folder}: episode {variant} is a variant of {index!r}, but {root} has 0..{len(names) - 1}"
            )
        found[variant] = names[index]
    return found


def _require_same_length(folder: Path, variant: Episode, parent: Episode) -> None:
    for field, theirs, mine in (
        ("frames/s", variant.fps, parent.fps),
        ("frames", variant.num_frames, parent.num_frames),
        ("actions", len(variant.action), len(parent.action)),
        ("states", _num_states(variant), _num_states(parent)),
    ):
        if theirs != mine:
            raise ValueError(
                f"{folder}: episode {variant.name} has {theirs:g} {field}, its parent {parent.name} {mine:g}"
            )


def _num_states(episode: Episode) -> int:
    return 0 if episode.state is None else len(episode.state)
