"""Stream a rollout of any length: chunk after chunk, each from the last pictures of the one before.

python examples/long_rollout.py RUN rollout.mp4 --seconds 20
"""

import argparse
import itertools
from pathlib import Path

import numpy as np

from simforcing import Start, WorldModel, open_dataset
from simforcing.data.clips import Clips
from simforcing.data.video import VideoWriter


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
    real, sim = np.split(clip.frames[:, 0], [len(model.views)])
    start = Start(images=tuple(real), sim=tuple(sim) or None, state=clip.state, task=clip.task, name=clip.episode)

    windows = itertools.cycle([clip.action, clip.action[::-1]])  # there and back again, for as long as it is asked for
    with VideoWriter(arguments.out, model.fps, model.size) as video:
        video.write(real[:1])
        for chunk in model.stream(start, windows, seed=0):
            video.write(chunk.frames[0])
            if chunk.time_s[-1] >= arguments.seconds:
                break
    print(f"{arguments.out}: {chunk.time_s[-1]:g} s of {clip.episode!r}")


if __name__ == "__main__":
    main()
