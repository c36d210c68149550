"""What a paired set will hold: every option, camera and lag, and the fingerprint of all that decides its pictures."""

import hashlib
import json
from dataclasses import asdict, dataclass, replace

from simforcing.data.convert import kept_joint_layout, kept_state_layout
from simforcing.data.open import require_layout
from simforcing.data.pair_jobs import Rendering
from simforcing.sim.provenance import Provenance
from simforcing.sim.replay import Layouts
from simforcing.types import Camera, EpisodeSet
from simforcing.types.cameras import camera_to_json
from simforcing.types.progress import Report
from simforcing.types.version import package_version

FORMAT = 4  # of parts; another one is not taken up again


@dataclass(frozen=True, kw_only=True)
class Shot:
    """Through which camera and with which lag an episode is rendered; of the calibration, for the record, the overlap
    and the frames that the camera was fitted to.
    """

    camera: Camera
    lag: int
    iou: float | None = None
    fitted_frames: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PairPlan:
    """What a paired set will hold.

    Args:
        shots: by episode name; the others are left out.
        left_out: episode name -> why it is not rendered, in one line.
        cameras_from: where the cameras come from, for the record.
    """

    source: EpisodeSet
    rendering: Rendering
    provenance: Provenance
    shots: dict[str, Shot]
    left_out: dict[str, str]
    cameras_from: str

    @property
    def fingerprint(self) -> str:
        """Of all that decides the pictures and tables, wherever it lies: parts of another one are not used."""
        value = {
            "format": FORMAT,
            "version": package_version(),
            "data": self.source.fingerprint,
            "rendering": asdict(replace(self.rendering, robot_path=None)),
            "provenance": self.provenance.decisive,
            "shots": {name: [camera_to_json(shot.camera), shot.lag] for name, shot in self.shots.items()},
        }
        return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:32]


def layouts_to_keep(source: EpisodeSet, report: Report) -> Layouts:
    """The layouts of what every episode has; a line for what is left out."""
    return Layouts(
        action=require_layout(source),
        state=kept_state_layout(source, report),
        joint=kept_joint_layout(source, report),
    )


def pair_bytes(plan: PairPlan, bytes_per_pixel: float) -> float:
    """Disk of both sets, an upper bound."""
    height, width = plan.rendering.size
    frames = sum(episode.num_frames for episode in plan.source.episodes if episode.name in plan.shots)
    streams = 3 + 2 * plan.rendering.num_variants + 10 * plan.rendering.with_depth * (1 + plan.rendering.num_variants)
    return frames * height * width * streams * bytes_per_pixel
