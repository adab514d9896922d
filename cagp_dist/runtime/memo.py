"""What long work keeps, so that it is not done twice: under a key of all that it depends on.

`Memo` is what solvers, fits and draws see; where it keeps things is not known here, see
`cagp_dist.store.memo`. A value is there whole or not at all. Work that goes on for long keeps how far it is,
in a `Checkpoint`.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.versions import numerical_version

FORMAT = 5  # Of what is kept; values of another format are not found

# Numbers, texts and lists that say what the arrays of a value are; JSON can hold it
MemoMetadata = Mapping[str, Any]


class MemoWriter(Protocol):
    """A value that is being written; tasks on workers take it as an argument."""

    def write(self, name: str, array: Array | Indices) -> bool:
        """Write an array; whether the place of the value is seen from here."""


class MemoReader(Protocol):
    """A value that is there; tasks on workers take it as an argument."""

    @property
    def metadata(self) -> MemoMetadata: ...

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Array:
        """Read an array, or some of its rows."""


class Checkpoint(Protocol):
    """Where one piece of work keeps how far it is."""

    def latest(self) -> MemoReader | None:
        """Find the last state that is whole."""

    def due(self) -> bool:
        """Whether it is time to keep something again."""

    def save(self, metadata: MemoMetadata, write: Callable[[MemoWriter], bool]) -> MemoReader | None:
        """Keep what ``write`` writes; None if that says that workers do not see the place."""


class Memo(Protocol):
    """Where values are kept, each under its key."""

    def find(self, key: str) -> MemoReader | None:
        """Find a value that is whole."""

    def get_or(self, key: str, write: Callable[[MemoWriter], MemoMetadata]) -> MemoReader:
        """Find a value, or keep what ``write`` writes, with what it says of that."""

    def of(self, key: str) -> Checkpoint:
        """Checkpoints of a piece of work."""


def key_of(*parts: object) -> str:
    """Digest of what a value depends on, and of versions: shapes and values of arrays, `repr` of others."""
    found = hashlib.sha256()
    for part in (FORMAT, numerical_version(), *parts):
        if isinstance(part, np.ndarray):
            found.update(repr(part.shape).encode())
            found.update(np.ascontiguousarray(part, dtype=np.float64).tobytes())
        else:
            found.update(repr(part).encode())
        found.update(b"|")
    return found.hexdigest()
