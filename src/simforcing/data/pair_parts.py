"""Finished parts on disk: flushed and described by a hash of each file, so that a damaged one is never taken up."""

import hashlib
import os
from pathlib import Path

OUTCOME_FILE = "outcome.json"


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
    """What lies among parts and is neither one of them nor the job's description `job.json`, nor left half-written."""
    return [
        path
        for path in sorted(parts.iterdir())
        if path.name != "job.json"
        and path.suffix != ".partial"
        and not (path.name.isdigit() and path.is_dir() and not path.is_symlink())
    ]


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
