"""What a stored format tells by itself, what its declaration adds, and the fingerprint of its files."""

import hashlib
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from simforcing.data.lerobot_format import INFO_PATH, Declaration, read_declaration
from simforcing.types import layout_named
from simforcing.types.files import read_json

# Layouts of the states that belong to an action layout, where a set declares only the latter; the width decides.
STATE_LAYOUTS: dict[str, tuple[str, ...]] = {
    "bridge": ("bridge_state", "bridge_lerobot_state"),
    "bridge_delta_axis_angle": ("bridge_state", "bridge_lerobot_state"),
    "bridge_scaled": ("bridge_state", "bridge_lerobot_state"),
    "tabletop": ("tabletop",),
    "droid": ("droid",),
    "droid_joint": ("droid_joint",),
    "aloha": ("aloha",),
}
WHOLE_FILE_BYTES = 64 * 1024**2
VIDEO_BYTES = 64 * 1024  # of each end of an mp4
SAMPLE_BYTES = 1024**2
NUM_SAMPLES = 16


def declared(root: Path, layout: str | None, known: Declaration) -> Declaration:
    """What holds for a set: the caller's layout, else meta/simforcing.json, else what the format tells (`known`).

    Args:
        root: the set's folder.
        layout: name of the action layout that the caller states.
        known: what the format itself tells.

    Raises ValueError for an unknown layout or a damaged declaration.
    """
    stored = read_declaration(root)
    merged = replace(
        stored,
        action_layout=stored.action_layout or known.action_layout,
        state_layout=stored.state_layout or known.state_layout,
        joint_layout=stored.joint_layout or known.joint_layout,
        robot=stored.robot or known.robot,
        fps=stored.fps or known.fps,
    )
    if layout is not None:
        merged = replace(merged, action_layout=layout_named(layout))
    if stored.state_layout is None and merged.action_layout is not None:
        choices = [layout_named(name) for name in STATE_LAYOUTS.get(merged.action_layout.name, ())]
        state_dim = _stored_state_dim(root)
        fitting = [choice for choice in choices if state_dim is None or choice.dim == state_dim]
        if fitting:
            merged = replace(merged, state_layout=fitting[0])
    return merged


def _stored_state_dim(root: Path) -> int | None:
    """Width of a LeRobot set's states by its own metadata; None for other formats, or where it says nothing."""
    if not (root / INFO_PATH).is_file():
        return None
    try:
        return int(read_json(root / INFO_PATH)["features"]["observation.state"]["shape"][0])
    except (ValueError, TypeError, LookupError):
        return None  # its reader says what is wrong with it


def fingerprint(root: Path, paths: Iterable[Path]) -> str:
    """One hash over names, sizes and contents: moved or copied sets keep it, changed ones do not.

    So that opening stays quick, an mp4 counts by its size and its first and last 64 KiB, where its first frames and
    (all of it, up to some thousand frames) its index with every frame's size are. Any other file above 64 MiB counts by
    its size and 16 evenly spaced MiB. A change elsewhere that leaves these sizes as they were is not seen.
    """
    digest = hashlib.sha256()
    for path in sorted(set(paths)):
        try:
            if not path.is_file():
                raise OSError("a pipe would be waited for")
            num_bytes = os.path.getsize(path)
            digest.update(f"{os.path.relpath(path, root)}\0{num_bytes}\0".encode(errors="surrogateescape"))
            _add_content(digest, path, num_bytes)
        except OSError:
            digest.update(f"{os.path.relpath(path, root)}\0unreadable\0".encode(errors="surrogateescape"))
    return digest.hexdigest()[:32]


def _add_content(digest: "hashlib._Hash", path: Path, num_bytes: int) -> None:
    with open(path, "rb") as file:
        if path.suffix == ".mp4" and num_bytes > 2 * VIDEO_BYTES:
            digest.update(file.read(VIDEO_BYTES))
            file.seek(num_bytes - VIDEO_BYTES)
            digest.update(file.read(VIDEO_BYTES))
            return
        if num_bytes <= WHOLE_FILE_BYTES:
            digest.update(file.read())
            return
        for i in range(NUM_SAMPLES):
            file.seek((num_bytes - SAMPLE_BYTES) * i // (NUM_SAMPLES - 1))
            digest.update(file.read(SAMPLE_BYTES))
