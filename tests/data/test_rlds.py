"""Record files: checksums against published values, the message format, Bridge records real and written here."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simforcing.data.rlds import read_rlds
from simforcing.data.tfrecord import crc32c, parse_example, record_spans

FILE = Path("1.0.0") / "bridge_dataset-train.tfrecord-00000-of-00001"


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_crc32c_gives_the_published_values(data: bytes, crc: int) -> None:
    """The check value of the algorithm, and RFC 3720 appendix B.4."""
    assert crc32c(data) == crc


@given(data=st.binary(min_size=500, max_size=5000), cut=st.integers(0, 400))
def test_crc32c_in_lanes_equals_crc32c_bit_by_bit(data: bytes, cut: int) -> None:
    crc = 0xFFFFFFFF
    for byte in data[cut:]:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    assert crc32c(data[cut:]) == crc ^ 0xFFFFFFFF


def test_an_example_gives_back_floats_integers_and_strings() -> None:
    integers = b"\x0a\x0c" + b"\x05" + b"\xff" * 9 + b"\x01" + b"\x07"  # 5, -1, 7, packed
    floats = b"\x0d" + struct.pack("<f", 1.5) + b"\x0d" + struct.pack("<f", -2.0)  # not packed
    strings = b"\x0a\x02ab\x0a\x00"

    def entry(name: bytes, kind: int, content: bytes) -> bytes:
        feature = bytes([kind << 3 | 2, len(content)]) + content
        body = b"\x0a" + bytes([len(name)]) + name + b"\x12" + bytes([len(feature)]) + feature
        return b"\x0a" + bytes([len(body)]) + body

    entries = entry(b"i", 3, integers) + entry(b"f", 2, floats) + entry(b"s", 1, strings)
    data = b"\x0a" + bytes([len(entries)]) + entries
    found = parse_example(data)
    np.testing.assert_array_equal(found["i"], [5, -1, 7])
    np.testing.assert_array_equal(found["f"], [1.5, -2.0])
    assert [data[start:stop] for start, stop in found["s"]] == [b"ab", b""]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x0a\x7f\x00", "ends after its message"),
        (b"\x0b", "wire type 3"),
        (b"\xff" * 20, "an integer is cut"),
        (b"\x0a\x0b\x0a\x09\x0a\x01f\x12\x04\x12\x02\x0a\x00"[:-1], "ends after its message"),
        (b"\x0a\x0f\x0a\x0d\x0a\x01f\x12\x08\x12\x06\x0a\x04\x00\x00\x00", "ends after its message"),
        (b"\x0a\x0e\x0a\x0c\x0a\x01f\x12\x07\x12\x05\x0a\x03\x00\x00\x00", "not a multiple of 4 bytes"),
    ],
)
def test_bytes_that_are_no_example_say_why(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=rf"no tf.train.Example \(.*{reason}"):
        parse_example(data)


def test_the_real_bridge_set_opens_with_every_camera_that_is_not_black(shared_data: Path) -> None:
    found = read_rlds(shared_data / "bridge_rlds")
    assert len(found.episodes) >= 1
    assert not found.rejected
    assert found.action_layout is not None
    assert found.state_layout is not None
    assert (found.action_layout.name, found.state_layout.name) == ("bridge", "bridge_state")
    for episode in found.episodes:
        assert episode.fps == 5.0
        assert episode.task
        assert episode.state is not None
        assert len(episode.action) == len(episode.state) == episode.num_frames
        assert "image_3" not in [view.name for view in episode.views]
        for view in episode.views:
            frames = view.frames.read(0, episode.num_frames)
            assert frames.shape == (episode.num_frames, *view.frames.size, 3)
            assert frames.max() > 50


def test_a_record_comes_back_as_it_was_written(tmp_path: Path, write_bridge, bridge_features, frames_of) -> None:
    episode = read_rlds(write_bridge(tmp_path / "set")).episodes[1]
    features = bridge_features(1)
    assert episode.name == "train_00000_0001"
    assert episode.task == "put carrot on plate"
    np.testing.assert_allclose(episode.action, features["steps/action"], atol=1e-7)
    np.testing.assert_allclose(episode.state, features["steps/observation/state"], atol=1e-7)
    assert [view.name for view in episode.views] == ["image_0"]
    difference = episode.views[0].frames.read(2, 5).astype(int) - frames_of(6, 1)[2:5]
    assert np.abs(difference).mean() < 4


def test_any_window_of_a_record_equals_the_same_frames_of_the_whole(tmp_path: Path, write_bridge) -> None:
    frames = read_rlds(write_bridge(tmp_path / "set")).episodes[0].views[0].frames
    whole = frames.read(0, 6)
    for start in range(6):
        for stop in range(start, 7):
            np.testing.assert_array_equal(frames.read(start, stop), whole[start:stop])
    with pytest.raises(ValueError, match=r"train_00000_0000: image_0: frames 3..6 are not within 0..5"):
        frames.read(3, 7)


@pytest.mark.parametrize("kept_share", [0.999, 0.9, 0.7])
def test_a_truncated_file_keeps_its_complete_records_and_names_the_cut_one(
    tmp_path: Path, write_bridge, kept_share: float
) -> None:
    root = write_bridge(tmp_path / "set")
    content = (root / FILE).read_bytes()
    (root / FILE).write_bytes(content[: int(kept_share * len(content))])
    found = read_rlds(root)
    assert [episode.name for episode in found.episodes] == ["train_00000_0000", "train_00000_0001"]
    assert [item.name for item in found.rejected] == ["train_00000_0002"]
    assert "ends within" in found.rejected[0].reason
    assert FILE.name in found.rejected[0].reason


def test_a_file_cut_between_records_is_told_by_the_sets_own_counts(tmp_path: Path, write_bridge) -> None:
    root = write_bridge(tmp_path / "set")
    info = {"splits": [{"name": "train", "shardLengths": ["3"]}]}
    (root / "1.0.0" / "dataset_info.json").write_text(json.dumps(info))
    assert read_rlds(root).warnings == ()
    last = record_spans(root / FILE)[-1]
    content = (root / FILE).read_bytes()
    (root / FILE).write_bytes(content[: last.offset - 12])
    assert "2 records, dataset_info.json says 3" in read_rlds(root).warnings[0]


def test_a_flipped_bit_rejects_its_record_and_no_other(tmp_path: Path, write_bridge) -> None:
    root = write_bridge(tmp_path / "set")
    content = bytearray((root / FILE).read_bytes())
    span = record_spans(root / FILE)[1]
    content[span.offset + span.num_bytes // 2] ^= 0x10
    (root / FILE).write_bytes(bytes(content))
    found = read_rlds(root)
    assert [item.name for item in found.rejected] == ["train_00000_0001"]
    assert "checksum does not match" in found.rejected[0].reason
    assert len(found.episodes) == 2


def test_a_damaged_length_ends_the_file_and_an_empty_file_leaves_no_episode(tmp_path: Path, write_bridge) -> None:
    root = write_bridge(tmp_path / "set")
    content = bytearray((root / FILE).read_bytes())
    content[0] ^= 1
    (root / FILE).write_bytes(bytes(content))
    with pytest.raises(ValueError, match=r"no usable episode .*damaged record length at byte 0"):
        read_rlds(root)
    (root / FILE).write_bytes(b"")
    with pytest.raises(ValueError, match="no usable episode"):
        read_rlds(root)


@pytest.mark.parametrize(
    ("feature", "value", "reason"),
    [
        ("steps/action", np.full((6, 7), np.nan), r"action\[0, 0\] is nan"),
        ("steps/action", np.full((6, 7), 0.3), "translation.* is 0.3, layout bridge declares -0.1 .. 0.1"),
        ("steps/action", np.zeros((5, 7)), "35 numbers, expected a multiple of the 6 frames"),
        ("steps/action", np.zeros((6, 7), np.int64), "expected a list of floats"),
        ("steps/observation/image_0", [b"\xff\xd8\xff not a picture"] * 6, "image_0: frame 0 is not a readable image"),
    ],
)
def test_a_bad_episode_is_rejected_by_name_and_reason(
    tmp_path: Path, write_bridge, feature: str, value: object, reason: str
) -> None:
    root = write_bridge(
        tmp_path / "set", change=lambda index, features: features.update({feature: value}) if index == 1 else None
    )
    found = read_rlds(root)
    assert [item.name for item in found.rejected] == ["train_00000_0001"]
    with pytest.raises(ValueError, match=reason):
        raise ValueError(found.rejected[0].reason)


def test_a_set_that_is_not_bridge_needs_its_rate_declared(tmp_path: Path, write_bridge) -> None:
    root = write_bridge(tmp_path / "set")
    (root / FILE).rename(root / "1.0.0" / "kitchen-train.tfrecord-00000-of-00001")
    with pytest.raises(ValueError, match=r"no frame rate; declare fps in .*simforcing.json"):
        read_rlds(root)
    (root / "meta").mkdir()
    (root / "meta" / "simforcing.json").write_text('{"fps": 3.0, "action_layout": "bridge"}')
    found = read_rlds(root)
    assert found.episodes[0].fps == 3.0
    assert found.action_layout is not None
    assert found.action_layout.name == "bridge"


def test_the_fingerprint_follows_the_content_and_not_the_place(tmp_path: Path, write_bridge) -> None:
    one, two = write_bridge(tmp_path / "one"), write_bridge(tmp_path / "two")
    other = write_bridge(tmp_path / "other", change=lambda index, features: features.update({"x": np.zeros(1)}))
    prints = [read_rlds(root).fingerprint for root in (one, two, other)]
    assert prints[0] == prints[1] != prints[2]


def test_an_unknown_camera_lists_the_choices(tmp_path: Path, write_bridge) -> None:
    with pytest.raises(ValueError, match="no camera 'wrist'; choices: image_0"):
        read_rlds(write_bridge(tmp_path / "set"), cameras=("wrist",))


def test_depth_in_records_is_left_out_with_one_line(tmp_path: Path, write_bridge) -> None:
    def add(index: int, features: dict) -> None:
        features["steps/observation/depth_0"] = features["steps/observation/image_0"]

    root = write_bridge(tmp_path / "set", change=add)
    found = read_rlds(root)
    assert "depth_0" not in {view.name for view in found.episodes[0].views}
    assert found.warnings == (f"{root}: depth is not read from record files: depth_0 left out",)
