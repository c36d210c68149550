"""Finished parts on disk: flushed and described by a hash of each file, so that a damaged one is never taken up."""

import hashlib
import os
import shutil
from pathlib import Path

OUTCOME_FILE = "outcome.json"
JOB_FILE = "job.json"  # beside the parts: what they are of


def seal(part: Path) -> dict[str, str]:
    """Flush every file of a part to the disk. Returns size and SHA-256 of each by name."""
    found = {}
    for path in sorted(part.iterdir()):
        flush(path)
        found[path.name] = _hash(path)
    return found


def fault_of(part: Path, files: dict[str, str]) -> str | None:
    """The first file that is not as it was sealed, in words; None where all are."""
    for name, sealed in files.items():
        path = part / name
        if not path.is_file():
            return f"{name} is missing"
        if _hash(path) != sealed:
            return f"{name} is damaged"
    return None


def foreign_files(parts: Path) -> list[Path]:
    """What lies among parts and is neither one of them nor the job's description, nor left half-written."""
    return [
        path
        for path in sorted(parts.iterdir())
        if path.name != JOB_FILE
        and path.suffix != ".partial"
        and not (path.name.isdigit() and path.is_dir() and not path.is_symlink())
    ]


def remove_parts(parts: Path) -> None:
    """Take all parts away; what they are of goes last, so that a killed process leaves what is known as such."""
    for path in parts.iterdir() if parts.is_dir() else ():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != JOB_FILE:
            path.unlink(missing_ok=True)
    shutil.rmtree(parts, ignore_errors=True)


def flush(path: Path) -> None:
    """See a file, or a folder's list of names, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return f"{path.stat().st_size}:{digest}"
