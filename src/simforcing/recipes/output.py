"""Output folders are looked at before the work that would be lost there, and hold nothing of anybody else's."""

import errno
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path


def require_writable(folder: Path) -> None:
    """See that a folder can be made and written to, without making it.

    Raises:
        ValueError: something else lies there, or the place is read-only; the path that is in the way is named.
        OSError: the disk is full.
    """
    place = Path(os.path.abspath(folder))
    while not os.path.lexists(place):
        place = place.parent
    if not place.is_dir():
        kind = "a link to nothing" if place.is_symlink() and not place.exists() else "not a folder"
        raise ValueError(f"{folder} cannot be written to: {place} is {kind}; choose another place")
    try:
        with tempfile.TemporaryFile(dir=place):
            return
    except OSError as error:
        message = f"{folder} cannot be written to: {place}: {error.strerror or error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise OSError(message) from error
        raise ValueError(f"{message}; choose another place") from error


def require_absent(paths: Sequence[Path]) -> None:
    """ValueError, naming the first, where a file of somebody else's would be replaced."""
    present = [path for path in paths if os.path.lexists(path)]
    if present:
        raise ValueError(f"{present[0]} is there already and not of this command; choose another --out, or --overwrite")


def require_apart(out: Path, data_root: str, option: str = "--out") -> None:
    """ValueError where a folder to write to holds the data set or lies in it: each would be taken for the other's."""
    if not Path(data_root).exists():
        return  # of a hub, or in memory
    folder, root = Path(out).resolve(), Path(data_root).resolve()
    if root.is_relative_to(folder):
        raise ValueError(f"the data set {data_root} lies in the folder {out}; choose another {option}")
    if folder.is_relative_to(root):
        raise ValueError(f"the folder {out} lies in the data set {data_root}; choose another {option}")
