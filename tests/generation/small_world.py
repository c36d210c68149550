"""A small student none of whose weights is zero, and starts for it: made in memory, the same on every machine."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from simforcing.generation.sampler import SamplerConfig
from simforcing.generation.start import Start
from simforcing.generation.world_model import WorldModel
from simforcing.models.autoencoder import TinyAutoencoderConfig
from simforcing.models.bundle import Bundle
from simforcing.models.presets import tiny_world_model
from simforcing.types import DataSpec, NetworkInput, Resize, layout_named
from simforcing.types.layouts import Layout

SIDE = 16
SAMPLER = SamplerConfig(num_steps=2)


def network_input(layout: Layout) -> NetworkInput:
    rows = np.random.default_rng(0).uniform(-0.4, 0.6, (20, layout.dim))
    return NetworkInput.fit(rows, layout)


def small_world(
    *, sim: bool = True, action: str = "tabletop", reader: NetworkInput | None = None, **changes: Any
) -> WorldModel:
    """Windows of 9 frames and 8 actions at 5 frames/s; `changes` are fields of the spec."""
    spec = DataSpec(
        views=("front",),
        num_frames=9,
        fps=5.0,
        num_actions=8,
        resize=Resize(height=SIDE, width=SIDE),
        action=network_input(layout_named(action)) if reader is None else reader,
        state=network_input(layout_named("tabletop")),
        robot=None,
        fingerprint="made",
        sim_views=("front_sim",) if sim else (),
    )
    spec = replace(spec, **changes)
    torch.manual_seed(0)
    config = tiny_world_model(
        channels=8,
        action_dim=spec.action_dim,
        state_dim=spec.state_dim,
        width=16,
        action_width=16,
        num_layers=1,
        head_width=16,
        text_width=8,
    )
    model = replace(config, sim_condition=sim).build()
    for parameter in model.parameters():
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=0.3)
    autoencoder = TinyAutoencoderConfig(channels=8, width=8, num_decoder_blocks=0).build()
    about = {"recipe": "made", "run": {"sampler": {"type": "SamplerConfig", "num_steps": 2}}}
    bundle = Bundle(model=model.eval(), autoencoder=autoencoder.eval(), spec=spec, about=about)
    return WorldModel(bundle, SAMPLER)


def picture(seed: int, side: int = SIDE) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)


def small_start(seed: int = 0) -> Start:
    state = np.random.default_rng(seed).uniform(-0.3, 0.5, 7).astype(np.float32)
    return Start(
        images=(picture(seed),), sim=(picture(100 + seed),), state=state, task="push the cup", name=f"start {seed}"
    )


def commands(seed: int, count: int, dim: int = 7) -> np.ndarray:
    rows = np.random.default_rng(1000 + seed).uniform(-0.3, 0.5, (count, dim))
    return np.clip(rows, [*[-0.3] * (dim - 1), 0.0], 0.5).astype(np.float32)
