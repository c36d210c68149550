"""Set up the environment of `make demo` and `make test`: check the machine, say the download size, install the pins.

Uses the standard library only and syntax that Python 3.7 understands, so that a wrong machine gets one clear line.
A stamp inside the environment makes the second run quick; it is written last, so an interrupted install is repeated.
"""

import argparse
import hashlib
import os
import re
import subprocess
import sys

OLDEST_PYTHON = (3, 11)
EXTRAS = {"demo": "sim", "dev": "dev"}
# Sum of the pinned wheels for CPython 3.11 on x86-64 Linux with a CPU build of torch: downloaded, and installed.
DOWNLOAD_MB = {"demo": 410, "dev": 655}
INSTALLED_GB = {"demo": 1.6, "dev": 2.5}
# Carries the Panda's model file that tests read; what it depends on (pygame, pynput ...) is not needed for that.
MODEL_PACKAGE = "gym-hil"
GL_PACKAGES = "libegl1 libgl1 libgl1-mesa-dri"

# What MuJoCo's EGL context does, without MuJoCo: the first device that initialises will render.
GL_CHECK = """
import ctypes
from ctypes import POINTER, byref, c_char_p, c_int, c_uint, c_void_p
ctypes.CDLL("libGL.so.1")
egl = ctypes.CDLL("libEGL.so.1")
egl.eglGetProcAddress.restype = c_void_p
egl.eglGetProcAddress.argtypes = [c_char_p]
query = ctypes.CFUNCTYPE(c_uint, c_int, POINTER(c_void_p), POINTER(c_int))(egl.eglGetProcAddress(b"eglQueryDevicesEXT"))
display_of = ctypes.CFUNCTYPE(c_void_p, c_uint, c_void_p, c_void_p)(egl.eglGetProcAddress(b"eglGetPlatformDisplayEXT"))
egl.eglInitialize.argtypes = [c_void_p, c_void_p, c_void_p]
devices, count = (c_void_p * 16)(), c_int()
if not query(16, devices, byref(count)):
    raise OSError("EGL lists no device")
displays = [display_of(0x313F, devices[i], None) for i in range(count.value)]
if not any(display and egl.eglInitialize(display, None, None) for display in displays):
    raise OSError("none of %d EGL devices initialises" % count.value)
"""


def fail(message: str) -> None:
    """End with one clear line."""
    sys.exit("set-up: " + message)


def apt_line(packages: str) -> str:
    """The exact command that installs Debian packages for this user."""
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"{sudo}apt-get update && {sudo}apt-get install -y {packages}"


def check_version() -> None:
    """The interpreter that runs this script is new enough."""
    if sys.version_info < OLDEST_PYTHON:
        found, wanted = ("{}.{}".format(*version[:2]) for version in (sys.version_info, OLDEST_PYTHON))
        fail(
            f"{sys.executable} is Python {found}; simforcing needs {wanted} or newer. "
            f"Name another one: make demo PYTHON=python{wanted}"
        )


def missing_venv() -> str:
    """What keeps this interpreter from making virtual environments; empty where nothing does."""
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError as error:
        return f"Python cannot make virtual environments ({error})"
    return ""


def missing_gl() -> str:
    """What keeps this machine from rendering without a screen; Linux with EGL only."""
    if not sys.platform.startswith("linux") or os.environ.get("MUJOCO_GL", "egl") != "egl":
        return ""
    check = subprocess.run([sys.executable, "-c", GL_CHECK], capture_output=True)
    if check.returncode == 0:
        return ""
    lines = check.stderr.decode(errors="replace").strip().splitlines()
    return "EGL cannot render ({})".format(lines[-1] if lines else f"exit code {check.returncode}")


def check_system_packages() -> None:
    """Everything that only the system's package manager can add, in one message with one line to run."""
    venv_packages = "python3-venv python{}.{}-venv".format(*sys.version_info[:2])
    faults = {venv_packages: missing_venv(), GL_PACKAGES: missing_gl()}
    faults = {packages: fault for packages, fault in faults.items() if fault}
    if faults:
        fail("{}. Install what is missing:\n  {}".format("; ".join(faults.values()), apt_line(" ".join(faults))))


def say_size(python: str, target: str) -> None:
    """Download size before anything is downloaded, and which torch the user's pip settings choose."""
    with open("constraints.txt") as file:
        torch_version = re.search(r"^torch==(\S+)$", file.read(), re.MULTILINE).group(1)
    size = f"about {DOWNLOAD_MB[target]} MB with a CPU build of torch ({INSTALLED_GB[target]} GB on disk)"
    print(f"set-up: downloads {size};")
    print("        torch's default build for Linux carries CUDA and is several GB larger. pip's own settings")
    print("        (PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS) choose: point one at torch's CPU wheels.")
    query = [python, "-m", "pip", "index", "versions", "torch"]
    try:
        found = subprocess.run(query, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60).stdout.decode()
    except subprocess.TimeoutExpired:
        return
    found = "".join(line for line in found.splitlines(keepends=True) if line.startswith("Available versions:"))
    builds = re.findall(rf"(?<![\w.+-]){re.escape(torch_version)}(\+\w+)?(?=[,\s])", found)
    if builds:
        chosen = max(builds)
        kind = f"a build labelled {chosen[1:]}" if chosen else "the registry's default build"
        print(f"        Your settings offer torch {torch_version}{chosen}: {kind}.", flush=True)


def fingerprint(python: str, target: str) -> str:
    """Changes with what would be installed, by what, and where."""
    digest = hashlib.sha256()
    for path in ("pyproject.toml", "constraints.txt", os.path.join("scripts", "set_up.py")):
        with open(path, "rb") as file:
            digest.update(file.read())
    digest.update(repr((target, sys.version, os.path.realpath(python), os.getcwd())).encode())
    return digest.hexdigest()


def is_current(python: str, stamp: str, wanted: str) -> bool:
    """Whether an earlier run finished with exactly this set-up and its interpreter still starts."""
    if not os.path.exists(stamp):
        return False
    with open(stamp) as file:
        if file.read() != wanted:
            return False
    return subprocess.call([python, "-c", "import simforcing"], stderr=subprocess.DEVNULL) == 0


def install(venv: str, target: str) -> None:
    """Make the environment where it is missing or broken, then install the pins; the stamp comes last."""
    python = os.path.join(venv, "bin", "python")
    stamps = {name: os.path.join(venv, "stamp-" + name) for name in EXTRAS}
    enough = ("demo", "dev") if target == "demo" else ("dev",)  # dev holds all that the demo needs
    if any(is_current(python, stamps[name], fingerprint(python, name)) for name in enough):
        return
    pip_works = [python, "-m", "pip", "--version"]
    if not os.path.exists(python) or subprocess.call(pip_works, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        print(f"set-up: makes {venv}", flush=True)
        if subprocess.call([sys.executable, "-m", "venv", "--clear", venv]) != 0:
            fail(f"could not make {venv}; see the lines above")
    say_size(python, target)
    for stamp in stamps.values():
        if os.path.exists(stamp):
            os.remove(stamp)
    command = [python, "-m", "pip", "install", "-e", f".[{EXTRAS[target]}]", "-c", "constraints.txt"]
    if subprocess.call(command) != 0:
        fail("pip could not install the pinned packages (see above). Nothing is lost: the same command tries again")
    if target == "dev":
        command = [python, "-m", "pip", "install", "--no-deps", MODEL_PACKAGE, "-c", "constraints.txt"]
        if subprocess.call(command) != 0:
            print(f"set-up: no {MODEL_PACKAGE} to be had; tests of the Panda will be skipped", flush=True)
    with open(stamps[target], "w") as file:
        file.write(fingerprint(python, target))


def main() -> None:
    """Command line of this script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", choices=sorted(EXTRAS))
    parser.add_argument("--venv", default=".venv")
    args = parser.parse_args()
    os.chdir(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    check_version()
    check_system_packages()
    install(args.venv, args.target)


if __name__ == "__main__":
    main()
