"""Which episodes share a camera: those whose still backgrounds have edges of the same direction in the same places."""

import numpy as np
from jaxtyping import Float, Int, UInt8
from scipy.ndimage import gaussian_filter, sobel
from scipy.sparse.csgraph import connected_components

WORKING_PX = 64  # short side of the compared pictures
SMOOTHING_PX = 0.6
FAINT = 20.0  # grey levels: edges weaker than this count less
# Of real sets, pairs that share a camera correlate by 0.5 to 0.9 though objects were moved, others by less than 0.4.
SAME_CAMERA = 0.45


def camera_groups(backgrounds: UInt8[np.ndarray, "e h w 3"]) -> Int[np.ndarray, " e"]:
    """Group number of every episode, 0, 1, ... in order of first appearance, from its median picture.

    A camera that was turned by a few pixels is another one; a scene with other objects is not.
    """
    edges = np.stack([_edges(picture) for picture in backgrounds]).reshape(len(backgrounds), -1)
    edges /= np.maximum(np.linalg.norm(edges, axis=1, keepdims=True), 1e-9)
    _, labels = connected_components(edges @ edges.T >= SAME_CAMERA, directed=False)
    order = {label: number for number, label in enumerate(dict.fromkeys(labels.tolist()))}
    return np.array([order[label] for label in labels.tolist()])


def _edges(picture: UInt8[np.ndarray, "h w 3"]) -> Float[np.ndarray, "2 h2 w2"]:
    step = max(1, round(min(picture.shape[:2]) / WORKING_PX))
    grey = gaussian_filter(picture.mean(axis=-1), SMOOTHING_PX * step)[::step, ::step]
    slopes = np.stack([sobel(grey, 0), sobel(grey, 1)])
    return slopes / (np.hypot(*slopes) + FAINT)
