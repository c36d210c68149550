"""Latents on disk, which several runs share: a folder per data set and stream, in shards that are whole or not there.

FOLDER/<stream>-<hash>/cache.json   what the latents are of; a cache of anything else is refused
FOLDER/<stream>-<hash>/<hash>.safetensors   up to 512 windows and which ones they are: what is missing is added
"""

import hashlib
import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from simforcing.data.cache_folder import CacheFolder
from simforcing.data.clips import Clips
from simforcing.data.latents import ENCODE_CHUNK, LatentWindows, encode_clips, join_tables, latent_shape, tables_of
from simforcing.nn.protocols import Autoencoder
from simforcing.nn.tensor_file import checksum, read_described, read_text, write_tensors
from simforcing.types import DataSpec, Resize
from simforcing.types.progress import Report

FORMAT = 1
SHARD_WINDOWS = 512
SHARD_S = 60.0  # a shard is written after that time, however small: a killed process loses no more
LATENTS = "latents"
SHARD_NAME = re.compile(r"[0-9a-f]{16}\.safetensors")
Window = tuple[str, int]  # episode, start


@dataclass(frozen=True, kw_only=True)
class CacheIdentity:
    """What latents depend on beside episode and start.

    Args:
        autoencoder_sha256: of its tensors, see `autoencoder_sha256`.
        data: fingerprint of the data set.
        stream: name of the view.
        resize: size and policy of the frames.
        num_frames: frames of a window.
    """

    autoencoder_sha256: str
    data: str
    stream: str
    resize: Resize
    num_frames: int
    format: int = FORMAT


def autoencoder_sha256(module: nn.Module) -> str:
    """SHA-256 over an autoencoder's kind, factors and tensors."""
    factors = [getattr(module, name, None) for name in ("temporal_factor", "spatial_factor", "channels")]
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()}
    return checksum(tensors, json.dumps([type(module).__name__, *factors]))


class LatentCache(CacheFolder):
    """Latents of one stream of one data set; see CacheFolder for what it refuses."""

    def __init__(self, folder: Path, identity: CacheIdentity) -> None:
        key = hashlib.sha256(f"{identity.data}\n{identity.stream}".encode()).hexdigest()[:16]
        name = f"{re.sub(r'[^A-Za-z0-9._-]', '_', identity.stream)}-{key}"
        super().__init__(Path(folder) / name, identity, "latents")
        self._reported: set[Path] = set()

    def fill(
        self, latents: Float[Tensor, "n g c h w"], rows: dict[Window, int], report: Report, *, is_held: bool = False
    ) -> dict[Window, int]:
        """Write cached windows into their rows of `latents`; returns the windows that are not there, in order.

        A damaged shard is reported, and its windows are not there; it is removed where the cache is held.
        """
        missing = dict(rows)
        for path in sorted(path for path in self.root.iterdir() if SHARD_NAME.fullmatch(path.name)):
            try:
                shard = _opened(path, missing, self.identity, latents.shape[1:])
            except ValueError as error:
                if not path.exists():  # damaged, and removed by another process in the meantime
                    continue
                if path not in self._reported:
                    report(f"{error}; it is not used, what it holds is encoded again where needed")
                self._reported.add(path)
                if is_held:
                    path.unlink(missing_ok=True)
                continue
            if shard is None:
                continue
            self.require_mine(shard.identity, path)
            for window, values in zip(shard.windows, shard.latents, strict=True):
                if window in missing:
                    latents[missing.pop(window)] = values
        return missing

    def add(self, windows: Sequence[Window], latents: Float[Tensor, "n g c h w"]) -> None:
        """One shard. OSError, in one line, where the disk is full: what was there before stays."""
        name = hashlib.sha256(json.dumps(list(windows)).encode()).hexdigest()[:16]
        text = json.dumps({"identity": self.identity, "windows": list(windows)})
        write_tensors(self.root / f"{name}.safetensors", {LATENTS: latents.contiguous()}, text)


@dataclass(frozen=True, kw_only=True)
class _Shard:
    identity: Any
    windows: list[Window]
    latents: Tensor


def _opened(path: Path, wanted: dict[Window, int], identity: dict[str, Any], shape: Sequence[int]) -> _Shard | None:
    """A shard, or None where it is of this cache and holds none of the wanted windows. ValueError where it is damaged.

    The header alone is read first, unchecked, as most of a large cache may not be wanted.
    """
    found, windows = _header(path, read_text(path))
    if found == identity and wanted.keys().isdisjoint(windows):
        return None
    tensors, text = read_described(path)
    found, windows = _header(path, text)
    latents = tensors.get(LATENTS)
    expected = [len(windows), *shape]
    if latents is None or (found == identity and list(latents.shape) != expected):
        size = None if latents is None else list(latents.shape)
        raise ValueError(f"{path}: damaged: latents of {size}, expected {expected}")
    return _Shard(identity=found, windows=windows, latents=latents)


def _header(path: Path, text: str) -> tuple[Any, list[Window]]:
    try:
        header = json.loads(text)
        return header["identity"], [(str(episode), int(start)) for episode, start in header["windows"]]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path}: damaged: no header of a latent cache ({error})") from None


def cached_windows(
    clips: Clips, autoencoder: Autoencoder, spec: DataSpec, folder: Path, *, report: Report
) -> LatentWindows:
    """What `LatentWindows.encode` returns, bit for bit: latents from the cache, tables read from the data set.

    Windows that the cache lacks are decoded, encoded and added; a full cache decodes nothing. A call that was killed
    goes on where it was.

    Args:
        clips: with the fingerprint of their set.
        folder: of the cache, which runs may share.

    Raises:
        ValueError: a cache of another autoencoder, data set, frame size or window is there; both sides are named.
        OSError: the disk is full; finished shards stay.
    """
    assert clips.fingerprint is not None, "clips that are cached tell the fingerprint of their set"
    assert isinstance(autoencoder, nn.Module)
    sha256 = autoencoder_sha256(autoencoder)
    blind = clips.reading(with_frames=False)
    starts = range(0, len(clips), ENCODE_CHUNK)
    parts = [tables_of(blind[start : start + ENCODE_CHUNK], spec, autoencoder) for start in starts]
    tables = join_tables(parts)
    size = (spec.resize.height, spec.resize.width)
    shape = latent_shape(spec.num_frames, size, autoencoder)
    latents = torch.zeros(len(clips), len(spec.streams), *shape)
    work = []
    for i, stream in enumerate(spec.streams):
        present = torch.nonzero(tables.stream_present[:, i])[:, 0].tolist()
        if not present:  # variants have no real video
            continue
        rows = {(clips.keys[row][0].name, clips.keys[row][1]): row for row in present}
        assert len(rows) == len(present), "clips of one set, whose episodes have one name each"
        identity = CacheIdentity(
            autoencoder_sha256=sha256,
            data=clips.fingerprint,
            stream=stream,
            resize=spec.resize,
            num_frames=spec.num_frames,
        )
        cache = LatentCache(folder, identity)
        missing = cache.fill(latents[:, i], rows, report)
        work.append(_Missing(cache=cache, stream=stream, latents=latents[:, i], rows=missing))
    _encode_missing(clips, autoencoder, [one for one in work if one.rows], report)
    return LatentWindows.assembled(latents, tables, spec)


@dataclass(frozen=True, kw_only=True)
class _Missing:
    """Windows of one stream that are not in its cache, and where their latents go."""

    cache: LatentCache
    stream: str
    latents: Tensor
    rows: dict[Window, int]


def _encode_missing(clips: Clips, autoencoder: Autoencoder, work: Sequence[_Missing], report: Report) -> None:
    total, done = sum(len(one.rows) for one in work), 0
    for one in work:
        with one.cache.held(report):
            rows = one.cache.fill(one.latents, one.rows, report, is_held=True)  # others may have added some
            done += len(one.rows) - len(rows)
            chosen = clips.reading(list(rows.values()), views=(one.stream,))
            for encoded in _encode_stream(chosen, autoencoder, one, rows):
                done += encoded
                report(f"encoding windows: {done}/{total}")


def _encode_stream(clips: Clips, autoencoder: Autoencoder, target: _Missing, rows: dict[Window, int]) -> Iterator[int]:
    """Encode clips into their rows and add them to the cache shard by shard; yields how many, chunk by chunk."""
    windows, places = list(rows), list(rows.values())
    first, since_s = 0, time.monotonic()
    for start in range(0, len(windows), ENCODE_CHUNK):
        stop = min(start + ENCODE_CHUNK, len(windows))
        for i in range(start, stop):
            target.latents[places[i]] = encode_clips([clips[i]], autoencoder)[0, 0]
        if stop == len(windows) or stop - first >= SHARD_WINDOWS or time.monotonic() - since_s > SHARD_S:
            target.cache.add(windows[first:stop], target.latents[places[first:stop]])
            first, since_s = stop, time.monotonic()
        yield stop - start
