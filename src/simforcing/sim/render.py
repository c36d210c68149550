"""Off-screen rendering: one OpenGL context for a process, the model changed in place between episodes.

Shadows, reflections and multisampling are off (ten times faster on a CPU); frames are rendered `supersample` times
larger and averaged, which costs less than multisampling and leaves edges smooth.
"""

# MuJoCo ships no stubs:
# pyright: reportAttributeAccessIssue=false, reportInvalidTypeForm=false

import platform

import mujoco
import numpy as np
from jaxtyping import UInt8

from simforcing.sim import GL_INSTALL_LINE


class Renderer:
    """Renders one model through one of its cameras.

    Args:
        model: the model; it may be changed in place, followed by `reload_textures` where textures changed.
        size_px: height and width of a frame.
        supersample: how many times larger each side is rendered.

    Raises:
        RuntimeError: no OpenGL context can be made; the message says what to install.
    """

    def __init__(self, model: mujoco.MjModel, *, size_px: int, supersample: int = 2, camera: str = "view") -> None:
        self._model, self._size, self._supersample = model, size_px, supersample
        side = size_px * supersample
        self._gl = _open_context(side)
        self._scene = mujoco.MjvScene(model, maxgeom=200)
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION, mujoco.mjtRndFlag.mjRND_HAZE):
            self._scene.flags[flag] = 0
        self._option, self._camera = mujoco.MjvOption(), mujoco.MjvCamera()
        self._option.sitegroup[:] = 0
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._camera.fixedcamid = model.camera(camera).id
        self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_50)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        self._rectangle = mujoco.MjrRect(0, 0, side, side)
        self._pixels = np.empty((side, side, 3), np.uint8)

    def reload_textures(self) -> None:
        """Send the model's textures to the renderer again."""
        self._gl.make_current()
        for texture in range(self._model.ntex):
            mujoco.mjr_uploadTexture(self._model, self._context, texture)

    def render(self, data: mujoco.MjData) -> UInt8[np.ndarray, "h w 3"]:
        """The frame of a state whose positions are up to date (mj_forward or mj_step was called)."""
        self._gl.make_current()
        mujoco.mjv_updateScene(
            self._model, data, self._option, None, self._camera, mujoco.mjtCatBit.mjCAT_ALL, self._scene
        )
        mujoco.mjr_render(self._rectangle, self._scene, self._context)
        mujoco.mjr_readPixels(self._pixels, None, self._rectangle, self._context)
        return _shrink(self._pixels[::-1], self._supersample)

    def close(self) -> None:
        """Free the context; the renderer cannot be used afterwards."""
        self._gl.make_current()
        self._context.free()
        self._gl.free()


def _shrink(pixels: np.ndarray, factor: int) -> np.ndarray:
    """Box average with rounding; exact in integers, so the same everywhere."""
    if factor == 1:
        return pixels.copy()
    total = np.zeros((pixels.shape[0] // factor, pixels.shape[1] // factor, 3), np.uint16)
    for row in range(factor):
        for column in range(factor):
            total += pixels[row::factor, column::factor]
    return ((total + factor * factor // 2) // (factor * factor)).astype(np.uint8)


def _open_context(side: int) -> mujoco.GLContext:
    try:
        context = mujoco.GLContext(side, side)
        context.make_current()
    except Exception as error:
        hint = f"install the GL libraries: {GL_INSTALL_LINE}" if platform.system() == "Linux" else "set MUJOCO_GL"
        reason = str(error).strip().splitlines()
        raise RuntimeError(f"no OpenGL context ({reason[0] if reason else type(error).__name__}); {hint}") from error
    return context
