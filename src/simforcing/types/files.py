"""Files that are either whole or not there: written under a temporary name, flushed, then renamed."""

import glob
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PARTIAL_SUFFIX = ".partial"


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` to write to; renamed to `path` when the block ends, removed when it fails.

    Raises:
        OSError: one line naming the file, where the disk is full or the folder cannot be written.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}{PARTIAL_SUFFIX}")  # other processes may write it as well
    try:
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
        _flush_folder(path.parent)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OSError(f"{path}: not written ({error.strerror or error}); an older file is as it was") from error
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def remove_half_written(path: Path) -> None:
    """Remove what processes that have ended since left of `path` under its temporary names."""
    for partial in path.parent.glob(f"{glob.escape(path.name)}.*{PARTIAL_SUFFIX}"):
        process = partial.name.removeprefix(f"{path.name}.").removesuffix(PARTIAL_SUFFIX)
        if process.isdecimal() and not is_running(int(process)):
            partial.unlink(missing_ok=True)


def is_running(process: int) -> bool:
    """Whether there is a process of that number."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def write_json(path: Path, value: Any) -> None:
    """A JSON file, indented, keys in the given order; NaN is refused."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """A text file, in UTF-8."""
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def read_json(path: Path) -> Any:
    """A JSON file's value.

    Raises:
        ValueError: the file is missing or is no JSON, in one line naming it.
    """
    path = Path(path)
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise ValueError(f"{path}: no regular file, expected a JSON file")
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file, expected a JSON file") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror}), expected a JSON file") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: damaged JSON ({' '.join(str(error).split())})") from error


def inside(root: Path, path: Path) -> Path:
    """`path`, if it lies inside `root` once every `..` is taken (links are left alone: hub folders consist of them).

    Raises:
        ValueError: it does not; names from foreign files must not lead out of their data set.
    """
    if not Path(os.path.abspath(path)).is_relative_to(os.path.abspath(root)):
        raise ValueError(f"{path} lies outside of {root}")
    return path


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_sha256(path: Path) -> str:
    """Of a file's bytes. ValueError, naming it, where it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
