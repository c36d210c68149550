"""SAM 3 through transformers: the robot by words, or by points; what surrounds the model is written here in torch.

Its image processor needs torchvision, which nothing here does. The arithmetic that it documents:

    picture     squashed to the model's square (bilinear, antialiased, whole grey levels), (x / 255 - mean) / deviation
    score       sigmoid(logit of a query) * sigmoid(logit of presence), kept above `threshold`
    instance    sigmoid(mask logits), bilinear to the picture's size, inside above `mask_threshold`
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from huggingface_hub import snapshot_download
from jaxtyping import Bool, Float, UInt8
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

from simforcing.generation.robot_mask import require_robot
from simforcing.nn.device import find_device
from simforcing.nn.strict import load_strictly
from simforcing.types.config import check_choices
from simforcing.types.files import read_json

NUM_TOKENS = 32  # of a prompt, as the processor pads it
CONFIG, PROCESSOR_FILES = "config.json", ("preprocessor_config.json", "processor_config.json")
BILINEAR = 2  # how a processor's file names it
TEXT_MODELS, POINT_MODELS = ("sam3", "sam3_video"), ("sam3_tracker", "sam3_video")
# Parts of a combined checkpoint that only videos need.
VIDEO_ONLY = (
    "memory_",
    "mask_downsample",
    "object_pointer_proj",
    "temporal_positional_encoding_projection_layer",
    "no_memory_positional_encoding",
    "no_object_pointer",
    "occlusion_spatial_embedding_parameter",
)
POINT_MASK_LEVEL = 0.0  # of a mask's logits, as the processor of points cuts them


@dataclass(frozen=True, kw_only=True)
class Sam3Options:
    """Which SAM 3, and what it is asked.

    Args:
        path: folder of a checkpoint in transformers' layout, or its id on the hub.
        prompt: what is looked for, in a few words.
        points_px: (column, row) of points on the robot in the picture; they take the place of the words.
        threshold: least score of an instance.
        mask_threshold: least probability of a pixel.
        output: all instances above the threshold together, or the map of everything that the words name.
    """

    path: str
    prompt: str = "robot arm"
    points_px: tuple[tuple[float, float], ...] = ()
    threshold: float = 0.3
    mask_threshold: float = 0.5
    output: Literal["instances", "semantic"] = "instances"
    device: str = "cpu"

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("threshold", "mask_threshold"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)}: must be at least 0 and below 1")
        if not self.prompt.strip() and not self.points_px:
            raise ValueError("SAM 3 needs words or points to look for")

    def build(self) -> "Sam3Segmenter":
        """Load it, strictly.

        Raises:
            ModuleNotFoundError: transformers is missing; the message says what to install.
            ValueError: no such checkpoint, one of another model, or tensors that do not fit, each by name.
        """
        folder = checkpoint_folder(self.path)
        tokens = None if self.points_px else tokenize(self.prompt, folder)
        model = load_model(folder, by_points=bool(self.points_px))
        return Sam3Segmenter(model.to(find_device(self.device)), read_preprocessing(folder, model), tokens, self)


@dataclass(frozen=True, kw_only=True)
class Preprocess:
    """A picture -> the model's input.

    Args:
        size: side of the model's square, in pixels.
        mean, deviation: of each colour channel, in units of 1.
    """

    size: int
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def __call__(self, image: UInt8[np.ndarray, "h w 3"]) -> Float[Tensor, "1 3 s s"]:
        """Resized, rounded to grey levels, rescaled, normalised."""
        levels = torch.tensor(image).movedim(-1, 0)[None]
        square = (self.size, self.size)  # of bytes, as the processor does: rounded after rows and after columns
        levels = functional.interpolate(levels, square, mode="bilinear", align_corners=False, antialias=True)
        mean, deviation = (torch.tensor(values)[:, None, None] * 255 for values in (self.mean, self.deviation))
        return (levels - mean) / deviation


@dataclass(frozen=True, kw_only=True)
class Instances:
    """What was found in a picture, in the order of the model's queries.

    Args:
        scores: of each instance.
        boxes_px: left, top, right, bottom.
        masks: in the picture's size.
    """

    scores: Float[Tensor, " n"]
    boxes_px: Float[Tensor, "n 4"]
    masks: Bool[Tensor, "n h w"]


def instances_of(outputs: Any, size: tuple[int, int], *, threshold: float, mask_threshold: float) -> Instances:
    """Instances of the first picture of the model's outputs.

    Args:
        size: (height, width) of the picture.
    """
    scores = scores_of(outputs)
    kept = scores > threshold
    height, width = size
    return Instances(
        scores=scores[kept],
        boxes_px=outputs.pred_boxes[0][kept] * scores.new_tensor([width, height, width, height]),
        masks=_enlarged(outputs.pred_masks[0][kept].sigmoid(), size) > mask_threshold,
    )


def scores_of(outputs: Any) -> Float[Tensor, " q"]:
    """Of all queries."""
    scores = outputs.pred_logits[0].sigmoid()
    return scores if outputs.presence_logits is None else scores * outputs.presence_logits[0].sigmoid()


def semantic_of(outputs: Any, size: tuple[int, int], *, mask_threshold: float) -> Bool[Tensor, "h w"]:
    """The map of everything that the words name, of the first picture."""
    return _enlarged(outputs.semantic_seg[0].sigmoid(), size)[0] > mask_threshold


def best_point_mask(outputs: Any, size: tuple[int, int]) -> Bool[Tensor, "h w"]:
    """Of the masks that the points may mean, the one that the model believes in most."""
    best = int(outputs.iou_scores[0, 0].argmax())
    return _enlarged(outputs.pred_masks[0, 0, best][None], size)[0] > POINT_MASK_LEVEL


def _enlarged(maps: Float[Tensor, "n h w"], size: tuple[int, int]) -> Float[Tensor, "n h2 w2"]:
    if not len(maps):
        return maps.new_zeros((0, *size))
    return functional.interpolate(maps[None], size, mode="bilinear", align_corners=False)[0]


class Sam3Segmenter:
    """The robot by words or points. The same picture gives the same mask."""

    def __init__(
        self, model: torch.nn.Module, preprocess: Preprocess, tokens: dict[str, Tensor] | None, options: Sam3Options
    ) -> None:
        self._model, self._preprocess, self._tokens, self._options = model, preprocess, tokens, options
        self._device = next(model.parameters()).device

    def __call__(self, image: UInt8[np.ndarray, "h w 3"]) -> Bool[np.ndarray, "h w"]:
        """Where the robot is; ValueError where nothing is found, or a point lies outside of the picture."""
        mask, found_by = self._by_points(image) if self._tokens is None else self._by_words(image)
        return require_robot(mask.cpu().numpy(), found_by)

    def _by_words(self, image: UInt8[np.ndarray, "h w 3"]) -> tuple[Bool[Tensor, "h w"], str]:
        options, size = self._options, (image.shape[0], image.shape[1])
        assert self._tokens is not None
        outputs = self._run(image, **self._tokens)
        found_by = f"SAM 3, asked for {options.prompt!r} (best score {float(scores_of(outputs).max()):.2f},"
        found_by += f" {options.threshold:g} is asked)"
        if options.output == "semantic":
            return semantic_of(outputs, size, mask_threshold=options.mask_threshold), found_by
        found = instances_of(outputs, size, threshold=options.threshold, mask_threshold=options.mask_threshold)
        return found.masks.any(dim=0), found_by

    def _by_points(self, image: UInt8[np.ndarray, "h w 3"]) -> tuple[Bool[Tensor, "h w"], str]:
        height, width = image.shape[:2]
        for x, y in self._options.points_px:
            if not (0 <= x < width and 0 <= y < height):
                raise ValueError(f"point {x:g},{y:g} lies outside of the picture of {width} columns and {height} rows")
        scale = torch.tensor([self._preprocess.size / width, self._preprocess.size / height])
        points = (torch.tensor(self._options.points_px) * scale)[None, None]
        outputs = self._run(image, input_points=points, input_labels=torch.ones(points.shape[:3], dtype=torch.long))
        return best_point_mask(outputs, (height, width)), f"SAM 3, given {len(self._options.points_px)} points,"

    @torch.no_grad()
    def _run(self, image: UInt8[np.ndarray, "h w 3"], **prompt: Tensor) -> Any:
        moved = {name: tensor.to(self._device) for name, tensor in prompt.items()}
        return self._model(pixel_values=self._preprocess(image).to(self._device), **moved)


def checkpoint_folder(path: str) -> Path:
    """A folder with the checkpoint: itself, or that of the hub's copy. ValueError where there is none."""
    if Path(path).is_dir():
        return Path(path)
    with _naming(path):
        return Path(snapshot_download(path, allow_patterns=["*.json", "*.safetensors", "*.txt"]))


def load_model(folder: Path, *, by_points: bool) -> torch.nn.Module:
    """The network for words or for points, in float32 and eval mode; see `Sam3Options.build` for errors.

    A combined checkpoint (`sam3_video`) holds both; its other half is left out by name, nothing else may be.
    """
    transformers = _transformers()
    stored = read_json(folder / CONFIG)
    kind = stored.get("model_type") if isinstance(stored, dict) else None
    wanted = POINT_MODELS if by_points else TEXT_MODELS
    if kind not in wanted:
        raise ValueError(f"{folder / CONFIG}: a model of type {kind!r}; expected {' or '.join(wanted)}")
    network = transformers.Sam3TrackerModel if by_points else transformers.Sam3Model
    with _naming(folder), _quiet(transformers):
        model = network(transformers.AutoConfig.from_pretrained(folder))
    rename = _point_name if by_points else _text_name
    tensors = {name: value for key, value in _stored(folder).items() if (name := rename(key)) is not None}
    load_strictly(model, tensors, str(folder))
    return model.eval()


def _text_name(key: str) -> str | None:
    """A stored tensor's name in the network for words; None: of the other half of a combined checkpoint."""
    return None if key.startswith(("tracker_model.", "tracker_neck.")) else key.removeprefix("detector_model.")


def _point_name(key: str) -> str | None:
    """The same in the network for points, which shares the picture's encoder and has a neck of its own."""
    name = key.removeprefix("tracker_model.")
    if name.startswith("detector_model."):
        name = name.removeprefix("detector_model.")
        return name if name.startswith("vision_encoder.backbone.") else None
    if name.startswith("tracker_neck."):
        return name.replace("tracker_neck.", "vision_encoder.neck.", 1)
    return None if name.startswith(VIDEO_ONLY) else name


def _stored(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder, in float32 where they are of another precision."""
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise ValueError(f"{folder}: no *.safetensors files")
    tensors: dict[str, Tensor] = {}
    for path in paths:
        with _naming(path):
            tensors |= load_file(path)
    return {name: value.float() if value.is_floating_point() else value for name, value in tensors.items()}


def tokenize(prompt: str, folder: Path) -> dict[str, Tensor]:
    """A prompt by the checkpoint's own tokenizer. ValueError where it has none, or the prompt is too long."""
    transformers = _transformers()
    with _naming(folder), _quiet(transformers):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    given = tokenizer(prompt, padding="max_length", max_length=NUM_TOKENS, return_tensors="pt")
    if given["input_ids"].shape[1] > NUM_TOKENS:
        raise ValueError(f"prompt {prompt!r:.80} has {given['input_ids'].shape[1]} tokens, at most {NUM_TOKENS}")
    return {name: given[name] for name in ("input_ids", "attention_mask")}


def read_preprocessing(folder: Path, model: Any) -> Preprocess:
    """As the checkpoint's processor says, or as documented where it has no such file.

    Raises:
        ValueError: another size than the network's, or a step that is not done here.
    """
    config = model.config.vision_config.backbone_config
    side = config.image_size if isinstance(config.image_size, int) else config.image_size[0]
    path = next((folder / name for name in PROCESSOR_FILES if (folder / name).is_file()), None)
    told = {} if path is None else read_json(path)
    told = told.get("image_processor", told) if isinstance(told, dict) else {}
    known = {
        "size": {"height": side, "width": side},
        "do_resize": True,
        "do_rescale": True,
        "do_normalize": True,
        "resample": BILINEAR,
        "rescale_factor": 1 / 255,
    }
    for name, value in known.items():
        if told.get(name, value) != value:
            raise ValueError(f"{path}: {name} is {told[name]!r}; this model and what is done here need {value!r}")
    mean, deviation = (tuple(told.get(name, (0.5, 0.5, 0.5))) for name in ("image_mean", "image_std"))
    return Preprocess(size=side, mean=mean, deviation=deviation)


def _transformers() -> Any:
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "SAM 3 needs transformers: pip install 'simforcing[segment]'", name="transformers"
        ) from error
    return transformers


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """No progress bars and reports of transformers while it loads: what is wrong is said here, in one line."""
    logging = transformers.utils.logging
    level = logging.get_verbosity()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        logging.enable_progress_bar()


@contextmanager
def _naming(path: str | Path) -> Iterator[None]:
    """Errors of transformers' readers, of whatever kind, as one line that names the checkpoint."""
    try:
        yield
    except ModuleNotFoundError:
        raise
    except Exception as error:
        where = path if Path(path).exists() else f"{path} (no such folder here; on the hub)"
        raise ValueError(f"{where}: SAM 3 cannot be loaded: {' '.join(str(error).split()):.300}") from error
