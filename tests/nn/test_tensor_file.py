"""Tensor files come back bit for bit, or are refused in one line."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from simforcing.nn.tensor_file import read_described, read_tensors, write_tensors

TENSORS = {
    "weight": torch.arange(12.0).reshape(3, 4),
    "half": torch.ones(3, dtype=torch.bfloat16),
    "mask": torch.tensor([True, False]),
    "count": torch.tensor(7),
    "none": torch.zeros(0, 2),
}


def test_tensors_and_text_come_back_exactly(tmp_path: Path):
    write_tensors(tmp_path / "a.safetensors", TENSORS, "words")
    tensors, text = read_described(tmp_path / "a.safetensors")
    assert text == "words"
    assert tensors.keys() == TENSORS.keys()
    assert all(torch.equal(tensors[name], value) for name, value in TENSORS.items())


def test_every_flipped_byte_is_noticed(tmp_path: Path):
    path = tmp_path / "a.safetensors"
    write_tensors(path, TENSORS)
    whole = path.read_bytes()
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(ValueError, match=r"a\.safetensors: damaged: "):
            read_tensors(path)


def test_a_damaged_weight_is_called_by_its_name(tmp_path: Path):
    path = tmp_path / "a.safetensors"
    write_tensors(path, TENSORS)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ValueError, match="damaged: its contents do not match their checksum"):
        read_tensors(path)
    save_file(TENSORS, path)
    with pytest.raises(ValueError, match="damaged: a safetensors file without the checksum"):
        read_tensors(path)
