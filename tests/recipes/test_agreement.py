"""The command on a simulated set: right pairs go, wrong ones do not, and the record says what was measured."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pairing import calibration_of

from simforcing import cli
from simforcing.data.pair_frames import PairFrames, PairReader
from simforcing.data.tabletop import TabletopSets
from simforcing.evaluation.agreement import AgreementConfig
from simforcing.evaluation.agreement_result import table
from simforcing.recipes.agreement import FIGURE, RESULTS, AgreementOptions, agreement
from simforcing.recipes.simulate import SimulateOptions, simulate
from simforcing.sim.tabletop import TabletopConfig

OPTIONS = AgreementOptions(channels=24, compare=AgreementConfig(backgrounds=("plate",), moved_px=(4,)))


def silent(line: str) -> None:
    """Nobody listens."""


@pytest.fixture(scope="module")
def paired(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pairs")
    TabletopSets(num_episodes=3, seed=5, simulator=TabletopConfig(num_frames=21, size_px=48), num_processes=1).write(
        root
    )
    simulate(str(root / "episodes"), root / "set", SimulateOptions(variants=0), processes=1, report=silent)
    return root / "set"


@pytest.fixture(scope="module")
def late(paired: Path) -> Path:
    """The same demonstrations with a sim that is three frames late."""
    root = paired.parent / "late"
    simulate(str(paired.parent / "episodes"), root, SimulateOptions(variants=0, lag=3), processes=1, report=silent)
    return root


def test_right_pairs_go_and_everything_is_written_down(paired: Path, tmp_path: Path) -> None:
    result = agreement(str(paired), OPTIONS, out=tmp_path / "out", report=silent)
    assert result.verdict == "go"
    record = json.loads((tmp_path / "out" / RESULTS).read_text())
    assert record["verdict"] == "go"
    assert {entry["verdict"] for entry in record["episodes"].values()} == {"go"}
    assert record["fingerprint"]
    assert record["version"]
    assert record["options"]["autoencoder"] == "tiny"
    settings = [json.dumps(entry["setting"], sort_keys=True) for entry in record["comparisons"]]
    assert len(settings) == len(set(settings)) == 2 + 1 + 1 + 4 + 1 + 1
    for entry in record["episodes"].values():
        assert np.hypot(*entry["edges"]["offset_px"]) < 0.5
    assert (tmp_path / "out" / FIGURE).read_bytes()[:4] == b"\x89PNG"
    lines = table(result)
    assert lines[-1] == "verdict: go (3 go, 0 doubtful, 0 no-go, 0 left out)"
    assert any(line.startswith("another episode's sim") for line in lines)


def test_the_same_call_gives_the_same_record(paired: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        agreement(str(paired), OPTIONS, out=tmp_path / name, report=silent)
    assert (tmp_path / "first" / RESULTS).read_bytes() == (tmp_path / "second" / RESULTS).read_bytes()


def test_late_sims_do_not_go_and_the_command_ends_with_1(
    late: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        cli.agreement(str(late), backgrounds=(), lags=(-3, 0), out=tmp_path / "out")
    assert end.value.code == 1
    shown = capsys.readouterr().out
    assert "edges fit better at lag -3" in shown
    assert "verdict: no-go" in shown


def test_files_in_the_way_other_sets_and_sizes_that_do_not_fit_are_refused(paired: Path, tmp_path: Path) -> None:
    (tmp_path / RESULTS).write_text("somebody's")
    with pytest.raises(ValueError, match="is there already"):
        agreement(str(paired), OPTIONS, out=tmp_path, report=silent)
    with pytest.raises(ValueError, match="no paired set"):
        agreement(str(paired.parent / "episodes"), OPTIONS, out=tmp_path / "a", report=silent)
    odd = AgreementOptions(size=(50, 48), compare=OPTIONS.compare)
    with pytest.raises(ValueError, match="both sides must be multiples of 8"):
        agreement(str(paired), odd, out=tmp_path / "b", report=silent)
    with pytest.raises(ValueError, match="size 5000x5000: larger than the stored frames, 48x48"):
        agreement(str(paired), AgreementOptions(size=(5000, 5000)), out=tmp_path / "c", report=silent)
    with pytest.raises(ValueError, match="both sides must be multiples of 8"):
        agreement(str(paired), AgreementOptions(size=(0, 48)), out=tmp_path / "c", report=silent)
    with pytest.raises(ValueError, match="not taef2"):
        AgreementOptions(taef2="folder")


def test_a_robot_that_is_never_seen_is_no_go_and_said_to_be_unseen(
    paired: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = PairReader.read

    def unseen(self: PairReader, *arguments: Any, **options: Any) -> PairFrames:
        pair = read(self, *arguments, **options)
        nobody = np.broadcast_to(pair.background, pair.sim.shape).copy()
        return replace(pair, sim=nobody, mask=np.zeros_like(pair.mask))

    monkeypatch.setattr(PairReader, "read", unseen)
    result = agreement(str(paired), OPTIONS, out=tmp_path / "out", report=silent)
    assert result.verdict == "no-go"
    for episode in result.episodes:
        assert episode.judged.verdict == "no-go"
        assert any("robot is never seen to move" in reason for reason in episode.judged.reasons)
    assert "nan" not in "\n".join(table(result))
    json.loads((tmp_path / "out" / RESULTS).read_text(), parse_constant=pytest.fail)


def test_episodes_too_short_for_the_shifts_are_named(paired: Path, tmp_path: Path) -> None:
    long = AgreementOptions(compare=AgreementConfig(shifts=(-9, 0), backgrounds=(), moved_px=()))
    with pytest.raises(ValueError, match=r"no episode can be compared \(.*21 frames, at least 23 are needed"):
        agreement(str(paired), long, out=tmp_path / "a", report=silent)


def test_edges_are_compared_in_frames_that_the_calibration_did_not_see(paired: Path, tmp_path: Path) -> None:
    source = paired.parent / "episodes"
    fitted = calibration_of(source, tmp_path / "calibration.json", fitted_frames=(3, 5, 7))
    simulate(
        str(source),
        tmp_path / "set",
        SimulateOptions(variants=0, calibration=fitted),
        processes=1,
        report=silent,
    )
    result = agreement(str(tmp_path / "set"), OPTIONS, out=tmp_path / "out", report=silent)
    frames = [episode.edges.num_frames for episode in result.episodes if episode.edges is not None]
    assert frames == [21 - 2 * 2 - 3] * 3
