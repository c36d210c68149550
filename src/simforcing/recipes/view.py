"""A page to look at a data set: of a paired one real, sim, overlay and variants of chosen episodes, else its views."""

import base64
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image
from scipy.ndimage import binary_dilation

from simforcing.data.footage import chosen_frames
from simforcing.data.lerobot import episode_names, read_columns
from simforcing.data.open import open_dataset
from simforcing.data.pair_fields import NUMBER, paired_record, require_fields
from simforcing.data.pair_record import in_millimetres
from simforcing.data.pair_streams import REAL, RECORD_NAME, SIM, job_of, variants_root
from simforcing.data.validate import describe
from simforcing.data.video import write_video
from simforcing.data.windows import MASK_LEVEL
from simforcing.recipes.output import require_writable
from simforcing.recipes.view_page import PAGE
from simforcing.types import Episode, EpisodeSet, View
from simforcing.types.files import write_text
from simforcing.types.progress import Report

SHOWN_EPISODES = 6
MOST_FRAMES = 150  # of a strip; longer episodes are thinned
PANEL_PX = 360  # about the width of a panel: small frames are enlarged for the eye
GAP_PX = 8
TINT = np.array([18, 165, 148])
TINT_SHARE = 0.35
PAGE_CRF = 23
RECORD_FIELDS: dict[str, type | tuple[type, ...]] = {  # of a paired set's record, that the page shows
    "variants": int,
    "rejected_proposals.rate": NUMBER,
    "left_out": dict,
    "source.data": str,
    "source.view": str,
    "source.kind": str,
    "cameras": str,
    "seed": int,
    "perturbation": dict,
    "version": str,
}


@dataclass(frozen=True, kw_only=True)
class Strip:
    """Videos side by side in one, and the words above them: (name, note)."""

    labels: tuple[tuple[str, str], ...]
    uri: str
    width: int
    height: int


@dataclass(frozen=True, kw_only=True)
class ShownEpisode:
    """One episode of the page; numbers are (label, value) in words."""

    name: str
    task: str
    numbers: tuple[tuple[str, str], ...]
    strips: tuple[Strip, ...]


def view(
    source: str,
    *,
    episodes: Sequence[str] = (),
    out: Path | None = None,
    rerun: Path | None = None,
    robot_path: Path | None = None,
    overwrite: bool = False,
    report: Report,
) -> Path:
    """Write the page.

    Args:
        source: any readable set; of a paired one the variants beside it are shown as well.
        episodes: names, or numbers in the set; none: a few, evenly spread.
        out: the file; default `<name of the set>.html` in the current folder.
        rerun: of a paired set, a Rerun recording to write as well, for which the robot's model is needed.

    Raises:
        ModuleNotFoundError: a recording was asked for and rerun-sdk is not installed.
        ValueError: an unknown episode, a frame that cannot be decoded, a record that lacks what is shown, or a file
            that is there already.
    """
    out = Path(f"{Path(source).name}.html") if out is None else out
    _require_free(out, rerun, overwrite)
    data = open_dataset(source)
    for line in describe(data):
        report(line)
    chosen = choose(data, episodes)
    record = paired_record(data)
    if record is not None:
        require_fields(record, RECORD_FIELDS, Path(data.root))
    if rerun is not None:
        _record_3d(rerun, data, chosen, record, robot_path, report)
    variants = _variants(data, record, report) if record is not None else {}
    shown = []
    for done, episode in enumerate(chosen, start=1):
        shown.append(_shown(data, episode, record, variants.get(episode.name, [])))
        report(f"{episode.name}: {done}/{len(chosen)}")
    write_text(out, _page(data, shown, record))
    report(f"{out}: {len(shown)} episodes, {out.stat().st_size / 1e6:.1f} MB")
    return out


def _require_free(out: Path, rerun: Path | None, overwrite: bool) -> None:
    """See that files can be written there. A device, a pipe or a folder is never replaced, whatever is asked for."""
    if rerun is not None and os.path.abspath(out) == os.path.abspath(rerun):
        raise ValueError(f"{out}: both the page and the recording; give them two names")
    for path in filter(None, (out, rerun)):
        require_writable(path.parent)
        if not os.path.lexists(path):
            continue
        if not path.is_file():
            raise ValueError(f"{path}: {'a folder' if path.is_dir() else 'no regular file'}; choose another name")
        if not overwrite:
            raise ValueError(f"{path} exists; choose another name, or --overwrite")


def _record_3d(
    path: Path,
    data: EpisodeSet,
    chosen: list[Episode],
    record: dict[str, Any] | None,
    robot_path: Path | None,
    report: Report,
) -> None:
    if record is None:
        raise ValueError(f"{data.root}: no paired set, nothing to show in 3D; `simforcing simulate` makes one")
    from simforcing.recipes.view_rerun import write_recording

    lags = {name: entry.get("lag", 0) for name, entry in record["episodes"].items()}
    write_recording(path, data, chosen, lags, robot_path=robot_path)
    report(f"{path}: {len(chosen)} episodes, {path.stat().st_size / 1e6:.1f} MB; open it with: rerun {path}")


def choose(data: EpisodeSet, wanted: Sequence[str]) -> list[Episode]:
    """Episodes by name or number; ValueError names the first few choices."""
    if not wanted:
        count = min(SHOWN_EPISODES, len(data.episodes))
        return [data.episodes[round(i)] for i in np.linspace(0, len(data.episodes) - 1, count)]
    by_name = {episode.name: episode for episode in data.episodes}
    by_name |= {str(i): episode for i, episode in enumerate(data.episodes) if str(i) not in by_name}
    for name in wanted:
        if name not in by_name:
            names = ", ".join(episode.name for episode in data.episodes[:SHOWN_EPISODES])
            raise ValueError(f"{data.root}: no episode {name!r}; 0..{len(data.episodes) - 1}, or by name: {names} ...")
    return [by_name[name] for name in wanted]


def _variants(data: EpisodeSet, record: dict[str, Any], report: Report) -> dict[str, list[Episode]]:
    """Parent's name -> its variants by draw, of the set beside this one; none, and a line, if it is of another job."""
    root = variants_root(Path(data.root))
    if not root.is_dir():
        return {}
    job = job_of(root / "meta" / RECORD_NAME)
    if job is None or job != record.get("job"):
        report(f"{root}: not shown, these are no variants of {data.root}: the two were not written by one simulation")
        return {}
    beside = {episode.name: episode for episode in open_dataset(root).episodes}
    parents = episode_names(data.root)
    found: dict[str, list[tuple[int, Episode]]] = {}
    for name, columns in zip(episode_names(root), read_columns(root, ("parent", "draw")), strict=True):
        if name in beside:
            found.setdefault(parents[columns["parent"][0]], []).append((columns["draw"][0], beside[name]))
    return {name: [episode for _, episode in sorted(group, key=lambda item: item[0])] for name, group in found.items()}


def _shown(data: EpisodeSet, episode: Episode, record: dict[str, Any] | None, variants: list[Episode]) -> ShownEpisode:
    numbers = [("frames", f"{episode.num_frames} at {episode.fps:g} Hz")]
    rows = thinned(episode.num_frames)
    fps = episode.fps * len(rows) / episode.num_frames
    if record is None:
        panels = [(one.name, "", _frames(one, rows)) for one in episode.views]
        return ShownEpisode(name=episode.name, task=episode.task, numbers=tuple(numbers), strips=(_strip(panels, fps),))
    numbers += _pair_numbers(record["episodes"].get(episode.name, {}))
    real, sim = _frames(episode.view(REAL), rows), _frames(episode.view(SIM), rows)
    masks = episode.view(SIM).masks
    panels = [(REAL, "", real), (SIM, f"on {record['background']['kind']}", sim)]
    if masks is not None:
        inside = np.stack([mask[..., 0] > MASK_LEVEL for mask in chosen_frames(masks, np.array(rows))])
        panels.append(("overlay", "the sim's mask over the real frame", overlay(real, inside)))
    strips = [_strip(panels, fps)]
    if variants:
        varied = [
            (f"variant {i + 1}", deviation_in_words(data, episode, variant), _frames(variant.view(SIM), rows))
            for i, variant in enumerate(variants)
        ]
        strips.append(_strip(varied, fps))
    return ShownEpisode(name=episode.name, task=episode.task, numbers=tuple(numbers), strips=tuple(strips))


def _pair_numbers(entry: dict[str, Any]) -> list[tuple[str, str]]:
    numbers = []
    if entry.get("iou") is not None:
        numbers.append(("silhouette IoU", f"{entry['iou']:.2f}"))
    if "lag" in entry:
        numbers.append(("lag", f"{entry['lag']}"))
    if "position_error_m" in entry:
        if not (entry["position_error_m"] or entry["rotation_error_rad"]):  # never exact where it was computed
            return [*numbers, (f"replayed from {entry['replayed_from']}", "no recorded tool to check it by")]
        error = f"{in_millimetres(entry['position_error_m'])}, {np.degrees(entry['rotation_error_rad']):.2f}°"
        numbers.append((f"replayed from {entry['replayed_from']}, off by at most", error))
    return numbers


def thinned(num_frames: int) -> list[int]:
    """Frames that are shown: all, or evenly spread ones of a long episode."""
    step = -(-num_frames // MOST_FRAMES)
    return list(range(0, num_frames, step))


def _frames(one: View, rows: list[int]) -> UInt8[np.ndarray, "f h w 3"]:
    return np.stack(list(chosen_frames(one.frames, np.array(rows))))


def overlay(real: UInt8[np.ndarray, "f h w 3"], inside: np.ndarray) -> UInt8[np.ndarray, "f h2 w2 3"]:
    """The real frames, enlarged, with the mask tinted and its outline drawn."""
    large = _enlarged(real)
    out = np.empty_like(large)
    for i, (frame, mask) in enumerate(zip(large, inside, strict=True)):
        small = Image.fromarray((mask * 255).astype(np.uint8))
        picture = small.resize((frame.shape[1], frame.shape[0]), Image.Resampling.BICUBIC)
        covered = np.asarray(picture) > MASK_LEVEL
        edge = np.logical_and(binary_dilation(covered, iterations=2), ~covered)
        tinted = np.where(covered[..., None], (1 - TINT_SHARE) * frame + TINT_SHARE * TINT, frame)
        out[i] = np.where(edge[..., None], TINT, tinted).astype(np.uint8)
    return out


def deviation_in_words(data: EpisodeSet, parent: Episode, variant: Episode) -> str:
    """How far a variant's tool leaves its parent's, by the states; empty where they do not tell."""
    layout = data.state_layout
    names = [] if layout is None else [name for name in layout.slices if layout.part(name).kind == "translation"]
    if layout is None or not names or parent.state is None or variant.state is None:
        return ""
    gaps: list[Float[np.ndarray, " f"]] = [
        np.linalg.norm((variant.state - parent.state)[:, layout.slices[name]], axis=1) / layout.part(name).scale
        for name in names
    ]
    return f"up to {100 * float(np.max(gaps)):.1f} cm off"


def _enlarged(frames: UInt8[np.ndarray, "f h w 3"]) -> UInt8[np.ndarray, "f h2 w2 3"]:
    height, width = frames.shape[1:3]
    factor = max(1, round(PANEL_PX / width))
    if factor == 1:
        return frames
    size = (width * factor, height * factor)
    return np.stack([np.asarray(Image.fromarray(frame).resize(size, Image.Resampling.BICUBIC)) for frame in frames])


def _strip(panels: list[tuple[str, str, np.ndarray]], fps: float) -> Strip:
    """One video of panels side by side, with gaps of the labels' grid."""
    videos = [frames if name == "overlay" else _enlarged(frames) for name, _, frames in panels]
    num_frames, height = min(map(len, videos)), max(video.shape[1] for video in videos)
    pieces = []
    for i, video in enumerate(videos):
        padded = np.full((num_frames, height, video.shape[2], 3), 17, np.uint8)
        padded[:, : video.shape[1]] = video[:num_frames]
        pieces += [padded] if i == 0 else [np.full((num_frames, height, GAP_PX, 3), 246, np.uint8), padded]
    frames = np.concatenate(pieces, axis=2)
    frames = frames[:, : height - height % 2, : frames.shape[2] - frames.shape[2] % 2]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "strip.mp4"
        write_video(path, frames, fps, keyframe_every=12, crf=PAGE_CRF)
        uri = "data:video/mp4;base64," + base64.b64encode(path.read_bytes()).decode()
    labels = tuple((name, note) for name, note, _ in panels)
    return Strip(labels=labels, uri=uri, width=frames.shape[2], height=frames.shape[1])


def _page(data: EpisodeSet, shown: list[ShownEpisode], record: dict[str, Any] | None) -> str:
    frames = sum(episode.num_frames for episode in data.episodes)
    tiles = [("episodes", f"{len(data.episodes)}"), ("frames", f"{frames:,}"), ("robot", data.robot or "not declared")]
    left_out = {item.name: item.reason for item in data.rejected}
    layouts = (("action", data.action_layout), ("state", data.state_layout), ("joint", data.joint_layout))
    footer = [("data", data.root), ("format", data.kind)]
    footer += [(f"{name} layout", layout.name) for name, layout in layouts if layout is not None]
    footer += [("fingerprint", data.fingerprint)]
    if record is not None:
        errors_m = [entry.get("position_error_m", 0.0) for entry in record["episodes"].values()]
        tiles += [
            ("background of the sim", record["background"]["kind"]),
            ("variants of each", f"{record['variants']}"),
            ("proposals rejected", f"{record['rejected_proposals']['rate']:.0%}"),
            ("largest replay error", in_millimetres(max(errors_m)) if any(errors_m) else "not checked"),
        ]
        left_out |= record["left_out"]
        source = record["source"]
        footer += [
            ("simulated from", f"{source['data']}, view {source['view']} ({source['kind']})"),
            ("cameras", record["cameras"]),
            ("seed", f"{record['seed']}"),
            ("amplitudes", ", ".join(f"{k} {v}" for k, v in record["perturbation"].items() if k != "type")),
            ("written by", f"simforcing {record['version']}"),
        ]
    return (
        jinja2.Environment(autoescape=True, trim_blocks=True)
        .from_string(PAGE)
        .render(
            title=Path(data.root).name,
            subtitle="Real and simulated replay" if record is not None else "Episodes as stored",
            tiles=tiles,
            episodes=shown,
            left_out=sorted(left_out.items()),
            footer=footer,
        )
    )
