"""Close the loop around a policy: the world model plays the robot, here under random motions around the current pose.

python examples/closed_loop.py RUN closed_loop.mp4 --num-envs 8
"""

import argparse
import time
from pathlib import Path

import gymnasium
import numpy as np

import simforcing  # registers the environment
from simforcing.data.video import write_video

REACH = 0.05  # of each number's range


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="folder of a finished run")
    parser.add_argument("out", type=Path, help="mp4 to write, of the first clip")
    parser.add_argument(
        "--starts", type=Path, help="data set whose first frames begin the episodes; default: the run's"
    )
    parser.add_argument("--num-envs", type=int, default=1, help="clips at once")
    parser.add_argument("--num-steps", type=int, default=5)
    parser.add_argument("--num-actions", type=int, default=4, help="robot actions of a step")
    parser.add_argument("--window", default="whole", choices=["whole", "short"], help="short is faster, often worse")
    arguments = parser.parse_args()

    model = simforcing.WorldModel.from_pretrained(arguments.run)
    envs = gymnasium.make_vec(
        "simforcing/WorldModel-v0",
        num_envs=arguments.num_envs,
        model=model,
        starts=arguments.starts,
        num_actions=arguments.num_actions,
        window=arguments.window,
    )
    space, rng = envs.single_action_space, np.random.default_rng(0)
    centre = (space.low + space.high) / 2  # of a model without states, where to stay is not known

    seen, infos = envs.reset(seed=0)  # frames "n m h w 3", state "n m s" where the robot has one, time_s "n m"
    video, seconds = [seen["frames"][0][:1]], []
    for _ in range(arguments.num_steps):
        # a policy would look at the frames; here each clip is asked to stay, and to move
        stay = np.stack([envs.world.rest(rows[-1]) for rows in seen["state"]]) if "state" in seen else centre
        motion = rng.uniform(-REACH, REACH, envs.action_space.shape) * (space.high - space.low)
        begun = time.perf_counter()
        seen, *_, infos = envs.step(np.clip(stay + motion, space.low, space.high))  # rewards, endings, what is known
        seconds.append(time.perf_counter() - begun)
        video.append(seen["frames"][0])

    write_video(arguments.out, np.concatenate(video), model.spec.fps)
    rate = arguments.num_envs / float(np.median(seconds))
    print(
        f"{arguments.out}: {1 + arguments.num_steps * len(seen['time_s'][0])} frames from {infos['name'][0]!r};"
        f" {rate:.1f} steps/s ({arguments.num_envs} clips at once, {envs.world.num_frames} frames a step, median)"
    )


if __name__ == "__main__":
    main()
