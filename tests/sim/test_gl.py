"""A rendering library that cannot be loaded is named with what to install; it is never changed behind MuJoCo's back."""

import os
import subprocess
import sys

import pytest

from simforcing.sim.gl import load_mujoco


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere MuJoCo has its own library")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"MUJOCO_GL": "osmesa", "PYOPENGL_PLATFORM": "nonsense"},
            "no OpenGL: osmesa cannot be loaded (its Python part cannot be imported); install it:"
            " apt-get install -y libosmesa6, or try --gl egl",
        ),
        ({"MUJOCO_GL": "vulkan"}, "no OpenGL: MUJOCO_GL is 'vulkan'; choices: egl, osmesa"),
    ],
)
def test_a_library_that_cannot_be_loaded_is_one_line_with_a_remedy(changes: dict[str, str], message: str) -> None:
    program = (
        "from simforcing.sim.gl import load_mujoco\ntry:\n    load_mujoco()\nexcept RuntimeError as e:\n    print(e)"
    )
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | changes, capture_output=True, text=True)
    assert done.stdout.splitlines() == [message], done.stderr


def test_a_loaded_library_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    load_mujoco()
    monkeypatch.setenv("MUJOCO_GL", "egl")
    load_mujoco("egl")
    with pytest.raises(RuntimeError, match="MuJoCo was loaded with egl, not with osmesa"):
        load_mujoco("osmesa")
