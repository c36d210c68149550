"""Opens a data set of any readable format: LeRobot, RLDS record files, folders of mp4 + json or mp4 + npz."""

from pathlib import Path

from simforcing.data.folders import read_folder, record_files
from simforcing.data.lerobot import read_lerobot
from simforcing.data.rlds import read_rlds
from simforcing.types import LAYOUTS, EpisodeSet, Layout, layout_named

FORMATS = (
    "a LeRobot set (meta/info.json)",
    "RLDS record files (*.tfrecord*)",
    "mp4 + json (annotation/**/*.json with videos/, or *.json beside the mp4 files)",
    "mp4 + npz (*.npz beside the mp4 files)",
)


def open_dataset(
    path_or_hub_id: str | Path, *, cameras: tuple[str, ...] | None = None, layout: str | None = None
) -> EpisodeSet:
    """Detect the format and open the set; tables are read, frames are not decoded.

    The action layout is `layout`, else what meta/simforcing.json declares, else what the format itself tells
    (DROID, Bridge), else None: `train` refuses a set without one.

    Args:
        path_or_hub_id: a folder, a record file, or `owner/name` on the Hugging Face hub (LeRobot sets).
        cameras: views to read, in this order; None: all.
        layout: name of the action layout.

    Raises:
        ValueError: in one line: no readable format, no usable episode, unknown layout or camera.
    """
    if layout is not None:
        layout_named(layout)
    root = Path(path_or_hub_id)
    if not root.exists():
        if _is_hub_id(str(path_or_hub_id)):
            return read_lerobot(str(path_or_hub_id), cameras=cameras, layout=layout)
        raise ValueError(f"{root}: no such file or folder, and no hub id (owner/name)")
    if (root / "meta" / "info.json").is_file():
        return read_lerobot(root, cameras=cameras, layout=layout)
    if root.is_file() or any(next(root.glob(pattern), None) for pattern in ("*.tfrecord*", "*/*.tfrecord*")):
        if root.is_file() and ".tfrecord" not in root.name:
            raise ValueError(f"{root}: a file, expected a folder or *.tfrecord*; formats: {'; '.join(FORMATS)}")
        return read_rlds(root, cameras=cameras, layout=layout)
    if record_files(root):
        return read_folder(root, cameras=cameras, layout=layout)
    raise ValueError(f"{root}: no readable data set; formats: {'; '.join(FORMATS)}")


def require_layout(episode_set: EpisodeSet) -> Layout:
    """The declared action layout; ValueError, listing the choices, for a set without one."""
    if episode_set.action_layout is None:
        raise ValueError(
            f"{episode_set.root}: no action layout is declared (meta/simforcing.json); convert it with"
            f" --layout NAME; choices: {', '.join(sorted(LAYOUTS))}"
        )
    return episode_set.action_layout


def _is_hub_id(text: str) -> bool:
    owner, slash, name = text.partition("/")
    return bool(owner and slash and name) and "/" not in name and not text.startswith((".", "~"))
