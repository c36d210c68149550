"""The windows that a run learns from: of the set itself, and of the perturbed variants beside it."""

from simforcing.data.clips import Clips
from simforcing.data.paired import variants_beside
from simforcing.recipes.run import Run
from simforcing.types import EpisodeSet


def training_clips(run: Run, data: EpisodeSet) -> list[Clips]:
    """Windows to learn from: those of the training episodes, then those of their variants."""
    training = run.training(data.episodes)
    lots = [Clips(training, run.spec, stride=run.window_stride, fingerprint=data.fingerprint)]
    if len(lots[0]) == 0:
        raise ValueError(f"{data.root}: no training episode holds a window of {run.spec.num_frames} frames")
    variants = variants_beside(data) if run.variants else None
    if variants is not None and (own := variants.of(training)):
        lots.append(Clips(own, run.spec, stride=run.window_stride, fingerprint=variants.data.fingerprint))
    return lots
