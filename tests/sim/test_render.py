"""Rendering: averaging, and a clear line where OpenGL is missing."""

import os
import subprocess
import sys

import numpy as np
import pytest

from simforcing.sim.render import GL_INSTALL_LINE, _shrink


def test_supersampled_pixels_are_averaged_with_rounding():
    pixels = np.random.default_rng(0).integers(0, 256, (8, 12, 3), dtype=np.uint8)
    mean = pixels.reshape(4, 2, 6, 2, 3).mean(axis=(1, 3))
    assert np.abs(_shrink(pixels, 2) - mean).max() <= 0.5
    np.testing.assert_array_equal(_shrink(pixels, 1), pixels)


@pytest.mark.skipif(sys.platform != "linux", reason="the EGL vendor folder is a Linux matter")
def test_missing_opengl_is_one_clear_line_with_the_install_command(tmp_path):
    program = (
        "from simforcing.sim.tabletop import TabletopConfig\n"
        "try:\n    TabletopConfig().build()\n"
        "except RuntimeError as error:\n    print(error)\n"
    )
    environment = os.environ | {"__EGL_VENDOR_LIBRARY_DIRS": str(tmp_path), "MUJOCO_GL": "egl"}
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    assert GL_INSTALL_LINE in result.stdout
    assert len(result.stdout.strip().splitlines()) == 1
