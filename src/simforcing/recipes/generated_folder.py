"""The folder of generated videos: what each was made of, so that none is passed off as another, and none is lost."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simforcing.recipes.output import require_absent
from simforcing.training.checkpoint import named_differences
from simforcing.types.files import read_json, remove_half_written, write_json
from simforcing.types.version import package_version

SETTINGS = "settings.json"
VIDEOS, MADE_BY = "videos", "made_by"


@dataclass(frozen=True, kw_only=True)
class Video:
    """What will be written of one request.

    Args:
        inputs: SHA-256 of what the model reads for it, or the place of a window in its data set.
        endings: of its files; the first, `.mp4`, is written last.
    """

    name: str
    seed: int
    inputs: str
    endings: tuple[str, ...]

    def paths(self, out: Path) -> list[Path]:
        """Its files."""
        return [out / f"{self.name}{ending}" for ending in self.endings]

    def is_there(self, out: Path) -> bool:
        """Whether all of its files were written: one without content is none."""
        return all(path.is_file() and path.stat().st_size > 0 for path in self.paths(out))


def view_ending(view: str) -> str:
    """Of the file that shows a view beside the first one."""
    return f".{view.replace('/', '_')}.mp4"


def claim_videos(out: Path, settings: dict[str, Any], videos: Sequence[Video], *, overwrite: bool) -> int:
    """Store the settings in a new folder; in one with videos, refuse others, or make room for those to come.

    To overwrite, a request that has changed loses its own videos alone; other settings remove all that are listed.

    Args:
        settings: all that decides the videos beside their own inputs, as JSON values.
        videos: those to come; those of earlier calls with the same settings stay beside them.

    Returns:
        How many files of other settings or inputs were removed.

    Raises:
        ValueError: videos of other settings or inputs, or files that are none of ours, and no `overwrite`.
    """
    path = out / SETTINGS
    then = stored_settings(path, lenient=overwrite)
    listed: dict[str, Any] = then.get(VIDEOS, {})
    if not overwrite:
        _refuse_foreign(out, then, videos)
    mine = {video.name: {"seed": video.seed, "inputs": video.inputs, "files": list(video.endings)} for video in videos}
    before = {name: value for name, value in then.items() if name not in (VIDEOS, MADE_BY)}
    differences = named_differences(before, settings) if then else []
    both = [name for name in mine if name in listed]
    earlier, asked = (
        {name: {k: side[name][k] for k in ("seed", "inputs")} for name in both} for side in (listed, mine)
    )
    changed = [name for name in both if earlier[name] != asked[name]]
    old = [out / f"{name}{ending}" for name in (listed if differences else changed) for ending in listed[name]["files"]]
    if differences and VIDEOS not in then:  # an older version listed none
        compared = sorted(out.glob("*.compare.mp4"))
        old += [*compared, *(video.with_name(video.name.replace(".compare.mp4", ".mp4")) for video in compared)]
    old = [file for file in old if os.path.exists(file)]  # unlike Path.exists, also false for a name too long
    if old and not overwrite:
        first = (differences + named_differences(earlier, asked))[0]
        raise ValueError(
            f"{out} holds videos of other settings: {first}; choose another --out, or --overwrite,"
            f" which removes {len(old)} files"
        )
    for file in old:
        file.unlink(missing_ok=True)
    for video in videos:
        for leftover in video.paths(out):
            remove_half_written(leftover)
    kept = {} if differences else listed
    write_json(path, {MADE_BY: f"simforcing {package_version()}", **settings, VIDEOS: kept | mine})
    return len(old)


def _refuse_foreign(out: Path, then: dict[str, Any], videos: Sequence[Video]) -> None:
    """ValueError where a file of a video to come lies there that no earlier call lists: its record would be false."""
    if not then:
        require_absent([path for video in videos for path in video.paths(out)] + sorted(out.glob("*.compare.mp4")))
    if VIDEOS not in then:
        return
    for video in videos:
        found = [path for path in video.paths(out) if os.path.exists(path)]
        if found and video.name not in then[VIDEOS]:
            raise ValueError(f"{found[0]} is not of this command; move it away, choose another --out, or --overwrite")


def stored_settings(path: Path, *, lenient: bool) -> dict[str, Any]:
    """The settings that lie in a folder, empty where there are none.

    Args:
        lenient: take a file that is not of `generate` for none, as it will be replaced.

    Raises:
        ValueError: a file that is not of `generate`.
    """
    if not path.exists():
        return {}
    try:
        then = read_json(path)
        if not isinstance(then, dict) or "model_sha256" not in then:
            found = "" if isinstance(then, dict) else f", found {type(then).__name__}"
            raise ValueError(
                f"{path}: expected an object with field 'model_sha256'{found}; choose another --out, or --overwrite"
            )
        _check_listed(then.get(VIDEOS, {}), path)
    except ValueError:
        if lenient:
            return {}
        raise
    return then


def _check_listed(listed: Any, path: Path) -> None:
    """ValueError where the list of videos is damaged: files are removed by it."""
    for name, item in listed.items() if isinstance(listed, dict) else [("", None)]:
        files = item.get("files") if isinstance(item, dict) and {"seed", "inputs"} <= set(item) else None
        if not isinstance(files, list) or any("/" in f"{name}{file}" for file in files):
            raise ValueError(f"{path}: the list of videos is damaged at {name!r}; choose another --out, or --overwrite")
