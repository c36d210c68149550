"""How videos are drawn, where it is not as a model's recipe says."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from simforcing.generation.given import warn_of_guidance
from simforcing.generation.rollout import Predictor
from simforcing.recipes.requests import RequestFields
from simforcing.types.progress import Report

BATCH = 8


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How videos are drawn where it is not as the recipe says; see SamplerConfig.

    Args:
        num_seeds: videos of each request.
        batch_size: videos at a time; the last bits of a video depend on it.
        swap: also show each picture under the next request's actions.
    """

    shift: float | None = None
    solver: Literal["euler", "heun"] | None = None
    sim_guidance: float | None = None
    action_guidance: float | None = None
    sim_source: Literal["self", "true"] | None = None
    num_seeds: int = 1
    batch_size: int = BATCH
    swap: bool = False

    def __post_init__(self) -> None:
        for name in ("num_seeds", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")

    def following(self, requests: Iterable[RequestFields | ValueError]) -> "SamplingOptions":
        """These options, under which given renderings are followed where a request gives one.

        Raises:
            ValueError: a rendering is given, and the model's own simulation is asked for.
        """
        if not any(isinstance(item, RequestFields) and item.sim_video for item in requests):
            return self
        if self.sim_source == "self":
            raise ValueError("a sim video is given, and --sim-source self asks for the model's own; leave out one")
        return replace(self, sim_source="true")

    def applied(self, predictor: Predictor, report: Report) -> Predictor:
        """The predictor with this sampler, and a warning where it means little."""
        names = ("shift", "solver", "sim_guidance", "action_guidance", "sim_source")
        changed = predictor.using(**{name: getattr(self, name) for name in names if getattr(self, name) is not None})
        knows_sim = predictor.bundle.model.config.sim_condition
        if knows_sim:
            warn_of_guidance(changed.sampler.sim_guidance)
        if not knows_sim and (self.sim_guidance is not None or self.sim_source is not None):
            report("warning: this model does not read simulation, so options of sim guidance change nothing")
        return changed


AS_STORED = SamplingOptions()
