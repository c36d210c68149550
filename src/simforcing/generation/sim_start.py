"""The simulation's first picture, made of a photo: the robot alone before the background that a model was trained on.

Where robot and camera are known it is rendered, as `simforcing simulate` does; else the photo's own robot is cut out.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, UInt8

from simforcing.data.backgrounds import clean_plate, plain
from simforcing.data.picture_files import same_aspect
from simforcing.data.resize import resize_camera, resize_frames
from simforcing.data.sim_background import SimulationLook, look_from_json
from simforcing.generation.given import stored_size
from simforcing.generation.robot_mask import require_robot
from simforcing.generation.segment import CHOICES, MaskFileSegmenter, Segmenter, group_named
from simforcing.generation.start import Picture, Start
from simforcing.models.bundle import Bundle
from simforcing.types import Camera, Episode, Layout, Resize
from simforcing.types.calibration import read_calibration
from simforcing.types.cameras import read_start
from simforcing.types.files import read_json

WORDS = ("white", "grey", "plate")  # backgrounds that need no picture


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Where the robot was at the moment of a photo.

    Args:
        state, joint: measured numbers with their layouts; joints are exact, a tool's pose is solved for them.
    """

    state: Float[np.ndarray, " s"] | None = None
    state_layout: Layout | None = None
    joint: Float[np.ndarray, " j"] | None = None
    joint_layout: Layout | None = None


@dataclass(frozen=True, kw_only=True)
class Filmed:
    """A robot in front of a camera.

    Args:
        robot, robot_path: its name, and where its model lies.
        camera: in the robot's base frame, of any size of the picture.
        name: for messages.
    """

    robot: str
    camera: Camera
    measured: Measured
    robot_path: Path | None = None
    name: str = "start"


def sim_first_frame(image: Picture, mask: Bool[np.ndarray, "h w"], background: Picture) -> Picture:
    """The masked robot on a background, all of one size."""
    return np.where(mask[..., None], image, background)


def render_first_frame(
    filmed: Filmed, size: tuple[int, int], background: Callable[[Bool[np.ndarray, "h w"]], Picture]
) -> Picture:
    """The robot as `simforcing simulate` renders it.

    Args:
        size: (height, width) of the picture.
        background: given the pixels that the robot touches.

    Raises:
        ValueError: nothing measured leads to the robot's joints, its model is not found, or it is out of view.
        RuntimeError: there is no OpenGL.
    """
    coverage, over = _rendered(filmed, size)
    require_robot(coverage >= 0.5, f"{filmed.name}: the robot rendered through the given camera")
    return over(background(coverage > 0))


class SimulatorMask:
    """A segmenter that renders the robot instead of looking for it: for one photo, whatever it shows."""

    def __init__(self, filmed: Filmed) -> None:
        self._filmed = filmed

    def __call__(self, image: UInt8[np.ndarray, "h w 3"]) -> Bool[np.ndarray, "h w"]:
        """Where at least half of a pixel is robot; errors as `render_first_frame`."""
        coverage, _ = _rendered(self._filmed, (image.shape[0], image.shape[1]))
        return require_robot(coverage >= 0.5, f"{self._filmed.name}: the robot rendered through the given camera")


def _rendered(filmed: Filmed, size: tuple[int, int]) -> tuple[Float[np.ndarray, "h w"], Callable[[Picture], Picture]]:
    from simforcing.sim.replay import Layouts, replay
    from simforcing.sim.studio import studio_of

    if filmed.camera.intrinsics is None or filmed.camera.pose is None:
        raise ValueError(f"{filmed.name}: the camera lacks intrinsics or a pose in the robot's base frame")
    studio = studio_of(filmed.robot, filmed.robot_path, size)
    one, measured = np.zeros(1), filmed.measured
    moment = Episode(
        name=filmed.name,
        task="",
        fps=1.0,
        num_frames=1,
        views=(),
        action=np.zeros((0, 1)),
        action_time_s=np.zeros(0),
        state=None if measured.state is None else measured.state[None].astype(np.float64),
        state_time_s=one,
        joint=None if measured.joint is None else measured.joint[None].astype(np.float64),
    )
    layouts = Layouts(state=measured.state_layout, joint=measured.joint_layout)
    qpos = replay(studio.robot, moment, layouts).qpos
    camera = resize_camera(filmed.camera, Resize(height=size[0], width=size[1]))
    picture = next(studio.pictures(qpos, camera))
    return picture.coverage, picture.over


def known_simulation(bundle: Bundle) -> SimulationLook | None:
    """How the simulation looks that a model was trained on; None where its run did not record it, or had none.

    Raises:
        ValueError: a record that cannot be read, naming the file and the field.
    """
    value = bundle.about.get("simulation")
    return None if value is None else look_from_json(value, f"{bundle.source}: about.simulation")


def with_simulation(
    start: Start,
    bundle: Bundle,
    *,
    segmenter: Segmenter | None = None,
    background: Picture | str | None = None,
    robot_path: Path | None = None,
    joint: Float[np.ndarray, " j"] | None = None,
    joint_layout: Layout | None = None,
) -> Start:
    """The start with the simulation's first pictures, where the model reads such and the start has none.

    Args:
        segmenter: cut the robot out of the photo; None: render it, which needs the camera (`start.cameras`, or one that
            all of the training data share) and the state.
        background: a picture of the photo's size (the scene without the robot), or "white", "grey" or "plate"; None: as
            the model's data had it. A plate is made of the photo: where the robot is, what is nearest to it.
        robot_path: of the robot's model, where it is not found otherwise.
        joint, joint_layout: measured joints, which are exact where the state holds a tool's pose.

    Raises:
        ValueError: one line that says what is missing and what could be given, or why the photo cannot be used.
        RuntimeError: there is no OpenGL to render with.
    """
    spec = bundle.spec
    if not spec.sim_views or start.sim is not None:
        return start
    look = known_simulation(bundle)
    if isinstance(segmenter, MaskFileSegmenter) and len(start.images) > 1:
        raise ValueError(f"{start.name}: one mask for {len(start.images)} views; give pictures of the simulation")
    kind = _background_kind(background, look, start.name)
    state_layout = None if spec.state is None else spec.state.layout
    measured = Measured(state=start.state, state_layout=state_layout, joint=joint, joint_layout=joint_layout)
    pictures = []
    for view, image in enumerate(start.images):
        behind = _Behind(photo=image, given=kind, look=look, name=start.name)
        if segmenter is not None:
            mask = _found(segmenter, image, start.name)
            pictures.append(sim_first_frame(image, mask, behind(mask)))
        else:
            filmed = _filmed(start, bundle, look, view, measured, robot_path)
            size = (image.shape[0], image.shape[1]) if look is None else look.size
            pictures.append(render_first_frame(filmed, size, behind))
    return replace(start, sim=tuple(pictures))


def _background_kind(given: Picture | str | None, look: SimulationLook | None, name: str) -> Picture | str:
    """What is behind the robot. ValueError where neither the call nor the run says it, or one photo does not tell."""
    if given is None and look is None:
        raise ValueError(
            f"{name}: the run does not say what its simulation stands on (an older version made it); give the"
            f" background: {', '.join(WORDS)}, or a picture of the scene without the robot"
        )
    chosen = look.background if given is None and look is not None else given
    assert chosen is not None
    if isinstance(chosen, str) and chosen not in WORDS:
        if given is None:
            raise ValueError(
                f"{name}: the simulation of the model's data stands on each episode's {chosen} picture, which one photo"
                f" does not tell; give the background: {', '.join(WORDS)}, or a picture"
            )
        raise ValueError(f"{name}: unknown background {chosen!r}; choices: {', '.join(WORDS)}, or a picture")
    return chosen


@dataclass(frozen=True, kw_only=True)
class _Behind:
    """The background of one photo's simulation, in the size of a mask of what the robot touches."""

    photo: Picture
    given: Picture | str
    look: SimulationLook | None
    name: str

    def __call__(self, touched: Bool[np.ndarray, "h w"]) -> Picture:
        height, width = touched.shape
        resize = Resize(height=height, width=width)
        if not isinstance(self.given, str):
            if self.given.shape != self.photo.shape:
                sizes = (f"{one.shape[0]}x{one.shape[1]}" for one in (self.given, self.photo))
                raise ValueError("{}: a background of {} pixels for a picture of {}".format(self.name, *sizes))
            return resize_frames(self.given[None], resize)[0]
        if self.given == "plate":
            return clean_plate(resize_frames(self.photo[None], resize), touched[None])
        look = self.look
        if look is not None and look.background == self.given and look.colour is not None:
            return np.full((height, width, 3), look.colour, np.uint8)
        return plain("white" if self.given == "white" else "grey", (height, width))


def _found(segmenter: Segmenter, image: Picture, name: str) -> Bool[np.ndarray, "h w"]:
    try:
        return segmenter(image)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _filmed(
    start: Start, bundle: Bundle, look: SimulationLook | None, view: int, measured: Measured, robot_path: Path | None
) -> Filmed:
    """Robot, camera and state of one view. ValueError says all that is missing, and what could be given instead."""
    robot = bundle.spec.robot if look is None else look.robot
    own = start.cameras[view] if view < len(start.cameras) else None
    if own is not None:
        require_camera_of(start.images[view], own, bundle, view, start.name)
    shared = look.cameras[view] if look is not None and view < len(look.cameras) else None
    camera = own if own is not None else shared
    missing = [] if robot is not None else ["the name of the robot, which the run does not know"]
    if camera is None or camera.intrinsics is None or camera.pose is None:
        missing.append(f"the camera of view {bundle.spec.views[view]} in the robot's base frame")
    if measured.state is None and measured.joint is None:
        missing.append("the robot's measured state")
    if missing or robot is None or camera is None:
        raise ValueError(
            f"{start.name}: this model reads a simulation of the first frame, which is not known: give its picture; or"
            f" a segmenter that cuts the robot out of the photo ({', '.join(CHOICES)}); or, to render it,"
            f" {' and '.join(missing)}"
        )
    return Filmed(robot=robot, camera=camera, measured=measured, robot_path=robot_path, name=start.name)


def require_camera_of(photo: Picture, camera: Camera, bundle: Bundle, view: int, where: str) -> None:
    """See that a camera's pictures can be this photo: stretched, it would put the robot where it is not.

    Raises:
        ValueError: another aspect than the photo's, or, of a photo in the model's own size, than the training frames'.
    """
    resize, name = bundle.spec.resize, bundle.spec.views[view]
    size = (photo.shape[0], photo.shape[1])
    known = [size, stored_size(bundle, name)] if size == (resize.height, resize.width) else [size]
    if not any(same_aspect(camera.size, one) for one in known):
        (rows, columns), (height, width) = camera.size, size
        raise ValueError(
            f"{where}: the camera of view {name} films {rows}x{columns}, the picture is {height}x{width}:"
            " another aspect"
        )


def camera_in(word: str) -> Camera:
    """A camera from a file: one camera, or a calibration (`FILE.json@GROUP_OR_EPISODE` where it has several).

    Raises:
        ValueError: the file is missing or of another kind, or holds no such camera.
    """
    name, _, chosen = word.partition("@")
    path = Path(name)
    value = read_json(path)
    if not isinstance(value, dict) or "groups" not in value:
        return read_start(value, str(path))
    calibration = read_calibration(path)
    camera = group_named(calibration, path, chosen or None, lambda group: group.camera is not None).camera
    assert camera is not None
    return camera
