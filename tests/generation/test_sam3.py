"""SAM 3 without its weights: a tiny network of the same classes, and the processor's arithmetic stated once more."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from simforcing.generation.sam3 import Sam3Options, instances_of, semantic_of

transformers = pytest.importorskip("transformers")

Levels = dict[str, float]
SIDE, WIDTH = 56, 16
VIT = {
    "model_type": "sam3_vit_model",
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": SIDE,
    "patch_size": 14,
    "window_size": 2,
    "global_attn_indexes": [0],
    "pretrain_image_size": 28,
}
VISION = {
    "model_type": "sam3_vision_model",
    "backbone_config": VIT,
    "fpn_hidden_size": WIDTH,
    "backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]],
}
SMALL = {"hidden_size": WIDTH, "num_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
TEXT = {
    "model_type": "clip_text_model",
    "vocab_size": 600,
    "hidden_size": 16,
    "intermediate_size": 16,
    "projection_dim": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
    "hidden_act": "gelu",
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
}
DETECTOR = {
    "model_type": "sam3",
    "vision_config": VISION,
    "text_config": TEXT,
    "geometry_encoder_config": SMALL,
    "detr_encoder_config": SMALL,
    "detr_decoder_config": SMALL | {"num_queries": 6},
    "mask_decoder_config": {"hidden_size": WIDTH, "num_attention_heads": 2},
}
TRACKER = {
    "model_type": "sam3_tracker",
    "vision_config": VISION,
    "prompt_encoder_config": {"hidden_size": WIDTH, "image_size": SIDE, "patch_size": 14},
    "mask_decoder_config": {
        "hidden_size": WIDTH,
        "mlp_dim": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "iou_head_hidden_dim": 16,
    },
}


def words_network() -> Any:
    torch.manual_seed(1)
    return noisy(transformers.Sam3Model(transformers.Sam3Config(**DETECTOR)))


def points_network() -> Any:
    torch.manual_seed(2)
    return noisy(transformers.Sam3TrackerModel(transformers.Sam3TrackerConfig(**TRACKER)))


def noisy(network: Any) -> Any:
    """With weights so large that pictures and prompts matter."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    return network.eval()


def write_tokenizer(folder: Path) -> None:
    """Single bytes and nothing else: each letter is a token, the last of a word another one."""
    letters = [chr(code) for code in range(ord("!"), ord("~") + 1)]
    words = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{letter}</w>" for letter in letters)]
    (folder / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    transformers.CLIPTokenizer.from_pretrained(folder).save_pretrained(folder)


def write_checkpoint(folder: Path, config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("sam3") / "words", DETECTOR, words_network().state_dict())


@pytest.fixture(scope="module")
def combined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the published checkpoint is laid out: both networks in one file, sharing the picture's encoder."""
    tensors = {f"detector_model.{name}": tensor for name, tensor in words_network().state_dict().items()}
    for name, tensor in points_network().state_dict().items():
        if name.startswith("vision_encoder.neck."):
            tensors[name.replace("vision_encoder.neck.", "tracker_neck.")] = tensor
        elif not name.startswith("vision_encoder."):
            tensors[f"tracker_model.{name}"] = tensor
    tensors["tracker_model.memory_encoder.feature_projection.weight"] = torch.zeros(2, 2)
    tracker = TRACKER | {"model_type": "sam3_tracker_video", "image_size": SIDE}
    config = {"model_type": "sam3_video", "detector_config": DETECTOR, "tracker_config": tracker}
    return write_checkpoint(tmp_path_factory.mktemp("sam3") / "combined", config, tensors)


@pytest.fixture
def photo(rng: np.random.Generator) -> np.ndarray:
    coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    return np.asarray(coarse.resize((90, 70), Image.Resampling.BICUBIC))


def documented_input(photo: np.ndarray) -> torch.Tensor:
    """Pillow's own bilinear resize, rescaled by 1/255 and normalised by mean and deviation 0.5."""
    square = np.asarray(Image.fromarray(photo).resize((SIDE, SIDE), Image.Resampling.BILINEAR))
    return torch.from_numpy((square * np.float32(1 / 255) - 0.5) / 0.5).permute(2, 0, 1)[None].float()


def enlarged(values: torch.Tensor, height: int, width: int) -> np.ndarray:
    """Bilinear between pixel centres, held at the border: stated row by row and column by column."""
    rows, columns = values.shape[-2:]

    def weights(old: int, new: int) -> np.ndarray:
        matrix = np.zeros((new, old))
        for i in range(new):
            place = max(0.0, (i + 0.5) * old / new - 0.5)
            low = min(int(place), old - 1)
            matrix[i, low] += 1 - (place - low)
            matrix[i, min(low + 1, old - 1)] += place - low
        return matrix

    return weights(rows, height) @ values.double().numpy() @ weights(columns, width).T


def sigmoid(values: torch.Tensor) -> np.ndarray:
    return 1 / (1 + np.exp(-values.double().numpy()))


def documented_union(network: Any, photo: np.ndarray, tokens: dict[str, torch.Tensor], levels: Levels) -> np.ndarray:
    with torch.no_grad():
        outputs = network(pixel_values=documented_input(photo), **tokens)
    scores = sigmoid(outputs.pred_logits[0]) * sigmoid(outputs.presence_logits[0])
    union = np.zeros(photo.shape[:2], bool)
    for score, logits in zip(scores, outputs.pred_masks[0], strict=True):
        if score > levels["threshold"]:
            union |= enlarged(torch.from_numpy(sigmoid(logits)), *photo.shape[:2]) > levels["mask_threshold"]
    return union


def clip_tokens(folder: Path, prompt: str) -> dict[str, torch.Tensor]:
    tokenizer = transformers.CLIPTokenizer.from_pretrained(folder)
    return dict(tokenizer([prompt], return_tensors="pt", padding="max_length", max_length=32))


def middle_levels(network: Any, photo: np.ndarray, tokens: dict[str, torch.Tensor]) -> Levels:
    """Thresholds that some queries, and some pixels of these, are above and some are below."""
    with torch.no_grad():
        outputs = network(pixel_values=documented_input(photo), **tokens)
    scores = sigmoid(outputs.pred_logits[0]) * sigmoid(outputs.presence_logits[0])
    order = np.sort(scores)
    threshold = float((order[2] + order[3]) / 2)
    assert order[3] - order[2] > 1e-4
    shown = sigmoid(outputs.pred_masks[0])[scores > threshold].max(axis=0)
    return {"threshold": threshold, "mask_threshold": float(np.quantile(shown, 0.6))}


def test_the_network_sees_the_picture_as_pillow_resizes_it_to_one_grey_level(checkpoint: Path, photo: np.ndarray):
    segmenter = Sam3Options(path=str(checkpoint)).build()
    difference = (segmenter._preprocess(photo) - documented_input(photo)).abs() * 127.5
    assert difference.max() <= 1.01  # measured 1: both round, from sums in another order
    assert (difference > 0.5).float().mean() < 0.05


def test_words_give_the_union_that_the_documented_arithmetic_gives(checkpoint: Path, photo: np.ndarray):
    network, tokens = words_network(), clip_tokens(checkpoint, "robot arm")
    levels = middle_levels(network, photo, tokens)
    found = Sam3Options(path=str(checkpoint), **levels).build()(photo)
    stated = documented_union(network, photo, tokens, levels)
    assert 0.05 < stated.mean() < 0.9
    assert (found != stated).mean() < 0.02  # measured 0.004: the two pictures differ by a grey level


def test_another_prompt_is_another_question(checkpoint: Path, photo: np.ndarray):
    first, second = (clip_tokens(checkpoint, words)["input_ids"] for words in ("robot arm", "gripper"))
    assert not torch.equal(first, second)
    one = Sam3Options(path=str(checkpoint), prompt="robot arm").build()
    assert torch.equal(one._tokens["input_ids"], first)
    assert torch.equal(one._tokens["attention_mask"], clip_tokens(checkpoint, "robot arm")["attention_mask"])


def test_the_combined_checkpoint_gives_words_and_points_their_own_networks(
    combined: Path, checkpoint: Path, photo: np.ndarray
):
    tokens = clip_tokens(checkpoint, "robot arm")
    levels = middle_levels(words_network(), photo, tokens)
    by_words = Sam3Options(path=str(combined), **levels).build()
    np.testing.assert_array_equal(by_words(photo), Sam3Options(path=str(checkpoint), **levels).build()(photo))
    words, points = words_network().state_dict(), points_network().state_dict()
    shared = {name: words[name] for name in points if name.startswith("vision_encoder.backbone.")}
    network = points_network()
    network.load_state_dict(points | shared)
    chosen = ((30.0, 20.0), (70.5, 60.0))  # column, row
    scaled = torch.tensor([[[[x * SIDE / 90, y * SIDE / 70] for x, y in chosen]]])
    with torch.no_grad():
        outputs = network(
            pixel_values=documented_input(photo), input_points=scaled, input_labels=torch.ones(1, 1, 2).long()
        )
    best = int(outputs.iou_scores[0, 0].argmax())
    stated = enlarged(outputs.pred_masks[0, 0, best], 70, 90) > 0
    segmenter = Sam3Options(path=str(combined), points_px=chosen).build()
    assert (segmenter._by_points(photo)[0].numpy() != stated).mean() < 0.02
    moved = Sam3Options(path=str(combined), points_px=((5.0, 60.0), (80.0, 5.0))).build()
    assert not torch.equal(moved._by_points(photo)[0], segmenter._by_points(photo)[0])


def test_scores_boxes_and_maps_are_those_of_a_worked_example():
    """Two queries on a 2x2 grid: the second is below the threshold once presence is counted."""
    logit = torch.logit
    outputs = SimpleNamespace(
        pred_logits=logit(torch.tensor([[0.8, 0.5]])),
        presence_logits=logit(torch.tensor([[0.5]])),
        pred_boxes=torch.tensor([[[0.0, 0.25, 0.5, 1.0], [0.0, 0.0, 1.0, 1.0]]]),
        pred_masks=torch.tensor([[[[9.0, -9.0], [9.0, -9.0]], [[9.0, 9.0], [9.0, 9.0]]]]),
        semantic_seg=torch.tensor([[[[-9.0, 9.0], [-9.0, 9.0]]]]),
    )
    found = instances_of(outputs, (4, 8), threshold=0.3, mask_threshold=0.5)
    torch.testing.assert_close(found.scores, torch.tensor([0.4]))
    torch.testing.assert_close(found.boxes_px, torch.tensor([[0.0, 1.0, 4.0, 4.0]]))
    left = np.tile(np.arange(8) < 4, (4, 1))
    np.testing.assert_array_equal(found.masks[0].numpy(), left)
    np.testing.assert_array_equal(semantic_of(outputs, (4, 8), mask_threshold=0.5).numpy(), ~left)


def test_postprocessing_is_the_processors_own_where_torchvision_can_be_imported(photo: np.ndarray, checkpoint: Path):
    pytest.importorskip("torchvision", exc_type=Exception)
    from transformers.models.sam3.image_processing_sam3 import Sam3ImageProcessor

    network, tokens = words_network(), clip_tokens(checkpoint, "robot arm")
    levels = middle_levels(network, photo, tokens)
    with torch.no_grad():
        outputs = network(pixel_values=documented_input(photo), **tokens)
    theirs = Sam3ImageProcessor().post_process_instance_segmentation(outputs, *levels.values(), [photo.shape[:2]])[0]
    ours = instances_of(outputs, (70, 90), **levels)
    torch.testing.assert_close(ours.scores, theirs["scores"])
    torch.testing.assert_close(ours.boxes_px, theirs["boxes"])
    assert torch.equal(ours.masks.long(), theirs["masks"])


def test_a_picture_without_anything_above_the_threshold_holds_no_robot(checkpoint: Path, photo: np.ndarray):
    with pytest.raises(ValueError, match=r"no robot found in the frame: SAM 3, asked for 'robot arm' \(best score 0"):
        Sam3Options(path=str(checkpoint), threshold=0.999).build()(photo)


@pytest.mark.parametrize("fault", ["missing", "extra", "reshaped"])
def test_every_tensor_that_does_not_fit_is_named_and_the_checkpoint_refused(
    fault: str, checkpoint: Path, tmp_path: Path
):
    tensors, name = load_file(checkpoint / "model.safetensors"), "text_projection.weight"
    if fault == "missing":
        del tensors[name], tensors["text_projection.bias"]
        expected = r"missing text_projection\.weight; missing text_projection\.bias"
    elif fault == "extra":
        tensors["old_head.weight"] = torch.zeros(2)
        expected = r"extra old_head\.weight"
    else:
        tensors[name] = tensors[name][:, :5]
        expected = r"text_projection\.weight has shape \[16, 5\], expected \[16, 16\]"
    folder = write_checkpoint(tmp_path / "damaged", DETECTOR, tensors)
    with pytest.raises(ValueError, match=expected):
        Sam3Options(path=str(folder)).build()


def test_weights_in_half_precision_are_read_as_float32(checkpoint: Path, tmp_path: Path, photo: np.ndarray):
    tensors = {
        name: tensor.bfloat16() if tensor.is_floating_point() else tensor
        for name, tensor in load_file(checkpoint / "model.safetensors").items()
    }
    segmenter = Sam3Options(path=str(write_checkpoint(tmp_path / "half", DETECTOR, tensors))).build()
    assert {p.dtype for p in segmenter._model.parameters()} == {torch.float32}


def test_a_checkpoint_of_another_model_or_none_is_refused_in_one_line(checkpoint: Path, tmp_path: Path):
    other = write_checkpoint(tmp_path / "other", {"model_type": "sam2"}, {"a": torch.zeros(1)})
    with pytest.raises(ValueError, match=r"config.json: a model of type 'sam2'; expected sam3 or sam3_video"):
        Sam3Options(path=str(other)).build()
    with pytest.raises(ValueError, match="a model of type 'sam3'; expected sam3_tracker or sam3_video"):
        Sam3Options(path=str(checkpoint), points_px=((1.0, 1.0),)).build()
    with pytest.raises(ValueError, match=r"missing \(no such folder here; on the hub\): SAM 3 cannot be loaded"):
        Sam3Options(path=str(tmp_path / "missing")).build()
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty: SAM 3 cannot be loaded|config.json: no such file"):
        Sam3Options(path=str(tmp_path / "empty")).build()


def test_a_processor_that_prepares_otherwise_is_refused_and_its_mean_is_used(checkpoint: Path, tmp_path: Path):
    folder = write_checkpoint(tmp_path / "told", DETECTOR, load_file(checkpoint / "model.safetensors"))
    told = {"image_processor": {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.5, 0.5, 0.25], "resample": 2}}
    (folder / "processor_config.json").write_text(json.dumps(told))
    grey = np.full((8, 8, 3), 255, np.uint8)
    seen = Sam3Options(path=str(folder)).build()._preprocess(grey)[0, :, 0, 0]
    torch.testing.assert_close(seen, torch.tensor([0.9 / 0.5, 0.8 / 0.5, 0.7 / 0.25]))
    (folder / "processor_config.json").write_text(json.dumps({"size": {"height": 1008, "width": 1008}}))
    with pytest.raises(ValueError, match=r"processor_config.json: size is \{'height': 1008"):
        Sam3Options(path=str(folder)).build()


def test_points_outside_of_the_picture_and_prompts_that_are_too_long_are_refused(
    combined: Path, checkpoint: Path, photo: np.ndarray
):
    with pytest.raises(ValueError, match="point 90,3 lies outside of the picture of 90 columns and 70 rows"):
        Sam3Options(path=str(combined), points_px=((90.0, 3.0),)).build()(photo)
    with pytest.raises(ValueError, match="tokens, at most 32"):
        Sam3Options(path=str(checkpoint), prompt="the robot that stands upon this table here").build()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 1.5}, "threshold 1.5"),
        ({"mask_threshold": -0.1}, "mask_threshold -0.1"),
        ({"prompt": " "}, "needs words or points"),
    ],
)
def test_options_that_ask_for_nothing_sensible_are_refused(options: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        Sam3Options(path="x", **options)


def test_without_transformers_the_extra_to_install_is_named(checkpoint: Path):
    """In a process of its own, in which the package cannot be found."""
    program = f"""
import sys
sys.modules["transformers"] = None
from simforcing.generation.sam3 import Sam3Options
try:
    Sam3Options(path={str(checkpoint)!r}).build()
except ModuleNotFoundError as error:
    print(error)
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "SAM 3 needs transformers: pip install 'simforcing[segment]'"
