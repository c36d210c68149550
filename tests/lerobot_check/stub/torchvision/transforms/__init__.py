"""ToTensor, for LeRobot's image columns; v2 only has to be importable."""

import numpy as np
import torch

from torchvision.transforms import v2

__all__ = ["ToTensor", "v2"]


class ToTensor:
    def __call__(self, image: object) -> torch.Tensor:
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
