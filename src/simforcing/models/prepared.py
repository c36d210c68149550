"""A network's pass with everything computed once that no noise enters (docs/generation.md).

Actions see actions alone, and the given latent frame 0 sees itself and the actions: at every noise level their keys and
values are the same. So are the text's, the simulation's maps and the noise levels' modulations. What is left for a step
are the tokens of the frames to be generated, all branches of a guidance at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from simforcing.models.mixture import KeysValues, Level, Stream
from simforcing.models.world_model import Context, WorldModelNetwork, patches, token_presence
from simforcing.nn.attention import repeat_batch
from simforcing.nn.batch import Conditions, SimCondition


@dataclass(frozen=True, kw_only=True)
class Branch:
    """One of the velocities that a guidance combines: its conditions, and 1 where simulation conditions it, else 0."""

    conditions: Conditions
    gate: float = 0.0


class Prepared:
    """Velocities of r branches of the same b clips, whose latent frame 0 is given."""

    def __init__(
        self,
        model: WorldModelNetwork,
        branches: Sequence[Branch],
        given: Float[Tensor, "b v g c h w"],
        sim: Float[Tensor, "b v g c h w"] | None,
        sigmas: Sequence[float],
    ) -> None:
        """
        Args:
            model: one with `first_frame_stands_alone`.
            given: latents; frame 0 alone is read.
            sim: latents of the simulation, where a branch has a gate.
            sigmas: all noise levels that will be asked for.
        """
        self.model, self.num_branches = model, len(branches)
        first = given[:, :, :1].repeat(self.num_branches, 1, 1, 1, 1, 1)
        context = _stacked([branch.conditions for branch in branches], model, given)
        num_first = model.frame_tokens(given)
        self.mask = model.mask(given, branches[0].conditions)
        self.present = token_presence(branches[0].conditions, self.mask, first)
        added = _added(model, branches, sim)

        num_lead = self.mask.num_segments("action") + 1
        lead = self.mask.leading(num_lead)
        opening = _part(context, 0, 1, num_first)
        stream = model.video_stream(
            first,
            model.video_level(first.new_zeros(1, 1), opening),
            opening,
            None if added is None else [maps[:, :num_first] for maps in added],
        )
        seen = None if self.present is None else self.present[:, : lead.num_tokens]
        own = model.mixture.keys_values("video", stream, lead, seen, context.action)
        self.given = (
            own if context.action is None else [_joined(a, f) for a, f in zip(context.action, own, strict=True)]
        )

        self.first = first
        self.context = _part(context, 1, given.shape[2], num_first)
        self.added = None if added is None else [maps[:, num_first:] for maps in added]
        self.rotors = model.video_rotors(given)[num_first:]
        self.num_rows = len(first)
        if (
            self.added is not None
            and len({id(branch.conditions) for branch in branches}) == 1
            and context.joined is None
        ):
            self._part_late(given.shape[0])
        self.levels = {sigma: self._level(sigma) for sigma in sigmas}

    def _part_late(self, num_clips: int) -> None:
        """Branches that differ in the simulation alone are one until it joins them, within the first layer."""
        self.num_rows = num_clips
        self.given = [(self.given[0][0][:num_clips], self.given[0][1][:num_clips]), *self.given[1:]]
        k, v = self.context.text[0]
        self.context = replace(self.context, text=[(k[:num_clips], v[:num_clips]), *self.context.text[1:]])

    def _level(self, sigma: float) -> Level:
        num_frames = 1 if self.context.joined is None else self.context.joined.shape[1]
        return self.model.video_level(self.first.new_full((1, num_frames), sigma), self.context)

    def velocities(self, z: Float[Tensor, "b v f c h w"], sigma: float) -> Float[Tensor, "r v f c h w"]:
        """Of the latent frames after the given one, branch after branch.

        Args:
            z: these frames; branches share them.
        """
        tokens = self.model.video_in(patches(z, self.model.config.patch))
        tokens = repeat_batch(tokens, self.num_rows)
        if self.context.drawn is not None:
            tokens = tokens + self.context.drawn[: self.num_rows]
        stream = Stream(
            tokens=tokens,
            level=self.levels[sigma],
            rotors=self.rotors,
            text=self.context.text,
            added=self.added,
        )
        out = self.model.mixture({"video": stream}, self.mask, self.present, ("video",), self.given)["video"]
        predicted = self.model.video_prediction(self.first, out)
        if self.model.config.predicts == "velocity":
            return predicted
        return (repeat_batch(z, len(self.first)) - predicted) / sigma


def _stacked(conditions: Sequence[Conditions], model: WorldModelNetwork, z: Tensor) -> Context:
    """The contexts of all branches, branch after branch; equal conditions are read once."""
    known: dict[int, Context] = {}
    for one in conditions:
        if id(one) not in known:
            known[id(one)] = model.context(one, z)
    parts = [known[id(one)] for one in conditions]
    layers = range(model.config.video.num_layers)
    return Context(
        action=None if parts[0].action is None else [_along([p.action[i] for p in parts if p.action]) for i in layers],
        text=[_along([part.text[i] for part in parts]) for i in layers],
        joined=_cat([part.joined for part in parts], z.shape[0]),
        drawn=_cat([part.drawn for part in parts], z.shape[0]),
    )


def _along(parts: Sequence[KeysValues]) -> KeysValues:
    return torch.cat([k for k, _ in parts]), torch.cat([v for _, v in parts])


def _cat(parts: Sequence[Tensor | None], num_clips: int) -> Tensor | None:
    there = [repeat_batch(part, num_clips) for part in parts if part is not None]
    return torch.cat(there) if there else None


def _joined(first: KeysValues, second: KeysValues) -> KeysValues:
    return torch.cat([first[0], second[0]], dim=1), torch.cat([first[1], second[1]], dim=1)


def _part(context: Context, start: int, stop: int, frame_tokens: int) -> Context:
    """What belongs to latent frames start..stop-1."""
    joined, drawn = context.joined, context.drawn
    return replace(
        context,
        joined=None if joined is None else joined[:, start:stop],
        drawn=None if drawn is None else drawn[:, start * frame_tokens : stop * frame_tokens],
    )


def _added(model: WorldModelNetwork, branches: Sequence[Branch], sim: Tensor | None) -> list[Tensor] | None:
    """The simulation's maps for every branch and layer; None where no branch has a gate."""
    if sim is None or not any(branch.gate for branch in branches):
        return None
    gates = sim.new_tensor([branch.gate for branch in branches]).repeat_interleave(sim.shape[0])
    return model.simulation_maps(SimCondition(latents=sim, gate=gates))


def compile_passes(model: WorldModelNetwork) -> None:
    """Compile the layers in place; on a CUDA device their kernels become graphs, so that a step costs no launches."""
    on_cuda = next(model.parameters()).is_cuda
    model.mixture.compile(mode="reduce-overhead" if on_cuda else "default", dynamic=False)
