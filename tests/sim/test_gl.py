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
