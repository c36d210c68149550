"""The sentence around a task (method, section 3): the task alone, or the published one, neutral or naming a domain."""

from simforcing.types.spec import Wording

SENTENCE = "video from a robot's point of view executing: "
DOMAIN_WORDS: dict[Wording, str] = {"neutral": "", "sim": "simulation-rendered ", "real": "real-world "}


def prompt(task: str, wording: Wording) -> str:
    """What a text encoder reads for a task; an encoder of fixed length cuts the end of a long one."""
    return task if wording == "task" else DOMAIN_WORDS[wording] + SENTENCE + task
