"""Simulated robots: scenes, tasks, kinematics and rendering with NumPy and MuJoCo, never torch.

The defaults below must be in the environment before MuJoCo and Mesa load, so they are set here, unless chosen already.
"""

import os
import sys

GL_INSTALL_LINE = "apt-get install -y libegl1 libgl1 libgl1-mesa-dri"

if sys.platform == "linux":
    os.environ.setdefault("MUJOCO_GL", "egl")
    # Mesa's software rasteriser: its own threads cost more than they give for small frames; processes use cores better.
    os.environ.setdefault("LP_NUM_THREADS", "0")
