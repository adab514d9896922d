"""How functions are compiled and kept on disk, and word of it while it goes on."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial

import numba
import numba.core.event

CONTRACT = {"contract"}  # the freedom of fast-math to fuse a product with a sum

_log = logging.getLogger(__name__)


def compiled(function=None, **options):
    """`numba.njit` that keeps what it compiled on disk where some folder for it can be written."""
    if function is None:
        return partial(compiled, **options)
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError as error:  # no folder to write to
        _log.warning("%s; set NUMBA_CACHE_DIR to a folder you can write to save seconds at start", error)
        return numba.njit(**options)(function)


@contextmanager
def compilation_watched(say: Callable[[], None]) -> Iterator[None]:
    """Call ``say`` when a function is about to be compiled, for 1 to 15 s; one that is on disk is not."""
    once = cache(say)
    with numba.core.event.install_listener("numba:compile", _AtStart(lambda event: once())):
        yield


class NotKeptError(Exception):
    """A function would have had to be compiled."""


@contextmanager
def no_compilation() -> Iterator[None]:
    """Let functions be loaded from disk; raise `NotKeptError` where one would be compiled, by any thread."""

    def refuse(event: numba.core.event.Event) -> None:
        raise NotKeptError(str(event.data))

    with numba.core.event.install_listener("numba:compile", _AtStart(refuse)):
        yield


class _AtStart(numba.core.event.Listener):
    """Calls a function when a compilation begins."""

    def __init__(self, call: Callable[[numba.core.event.Event], None]) -> None:
        self._call = call

    def on_start(self, event: numba.core.event.Event) -> None:
        self._call(event)

    def on_end(self, event: numba.core.event.Event) -> None:
        """Do nothing at the end."""
