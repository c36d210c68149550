"""What callers hand in, against what a model was trained on: pictures by their aspect, commands by their range."""

import warnings
from typing import Any

import numpy as np
from jaxtyping import Float

from simforcing.data.action_files import checked_table
from simforcing.data.picture_files import of_aspect, same_aspect
from simforcing.data.resize import resize_camera
from simforcing.generation.start import Picture, Start
from simforcing.models.bundle import Bundle
from simforcing.types import Camera, DataSpec, NetworkInput, Resize
from simforcing.types.episodes import ResizePolicy

FAR = {"min_max": 2.0, "quantile": 3.0, "mean_std": 5.0}  # normalised: training lies within about 1, 1 and 3


def as_numbers(value: Any, what: str) -> np.ndarray:
    """A table, or a row, of whatever it was handed in as. ValueError where it holds no numbers."""
    try:
        given = np.asarray(value)
    except ValueError:
        raise ValueError(f"{what} rows differ in length; expected one table of numbers") from None
    if given.dtype.kind not in "fiu":
        raise ValueError(f"{what} is of type {given.dtype}; expected numbers")
    return given


def checked_actions(actions: Any, spec: DataSpec) -> Float[np.ndarray, "k a"]:
    """Commands in float32; it warns where they are far outside the training's range.

    Raises:
        ValueError: another width, no commands, NaN, or numbers far outside of what the layout declares.
    """
    checked = checked_table(as_numbers(actions, "action"), spec.action.layout, "action")
    warn_of_range(checked, spec.action, "action")
    return checked


def warn_of_range(values: Float[np.ndarray, "k a"], reader: NetworkInput, what: str) -> None:
    """Warn of the stored number that is furthest outside the training's range, where the network reads it as stored."""
    layout, normaliser = reader.layout, reader.normaliser
    for name, columns in layout.slices.items():
        part = layout.part(name)
        if name not in normaliser.layout.slices or normaliser.layout.part(name) != part:
            continue  # read in another form, such as matrices, which have no range to leave
        own = normaliser.layout.slices[name]
        offset, scale = (np.array(numbers)[own] for numbers in (normaliser.offset, normaliser.scale))
        off = np.abs((values[:, columns] - offset) / scale)
        row, column = np.unravel_index(off.argmax(), off.shape)
        if off[row, column] > FAR[normaliser.kind]:
            low, high = offset[column] - scale[column], offset[column] + scale[column]
            warnings.warn(
                f"{what} {row}, {name}[{column}] is {values[:, columns][row, column]:.4g} {part.unit}; the training's"
                f" lie about {low:.4g} .. {high:.4g} (radians or degrees? m or mm?)",
                stacklevel=5,
            )
            return


def warn_of_guidance(w: float) -> None:
    """Warn of a guidance weight outside of what is known to help."""
    if not 0 <= w <= 1:
        warnings.warn(f"sim_guidance is {w:g}; it is known to help within 0 .. 1", stacklevel=5)


def check_pictures(start: Start, bundle: Bundle) -> None:
    """ValueError where a picture of a start or its simulation is no uint8 RGB, or of another aspect than trained."""
    for what, pictures in {"image": start.images, "sim": start.sim or ()}.items():
        for view, picture in zip(bundle.spec.views, pictures, strict=False):  # `read_start` counts them
            fitted_picture(picture, bundle, view, None, f"{start.name}: {what}")


def stored_size(bundle: Bundle, view: str) -> tuple[int, int]:
    """(height, width) of a view's frames as they were stored; where that is not recorded, of the model's own."""
    sizes = bundle.about.get("frame_sizes")
    found = sizes.get(view) if isinstance(sizes, dict) else None
    return (found[0], found[1]) if found else (bundle.spec.resize.height, bundle.spec.resize.width)


def fitted_picture(picture: Any, bundle: Bundle, view: str, policy: ResizePolicy | None, what: str) -> Picture:
    """A picture in the aspect that the model was trained on.

    Raises:
        ValueError: no uint8 RGB picture, or one of another aspect and no policy.
    """
    given = np.asarray(picture)
    if given.dtype != np.uint8 or given.ndim != 3 or given.shape[2] != 3 or 0 in given.shape:
        raise ValueError(
            f"{what} of view {view} is {given.dtype} {list(given.shape)}; expected uint8 [height, width, 3]"
        )
    own = (bundle.spec.resize.height, bundle.spec.resize.width)
    if given.shape[:2] == own:
        return given
    return of_aspect(given, stored_size(bundle, view), policy, f"{what} of view {view}")


def fitted_camera(camera: Camera, picture: Picture, fitted: Picture, policy: ResizePolicy | None, what: str) -> Camera:
    """The camera of a picture, of any size, as one of the picture brought to the training's aspect.

    Raises:
        ValueError: the camera is of another aspect than its picture.
    """
    (height, width), (rows, columns) = camera.size, picture.shape[:2]
    if not same_aspect((height, width), (rows, columns)):
        raise ValueError(f"{what} is of {height}x{width} pixels, of another aspect than its picture's {rows}x{columns}")
    size = Resize(height=fitted.shape[0], width=fitted.shape[1], policy=policy or "squash")
    return resize_camera(camera, size)
