"""Models by name; and of the one that comes with the package, where it is there: whole, small, wary, obedient."""

import json
import re
import warnings
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from simforcing.data.resize import resize_frames
from simforcing.generation.session import needs_sim
from simforcing.generation.world_model import WorldModel
from simforcing.models.pretrained import PACKAGED, model_folder, packaged_models
from simforcing.recipes.first_look import NAME, fresh_starts, look_frames, predict_both, table_top

UNLIKE = "is unlike the training's pictures"


@pytest.fixture(scope="module")
def packaged() -> Path:
    """The folder of the packaged model; skips where this source tree has none."""
    if NAME not in packaged_models():
        pytest.skip(f"no packaged model: {PACKAGED / NAME} is not there; scripts/train_pretrained.py makes it")
    return PACKAGED / NAME


@pytest.fixture(scope="module")
def model(packaged: Path) -> WorldModel:
    return WorldModel.from_pretrained(NAME)


def first_frames(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """First pictures and states of held-out episodes that no set of ours reaches."""
    with closing(table_top(2).build()) as simulator:
        episodes = [simulator.episode(seed=0, index=3000 + i, held_out=True) for i in range(count)]
    return [(episode.frames[0], episode.state[0]) for episode in episodes]


def warned(model: WorldModel, picture: np.ndarray) -> bool:
    """Whether a start of this picture, with a simulation given, says that it is unlike the training's."""
    sim = picture if needs_sim(model.predictor) else None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.start(picture, sim=sim, state=np.zeros(7), resize="squash")
    return any(UNLIKE in str(warning.message) for warning in caught)


def test_an_unknown_name_lists_what_there_is():
    there = ", ".join(packaged_models()) or "none"
    with pytest.raises(ValueError, match=re.escape(f"models that come with the package: {there};")):
        model_folder("no-such-model")


def test_the_packaged_model_is_whole_small_and_described(packaged: Path):
    names = {path.name for path in packaged.iterdir()}
    assert names == {"config.json", "model.safetensors", "autoencoder.safetensors", "README.md"}
    assert sum(path.stat().st_size for path in packaged.iterdir()) <= 20e6
    card = (packaged / "README.md").read_text()
    for word in ("license: apache-2.0", "scripts/train_pretrained.py", "Seed", "PSNR", "swapped", "cannot"):
        assert word in card
    assert "nan" not in card.lower().split()


def test_the_packaged_model_names_no_place_of_the_machine_that_made_it(packaged: Path):
    config = (packaged / "config.json").read_text()
    assert re.findall(r'"(?:/|~|[A-Z]:\\)[^"]*"', config + (packaged / "README.md").read_text()) == []


def test_the_packaged_model_holds_what_prediction_without_data_reads(packaged: Path):
    about = json.loads((packaged / "config.json").read_text())["about"]
    assert {"simulation", "familiarity", "frame_sizes", "command", "training", "held_out"} <= about.keys()
    assert about["simulation"]["cameras"][0] is not None
    assert about["run"]["sampler"]["num_steps"] > 0


def test_fresh_pictures_of_the_table_top_are_familiar(model: WorldModel):
    flagged = [warned(model, picture) for picture, _ in first_frames(24)]
    assert sum(flagged) <= 1


def test_photos_of_real_robots_are_not(model: WorldModel, real_photos: list[np.ndarray]):
    found = [warned(model, resize_frames(photo[None], model.spec.resize)[0]) for photo in real_photos]
    assert np.mean(found) > 0.8


def test_actions_of_another_layout_are_refused(model: WorldModel):
    picture, state = first_frames(1)[0]
    start = model.start(picture, state=state)
    with pytest.raises(ValueError, match=r"layout tabletop of this model reads \[k, 7\]"):
        model.predict(start, np.zeros((model.num_actions, 8)))


def test_the_packaged_model_obeys_and_is_better_than_a_copy(model: WorldModel):
    starts = fresh_starts(model)
    own, other, copy = [], [], []
    for (happened, _), (made, swapped) in zip(starts, predict_both(model, starts), strict=True):
        truth = happened.frames[1 : model.spec.num_frames].astype(float)
        own.append(np.square(made.frames[0, 1:] - truth).mean())
        other.append(np.square(swapped.frames[0, 1:] - truth).mean())
        copy.append(np.square(happened.frames[0] - truth).mean())
    assert np.mean(own) < np.mean(copy)
    assert np.mean(own) < np.mean(other)


def test_the_first_look_is_the_same_every_time(model: WorldModel):
    np.testing.assert_array_equal(look_frames(model), look_frames(model))
