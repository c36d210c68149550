"""Encodes the pairs into a cache, slowly and in small shards, so that a test can kill it in the middle.

It prints how many videos it read; under pytest that count is not to be had, where type checks read clips, too.

python encode_slowly.py FOLDER SECONDS_PER_WINDOW
"""

import sys
import time
from pathlib import Path

import array_pairs as pairs
import torch
from torch import Tensor

from simforcing.data import latent_cache
from simforcing.models.autoencoder import TinyAutoencoder

latent_cache.ENCODE_CHUNK, latent_cache.SHARD_WINDOWS = 1, 2  # pyright: ignore
torch.set_num_threads(1)


class Slow(TinyAutoencoder):
    """Takes its time."""

    def encode(self, video: Tensor) -> Tensor:
        time.sleep(float(sys.argv[2]))
        return super().encode(video)


if __name__ == "__main__":
    autoencoder = pairs.autoencoder()
    sha256 = latent_cache.autoencoder_sha256(autoencoder)
    autoencoder.__class__ = Slow
    latent_cache.autoencoder_sha256 = lambda module: sha256
    spec = pairs.student_spec()
    clips = pairs.clips_of(pairs.PAIRS, spec)
    latent_cache.cached_windows(
        clips, autoencoder, spec, Path(sys.argv[1]), report=lambda line: print(line, flush=True)
    )
    print(f"videos read: {pairs.CountedFrames.num_reads}")
