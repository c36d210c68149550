"""Lines for whoever waits: progress that speaks seldom, and durations in words."""

import time
from collections.abc import Callable

Report = Callable[[str], None]
PROGRESS_EVERY_S = 2.0


def throttled(report: Report, verb: str, things: str) -> Callable[[int, int], None]:
    """A progress callback that speaks at most every PROGRESS_EVERY_S seconds; quick work stays silent."""
    last = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= PROGRESS_EVERY_S:
            last = time.monotonic()
            report(f"{verb} {done}/{total} {things}")

    return progress


def in_words(seconds: float) -> str:
    """Seconds below two minutes, else minutes."""
    return f"{max(1, round(seconds))} s" if seconds < 120 else f"{round(seconds / 60)} min"
