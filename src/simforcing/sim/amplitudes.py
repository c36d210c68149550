"""How far perturbed variants leave their parents, in metres and radians; light to import, as commands offer it."""

import math
from dataclasses import dataclass, fields


@dataclass(frozen=True, kw_only=True)
class Amplitudes:
    """How far variants leave their parents.

    Biases are what they add up to over the whole rollout, whatever its length: spread evenly over the steps, so that a
    long episode does not run away. Biases and scales are uniform, at most the amplitude. Noise is normal, the
    amplitude its standard deviation, and walks: after k steps it has moved by sqrt(k) amplitudes. It stays an amount
    per step because it alone tells the windows of a long episode apart, and a walk this slow is harmless: bias and
    noise of the defaults lead, as root mean square of the distance at the end,

        steps       20       50      200     1000
        tool    4.3 cm   4.7 cm   6.3 cm  11.7 cm
        turn       9 °      9 °     11 °     18 °

    and the scales add a seventh of the parent's own way (a quarter at most). That is many pixels at usual video sizes,
    so that only the increments tell where the arm goes, yet about the width of a gripper, so that most variants stay
    in reach and in view. One step's noise is a fifth of a usual step of BridgeData (1 cm at 5 Hz): the motion stays as
    smooth as real teleoperation.

    Args:
        translation_bias_m: largest shift per axis by which a variant is off at its end, drawn once per variant.
        translation_scale: largest change of the scale of all steps (0.25: three to five quarters), drawn once.
        translation_noise_m: standard deviation per axis, drawn at every step.
        rotation_bias_rad: largest turn per axis by which a variant is off at its end, drawn once per variant.
        rotation_scale: largest change of the scale of all turns, drawn once.
        rotation_noise_rad: standard deviation per axis, drawn at every step.
    """

    translation_bias_m: float = 0.04
    translation_scale: float = 0.25
    translation_noise_m: float = 0.002
    rotation_bias_rad: float = 0.15
    rotation_scale: float = 0.25
    rotation_noise_rad: float = 0.005

    def __post_init__(self) -> None:
        for field in fields(Amplitudes):
            if not 0 <= getattr(self, field.name) < math.inf:
                raise ValueError(f"{field.name} {getattr(self, field.name)}: an amplitude must be 0 or larger")
