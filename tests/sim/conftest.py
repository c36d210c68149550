"""Robot models beside the project: none is shipped, so tests that need one skip with the reason where it is absent."""

from pathlib import Path

import pytest

from simforcing.sim.model import RobotModel
from simforcing.sim.robots import robot_named


@pytest.fixture(scope="session")
def widowx(shared_dir: Path) -> RobotModel:
    path = shared_dir / "robots"
    if not (path / "trossen_wx250s" / "wx250s.xml").is_file():
        pytest.skip(f"no WidowX 250s model in {path}")
    return RobotModel(robot_named("widowx_250s", path))


@pytest.fixture(scope="session")
def panda() -> RobotModel:
    """A Panda with a Robotiq 2F-85: from the package gym-hil, or the folder named by SIMFORCING_ROBOTS."""
    try:
        return RobotModel(robot_named("panda_robotiq_2f85"))
    except ValueError as error:
        pytest.skip(str(error))
