"""An orderly end of a process that is asked to terminate, as batch systems do before they kill."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

GRACE_SECONDS = 5.0  # of an iteration after the request, to be kept; containers are killed after ten

_requested = threading.Event()


class TerminationError(KeyboardInterrupt):
    """The process was asked to terminate."""


def termination_requested() -> bool:
    """Whether the process is about to end: what is worth keeping should be kept now."""
    return _requested.is_set()


def check_termination() -> None:
    """Raise `TerminationError` if the process is about to end; to be called where nothing is half done."""
    if _requested.is_set():
        raise TerminationError


@contextmanager
def orderly_termination() -> Iterator[None]:
    """Treat SIGTERM as a request: raise `TerminationError` at the next check, or a little later.

    A second SIGTERM ends the process at once. Threads other than the main one get no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def request(number: int, frame: FrameType | None) -> None:
        _requested.set()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGALRM, end)
        signal.setitimer(signal.ITIMER_REAL, GRACE_SECONDS)

    def end(number: int, frame: FrameType | None) -> None:
        raise TerminationError

    before = [signal.getsignal(signal.SIGALRM), signal.signal(signal.SIGTERM, request)]
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before[0])
        signal.signal(signal.SIGTERM, before[1])
        _requested.clear()
