"""A go / no-go number for a paired set and each of its episodes: does the sim move as the real video does?

Writes agreement.json and agreement.png; what is measured and the thresholds: docs/pair-agreement.md.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int

from simforcing.data.backgrounds import plate_rows
from simforcing.data.open import open_dataset
from simforcing.data.pair_frames import PairFrames, PairReader
from simforcing.data.validate import describe
from simforcing.evaluation.agreement import AgreementConfig, EpisodeMotion, Setting, Sums, clip_frames, interval
from simforcing.evaluation.agreement_figure import write_figure
from simforcing.evaluation.agreement_result import EpisodeAgreement, SetAgreement, agreement_record, panels
from simforcing.evaluation.agreement_verdict import Judged, Thresholds, Verdict, judged
from simforcing.evaluation.edge_agreement import EdgeAgreement, compared_frames, edge_agreement
from simforcing.evaluation.intervals import Interval
from simforcing.models.autoencoder import TinyAutoencoder, TinyAutoencoderConfig
from simforcing.models.taef2 import HUB_ID, Taef2
from simforcing.nn.protocols import Autoencoder
from simforcing.recipes.output import require_absent, require_writable
from simforcing.types import Episode, check_seed, to_json
from simforcing.types.files import write_json
from simforcing.types.progress import Report, throttled
from simforcing.types.version import package_version

RESULTS, FIGURE = "agreement.json", "agreement.png"
FIT_EPISODES, FIT_CLIPS = 16, 3  # that the tiny autoencoder is fitted on, of either stream
LEAST_UNFITTED = 8  # frames: with fewer left by the calibration, edges are compared in all
CELL_PX = 8  # side of a latent cell of either autoencoder
GO_SHARE, NO_GO_SHARE = 0.75, 0.5  # of the episodes, for a verdict on the set


@dataclass(frozen=True, kw_only=True)
class AgreementOptions:
    """What is measured, and in which latent space.

    Args:
        autoencoder, taef2: tiny (principal components of the set's own frames), or the TAEF2 weights and where they
            lie (folder or hub id; default the author's).
        size: (height, width) that frames are resized to; default as stored, cut to what the autoencoder divides.
        channels: of the tiny autoencoder.
        temporal_factor: frames of one of its latents.
    """

    autoencoder: Literal["tiny", "taef2"] = "tiny"
    taef2: str | None = None
    size: tuple[int, int] | None = None
    channels: int = 48
    temporal_factor: int = 4
    compare: AgreementConfig = field(default_factory=AgreementConfig)
    thresholds: Thresholds = field(default_factory=Thresholds)

    def __post_init__(self) -> None:
        check_seed(self.compare.seed)
        if self.taef2 is not None and self.autoencoder != "taef2":
            raise ValueError(f"taef2 is {self.taef2}, but the autoencoder is {self.autoencoder}, not taef2")


def agreement(
    source: str, options: AgreementOptions, *, out: Path, overwrite: bool = False, report: Report
) -> SetAgreement:
    """Compare every episode's sim with its real video, and write the record and a figure.

    Raises:
        ValueError: no paired set, no episode long enough, frames that the autoencoder cannot take, or files in the way.
    """
    out = Path(out)
    require_writable(out)
    if not overwrite:
        require_absent([out / RESULTS, out / FIGURE])
    data = open_dataset(source)
    for line in describe(data):
        report(line)
    reader = PairReader(data, options.size, multiple=CELL_PX)
    _require_size(reader, options.size)
    autoencoder = _autoencoder(reader, options)
    comparison = _Comparison(reader, autoencoder, options)
    progress = throttled(report, "compared", "episodes")
    for done, episode in enumerate(data.episodes, start=1):
        comparison.add(episode)
        progress(done, len(data.episodes))
    result = comparison.result()
    for name, reason in result.left_out.items():
        report(f"{data.root}: episode {name} is left out: {reason}")
    out.mkdir(parents=True, exist_ok=True)
    write_figure(out / FIGURE, **panels(result))
    about = {
        "data": data.root,
        "fingerprint": data.fingerprint,
        "version": package_version(),
        "options": to_json(options),
        "size": list(reader.size),
    }
    write_json(out / RESULTS, about | agreement_record(result))
    return result


def _require_size(reader: PairReader, wanted: tuple[int, int] | None) -> None:
    height, width = reader.size
    if any(side < 1 or side % CELL_PX for side in reader.size):
        raise ValueError(f"size {height}x{width}: both sides must be multiples of {CELL_PX}")
    if wanted is not None and any(side > most for side, most in zip(wanted, reader.stored, strict=True)):
        stored = f"{reader.stored[0]}x{reader.stored[1]}"
        raise ValueError(
            f"size {height}x{width}: larger than the stored frames, {stored}; enlarging tells nothing more"
        )


class _Comparison:
    """Episodes one by one; of each only the sums are kept, and of the last one its motion, for its neighbour."""

    def __init__(self, reader: PairReader, autoencoder: Autoencoder, options: AgreementOptions) -> None:
        self._reader, self._autoencoder, self._options = reader, autoencoder, options
        self._last: EpisodeMotion | None = None
        self._sums: dict[str, dict[Setting, Sums]] = {}
        self._edges: dict[str, EdgeAgreement | None] = {}
        self._left_out: dict[str, str] = {item.name: item.reason for item in reader.data.rejected}
        self._background = reader.record["background"]["kind"]

    def add(self, episode: Episode) -> None:
        """Compare one, or note why it cannot be."""
        config, own = self._options.compare, Setting(background=self._background)
        try:
            allowed = self._unfitted(episode)
            pair = self._reader.read(episode, self._needed(episode, allowed), with_mean="mean" in config.backgrounds)
            motion = EpisodeMotion(pair, self._autoencoder, config)
        except ValueError as error:
            self._left_out[episode.name] = str(error)
            return
        settings = [
            own,
            Setting(background=own.background, region="all"),
            *(Setting(background=kind) for kind in config.backgrounds if kind != own.background),
            Setting(background=own.background, source="cut-out"),
            *(Setting(background=own.background, shift=shift) for shift in config.shifts if shift),
            *(Setting(background=own.background, moved_px=pixels) for pixels in config.moved_px),
        ]
        self._sums[episode.name] = {setting: motion.sums(setting) for setting in settings}
        self._edges[episode.name] = self._compare_edges(pair, allowed)
        other = Setting(background=own.background, source="other")
        if self._last is not None:
            self._sums[episode.name][other] = motion.sums(other, self._last)
            if len(self._sums) == 2:
                self._sums[self._last.pair.name][other] = self._last.sums(other, motion)
        self._last = motion

    def result(self) -> SetAgreement:
        """Verdicts of all. Raises ValueError where no episode could be compared."""
        if not self._sums:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in list(self._left_out.items())[:3])
            raise ValueError(f"{self._reader.data.root}: no episode can be compared ({reasons})")
        seed = self._options.compare.seed
        episodes = tuple(
            EpisodeAgreement(
                name=name, sums=sums, edges=self._edges[name], judged=self._judge(sums, self._edges[name], seed)
            )
            for name, sums in self._sums.items()
        )
        verdicts = [episode.judged.verdict for episode in episodes]
        verdict: Verdict = "doubtful"
        if verdicts.count("go") >= GO_SHARE * len(verdicts):
            verdict = "go"
        elif verdicts.count("no-go") > NO_GO_SHARE * len(verdicts):
            verdict = "no-go"
        return SetAgreement(
            background=self._background, episodes=episodes, left_out=self._left_out, verdict=verdict, seed=seed
        )

    def _judge(self, sums: dict[Setting, Sums], edges: EdgeAgreement | None, seed: int) -> Judged:
        def signed(setting: Setting) -> Interval | None:
            if setting not in sums:
                return None
            return interval("signed", sums[setting], [str(i) for i in range(len(sums[setting]))], seed)

        own = signed(Setting(background=self._background))
        other = signed(Setting(background=self._background, source="other"))
        assert own is not None
        return judged(edges, own, other, min(self._reader.size), self._options.thresholds)

    def _compare_edges(self, pair: PairFrames, allowed: Int[np.ndarray, " n"]) -> EdgeAgreement | None:
        try:
            return edge_agreement(pair, shifts=self._options.compare.shifts, allowed=allowed)
        except ValueError:
            return None

    def _unfitted(self, episode: Episode) -> Int[np.ndarray, " n"]:
        """Frames that the calibration was not fitted to, where the record tells which and enough are left."""
        fitted = self._reader.record["episodes"].get(episode.name, {}).get("fitted_frames", [])
        every = np.arange(episode.num_frames)
        rows = np.setdiff1d(every, np.asarray(fitted, dtype=int))
        return rows if len(rows) >= LEAST_UNFITTED else every

    def _needed(self, episode: Episode, allowed: Int[np.ndarray, " n"]) -> Int[np.ndarray, " f"]:
        """Frames for clips, edges and plates: the rest of a long episode is never held."""
        config, count = self._options.compare, episode.num_frames
        needed = [clip_frames(count, self._autoencoder.temporal_factor, config), np.array(plate_rows(count))]
        with suppress(ValueError):  # too few for edges: then there are none
            chosen = compared_frames(count, config.shifts, allowed)
            needed += [chosen - shift for shift in (0, *config.shifts)]
        return np.unique(np.concatenate(needed))


def _autoencoder(reader: PairReader, options: AgreementOptions) -> Autoencoder:
    """The chosen one; the tiny one is fitted to windows of the set's real and sim frames."""
    if options.autoencoder == "taef2":
        return Taef2.from_pretrained(options.taef2 or HUB_ID)
    factor = options.temporal_factor
    episodes = reader.data.episodes
    clips: list[np.ndarray] = []
    for i in np.unique(np.linspace(0, len(episodes) - 1, min(len(episodes), FIT_EPISODES)).round().astype(int)):
        last = episodes[i].num_frames - factor - 1
        if last < 0:
            continue
        windows = np.unique(np.linspace(0, last, FIT_CLIPS).round().astype(int))[:, None] + np.arange(factor + 1)
        pair = reader.read(episodes[i], np.unique(windows))
        clips += [frames[pair.at(window)] for frames in (pair.real, pair.sim) for window in windows]
    if not clips:
        raise ValueError(f"{reader.data.root}: no episode has {factor + 1} frames")
    config = TinyAutoencoderConfig(channels=options.channels, temporal_factor=factor, num_decoder_blocks=0)
    model: TinyAutoencoder = config.build()
    model.initialise(torch.from_numpy(np.stack(clips)).movedim(-1, 2), seed=options.compare.seed)
    return model.eval()
