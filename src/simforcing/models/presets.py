"""Named sizes of the world model: one code, from seconds on a laptop to the published 5 G parameters."""

from simforcing.models.expert import ExpertConfig
from simforcing.models.text import ByteEncoderConfig
from simforcing.models.world_model import WorldModelConfig


def tiny_world_model(
    *,
    channels: int,
    action_dim: int,
    state_dim: int,
    width: int = 128,
    action_width: int = 64,
    num_layers: int = 4,
    head_width: int = 32,
    text_width: int = 64,
) -> WorldModelConfig:
    """A network for CPUs that predicts clean latents from the first frame on.

    Departures from the published recipe (docs/laptop.md): it predicts clean latents, starts them from frame 0, and
    places actions on the video's time axis.
    """

    def expert(own_width: int) -> ExpertConfig:
        return ExpertConfig(
            width=own_width,
            mlp_width=4 * own_width,
            num_layers=num_layers,
            num_heads=width // head_width,
            head_width=head_width,
            text_width=text_width,
        )

    return WorldModelConfig(
        video=expert(width),
        action=expert(action_width),
        channels=channels,
        action_dim=action_dim,
        state_dim=state_dim,
        text=ByteEncoderConfig(width=text_width),
        action_positions="aligned",
        predicts="clean",
        head="first_frame",
    )


def wan_5b_world_model(*, action_dim: int = 7, state_dim: int = 7) -> WorldModelConfig:
    """The published network: Wan2.2-TI2V-5B with a 1.02 G action expert (docs/paper-to-code.md)."""
    shared = {"num_layers": 30, "num_heads": 24, "head_width": 128, "text_width": 4096}
    return WorldModelConfig(
        video=ExpertConfig(width=3072, mlp_width=14336, **shared),
        action=ExpertConfig(width=1024, mlp_width=4096, **shared),
        channels=48,
        action_dim=action_dim,
        state_dim=state_dim,
    )
