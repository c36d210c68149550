"""Stream a rollout of any length: chunk after chunk, each from the last pictures of the one before.

python examples/long_rollout.py RUN rollout.mp4 --seconds 20
"""

import argparse
import itertools
from pathlib import Path

from simforcing import WorldModel, open_dataset
from simforcing.data.clips import Clips
from simforcing.data.video import VideoWriter
from simforcing.generation.start import start_of_clip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="folder of a finished run, name of a model of the package, or hub id")
    parser.add_argument("out", type=Path, help="mp4 to write")
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()

    model = WorldModel.from_pretrained(arguments.run)
    print(model.describe())
    data = open_dataset(model.bundle.about["data"])
    clip = Clips(data.episodes, model.spec, stride=1)[0]
    start = start_of_clip(clip, model.spec)

    windows = itertools.cycle([clip.action, clip.action[::-1]])  # there and back again, for as long as it is asked for
    with VideoWriter(arguments.out, model.fps, model.size) as video:
        video.write(start.images[0][None])
        for chunk in model.stream(start, windows, seed=0):
            video.write(chunk.frames[0])
            if chunk.time_s[-1] >= arguments.seconds:
                break
    print(f"{arguments.out}: {chunk.time_s[-1]:g} s of {clip.episode!r}")


if __name__ == "__main__":
    main()
