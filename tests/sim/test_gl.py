"""A rendering library that cannot be loaded is named with what to install; it is never changed behind MuJoCo's back."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simforcing.sim.gl import load_mujoco


def message_of(**changes: str) -> list[str]:
    """What loading MuJoCo says under a changed environment."""
    program = (
        "from simforcing.sim.gl import load_mujoco\ntry:\n    load_mujoco()\nexcept RuntimeError as e:\n    print(e)"
    )
    own = {name: value for name, value in os.environ.items() if name != "PYOPENGL_PLATFORM"}  # MuJoCo sets it
    done = subprocess.run([sys.executable, "-c", program], env=own | changes, capture_output=True, text=True)
    return done.stdout.splitlines() or done.stderr.splitlines()[-1:]


def test_a_library_that_cannot_be_loaded_is_one_line_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "OpenGL.py").write_text("raise AttributeError('no library')")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    assert message_of(MUJOCO_GL="osmesa", PYTHONPATH=path) == [
        "no OpenGL: osmesa cannot be loaded (no library); install it: apt-get install -y libosmesa6, or try --gl egl"
    ]


def test_an_unknown_library_is_refused_with_the_choices() -> None:
    assert message_of(MUJOCO_GL="vulkan") == ["no OpenGL: MUJOCO_GL is 'vulkan'; choices: egl, osmesa"]


def test_a_loaded_library_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    load_mujoco()
    monkeypatch.setenv("MUJOCO_GL", "egl")
    load_mujoco("egl")
    with pytest.raises(RuntimeError, match="MuJoCo was loaded with egl, not with osmesa"):
        load_mujoco("osmesa")


PROGRAM = """
import mujoco
from simforcing.sim.render import Renderer
renderer = Renderer(mujoco.MjModel.from_xml_string("<mujoco/>"), size=(8, 8))
"""


@pytest.mark.parametrize("library", ["egl", "osmesa"])
def test_a_renderer_left_open_ends_in_silence(library: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "MUJOCO_GL": library}
    environment.pop("PYOPENGL_PLATFORM", None)
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    if done.returncode and "Error" in done.stderr:
        pytest.skip(f"no {library}: {done.stderr.splitlines()[-1]}")
    assert done.stderr == ""


def test_a_screen_that_is_not_there_is_one_line_with_a_remedy() -> None:
    pytest.importorskip("glfw")
    environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY", "PYOPENGL_PLATFORM")}
    environment |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "MUJOCO_GL": "glfw"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert "RuntimeError: no OpenGL context (" in done.stderr.splitlines()[-1]
    assert "set MUJOCO_GL to egl or osmesa" in done.stderr.splitlines()[-1]
