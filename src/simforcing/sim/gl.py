"""How MuJoCo renders without a screen: chosen before it is loaded, and a missing library named with what to install."""

import os
import sys
from typing import Literal

from simforcing.sim import GL_INSTALL_LINE

GlLibrary = Literal["egl", "osmesa"]
INSTALL_LINES: dict[GlLibrary, str] = {"egl": GL_INSTALL_LINE, "osmesa": "apt-get install -y libosmesa6"}


def load_mujoco(gl: GlLibrary | None = None) -> None:
    """Import MuJoCo with a library for rendering; processes that are started later use the same.

    Args:
        gl: egl (graphics cards, and Mesa without one) or osmesa (Mesa's software rendering alone); None: what the
            environment variable MUJOCO_GL says, else egl on Linux.

    Raises:
        RuntimeError: the library is missing, or another one was loaded before.
        ModuleNotFoundError: MuJoCo itself is not installed.
    """
    if gl is not None:
        if "mujoco" in sys.modules and os.environ.get("MUJOCO_GL") != gl:
            raise RuntimeError(f"MuJoCo was loaded with {os.environ.get('MUJOCO_GL') or 'its default'}, not with {gl}")
        os.environ["MUJOCO_GL"] = gl
    try:
        import mujoco  # noqa: F401
    except ModuleNotFoundError:
        raise
    except Exception as error:  # PyOpenGL fails in its own ways where a library is missing
        raise RuntimeError(_remedy(os.environ.get("MUJOCO_GL", ""), " ".join(str(error).split()))) from error


def _remedy(chosen: str, reason: str) -> str:
    others = [name for name in INSTALL_LINES if name != chosen]
    if len(others) == len(INSTALL_LINES):
        return f"no OpenGL: MUJOCO_GL is {chosen!r}; choices: {', '.join(others)}"
    line = INSTALL_LINES["egl" if chosen == "egl" else "osmesa"]
    return f"no OpenGL: {chosen} cannot be loaded ({reason:.120}); install it: {line}, or try --gl {others[0]}"
