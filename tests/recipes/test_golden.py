"""The losses of every recipe that runs in seconds are those of the golden file: a refactor may not change them.

To renew after a deliberate change of the numerics: SIMFORCING_GOLDEN=write pytest tests/recipes/test_golden.py
"""

import os
from pathlib import Path

import pytest

from simforcing.recipes import PAIRED, RECIPES
from simforcing.recipes.execute import execute
from simforcing.training.log import read_log
from simforcing.types import EpisodeSet

GOLDEN = Path(__file__).parent.parent / "golden"
TOLERANCE = 1e-4  # relative, one thread, across kinds of CPU


@pytest.mark.parametrize("recipe", [name for name in RECIPES if name in ("debug", *PAIRED)])
def test_losses_are_the_golden_ones(
    recipe: str, square_set: EpisodeSet, square_pairs: EpisodeSet, planned_run, tmp_path: Path
):
    run = planned_run(recipe, num_steps=20, batch_size=4)
    execute(run, square_pairs if recipe in PAIRED else square_set, tmp_path, report=lambda line: None)
    losses = [record["loss"] for record in read_log(tmp_path / "log.jsonl")]
    path = GOLDEN / f"{recipe}.txt"
    if os.environ.get("SIMFORCING_GOLDEN") == "write":
        path.write_text("".join(f"{loss:.8e}\n" for loss in losses))
    golden = [float(line) for line in path.read_text().split()]
    assert losses == pytest.approx(golden, rel=TOLERANCE)
    assert len(losses) == 20
