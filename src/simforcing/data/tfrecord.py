"""TFRecord files and tf.train.Example messages, read by their published formats, without TensorFlow.

A record is: length (8 bytes), masked CRC-32C of the length (4), data, masked CRC-32C of the data (4), little endian.
"""

import struct
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import UInt32

CASTAGNOLI = 0x82F63B78  # the polynomial, reflected
MASK_DELTA = 0xA282EAD8
HEADER_BYTES, FOOTER_BYTES = 12, 4
LANE_BYTES = 128  # about how many bytes each of the lanes has
SHORT_BYTES = 512
# Wire types of protocol buffers.
VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, kw_only=True)
class RecordSpan:
    """Where one record's data lies in its file, and why it cannot be used (None where it can)."""

    offset: int
    num_bytes: int
    crc: int = 0
    fault: str | None = None


Feature = list[tuple[int, int]] | np.ndarray


def record_spans(path: Path) -> list[RecordSpan]:
    """All records of a file by their headers alone; the last one carries a fault where the file is cut or damaged."""
    spans: list[RecordSpan] = []
    num_bytes, offset = path.stat().st_size, 0
    with open(path, "rb") as file:
        while offset < num_bytes:
            file.seek(offset)
            header = file.read(HEADER_BYTES)
            span = _span(header, offset, num_bytes)
            if span.fault is None:
                file.seek(span.offset + span.num_bytes)
                span = RecordSpan(
                    offset=span.offset, num_bytes=span.num_bytes, crc=struct.unpack("<I", file.read(FOOTER_BYTES))[0]
                )
            spans.append(span)
            if span.fault is not None:
                break
            offset = span.offset + span.num_bytes + FOOTER_BYTES
    return spans


def _span(header: bytes, offset: int, file_bytes: int) -> RecordSpan:
    start = offset + HEADER_BYTES
    if len(header) < HEADER_BYTES:
        return RecordSpan(offset=start, num_bytes=0, fault=f"the file ends within a record header at byte {offset}")
    length, length_crc = struct.unpack("<QI", header)
    if masked_crc(header[:8]) != length_crc:
        fault = f"damaged record length at byte {offset}: the rest of the file cannot be read"
        return RecordSpan(offset=start, num_bytes=0, fault=fault)
    if start + length + FOOTER_BYTES > file_bytes:
        present = max(file_bytes - start, 0)
        fault = f"the file ends within this record: {present} of {length + FOOTER_BYTES} bytes are there"
        return RecordSpan(offset=start, num_bytes=0, fault=fault)
    return RecordSpan(offset=start, num_bytes=length)


def read_record(path: Path, span: RecordSpan) -> bytes:
    """A record's data, its checksum verified. ValueError names file and byte."""
    if span.fault is not None:
        raise ValueError(f"{path}: {span.fault}")
    with open(path, "rb") as file:
        file.seek(span.offset)
        data = file.read(span.num_bytes)
    if len(data) != span.num_bytes or masked_crc(data) != span.crc:
        raise ValueError(f"{path}: damaged record at byte {span.offset}: its checksum does not match")
    return data


def masked_crc(data: bytes) -> int:
    """CRC-32C as TFRecord stores it: rotated right by 15 bits, plus a constant."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + MASK_DELTA) & 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli). Long data is cut into lanes that NumPy runs side by side and joins by linearity."""
    if len(data) < SHORT_BYTES:
        table = _byte_table().tolist()
        crc = 0xFFFFFFFF
        for byte in data:
            crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
        return crc ^ 0xFFFFFFFF
    num_lanes = 1 << (len(data) // LANE_BYTES).bit_length()
    lane_bytes = 2 * -(-len(data) // (2 * num_lanes))
    padded = np.zeros(num_lanes * lane_bytes, np.uint8)  # leading zeros leave a register of 0 as it is
    padded[len(padded) - len(data) :] = np.frombuffer(data, np.uint8)
    lanes = np.ascontiguousarray(padded.view("<u2").reshape(num_lanes, -1).T).astype(np.uint32)
    table = _pair_table()
    crc = np.zeros(num_lanes, np.uint32)
    for pair in lanes:
        crc = table[(crc ^ pair) & 0xFFFF] ^ (crc >> 16)
    while len(crc) > 1:
        crc = _after_zeros(crc[0::2], lane_bytes) ^ crc[1::2]
        lane_bytes *= 2
    start = _after_zeros(np.array([0xFFFFFFFF], np.uint32), len(data))[0]
    return int(crc[0] ^ start) ^ 0xFFFFFFFF


@lru_cache(maxsize=1)
def _byte_table() -> UInt32[np.ndarray, "256"]:
    crc = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crc = np.where(crc & 1, (crc >> 1) ^ np.uint32(CASTAGNOLI), crc >> 1)
    return crc


@lru_cache(maxsize=1)
def _pair_table() -> UInt32[np.ndarray, "65536"]:
    """The register after two bytes at once."""
    table = _byte_table()
    crc = np.arange(65536, dtype=np.uint32)
    for _ in range(2):
        crc = table[crc & 0xFF] ^ (crc >> 8)
    return crc


@lru_cache(maxsize=256)
def _zeros_operator(num_bytes: int) -> UInt32[np.ndarray, "32"]:
    """Where each bit of the register goes when that many zero bytes follow (a GF(2) matrix, by squaring)."""
    if num_bytes == 0:
        return np.uint32(1) << np.arange(32, dtype=np.uint32)
    if num_bytes == 1:
        bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
        return _byte_table()[bits & 0xFF] ^ (bits >> 8)
    half = _zeros_operator(num_bytes // 2)
    doubled = _apply(half, half)
    return _apply(_zeros_operator(1), doubled) if num_bytes % 2 else doubled


def _after_zeros(crc: UInt32[np.ndarray, " n"], num_bytes: int) -> UInt32[np.ndarray, " n"]:
    return _apply(_zeros_operator(num_bytes), crc)


def _apply(operator: UInt32[np.ndarray, "32"], crc: UInt32[np.ndarray, " n"]) -> UInt32[np.ndarray, " n"]:
    bits = (crc[:, None] >> np.arange(32, dtype=np.uint32)) & 1
    return np.bitwise_xor.reduce(np.where(bits, operator, np.uint32(0)), axis=1)


def parse_example(data: bytes) -> dict[str, Feature]:
    """A tf.train.Example: feature name -> float32 or int64 array, or (start, stop) spans of its byte strings in `data`.

    Raises ValueError where the bytes are no such message.
    """
    features: dict[str, Feature] = {}
    try:
        for number, start, stop in _messages(data, 0, len(data)):
            if number != 1:
                continue
            for _, entry_start, entry_stop in _messages(data, start, stop):
                parts = {field: (first, last) for field, first, last in _messages(data, entry_start, entry_stop)}
                if 1 in parts and 2 in parts:
                    name = data[slice(*parts[1])].decode("utf-8")
                    features[name] = _feature(data, *parts[2])
    except (IndexError, UnicodeDecodeError, struct.error) as error:
        raise ValueError(f"no tf.train.Example ({error})") from error
    return features


def _feature(data: bytes, start: int, stop: int) -> Feature:
    for kind, first, last in _messages(data, start, stop):
        if kind == 1:
            return [(begin, end) for number, begin, end in _messages(data, first, last) if number == 1]
        if kind == 2:
            return _floats(data, first, last)
        if kind == 3:
            return _integers(data, first, last)
    return []


def _floats(data: bytes, start: int, stop: int) -> np.ndarray:
    runs = [data[first:last] for number, first, last in _messages(data, start, stop) if number == 1]
    joined = b"".join(runs)
    if len(joined) % 4:
        raise ValueError("no tf.train.Example (a list of floats is not a multiple of 4 bytes)")
    return np.frombuffer(joined, "<f4")


def _integers(data: bytes, start: int, stop: int) -> np.ndarray:
    values = []
    for number, first, last in _messages(data, start, stop):
        position = first
        while number == 1 and position < last:
            value, position = _varint(data, position, last)
            values.append(value - (1 << 64) if value >= 1 << 63 else value)
    return np.array(values, np.int64)


def _messages(data: bytes, start: int, stop: int) -> list[tuple[int, int, int]]:
    """(field number, start, stop of its content) of the fields between two positions; a varint is its own content."""
    found = []
    while start < stop:
        key, start = _varint(data, start, stop)
        wire_type = key & 7
        if wire_type == LENGTH_DELIMITED:
            length, start = _varint(data, start, stop)
            end = start + length
        elif wire_type == VARINT:
            end = _varint(data, start, stop)[1]
        elif wire_type in (FIXED32, FIXED64):
            end = start + (4 if wire_type == FIXED32 else 8)
        else:
            raise ValueError(f"no tf.train.Example (wire type {wire_type} at byte {start})")
        if end > stop:
            raise ValueError(f"no tf.train.Example (a field at byte {start} ends after its message)")
        found.append((key >> 3, start, end))
        start = end
    return found


def _varint(data: bytes, position: int, stop: int) -> tuple[int, int]:
    value = shift = 0
    while position < stop and shift < 64:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
    raise ValueError(f"no tf.train.Example (an integer is cut at byte {position})")
