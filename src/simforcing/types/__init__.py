"""The vocabulary of the package: episodes, clips, layouts, normalisers. NumPy only, never torch.

Axis legend, used in every shape of the package:
    b batch      v view       f pixel frame   g latent frame   c channel   h row   w column
    n token      d width      k action step   a action dim     m state step   s state dim   l text token
Time is in seconds from the start of the episode; video, actions and states may have different rates.
"""

from simforcing.types.cameras import Camera
from simforcing.types.config import check_choices, check_seed, from_json, to_json
from simforcing.types.episodes import Clip, DepthSource, Episode, EpisodeSet, FrameSource, Rejected, Resize, View
from simforcing.types.inputs import NetworkInput
from simforcing.types.layouts import LAYOUTS, Layout, Part, layout_named
from simforcing.types.normalisers import Normaliser
from simforcing.types.spec import DataSpec

__all__ = [
    "LAYOUTS",
    "Camera",
    "Clip",
    "DataSpec",
    "DepthSource",
    "Episode",
    "EpisodeSet",
    "FrameSource",
    "Layout",
    "NetworkInput",
    "Normaliser",
    "Part",
    "Rejected",
    "Resize",
    "View",
    "check_choices",
    "check_seed",
    "from_json",
    "layout_named",
    "to_json",
]
