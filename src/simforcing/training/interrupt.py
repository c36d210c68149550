"""SIGINT and SIGTERM as a request to stop after the step, with the state saved."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


class Interrupted(SystemExit):
    """Training stopped on request and its state is saved; the exit code is 128 + the signal's number."""


@dataclass
class StopRequest:
    """Filled in by the signal handler."""

    number: int | None = None

    @property
    def is_made(self) -> bool:
        return self.number is not None

    @property
    def exit_code(self) -> int:
        return 128 + (self.number or signal.SIGTERM)


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Inside, the first signal asks for a stop, a second one acts as before. Without effect off the main thread."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, _frame: FrameType | None) -> None:
        request.number = number
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, ask)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
