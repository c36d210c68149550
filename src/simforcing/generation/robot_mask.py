"""What every mask of a robot must be, whoever found it."""

import numpy as np
from jaxtyping import Bool

LEAST_SHARE, MOST_SHARE = 0.001, 0.9  # of a frame that a robot covers


def require_robot(mask: Bool[np.ndarray, "h w"], found_by: str) -> Bool[np.ndarray, "h w"]:
    """The mask, if it can be one of a robot.

    Args:
        found_by: what marked it, for the message.

    Raises:
        ValueError: it is empty, all but empty, or covers nearly everything.
    """
    share = mask.mean()
    if share < LEAST_SHARE:
        raise ValueError(
            f"no robot found in the frame: {found_by} marks {int(mask.sum())} of its {mask.size} pixels, at least"
            f" {100 * LEAST_SHARE:g} % are expected"
        )
    if share > MOST_SHARE:
        raise ValueError(
            f"{found_by} marks {100 * share:.0f} % of the frame as robot, at most {100 * MOST_SHARE:g} % are expected;"
            " is it the mask of everything else?"
        )
    return mask
