"""The scripts behind the Makefile: set-up names what is missing and repeats broken installs; checks find faults."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def load(project_root: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"script_{name}", project_root / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def set_up(project_root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.chdir(project_root)
    return load(project_root, "set_up")


@pytest.fixture
def check_documents(project_root: Path) -> ModuleType:
    return load(project_root, "check_documents")


@pytest.fixture
def size_report(project_root: Path) -> ModuleType:
    return load(project_root, "size_report")


def fake_environment(folder: Path) -> Path:
    """An environment whose interpreter is this one."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    return folder


def test_an_old_python_is_named_with_the_version_that_is_needed(set_up: ModuleType, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(set_up, "OLDEST_PYTHON", (3, 99))
    with pytest.raises(SystemExit, match=r"is Python 3\.\d+; simforcing needs 3\.99 or newer"):
        set_up.check_version()


def test_all_missing_system_packages_are_named_in_one_line(set_up: ModuleType, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    monkeypatch.setattr(set_up, "GL_CHECK", "raise OSError('libEGL.so.1: cannot open shared object file')")
    monkeypatch.setattr(set_up.sys, "platform", "linux")
    monkeypatch.setenv("MUJOCO_GL", "egl")
    with pytest.raises(SystemExit) as stop:
        set_up.check_system_packages()
    message = str(stop.value)
    assert "libEGL.so.1: cannot open shared object file" in message
    wanted = f"apt-get install -y python3-venv python3.{sys.version_info.minor}-venv libegl1 libgl1 libgl1-mesa-dri"
    assert wanted in message.splitlines()[-1]


def test_gl_is_not_asked_for_outside_linux(set_up: ModuleType, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(set_up, "GL_CHECK", "raise OSError")
    monkeypatch.setattr(set_up.sys, "platform", "darwin")
    assert set_up.missing_gl() == ""


def test_the_download_size_is_said_before_pip_downloads(
    set_up: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    said_when_pip_starts = []

    def refuse(command: list[str], **_: object) -> int:
        if "install" in command:
            said_when_pip_starts.append(capsys.readouterr().out)
        return int("install" in command)

    monkeypatch.setattr(set_up.subprocess, "call", refuse)
    with pytest.raises(SystemExit, match="the same command tries again"):
        set_up.install(str(fake_environment(tmp_path / "venv")), "demo")
    assert f"{set_up.DOWNLOAD_MB['demo']} MB" in said_when_pip_starts[0]


def test_an_interrupted_install_is_repeated_and_a_finished_one_is_not(
    set_up: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    installs, exit_codes = [], [1, 0, 0]

    def call(command: list[str], **_: object) -> int:
        if "install" not in command:
            return 0
        installs.append(command)
        return exit_codes[len(installs) - 1]

    monkeypatch.setattr(set_up.subprocess, "call", call)
    monkeypatch.setattr(set_up, "say_size", lambda *_: None)
    venv = str(fake_environment(tmp_path / "venv"))
    with pytest.raises(SystemExit):
        set_up.install(venv, "dev")
    for _ in range(3):
        set_up.install(venv, "dev")
    set_up.install(venv, "demo")  # the tests' environment holds all that the demo needs
    assert len(installs) == 3
    assert installs[1][-4:] == ["-e", ".[dev]", "-c", "constraints.txt"]
    assert installs[2][-4:] == ["--no-deps", set_up.MODEL_PACKAGE, "-c", "constraints.txt"]


def test_other_pins_are_installed_anew(set_up: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "scripts").mkdir()
    for name in ("pyproject.toml", "constraints.txt", "scripts/set_up.py"):
        (tmp_path / name).write_text("torch==1.0\n")
    monkeypatch.chdir(tmp_path)
    before = set_up.fingerprint(sys.executable, "demo")
    assert set_up.fingerprint(sys.executable, "demo") == before
    (tmp_path / "constraints.txt").write_text("torch==1.1\n")
    assert set_up.fingerprint(sys.executable, "demo") != before


def test_links_that_lead_nowhere_are_found(check_documents: ModuleType, tmp_path: Path):
    (tmp_path / "other.md").write_text("# A heading, with words\n")
    document = tmp_path / "document.md"
    document.write_text(
        "[a](other.md) [b](other.md#a-heading-with-words) [c](gone.md) [d](other.md#gone) [e](https://example.org)\n"
        "```text\n[f](also-gone.md)\n```\n"
    )
    assert check_documents.broken_links(document) == [
        "link to gone.md leads nowhere",
        "link to other.md#gone leads nowhere",
    ]


def test_names_that_the_code_does_not_define_are_found(check_documents: ModuleType, tmp_path: Path):
    document = tmp_path / "document.md"
    document.write_text(
        "`flow.solver.euler` `simforcing.flow.path.interpolate` `flow.solver.leapfrog` `types.episodes.Episode.view`"
        " `types.episodes.Episode.wings` `gone.module.name` `flow.py` `types.Episode`\n"
    )
    assert check_documents.unknown_names(document) == [
        "`flow.solver.leapfrog` is not in src/simforcing",
        "`types.episodes.Episode.wings` is not in src/simforcing",
    ]


def test_size_counts_parameters_nesting_and_lines_without_the_docstring(
    size_report: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "module.py").write_text(
        'class A:\n    def f(self, a, *, b):\n        """One.\n\n        Two.\n        """\n'
        "        for x in a:\n            if x:\n                return b\n            elif b:\n"
        "                return a\n"
    )
    monkeypatch.setattr(size_report, "ROOT", tmp_path)
    found = {what: value for what, _, value in size_report.measures(tmp_path / "module.py")}
    assert found == {"lines of a file": 11, "lines of a function": 6, "parameters": 2, "nesting": 2}


def test_lines_that_stand_twice_are_counted_once_each(
    size_report: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    block = "".join(f"x{i} = {i}\n" for i in range(8))
    (tmp_path / "a.py").write_text(block + "only = 1\n")
    (tmp_path / "b.py").write_text("other = 2\n" + block)
    monkeypatch.setattr(size_report, "ROOT", tmp_path)
    repeated, counted, places = size_report.repeated_lines([tmp_path / "a.py", tmp_path / "b.py"])
    assert (repeated, counted, places) == (8, 18, ["b.py:2"])
