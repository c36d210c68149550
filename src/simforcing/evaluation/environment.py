"""What this machine offers, without any run: Python, GL, codecs, devices, torch build, disk and optional packages."""

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np

from simforcing.evaluation.checks import Check
from simforcing.sim import GL_INSTALL_LINE

Codec = Literal["h264", "av1"]
MAX_CODEC_ERROR_LEVELS = 10.0
MIN_PYTHON = (3, 11)
MIN_FREE_GB = 2.0  # the demo's data, runs and report take well under 1 GB
RENDER_TIMEOUT_S = 60
EXTRAS = {
    "sim": ("mujoco", "mink", "daqp", "cmaes"),
    "wan": ("diffusers", "transformers"),
    "metrics": ("torchmetrics",),
    "view": ("rerun",),
    "serve": ("websockets", "msgpack"),
}
# A render in another process: a broken GL driver may abort, which no `except` catches.
RENDER_PROGRAM = """
import mujoco
model = mujoco.MjModel.from_xml_string(
    "<mujoco><worldbody><light pos='0 0 3'/><geom type='sphere' size='.3' rgba='1 0 0 1'/></worldbody></mujoco>")
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
renderer = mujoco.Renderer(model, 32, 32)
renderer.update_scene(data)
assert renderer.render().max() > 0, "the picture is black"
print(mujoco.__version__)
"""


def environment_checks(folder: Path = Path()) -> list[Check]:
    """One check per line of the report; none needs a run, a GPU or the network.

    Args:
        folder: where runs will be written; its file system's free space is reported.
    """
    makers: list[Callable[[], Check]] = [
        python_check,
        torch_check,
        device_check,
        gl_check,
        lambda: codec_check("h264"),
        lambda: codec_check("av1"),
        lambda: disk_check(folder),
    ]
    return [make() for make in makers] + [extra_check(name, modules) for name, modules in EXTRAS.items()]


def python_check() -> Check:
    """Version of Python against the oldest supported one."""
    passed = sys.version_info[:2] >= MIN_PYTHON
    detail = f"{platform.platform()}" if passed else f"needs {MIN_PYTHON[0]}.{MIN_PYTHON[1]} or newer"
    return Check(name="python", passed=passed, value=platform.python_version(), detail=detail)


def torch_check() -> Check:
    """Torch build, vector instructions and threads."""
    try:
        import torch
    except (ImportError, OSError) as error:
        return Check(name="torch", passed=False, value="missing", detail=f"{error}; install torch")
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    capability = torch.backends.cpu.get_cpu_capability()
    detail = f"{build}, {capability}, {torch.get_num_threads()} threads on {os.cpu_count()} cores"
    return Check(name="torch", passed=True, value=torch.__version__, detail=detail)


def device_check() -> Check:
    """Accelerators that torch sees, with their memory."""
    try:
        import torch
    except (ImportError, OSError):
        return Check(name="devices", passed=False, value="unknown", detail="torch cannot be imported")
    if torch.cuda.is_available():
        cards = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        detail = ", ".join(f"{card.name} {card.total_memory / 2**30:.0f} GiB" for card in cards)
        return Check(name="devices", passed=True, value=f"{len(cards)} cuda", detail=detail)
    if torch.backends.mps.is_available():
        return Check(name="devices", passed=True, value="mps", detail="Apple GPU (untested)")
    return Check(name="devices", passed=True, value="cpu", detail="no accelerator; the tiny recipes run on a CPU")


def gl_check(timeout_s: float = RENDER_TIMEOUT_S) -> Check:
    """Renders one small MuJoCo picture off screen in another process."""
    if importlib.util.find_spec("mujoco") is None:
        return Check(name="gl", passed=None, value="not installed", detail="rendering needs simforcing[sim]")
    environment = dict(os.environ)
    if sys.platform == "linux":
        environment.setdefault("MUJOCO_GL", "egl")
    command = [sys.executable, "-c", RENDER_PROGRAM]
    install = f"on Debian and Ubuntu: {GL_INSTALL_LINE}"
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return Check(name="gl", passed=False, value="timeout", detail=f"no picture after {timeout_s:g} s; {install}")
    backend = environment.get("MUJOCO_GL", "default")
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return Check(name="gl", passed=False, value=backend, detail=f"{reason}; {install}")
    return Check(name="gl", passed=True, value=backend, detail=f"mujoco {done.stdout.strip()} rendered 32x32")


def codec_check(codec: Codec) -> Check:
    """Writes eight frames to a file and reads them back, with the functions that data sets are read and written by."""
    try:
        from simforcing.data.video import ENCODERS, VideoFrames, write_video

        ramp = np.linspace(0, 255, 64, dtype=np.uint8)
        frames = np.stack([np.broadcast_to(np.roll(ramp, 8 * i)[:, None], (64, 64, 3)) for i in range(8)])
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "frames.mp4"
            write_video(path, frames, 10.0, codec=codec)
            decoded = VideoFrames(path).read(0, len(frames))
    except Exception as error:  # a codec library fails in many ways, all of which mean the same here
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return Check(name=codec, passed=False, value="unusable", detail=lines[0])
    error_levels = float(np.abs(decoded.astype(np.float64) - frames).mean())
    detail = f"{len(decoded)} of {len(frames)} frames came back, mean error {error_levels:.1f} of 255 levels"
    return Check(name=codec, passed=error_levels < MAX_CODEC_ERROR_LEVELS, value=ENCODERS[codec], detail=detail)


def disk_check(folder: Path) -> Check:
    """Free space where runs will be written."""
    existing = folder.resolve()
    while not existing.exists():
        existing = existing.parent
    free_gb = shutil.disk_usage(existing).free / 1e9
    detail = f"free at {existing}; the demo needs about {MIN_FREE_GB:g} GB"
    return Check(name="disk", passed=free_gb >= MIN_FREE_GB, value=f"{free_gb:.1f} GB", detail=detail)


def extra_check(name: str, modules: tuple[str, ...]) -> Check:
    """Which packages of an optional set are there; never a failure."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        detail = f"missing {', '.join(missing)}; pip install 'simforcing[{name}]'"
        return Check(name=f"extra {name}", passed=None, value="incomplete", detail=detail)
    versions = ", ".join(f"{module} {_version(module)}" for module in modules)
    return Check(name=f"extra {name}", passed=True, value="installed", detail=versions)


def _version(module: str) -> str:
    names = importlib.metadata.packages_distributions().get(module, [])
    return importlib.metadata.version(names[0]) if names else "?"
