"""Features of a frozen text encoder: equal to encoding, made once per prompt, refused where stale."""

from collections.abc import Sequence
from pathlib import Path

import array_pairs as pairs
import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn

from simforcing.data.latents import LatentWindows
from simforcing.data.prompts import prompt
from simforcing.data.text_cache import TextEncoder, TextFeatures, cached_texts
from simforcing.models.text import encode_bytes
from simforcing.nn.tensor_file import checksum

NUM_TOKENS = 24


class ByteTable:
    """A frozen encoder: a row of a random table for each byte, padding zero. Counts what it encodes."""

    def __init__(self, *, name: str = "bytes/small", seed: int = 0, num_tokens: int = NUM_TOKENS) -> None:
        self.name, self.num_tokens = name, num_tokens
        table = torch.randn(257, 6, generator=torch.Generator().manual_seed(seed))
        self.table = nn.Embedding.from_pretrained(table, padding_idx=0)
        self.table.weight.data[0] = 0
        self.encoded: list[str] = []

    @property
    def sha256(self) -> str:
        return checksum(self.table.state_dict())

    def encode(self, prompts: Sequence[str]) -> Float[Tensor, "b l e"]:
        self.encoded += prompts
        return self.table(encode_bytes(prompts, self.num_tokens))


def cached(folder: Path, prompts: list[str], encoder: TextEncoder, lines: list[str] | None = None) -> TextFeatures:
    return cached_texts(prompts, encoder, folder, report=(lambda line: None) if lines is None else lines.append)


PROMPTS = ["push", "lift", "push", "", "lift", "nudge the block"]


def test_features_equal_encoding_and_each_prompt_is_encoded_once(tmp_path: Path):
    encoder, lines = ByteTable(), []
    features = cached(tmp_path, PROMPTS, encoder, lines)
    assert encoder.encoded == ["push", "lift", "", "nudge the block"]
    assert lines == [f"encoding texts: {n}/4" for n in range(1, 5)]
    rows = torch.arange(len(PROMPTS))
    assert torch.equal(features.of(rows), ByteTable().encode(PROMPTS))
    assert len(features.features) == 4
    again = ByteTable()
    assert torch.equal(cached(tmp_path, PROMPTS[::-1], again).of(rows.flip(0)), features.of(rows))
    assert again.encoded == []
    cached(tmp_path, [*PROMPTS, "new"], again)
    assert again.encoded == ["new"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": 1}, r"text features with sha256 \w+, but this run has \w+; choose another folder"),
        ({"num_tokens": 32}, "text features with num_tokens 24, but this run has 32; choose another folder"),
    ],
)
def test_features_of_other_weights_or_lengths_are_refused(changes: dict, words: str, tmp_path: Path):
    cached(tmp_path, PROMPTS, ByteTable())
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.safetensors")}
    with pytest.raises(ValueError, match=words):
        cached(tmp_path, PROMPTS, ByteTable(**changes))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.safetensors")} == before


def test_encoders_of_other_names_live_side_by_side(tmp_path: Path):
    cached(tmp_path, PROMPTS, ByteTable())
    cached(tmp_path, PROMPTS, ByteTable(name="bytes/large", seed=1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text-bytes_large", "text-bytes_small"]


def test_a_damaged_file_is_told_in_one_line_and_encoded_again(tmp_path: Path):
    features = cached(tmp_path, PROMPTS, ByteTable())
    path = sorted(tmp_path.rglob("*.safetensors"))[0]
    path.write_bytes(path.read_bytes()[:-1])
    lines: list[str] = []
    encoder = ByteTable()
    assert torch.equal(cached(tmp_path, PROMPTS, encoder, lines).features, features.features)
    assert len(encoder.encoded) == 1
    assert lines[0].startswith(f"{path}: damaged")
    assert len(lines) == 2


def test_a_file_under_another_name_is_refused(tmp_path: Path):
    cached(tmp_path, ["push", "lift"], ByteTable())
    one, other = sorted(tmp_path.rglob("*.safetensors"))
    one.write_bytes(other.read_bytes())
    with pytest.raises(ValueError, match=r"features of '\w+', expected those of '\w+'; delete it"):
        cached(tmp_path, ["push", "lift"], ByteTable())


def test_batches_hold_the_features_of_their_windows_in_place_of_token_ids(tmp_path: Path):
    spec = pairs.student_spec(wording="neutral")
    clips = pairs.clips_of(pairs.PAIRS, spec)
    windows = LatentWindows.encode(clips, pairs.autoencoder(), spec)
    assert clips.prompts == [prompt(clip.task, "neutral") for clip in clips]
    told = windows.with_features(cached(tmp_path, clips.prompts, ByteTable()))
    batch = told.batch([3, 0])
    assert batch.conditions.text is None
    expected = ByteTable().encode([clips.prompts[3], clips.prompts[0]])
    assert batch.conditions.text_features is not None
    assert torch.equal(batch.conditions.text_features, expected)
    assert torch.equal(batch.clean, windows.batch([3, 0]).clean)


def test_features_of_other_windows_or_of_one_wording_for_two_are_refused(tmp_path: Path):
    spec = pairs.student_spec(wording="real", sim_wording="sim")
    clips = pairs.clips_of(pairs.PAIRS, spec)
    windows = LatentWindows.encode(clips, pairs.autoencoder(), spec)
    with pytest.raises(ValueError, match="text features of 6 windows for 10"):
        windows.with_features(cached(tmp_path, PROMPTS, ByteTable()))
    with pytest.raises(ValueError, match="text features are of one wording"):
        windows.with_features(cached(tmp_path, clips.prompts, ByteTable()))


class TinyUmt5:
    """UMT5's architecture with random weights over bytes; padding rows zeroed, as the published models read them."""

    name, num_tokens = "umt5-tiny", NUM_TOKENS

    def __init__(self) -> None:
        transformers = pytest.importorskip("transformers", reason="transformers is not installed (extra wan)")
        torch.manual_seed(0)
        sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "vocab_size": 257}
        self.model = transformers.UMT5EncoderModel(transformers.UMT5Config(**sizes)).eval()

    @property
    def sha256(self) -> str:
        return checksum({name: tensor.contiguous().clone() for name, tensor in self.model.state_dict().items()})

    def encode(self, prompts: Sequence[str]) -> Float[Tensor, "b l e"]:
        ids = encode_bytes(prompts, self.num_tokens)
        known = (ids > 0).long()
        return self.model(input_ids=ids, attention_mask=known).last_hidden_state * known[:, :, None]


def test_a_umt5_encoder_is_cached_as_it_encodes(tmp_path: Path):
    encoder = TinyUmt5()
    prompts = ["push", "lift the block"]
    first = cached(tmp_path, prompts, encoder)
    with torch.no_grad():
        expected = torch.cat([encoder.encode([text]) for text in prompts])
    assert torch.equal(first.features, expected)
    assert torch.equal(cached(tmp_path, prompts, encoder).features, expected)
    assert not first.features[0, len("push") :].any()
    assert first.features[1, : len("lift the block")].any(dim=1).all()
