"""Off-screen rendering: one OpenGL context for a process, the model changed in place between episodes.

Shadows, reflections and multisampling are off (ten times faster on a CPU); frames are rendered `supersample` times
larger and averaged, which costs less than multisampling and leaves edges smooth. Colour and depth come from one pass:
where the depth is that of nothing, the picture is background, so masks need no second one.
"""

# MuJoCo ships no stubs:
# pyright: reportAttributeAccessIssue=false, reportInvalidTypeForm=false

import atexit
import platform
import sys
import weakref
from dataclasses import dataclass

import mujoco
import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from simforcing.sim import GL_INSTALL_LINE
from simforcing.types import Camera

MORE_GEOMS = 100  # that a scene may hold beside the model's own, such as decorations
NEAR_M, FAR_M = 0.02, 20.0  # of cameras given as `Camera`


@dataclass(frozen=True, kw_only=True)
class Picture:
    """What a camera sees: colour over black, how much of each pixel is covered (0 .. 1), depth (m, 0 = nothing).

    `box` holds all that is covered: rows and columns.
    """

    colour: UInt8[np.ndarray, "h w 3"]
    coverage: Float[np.ndarray, "h w"]
    depth_m: Float[np.ndarray, "h w"]
    box: tuple[slice, slice] = (slice(None), slice(None))

    @property
    def mask(self) -> Bool[np.ndarray, "h w"]:
        """Pixels of which at least half is covered."""
        return self.coverage >= 0.5

    def over(self, background: UInt8[np.ndarray, "h w 3"]) -> UInt8[np.ndarray, "h w 3"]:
        """The picture on a background."""
        picture = background.copy()
        free = 1.0 - self.coverage[self.box][..., None]
        picture[self.box] = (self.colour[self.box] + free * background[self.box] + 0.5).astype(np.uint8)
        return picture


class Renderer:
    """Renders one model, through one of its own cameras or through any pinhole.

    Args:
        model: the model; it may be changed in place, followed by `reload_textures` where textures changed.
        size: height and width of a frame in pixels.
        supersample: how many times larger each side is rendered.

    Raises:
        RuntimeError: no OpenGL context can be made; the message says what to install.
    """

    def __init__(self, model: mujoco.MjModel, *, size: tuple[int, int], supersample: int = 2) -> None:
        self._model, self.size, self._supersample = model, size, supersample
        height, width = size[0] * supersample, size[1] * supersample
        self._closed = True  # until there is something to close
        self._gl = _open_context(width, height)
        self._scene = mujoco.MjvScene(model, maxgeom=model.ngeom + MORE_GEOMS)
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION, mujoco.mjtRndFlag.mjRND_HAZE):
            self._scene.flags[flag] = 0
        self._option, self._camera = mujoco.MjvOption(), mujoco.MjvCamera()
        self._option.sitegroup[:] = 0
        model.vis.global_.offwidth, model.vis.global_.offheight = width, height
        try:
            self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_50)
        except mujoco.FatalError as error:  # GLFW without a screen makes a context that is none
            self._gl.free()
            raise _no_context(error) from error
        self._closed = False
        _close_at_exit(self)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        self._rectangle = mujoco.MjrRect(0, 0, width, height)
        self._pixels = np.empty((height, width, 3), np.uint8)
        self._depth = np.empty((height, width), np.float32)

    def reload_textures(self) -> None:
        """Send the model's textures to the renderer again."""
        self._gl.make_current()
        for texture in range(self._model.ntex):
            mujoco.mjr_uploadTexture(self._model, self._context, texture)

    def render(self, data: mujoco.MjData, camera: Camera | str) -> UInt8[np.ndarray, "h w 3"]:
        """The frame of a state whose positions are up to date (mj_forward, mj_step or RobotModel.place was called).

        Args:
            camera: name of a camera of the model, or a pinhole in the world's frame, of this renderer's size.
        """
        self._draw(data, camera)
        mujoco.mjr_readPixels(self._pixels, None, self._rectangle, self._context)
        return _shrink(self._pixels[::-1], self._supersample)

    def picture(self, data: mujoco.MjData, camera: Camera) -> Picture:
        """Colour, coverage and depth of the same state through a pinhole.

        Depth is read first: only where there is something, colour is read and worked on.
        """
        self._draw(data, camera)
        mujoco.mjr_readPixels(None, self._depth, self._rectangle, self._context)
        factor, depth = self._supersample, self._depth[::-1]
        colour, coverage = np.zeros((*self.size, 3), np.uint8), np.zeros(self.size, np.float32)
        depth_m = np.zeros(self.size, np.float32)
        inside = depth < 1.0
        box = _reach(inside, 0, factor), _reach(inside, 1, factor)
        if box[0].stop:
            rows, columns = (slice(part.start * factor, part.stop * factor) for part in box)
            fine = rows, columns
            pixels = self._read_colour(fine)
            pixels[~inside[fine]] = 0
            colour[box] = _shrink(pixels, factor)
            coverage[box] = _total(inside[fine][..., None], factor)[..., 0] / np.float32(factor**2)
            depth_m[box] = _in_metres(_nearest(depth[fine], factor))
        return Picture(colour=colour, coverage=coverage, depth_m=depth_m, box=box)

    def _read_colour(self, box: tuple[slice, slice]) -> UInt8[np.ndarray, "h w 3"]:
        """Some rows and columns, from the top left, of what was drawn."""
        (top, bottom), (left, right) = ((part.start, part.stop) for part in box)
        pixels = self._pixels.reshape(-1)[: (bottom - top) * (right - left) * 3].reshape(bottom - top, right - left, 3)
        rectangle = mujoco.MjrRect(left, len(self._pixels) - bottom, right - left, bottom - top)
        mujoco.mjr_readPixels(pixels, None, rectangle, self._context)
        return pixels[::-1]

    def seen(
        self, data: mujoco.MjData, camera: Camera, geoms: Int[np.ndarray, " g"]
    ) -> tuple[Float[np.ndarray, "h w"], Float[np.ndarray, "h w"]]:
        """Share of each pixel in which one of the geoms (by id) is in front, and the depth of all that is seen."""
        flags = (mujoco.mjtRndFlag.mjRND_SEGMENT, mujoco.mjtRndFlag.mjRND_IDCOLOR)
        for flag in flags:
            self._scene.flags[flag] = 1
        self._draw(data, camera)
        for flag in flags:
            self._scene.flags[flag] = 0
        mujoco.mjr_readPixels(self._pixels, self._depth, self._rectangle, self._context)
        wanted = np.zeros(self._scene.ngeom + 1, bool)  # by the number that a pixel's colour codes; 0 is nothing
        for geom in self._scene.geoms[: self._scene.ngeom]:
            if geom.objtype == mujoco.mjtObj.mjOBJ_GEOM and geom.segid >= 0:
                wanted[geom.segid + 1] = geom.objid in geoms
        number = self._pixels[::-1].astype(np.uint32) @ np.array([1, 1 << 8, 1 << 16], np.uint32)
        count = _total(wanted[number][..., None], self._supersample)[..., 0]
        nearest = _nearest(self._depth[::-1], self._supersample)
        return (count / self._supersample**2).astype(np.float32), _in_metres(nearest)

    def close(self) -> None:
        """Free the context; the renderer cannot be used afterwards."""
        if not self._closed:
            self._closed = True
            self._gl.make_current()
            self._context.free()
            self._gl.free()

    def __del__(self) -> None:
        # Left to the garbage collector, it would free its textures by number in another renderer's context.
        if not sys.is_finalizing():
            self.close()

    def _draw(self, data: mujoco.MjData, camera: Camera | str) -> None:
        self._gl.make_current()
        if isinstance(camera, str):
            self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
            self._camera.fixedcamid = self._model.camera(camera).id
        elif camera.size != self.size:
            raise ValueError(f"camera of {camera.size}, renderer of {self.size} pixels")
        mujoco.mjv_updateScene(
            self._model, data, self._option, None, self._camera, mujoco.mjtCatBit.mjCAT_ALL, self._scene
        )
        if isinstance(camera, Camera):
            for view in self._scene.camera:
                _aim(view, camera)
        mujoco.mjr_render(self._rectangle, self._scene, self._context)


def _aim(view: mujoco.MjvGLCamera, camera: Camera) -> None:
    """Give MuJoCo's camera a pinhole's pose and frustum; focal lengths may differ and the centre lie anywhere."""
    if camera.intrinsics is None or camera.pose is None:
        raise ValueError("a camera without intrinsics or pose renders nothing")
    height, width = camera.size
    (focal_x, _, centre_x), (_, focal_y, centre_y) = camera.intrinsics[:2]
    view.pos, view.forward, view.up = camera.pose[:3, 3], camera.pose[:3, 2], -camera.pose[:3, 1]
    view.frustum_near, view.frustum_far = NEAR_M, FAR_M
    # Pixel centres are integers, so the image reaches from -1/2 to width - 1/2.
    view.frustum_center = NEAR_M * ((width - 1) / 2 - centre_x) / focal_x
    view.frustum_width = NEAR_M * width / 2 / focal_x
    view.frustum_top = NEAR_M * (centre_y + 0.5) / focal_y
    view.frustum_bottom = -NEAR_M * (height - 0.5 - centre_y) / focal_y


def _reach(inside: Bool[np.ndarray, "h w"], axis: int, factor: int) -> slice:
    """From the first to the last row (or column) with fine pixels inside, in whole ones; 0 to 0 where there is none."""
    places = np.flatnonzero(inside.any(axis=1 - axis))
    return slice(int(places[0]) // factor, int(places[-1]) // factor + 1) if len(places) else slice(0, 0)


def _in_metres(depth: np.ndarray) -> Float[np.ndarray, "h w"]:
    """Along the camera's axis; 0 where there is nothing."""
    return np.where(depth < 1.0, NEAR_M / (1.0 - depth * (1.0 - NEAR_M / FAR_M)), 0.0).astype(np.float32)


def _total(pixels: np.ndarray, factor: int) -> np.ndarray:
    """Sums over squares of `factor` pixels a side; exact in integers, so the same everywhere."""
    rows = pixels[0::factor].astype(np.uint16)
    for row in range(1, factor):
        rows += pixels[row::factor]
    total = np.empty((rows.shape[0], rows.shape[1] // factor, rows.shape[2]), np.uint16)
    for channel in range(rows.shape[2]):  # one by one: NumPy is slow where its innermost axis has three numbers
        plane = rows[:, :, channel]
        total[..., channel] = plane[:, 0::factor]
        for column in range(1, factor):
            total[..., channel] += plane[:, column::factor]
    return total


def _shrink(pixels: np.ndarray, factor: int) -> UInt8[np.ndarray, "h w c"]:
    """Box average with rounding."""
    total = _total(pixels, factor)
    return ((total + factor * factor // 2) // (factor * factor)).astype(np.uint8)


def _nearest(depth: np.ndarray, factor: int) -> np.ndarray:
    """Smallest depth in squares of `factor` pixels a side."""
    nearest = depth[0::factor, 0::factor]
    for row in range(factor):
        for column in range(factor):
            nearest = np.minimum(nearest, depth[row::factor, column::factor])
    return nearest


def _open_context(width: int, height: int) -> mujoco.GLContext:
    try:
        context = mujoco.GLContext(width, height)
        context.make_current()
    except Exception as error:
        raise _no_context(error) from error
    return context


def _no_context(error: Exception) -> RuntimeError:
    hint = "set MUJOCO_GL"
    if platform.system() == "Linux":
        hint = f"set MUJOCO_GL to egl or osmesa, or install the GL libraries: {GL_INSTALL_LINE}"
    reason = str(error).strip().splitlines()
    return RuntimeError(f"no OpenGL context ({reason[0][:120] if reason else type(error).__name__}); {hint}")


_open: weakref.WeakSet[Renderer] = weakref.WeakSet()  # of this process


def _close_at_exit(renderer: Renderer) -> None:
    """Free it before the interpreter takes apart what freeing needs."""
    _open.add(renderer)
    # Exit hooks run last first, and MuJoCo ends EGL in one that its first context registers: this one follows it.
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def _close_all() -> None:
    for renderer in list(_open):
        renderer.close()
