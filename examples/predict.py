"""Predict the first held-out clip of a finished run, from its first frame and its actions, and write it as mp4.

python examples/predict.py RUN prediction.mp4
"""

import argparse
from pathlib import Path

from simforcing import Predictor, load_bundle, open_dataset
from simforcing.data.clips import Clips
from simforcing.data.video import write_video
from simforcing.generation.sampler import SamplerConfig


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="folder of a finished run")
    parser.add_argument("out", type=Path, help="mp4 to write")
    arguments = parser.parse_args()

    bundle = load_bundle(arguments.run)  # network, autoencoder, and what their numbers mean
    data = open_dataset(bundle.about["data"])
    bundle.spec.check(data)  # same layouts, robot and rate as in training, or one line that names the difference
    held_out = [episode for episode in data.episodes if episode.name in bundle.about["held_out"]]
    clip = Clips(held_out, bundle.spec, stride=bundle.spec.num_frames - 1)[0]  # decodes this window alone

    (frames,) = Predictor(bundle, SamplerConfig(num_steps=10)).predict([clip], seeds=[0])
    write_video(arguments.out, frames, bundle.spec.fps)
    print(f"{arguments.out}: {len(frames)} frames of {clip.episode!r} ({clip.task})")


if __name__ == "__main__":
    main()
