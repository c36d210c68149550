"""Fields of meta/simulation.json, which may be anybody's file: what is missing or of another kind is named."""

from pathlib import Path
from typing import Any, get_args

from simforcing.data.backgrounds import BackgroundKind
from simforcing.data.pair_streams import PICTURED, REAL, RECORD_NAME, SIM
from simforcing.types import EpisodeSet
from simforcing.types.files import inside, read_json

NUMBER = (int, float)
# Of an entry of `episodes`, where it has them; an IoU is there only after a calibration.
EPISODE_FIELDS: dict[str, type | tuple[type, ...]] = {
    "lag": int,
    "iou": (*NUMBER, type(None)),
    "fitted_frames": list,
    "replayed_from": str,
    "position_error_m": NUMBER,
    "rotation_error_rad": NUMBER,
}
INDEX = "{index:06d}"


def simulation_record(root: Path) -> dict[str, Any] | None:
    """meta/simulation.json of a set, whose background can be used; None where there is none. ValueError as below."""
    path = _file(Path(root))
    if not path.is_file():
        return None
    record = read_json(path)
    if not isinstance(record, dict):
        raise ValueError(f"{path}: expected an object, found {type(record).__name__}")
    require_background(record, Path(root))
    return record


def paired_record(data: EpisodeSet) -> dict[str, Any] | None:
    """The same of a paired set, with its episodes; None for any other set. Raises ValueError where it is damaged."""
    if not {REAL, SIM} <= {one.name for one in data.episodes[0].views}:
        return None
    record = simulation_record(Path(data.root))
    if record is not None:
        require_fields(record, {"episodes": dict}, Path(data.root))
        require_episodes(record, Path(data.root))
    return record


def require_fields(
    record: dict[str, Any], fields: dict[str, type | tuple[type, ...]], root: Path, *, within: str = ""
) -> None:
    """See that fields, dots between a field and one inside it, are there and of their kinds.

    Raises:
        ValueError: naming the file and the first field that is not.
    """
    for name, kinds in fields.items():
        value: Any = record
        for key in name.split("."):
            if not isinstance(value, dict) or key not in value:
                raise ValueError(f"{_file(root)}: field {within}{name} is missing")
            value = value[key]
        allowed = kinds if isinstance(kinds, tuple) else (kinds,)
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            words = " or ".join(kind.__name__ for kind in allowed)
            raise ValueError(f"{_file(root)}: field {within}{name}: expected {words}, found {value!r:.80}")


def require_episodes(record: dict[str, Any], root: Path) -> None:
    """See that what the record tells of episodes is of the right kinds. Raises ValueError naming file and field."""
    for name, entry in record["episodes"].items():
        if not isinstance(entry, dict):
            raise ValueError(f"{_file(root)}: field episodes.{name}: expected an object, found {entry!r:.80}")
        known = {key: kinds for key, kinds in EPISODE_FIELDS.items() if key in entry}
        if "position_error_m" in known:
            known |= {key: EPISODE_FIELDS[key] for key in ("rotation_error_rad", "replayed_from")}
        require_fields(entry, known, root, within=f"episodes.{name}.")
        if not all(isinstance(frame, int) for frame in entry.get("fitted_frames", ())):
            raise ValueError(f"{_file(root)}: field episodes.{name}.fitted_frames: expected numbers of frames")


def require_background(record: dict[str, Any], root: Path) -> None:
    """See that the declared background can be used: a kind, and its colour or the pictures' file names.

    Raises:
        ValueError: naming file and field.
    """
    require_fields(record, {"background.kind": str}, root)
    declared, kinds = record["background"], get_args(BackgroundKind)
    if declared["kind"] not in kinds:
        raise ValueError(f"{_file(root)}: field background.kind: {declared['kind']!r:.80}; choices: {', '.join(kinds)}")
    if declared["kind"] in PICTURED:
        require_fields(record, {"background.files": str}, root)
        background_path(declared, root, 0)
        return
    require_fields(record, {"background.value": list}, root)
    colour = declared["value"]
    if len(colour) != 3 or not all(isinstance(level, int) and 0 <= level <= 255 for level in colour):
        raise ValueError(f"{_file(root)}: field background.value: expected 3 numbers 0..255, found {colour!r:.80}")


def background_path(declared: dict[str, Any], root: Path, index: int) -> Path:
    """Where an episode's background lies. Raises ValueError where that is outside of the set."""
    try:
        return inside(root, root / declared["files"].replace(INDEX, f"{index:06d}"))
    except ValueError as error:
        raise ValueError(f"{_file(root)}: field background.files: {error}") from None


def _file(root: Path) -> Path:
    return root / "meta" / RECORD_NAME
