"""Where a paired set, its variants and its unfinished parts lie, and what must not lie there."""

from pathlib import Path

from simforcing.data.pair_streams import variants_root


def parts_root(root: Path) -> Path:
    """Where finished episodes of a paired set wait for the others."""
    return root.with_name(f"{root.name}.parts")


def require_place(root: Path) -> None:
    """ValueError where a destination has no name beside which the variants could lie."""
    if root.name in ("", ".."):
        raise ValueError(f"destination {str(root)!r}: name a folder to create, for example paired")


def require_apart(root: Path, source: Path) -> None:
    """ValueError where the source holds a folder that is written or lies in one: it would be replaced or removed."""
    found = source.resolve()
    for folder in (root, variants_root(root), parts_root(root)):
        place = folder.resolve()
        if place.is_relative_to(found) or found.is_relative_to(place):
            raise ValueError(
                f"{folder}: the source {source} and what is written must not contain each other; choose another name"
            )
