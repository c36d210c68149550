"""Real robot recordings from files to a scored report, at debug size, one step."""

import json
from pathlib import Path

import pytest

from simforcing.evaluation.protocols import METRICS
from simforcing.recipes.evaluate import RESULTS, evaluate_run
from simforcing.recipes.run import RunOptions
from simforcing.recipes.train import train_on


@pytest.mark.parametrize(("name", "layout"), [("bridge_rlds", "bridge"), ("droid", "droid")])
def test_real_recordings_train_and_are_scored(name: str, layout: str, shared_data: Path, tmp_path: Path):
    root = shared_data / name
    if not root.is_dir():
        pytest.skip(f"no {name} at {root}")
    lines: list[str] = []
    options = RunOptions(num_steps=1, batch_size=2, held_out=1)
    bundle = train_on(str(root), tmp_path / "run", recipe="debug", options=options, report=lines.append)
    assert bundle.spec.action.layout.name == layout
    assert len(bundle.about["held_out"]) == 1

    evaluate_run(tmp_path / "run", report=lines.append)
    record = json.loads((tmp_path / "run/evaluation" / RESULTS).read_text())
    assert record["counts"]["clips"] >= record["counts"]["episodes"] == 1
    assert {clip["episode"] for clip in record["clips"]} == set(bundle.about["held_out"])
    assert record["counts"]["rejected_episodes"] == 0
    for metric in METRICS:
        copied, ceiling = (record["rows"][row][metric]["mean"] for row in ("copy", "ceiling"))
        assert copied is not None
        assert ceiling is not None
    assert record["following"]["reason"]
    assert (tmp_path / "run/evaluation/report.html").read_text().count("<video") > 0
