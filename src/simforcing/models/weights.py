"""Exact, strict maps between our state dicts and foreign ones.

`wan_tensors` names every tensor of diffusers' WanTransformer3DModel once; both directions follow from it.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from simforcing.models.world_model import WorldModelConfig
from simforcing.nn.strict import name_faults, refuse

_BLOCK = {
    "table": ("scale_shift_table",),
    "qkv": ("attn1.to_q", "attn1.to_k", "attn1.to_v"),
    "q_norm": ("attn1.norm_q",),
    "k_norm": ("attn1.norm_k",),
    "out": ("attn1.to_out.0",),
    "cross_norm": ("norm2",),
    "cross_q": ("attn2.to_q",),
    "cross_kv": ("attn2.to_k", "attn2.to_v"),
    "cross_q_norm": ("attn2.norm_q",),
    "cross_k_norm": ("attn2.norm_k",),
    "cross_out": ("attn2.to_out.0",),
    "mlp.first": ("ffn.net.0.proj",),
    "mlp.second": ("ffn.net.2",),
}
_OUTER = {
    "sigma_embedding.first": ("condition_embedder.time_embedder.linear_1",),
    "sigma_embedding.second": ("condition_embedder.time_embedder.linear_2",),
    "sigma_embedding.modulation": ("condition_embedder.time_proj",),
    "text_projection.first": ("condition_embedder.text_embedder.linear_1",),
    "text_projection.second": ("condition_embedder.text_embedder.linear_2",),
}
_IO: dict[str, tuple[str, ...]] = {
    "video_in": ("patch_embedding",),
    "video_head.table": ("scale_shift_table",),
    "video_head.linear": ("proj_out",),
}
_BARE = ("table",)  # parameters of their own, without .weight and .bias
_GAIN = ("q_norm", "k_norm", "cross_q_norm", "cross_k_norm")  # a weight and no bias


def wan_tensors(num_layers: int) -> dict[str, tuple[str, ...]]:
    """Our tensor name -> the Wan tensors it is the concatenation of (along dimension 0), for every tensor."""
    modules: dict[str, tuple[str, ...]] = {f"mixture.experts.video.{ours}": wan for ours, wan in _OUTER.items()} | _IO
    for i in range(num_layers):
        for ours, wan in _BLOCK.items():
            modules[f"mixture.experts.video.blocks.{i}.{ours}"] = tuple(f"blocks.{i}.{name}" for name in wan)
    tensors: dict[str, tuple[str, ...]] = {}
    for ours, wan in modules.items():
        leaf = ours.rsplit(".", 1)[-1]
        kinds = ("",) if leaf in _BARE else (".weight",) if leaf in _GAIN else (".weight", ".bias")
        for kind in kinds:
            tensors[ours + kind] = tuple(name + kind for name in wan)
    return tensors


def from_wan(wan: Mapping[str, Tensor], config: WorldModelConfig) -> dict[str, Tensor]:
    """Wan's state dict (diffusers names) as ours, value by value.

    Raises:
        ValueError: lists every missing and every extra tensor.
    """
    table = wan_tensors(config.video.num_layers)
    refuse(name_faults(wan, [name for names in table.values() for name in names]), "Wan state dict")
    out = {ours: torch.cat([wan[name] for name in names]) for ours, names in table.items()}
    for name, tensor in out.items():
        if name.endswith("table"):
            out[name] = tensor.squeeze(0)
    out["video_in.weight"] = out["video_in.weight"].flatten(1)
    return out


def to_wan(ours: Mapping[str, Tensor], config: WorldModelConfig) -> dict[str, Tensor]:
    """The inverse of `from_wan`, for a world model without an action expert."""
    table = wan_tensors(config.video.num_layers)
    refuse(name_faults(ours, table), "state dict")
    out: dict[str, Tensor] = {}
    for name, names in table.items():
        tensor = ours[name].unsqueeze(0) if name.endswith("table") else ours[name]
        out.update(zip(names, tensor.chunk(len(names)), strict=True))
    patch = (config.channels, 1, config.patch, config.patch)
    out["patch_embedding.weight"] = out["patch_embedding.weight"].unflatten(1, patch)
    return out
