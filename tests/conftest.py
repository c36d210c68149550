"""What every test shares: one thread, fixed seeds, rendering without a screen, and the real data beside the project."""

import os
import random
import sys
from pathlib import Path

# Before torch, NumPy or MuJoCo are imported: they read these once.
os.environ.setdefault("OMP_NUM_THREADS", "1")
if sys.platform.startswith("linux"):
    os.environ.setdefault("MUJOCO_GL", "egl")

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

# Examples are the same on every run and machine; a slow machine is no failure.
settings.register_profile(
    "simforcing", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("simforcing")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeds() -> None:
    """Every test starts from the same global random state, whatever ran before it."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator that starts the same in every test."""
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def project_root() -> Path:
    """The folder of pyproject.toml."""
    return ROOT


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Third-party material beside the project (SIMFORCING_SHARED, or ../shared); skips the test where it is absent."""
    path = Path(os.environ.get("SIMFORCING_SHARED", ROOT.parent / "shared"))
    if not path.is_dir():
        pytest.skip(f"no third-party material at {path}; set SIMFORCING_SHARED to its folder")
    return path


@pytest.fixture(scope="session")
def real_photos(shared_data: Path) -> list[np.ndarray]:
    """First frames of real episodes, up to eight of each data set that can be read."""
    from simforcing.data.open import open_dataset

    photos = []
    for root in sorted(shared_data.iterdir()):
        try:
            data = open_dataset(str(root))
        except ValueError:
            continue
        photos += [episode.views[0].frames.read(0, 1)[0] for episode in data.episodes[:8]]
    if not photos:
        pytest.skip(f"no readable data set in {shared_data}")
    return photos


@pytest.fixture(scope="session")
def shared_data(shared_dir: Path) -> Path:
    """Real robot data, see shared_dir."""
    path = shared_dir / "data"
    if not path.is_dir():
        pytest.skip(f"no real robot data at {path}; set SIMFORCING_SHARED to the folder that holds data/")
    return path
