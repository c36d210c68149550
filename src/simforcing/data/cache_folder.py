"""A folder of derived files that several runs share: it says what they were made from, and refuses anything else."""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from simforcing.types import to_json
from simforcing.types.files import PARTIAL_SUFFIX, read_json, write_json
from simforcing.types.progress import Report

CACHE, LOCK = "cache.json", ".lock"


class CacheFolder:
    """Made where it is not there, with its identity in cache.json.

    Args:
        root: the folder.
        identity: a dataclass of all that its files depend on.
        what: its files in a word, for messages.

    Raises:
        ValueError: the folder has another identity; the first field that differs and both sides are named.
    """

    def __init__(self, root: Path, identity: Any, what: str) -> None:
        self.root, self.what = root, what
        self.identity: dict[str, Any] = json.loads(json.dumps(to_json(identity)))
        path = root / CACHE
        if not path.exists():
            with self.held(lambda line: None):
                if not path.exists():
                    write_json(path, self.identity)
        self.require_mine(read_json(path), path)

    @contextmanager
    def held(self, report: Report) -> Iterator[None]:
        """Write alone: other processes wait, and go on where this one was if it ends."""
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / LOCK).open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                report(f"{self.root}: waiting for another process that encodes the same {self.what}")
                fcntl.flock(lock, fcntl.LOCK_EX)
            for left in self.root.glob(f"*{PARTIAL_SUFFIX}"):
                left.unlink(missing_ok=True)  # of a killed process: nobody else is writing
            yield

    def require_mine(self, found: Any, path: Path) -> None:
        """ValueError where `found`, which stands in a file, is another identity."""
        if not isinstance(found, dict):
            raise ValueError(f"{path}: damaged: expected an object, found {type(found).__name__}")
        for name in (*self.identity, *found):
            theirs, mine = found.get(name), self.identity.get(name)
            if theirs != mine:
                raise ValueError(
                    f"{path}: {self.what} with {name} {theirs}, but this run has {mine};"
                    " choose another folder for the cache"
                )
