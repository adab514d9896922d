"""What work has taken, counted where it is handed out: tasks, products with G, bytes between processes."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass

import numpy as np


@dataclass
class Work:
    """Counts of some work."""

    # Tasks that were handed to an executor, those that a lost cluster made necessary again included
    tasks: int = 0
    # Columns that were multiplied by the whole Gram matrix. A sweep is one product for each of its columns,
    # the last one too, which needs half of it. Solves with a factor of G, or with its blocks by wavenumber,
    # are none.
    products: int = 0
    # Bytes of arrays that went from one process to another, as they lie in memory: those sent inside tasks,
    # and what workers sent to each other and back, which Dask counts. Not counted are messages without
    # arrays, and what workers sent before they, or their cluster, were lost. Zero in one process.
    moved_bytes: int = 0

    def counts(self) -> dict[str, int]:
        """Give the counts by name."""
        return asdict(self)


_counted: ContextVar[tuple[Work, ...]] = ContextVar("counted", default=())


@contextmanager
def counted_work() -> Iterator[Work]:
    """Count what is handed out by this thread until the end; inside another count, in both."""
    work = Work()
    token = _counted.set((*_counted.get(), work))
    try:
        yield work
    finally:
        _counted.reset(token)


def count(*, tasks: int = 0, products: int = 0, moved_bytes: int = 0) -> None:
    """Add to all counts that are going on."""
    for work in _counted.get():
        work.tasks += tasks
        work.products += products
        work.moved_bytes += moved_bytes


def array_bytes(argument: object) -> int:
    """Bytes of an array, or of those in a list or tuple."""
    if isinstance(argument, np.ndarray):
        return argument.nbytes
    if isinstance(argument, list | tuple):
        return sum(map(array_bytes, argument))
    return 0
