"""Requests of the squares' pictures and commands, as files and as fields; shared by the tests of `generate`."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from simforcing.recipes.prediction import PredictionOptions
from simforcing.recipes.requests import RequestFields

FEW_STEPS = PredictionOptions(num_steps=2)


def quiet(line: str) -> None:
    """Nobody reads it."""


def request_of(files: Path, index: int = 0, **changes: Any) -> RequestFields:
    item = RequestFields(
        image=(str(files / f"real{index}.png"),),
        actions=str(files / f"moves{index}.npy"),
        state=str(files / f"state{index}.json"),
        sim_image=(str(files / f"sim{index}.png"),),
        task="move the square",
    )
    return replace(item, **changes)


def written(files: Path, items: list[dict[str, Any]]) -> Path:
    """A requests file of them, with relative paths."""
    path = files / "requests.json"
    path.write_text(json.dumps(items))
    return path


def item_of(index: int, **changes: Any) -> dict[str, Any]:
    return {
        "image": f"real{index}.png",
        "actions": f"moves{index}.npy",
        "state": f"state{index}.json",
        "sim_image": f"sim{index}.png",
    } | changes
