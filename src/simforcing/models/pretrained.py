"""Where a trained model lies: a run's folder, a model that comes with the package, or one of the hub."""

import re
from pathlib import Path

PACKAGED = Path(__file__).resolve().parent.parent / "pretrained"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
HUB_FILES = ("*.json", "*.safetensors")  # nothing that runs as code


def packaged_models() -> list[str]:
    """Names of the models that come with the package."""
    if not PACKAGED.is_dir():
        return []
    return sorted(item.parent.name for item in PACKAGED.glob("*/config.json"))


def model_folder(name: str | Path) -> Path:
    """The folder of a model: of a run, by the name of one that comes with the package, or downloaded from the hub.

    Raises:
        ValueError: none is found, in one line that says what was looked for and what there is.
    """
    folder, word = Path(name), str(name)
    if folder.is_dir():
        return folder
    if word in packaged_models():
        return PACKAGED / word
    there = f"models that come with the package: {', '.join(packaged_models()) or 'none'}"
    if folder.exists():
        raise ValueError(f"{word} is a file; expected the folder of a finished run")
    if not is_hub_id(name):
        raise ValueError(f"{word}: no such run; {there}; a model of the hub is written owner/name")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(word, allow_patterns=list(HUB_FILES)))
    except (OSError, ValueError) as error:  # the hub's own errors are one of these
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ValueError(f"{word}: no such run, and the hub does not give it ({reason.strip()}); {there}") from None


def is_hub_id(name: str | Path) -> bool:
    """Whether a word that is no folder here can only mean a model of the hub: owner/name, and no folder `owner`."""
    word = str(name)
    return isinstance(name, str) and HUB_ID.fullmatch(word) is not None and not Path(word).parent.is_dir()
