"""A disk that fills up costs one clear line and nothing that was there before."""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from simforcing.evaluation.protocols import protocol_named
from simforcing.evaluation.record import write_record
from simforcing.evaluation.report import write_report
from simforcing.evaluation.result import EvaluationResult
from simforcing.evaluation.scoring import evaluate
from simforcing.models.autoencoder import TinyAutoencoderConfig
from simforcing.models.bundle import MODEL, Bundle, load_bundle
from simforcing.models.presets import tiny_world_model
from simforcing.training.checkpoint import checkpoint_path, save_checkpoint
from simforcing.training.log import JsonlLog
from simforcing.types import Clip, DataSpec, NetworkInput, Resize, layout_named

ROOM = 1024  # bytes that a file may have while the disk is "full"


@contextmanager
def full_disk() -> Iterator[None]:
    """Files stop growing at ROOM bytes, as they do on a full disk (EFBIG in place of ENOSPC)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@dataclass(frozen=True, kw_only=True)
class Writing:
    """One thing that the package writes: `write(folder, seed)` makes `file` there."""

    file: str
    write: Callable[[Path, int], object]


def bundle(seed: int) -> Bundle:
    torch.manual_seed(seed)
    poses = np.random.default_rng(0).uniform(-0.5, 0.5, (9, 7)).astype(np.float32)
    read = NetworkInput.fit(poses, layout_named("tabletop"))
    spec = DataSpec(
        views=("front",),
        num_frames=9,
        fps=5.0,
        num_actions=8,
        resize=Resize(height=16, width=16),
        action=read,
        state=read,
        robot=None,
        fingerprint="abc",
    )
    model = tiny_world_model(
        channels=4, action_dim=7, state_dim=7, width=24, action_width=12, num_layers=1, head_width=12, text_width=8
    )
    autoencoder = TinyAutoencoderConfig(channels=4, num_decoder_blocks=0).build()
    return Bundle(model=model.build(), autoencoder=autoencoder, spec=spec)


def scores(seed: int) -> EvaluationResult:
    frames = np.random.default_rng(seed).integers(0, 255, (1, 5, 32, 32, 3)).astype(np.uint8)
    clip = Clip(
        episode="a",
        start=0,
        task="push",
        frames=frames,
        view_present=np.ones(1, bool),
        frame_time_s=np.arange(5) / 5.0,
        action=np.zeros((4, 2), np.float32),
        action_valid=np.ones((4, 2), bool),
        action_time_s=np.arange(4) / 5.0,
        state=np.zeros(2, np.float32),
        state_valid=np.ones(2, bool),
    )
    own = [frames[0]]
    return evaluate([clip], lambda clips, seeds: own, lambda clips: own, protocol_named("predicted-frames"))


WRITINGS = {
    "bundle": Writing(file=MODEL, write=lambda folder, seed: bundle(seed).save(folder)),
    "checkpoint": Writing(
        file=checkpoint_path(Path(), 5).name,
        write=lambda folder, seed: save_checkpoint(folder, 5, {"model.a": torch.full((1000,), float(seed))}, {}),
    ),
    "report": Writing(file="report.html", write=lambda f, s: write_report(f / "report.html", scores(s), title="t")),
    "record": Writing(file="results.json", write=lambda f, s: write_record(f / "results.json", scores(s))),
}


@pytest.mark.parametrize("name", WRITINGS)
def test_a_full_disk_is_one_line_that_names_the_file_and_the_older_file_stays(name: str, tmp_path: Path):
    writing = WRITINGS[name]
    writing.write(tmp_path, 0)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(before[writing.file]) > ROOM
    with full_disk(), pytest.raises(OSError, match=r"an older file is as it was") as caught:
        writing.write(tmp_path, 1)
    assert str(tmp_path / writing.file) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).count("not written") == 1
    assert "partial" not in str(caught.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_bundle_that_met_a_full_disk_still_loads(tmp_path: Path):
    bundle(0).save(tmp_path)
    with full_disk(), pytest.raises(OSError, match=MODEL):
        bundle(1).save(tmp_path)
    loaded = load_bundle(tmp_path).model.state_dict()
    assert all(torch.equal(tensor, loaded[name]) for name, tensor in bundle(0).model.state_dict().items())


def test_a_log_on_a_full_disk_keeps_whole_records_and_can_be_closed(tmp_path: Path):
    path = tmp_path / "log.jsonl"
    log = JsonlLog(path, 0)
    with full_disk():
        for step in range(1, 100):
            before = path.read_bytes()
            try:
                log.write({"step": step, "loss": 0.5, "note": "x" * 90})
            except OSError as error:
                message = str(error)
                break
        log.close()
    assert message.startswith(f"{path}: record of step {step} not written (")
    assert "\n" not in message
    assert path.read_bytes() == before
    assert before.count(b"\n") == step - 1 > 1
