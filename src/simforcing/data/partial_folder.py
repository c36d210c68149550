"""The folder that a data set is written in until all of it is there: `<name>.partial`, of one process at a time."""

import errno
import fcntl
import glob
import os
import shutil
from pathlib import Path

from simforcing.types.files import is_running

PARTIAL_MARK = ".simforcing-partial"
SET_FOLDERS = ("data", "meta", "videos", "images", "depth")


class PartialFolder:
    """Takes `<root>.partial`, emptied of what a killed process left, and holds it by a lock that dies with the process.

    Args:
        root: the final name.
        overwrite: `root` may be there, as an empty folder or a LeRobot set, and is replaced in the end.

    Raises:
        ValueError: `root` must stay, another process is writing it, or the partial folder is somebody else's.
        OSError: the disk does not take it.
    """

    def __init__(self, root: Path, *, overwrite: bool) -> None:
        self.root, self.path, self._overwrite = root, root.with_name(f"{root.name}.partial"), overwrite
        self._refuse_existing()
        mark = self.path / PARTIAL_MARK
        is_old = mark.is_file()
        if self.path.exists() and not is_old and not (self.path.is_dir() and not any(self.path.iterdir())):
            raise ValueError(f"{self.path} exists and is no interrupted data set; move it away")
        self.path.mkdir(parents=True, exist_ok=True)
        self._taken = f"{root}: another process is writing this data set; wait for it or choose another name"
        try:
            self._mark = mark.open("r" if is_old else "x")
        except (FileExistsError, FileNotFoundError):  # its owner was faster: it began, or gave it its final name
            raise ValueError(self._taken) from None
        try:
            self._lock(mark)
            self._refuse_existing()  # another process may just have finished it
            for entry in self.path.iterdir():
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                elif entry != mark:
                    entry.unlink()
        except BaseException:
            self._mark.close()
            raise

    def finish(self) -> None:
        """Give the folder its final name. ValueError where something else has taken that name in the meantime."""
        try:
            self._refuse_existing()
        except ValueError:
            self.remove()
            raise
        (self.path / PARTIAL_MARK).unlink()
        _put_in_place(self.path, self.root)
        remove_leftovers(self.root)
        self._mark.close()

    def remove(self) -> None:
        """Give up, leaving `root` as it is."""
        if not self._mark.closed:
            shutil.rmtree(self.path, ignore_errors=True)
            self._mark.close()

    def _lock(self, mark: Path) -> None:
        try:
            fcntl.flock(self._mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
                raise
            raise ValueError(self._taken) from None
        # Its owner may have ended between opening and locking: the lock is then on a file that is gone.
        if not mark.is_file() or not os.path.samestat(mark.stat(), os.fstat(self._mark.fileno())):
            raise ValueError(self._taken)

    def _refuse_existing(self) -> None:
        if not self.root.exists():
            return
        if not self._overwrite:
            raise ValueError(f"{self.root} exists; choose another name or overwrite it")
        if (reason := why_kept(self.root)) is not None:
            raise ValueError(f"{self.root} {reason}; it is not overwritten")


def why_kept(root: Path) -> str | None:
    """Why a folder may not be overwritten, in words: only a data set alone or an empty folder may."""
    if root.is_symlink():
        return "is a link; name the folder that it leads to"
    entries = sorted(path.name for path in root.iterdir()) if root.is_dir() else [root.name]
    if entries and not (root / "meta" / "info.json").is_file():
        return "is no LeRobot set (meta/info.json) and not empty"
    foreign = [name for name in entries if name not in SET_FOLDERS]
    return f"holds {foreign[0]} beside its data set" if foreign else None


def remove_set(root: Path) -> None:
    """Take a data set away: it is there as a whole or not at all."""
    old = _old_name(root)
    os.replace(root, old)
    shutil.rmtree(old, ignore_errors=True)


def leftovers(root: Path) -> list[Path]:
    """Older sets of that name that processes which have ended since were replacing or removing."""
    found = []
    for path in sorted(root.parent.glob(f"{glob.escape(root.name)}.old-*")):
        process = path.name.removeprefix(f"{root.name}.old-")
        is_set = path.is_dir() and not path.is_symlink() and {entry.name for entry in path.iterdir()} <= {*SET_FOLDERS}
        if process.isdecimal() and is_set and not is_running(int(process)):
            found.append(path)
    return found


def remove_leftovers(root: Path) -> None:
    """Remove them; call it only while the set itself is there, as one of them may be all that is left of it."""
    for path in leftovers(root):
        shutil.rmtree(path, ignore_errors=True)


def _old_name(root: Path) -> Path:
    return root.with_name(f"{root.name}.old-{os.getpid()}")


def _put_in_place(partial: Path, root: Path) -> None:
    """Rename, keeping the old set until the new one has its name."""
    old = _old_name(root)
    if root.exists():
        os.replace(root, old)
    try:
        os.replace(partial, root)
    except OSError:
        if old.exists():
            os.replace(old, root)
        raise
    if old.exists():
        shutil.rmtree(old, ignore_errors=True)
