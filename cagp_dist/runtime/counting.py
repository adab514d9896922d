"""What work has taken, counted where it is handed out: tasks, products with G, bytes between processes."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass

import numpy as np


@dataclass
class Work:
    """Counts of some work."""

    tasks: int = 0  # handed to an executor, those that a lost cluster made necessary again included
    # columns multiplied by the whole Gram matrix: a sweep is one for each; solves with a factor are none
    products: int = 0
    # of arrays, as they lie in memory, between processes; not what lost workers had sent
    moved_bytes: int = 0

    def __add__(self, other: "Work") -> "Work":
        """Count two works together."""
        mine, theirs = self.counts(), other.counts()
        return Work(**{name: mine[name] + theirs[name] for name in mine})

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
