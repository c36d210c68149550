"""The cache of latents: equal to encoding bit for bit, shared by runs, never stale, unharmed by kills and damage."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path

import array_pairs as pairs
import pytest
import torch
from torch import Tensor

from simforcing.data import latent_cache
from simforcing.data.cache_folder import CACHE
from simforcing.data.latent_cache import autoencoder_sha256, cached_windows
from simforcing.data.latents import LatentWindows
from simforcing.types import EpisodeSet, Resize

SPEC = pairs.student_spec(wording="real", sim_wording="sim")
SCRIPT = Path(__file__).with_name("encode_slowly.py")


def cached(
    folder: Path, data: EpisodeSet = pairs.PAIRS, spec=SPEC, lines: list[str] | None = None, **options
) -> LatentWindows:
    report = (lambda line: None) if lines is None else lines.append
    seed = options.pop("seed", 0)
    return cached_windows(pairs.clips_of(data, spec, **options), pairs.autoencoder(seed), spec, folder, report=report)


def encoded(data: EpisodeSet = pairs.PAIRS, spec=SPEC, **options) -> LatentWindows:
    return LatentWindows.encode(pairs.clips_of(data, spec, **options), pairs.autoencoder(), spec)


def assert_same(one: LatentWindows, other: LatentWindows) -> None:
    """Bit for bit, all that a batch is made of."""
    for name in ("clean", "sim", "has_real", "sim_text"):
        assert _equal(getattr(one, name), getattr(other, name)), name
    for field in fields(one.conditions):
        assert _equal(getattr(one.conditions, field.name), getattr(other.conditions, field.name)), field.name


def _equal(one: object, other: object) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return one == other


def started(folder: Path, seconds: float) -> subprocess.Popen[str]:
    source = Path(latent_cache.__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": f"{source}{os.pathsep}{SCRIPT.parent}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), str(folder), str(seconds)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen[str]) -> list[str]:
    """What it printed."""
    lines = process.communicate(timeout=120)[0].splitlines()
    assert process.returncode == 0
    return lines


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*.safetensors"))


@pytest.mark.parametrize("data", [pairs.PAIRS, pairs.VARIANTS], ids=["pairs", "variants"])
def test_cached_equals_uncached_bit_for_bit(data: EpisodeSet, tmp_path: Path):
    assert_same(cached(tmp_path, data), encoded(data))
    assert_same(cached(tmp_path, data), encoded(data))


def test_a_full_cache_decodes_no_video_and_writes_nothing(tmp_path: Path):
    assert finished(started(tmp_path, 0))[-1] == "videos read: 20"  # 10 windows of two streams
    before = {path: path.read_bytes() for path in shards(tmp_path)}
    assert finished(started(tmp_path, 0)) == ["videos read: 0"]
    assert {path: path.read_bytes() for path in shards(tmp_path)} == before


def test_runs_on_few_and_on_many_episodes_share_what_they_have_in_common(tmp_path: Path):
    cached(tmp_path, num_episodes=2)
    lines: list[str] = []
    assert_same(cached(tmp_path, lines=lines), encoded())
    assert lines == [f"encoding windows: {n}/12" for n in (6, 12)]  # 3 episodes, 2 windows, 2 streams
    assert_same(cached(tmp_path, num_episodes=3), encoded(num_episodes=3))


def test_a_stream_encoded_for_the_teacher_is_not_encoded_again_for_the_student(tmp_path: Path):
    teacher = replace(SPEC, views=("sim",), sim_views=())
    windows = cached(tmp_path, spec=teacher)
    lines: list[str] = []
    student = cached(tmp_path, lines=lines)
    assert lines == ["encoding windows: 10/10"]  # the real stream alone
    assert student.sim is not None
    assert torch.equal(windows.clean, student.sim)


def test_the_order_of_windows_is_that_of_the_clips(tmp_path: Path):
    cached(tmp_path)
    backwards = replace(pairs.PAIRS, episodes=pairs.PAIRS.episodes[::-1])
    assert_same(cached(tmp_path, backwards), encoded(backwards))


def test_large_sets_go_into_several_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(latent_cache, "ENCODE_CHUNK", 2)
    monkeypatch.setattr(latent_cache, "SHARD_WINDOWS", 4)
    assert_same(cached(tmp_path), encoded())
    assert len(shards(tmp_path)) == 2 * 3  # 10 windows of two streams
    assert_same(cached(tmp_path), encoded())


def test_another_autoencoder_is_refused_and_the_cache_stays(tmp_path: Path):
    cached(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    mine, theirs = (autoencoder_sha256(pairs.autoencoder(seed)) for seed in (1, 0))
    with pytest.raises(
        ValueError, match=rf"autoencoder_sha256 {theirs}, but this run has {mine}; choose another folder"
    ):
        cached(tmp_path, seed=1)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_autoencoders_are_told_apart_by_every_tensor_and_by_their_factors():
    one, other = pairs.autoencoder(), pairs.autoencoder()
    assert autoencoder_sha256(one) == autoencoder_sha256(other)
    other.latent_std[0] = 1.0000001
    assert autoencoder_sha256(one) != autoencoder_sha256(other)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"resize": Resize(height=16, width=16, policy="crop")}, r"resize .*squash.*this run has .*crop"),
        ({"resize": Resize(height=32, width=16)}, r"resize .*'height': 16.*this run has .*'height': 32"),
        ({"num_frames": 5, "num_actions": 4}, "num_frames 9, but this run has 5"),
    ],
)
def test_windows_of_another_kind_are_refused(changes: dict, words: str, tmp_path: Path):
    cached(tmp_path)
    with pytest.raises(ValueError, match=words):
        cached(tmp_path, spec=replace(SPEC, **changes))


def test_another_data_set_has_a_folder_of_its_own_and_its_latents_are_never_mixed_in(tmp_path: Path):
    cached(tmp_path)
    other = replace(
        pairs.PAIRS, episodes=tuple(pairs.pair(i + 20, name=f"pair {i}") for i in range(5)), fingerprint="2"
    )
    assert_same(cached(tmp_path, other), encoded(other))
    mine, theirs = sorted(tmp_path.glob("real-*"))
    theirs = next(path for path in (mine, theirs) if json.loads((path / CACHE).read_text())["data"] == "2")
    mine = next(path for path in tmp_path.glob("real-*") if path != theirs)
    for path in mine.glob("*.safetensors"):
        path.unlink()
    for path in theirs.glob("*.safetensors"):
        (mine / path.name).write_bytes(path.read_bytes())
    with pytest.raises(ValueError, match=r"latents with data 2, but this run has pairs-1"):
        cached(tmp_path)
    (theirs / CACHE).write_bytes((mine / CACHE).read_bytes())
    with pytest.raises(ValueError, match=r"cache\.json: latents with data pairs-1, but this run has 2"):
        cached(tmp_path, other)


@pytest.mark.parametrize("place", ["header", "latents", "cut", "empty"])
def test_a_damaged_shard_is_told_in_one_line_and_encoded_again(place: str, tmp_path: Path):
    cached(tmp_path)
    path = shards(tmp_path)[0]
    content = bytearray(path.read_bytes())
    flipped = {"header": content.index(b"pairs-1"), "latents": len(content) - 3}
    if place in flipped:
        content[flipped[place]] ^= 1
    path.write_bytes(content[: {"cut": len(content) // 2, "empty": 0}.get(place)])
    lines: list[str] = []
    assert_same(cached(tmp_path, lines=lines), encoded())
    told = [line for line in lines if "damaged" in line]
    assert len(told) == 1
    assert told[0].startswith(f"{path}: damaged")
    assert "\n" not in told[0]
    assert lines[-1] == "encoding windows: 10/10"
    lines.clear()
    assert_same(cached(tmp_path, lines=lines), encoded())
    assert lines == []


def test_a_damaged_description_is_refused_in_one_line(tmp_path: Path):
    cached(tmp_path)
    path = next(tmp_path.glob("sim-*")) / CACHE
    path.write_text("{")
    with pytest.raises(ValueError, match=r"cache\.json: damaged JSON"):
        cached(tmp_path)


def test_files_of_others_in_the_folder_stay(tmp_path: Path):
    cached(tmp_path, num_episodes=1)
    note = next(tmp_path.glob("sim-*")) / "note.safetensors"
    note.write_text("mine")
    assert_same(cached(tmp_path), encoded())
    assert note.read_text() == "mine"


def test_a_full_disk_is_one_line_and_what_was_there_stays(tmp_path: Path):
    cached(tmp_path, num_episodes=1)
    before = {path: path.read_bytes() for path in shards(tmp_path)}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        with pytest.raises(OSError, match="not written"):
            cached(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {path: path.read_bytes() for path in shards(tmp_path)} == before
    assert_same(cached(tmp_path), encoded())


def test_a_killed_process_costs_its_unfinished_shard_alone(tmp_path: Path):
    process = started(tmp_path, 0.05)
    try:
        deadline = time.monotonic() + 120
        while len(shards(tmp_path)) < 2 and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = {path: path.stat().st_mtime_ns for path in shards(tmp_path)}
    assert 2 <= len(done) < 10
    half = next(tmp_path.glob("real-*")) / "0123456789abcdef.safetensors.17.partial"
    half.write_bytes(b"half")
    assert_same(cached(tmp_path, spec=pairs.student_spec()), encoded(spec=pairs.student_spec()))
    assert {path: path.stat().st_mtime_ns for path in done} == done
    assert not list(tmp_path.rglob("*.partial"))


def test_two_processes_share_the_work_and_do_no_harm(tmp_path: Path):
    lines = [finished(process) for process in [started(tmp_path, 0.02) for _ in range(2)]]
    assert sum(int(printed[-1].removeprefix("videos read: ")) for printed in lines) == 20  # nothing twice
    assert_same(cached(tmp_path, spec=pairs.student_spec()), encoded(spec=pairs.student_spec()))
