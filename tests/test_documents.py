"""The documents do what they say: every command of a ```console block runs, in order, in one folder per document.

A command that cannot run here (hours, an accelerator, the reader's data) stands in a ```sh block, after the reason.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
# These run this test themselves, or are run by CI in miniature.
LEFT_OUT = re.compile(r"^(make (demo|test)\b|git clone\b|cd simforcing\b)")


def commands(text: str) -> list[str]:
    """The lines after "$ " of all console blocks, a trailing backslash continues."""
    found = []
    for block in BLOCK.findall(text):
        joined = block.replace("\\\n", " ")
        found += [line[2:].strip() for line in joined.splitlines() if line.startswith("$ ")]
    return [command for command in found if not LEFT_OUT.match(command)]


def documents() -> list[Path]:
    """Documents with at least one command to run."""
    paths = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(path for path in paths if commands(path.read_text()))


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_of_the_document_runs(document: Path, tmp_path: Path):
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "120",
    }
    for command in commands(document.read_text()):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


def test_commands_are_found_and_continued_lines_joined():
    text = "```console\n$ make demo\n$ simforcing a \\\n    --b\nits output\n```\n```sh\nsimforcing long\n```\n"
    assert commands(text) == ["simforcing a      --b"]


def test_links_and_names_of_code_in_the_documents_exist():
    check = subprocess.run([sys.executable, ROOT / "scripts" / "check_documents.py"], capture_output=True, text=True)
    assert check.returncode == 0, check.stdout + check.stderr
