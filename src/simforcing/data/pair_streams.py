"""How a paired set is known on disk: its streams, its record, the set of its variants. It needs no simulator."""

from pathlib import Path

from simforcing.data.backgrounds import BackgroundKind
from simforcing.types.files import read_json

REAL, SIM, MASK, DEPTH = "real", "sim", "sim_mask", "sim_depth"
RECORD_NAME = "simulation.json"  # in meta/ of both sets
PICTURED: tuple[BackgroundKind, ...] = ("mean", "plate")  # another one in every episode


def variants_root(root: Path) -> Path:
    """Where the variants of a paired set lie."""
    return root.with_name(f"{root.name}-variants")


def job_of(path: Path) -> str | None:
    """The fingerprint that a record holds; None where there is none."""
    try:
        value = read_json(path)
    except ValueError:
        return None
    return value.get("job") if isinstance(value, dict) else None
