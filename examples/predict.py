"""Predict the first held-out clip of a finished run, from its first frame and its actions, and write it as mp4.

python examples/predict.py RUN prediction.mp4
"""

import argparse
from pathlib import Path

from simforcing import WorldModel, open_dataset
from simforcing.data.clips import Clips
from simforcing.generation.start import start_of_clip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="folder of a finished run")
    parser.add_argument("out", type=Path, help="mp4 to write")
    arguments = parser.parse_args()

    model = WorldModel.from_pretrained(arguments.run)  # network, autoencoder, and what their numbers mean
    data = open_dataset(model.bundle.about["data"])
    model.spec.check(data)  # same layouts, robot and rate as in training, or one line that names the difference
    held_out = [episode for episode in data.episodes if episode.name in model.bundle.about["held_out"]]
    clip = Clips(held_out, model.spec, stride=model.spec.num_frames - 1)[0]  # decodes this window alone

    start = start_of_clip(clip, model.spec)  # what was seen before the first command
    rollout = model.predict(start, clip.action, seed=0, num_steps=10)
    rollout.save(arguments.out)
    print(f"{arguments.out}: {rollout.frames.shape[1]} frames of {rollout.name!r} ({rollout.task})")


if __name__ == "__main__":
    main()
