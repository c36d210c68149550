"""A check and its outcome: the line that `doctor` prints."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Check:
    """One outcome. `passed` is None where there is nothing to pass: information, or a check that does not apply."""

    name: str
    passed: bool | None
    value: float | str
    detail: str

    def __str__(self) -> str:
        mark = {True: "ok", False: "FAIL", None: "--"}[self.passed]
        value = f"{self.value:.3g}" if isinstance(self.value, float) else self.value
        return f"{mark:4}  {self.name}: {value}  ({self.detail})"


def all_passed(checks: Sequence[Check]) -> bool:
    """Whether no check failed; the command line's exit code follows it."""
    return all(check.passed is not False for check in checks)
