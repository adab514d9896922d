"""What every Gram matrix offers; the conformance suite in tests/conformance checks it for each."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Gram(Protocol):
    """The symmetric positive definite matrix ``G = k(X, X) + diag(noise)``, shape (n, n)."""

    @property
    def shape(self) -> tuple[int, int]: ...

    def __matmul__(self, columns: Array) -> Array:
        """``G @ columns`` for columns of shape (n,) or (n, r)."""
        ...

    def diagonal(self) -> Array:
        """Diagonal of G, shape (n,)."""
        ...

    def block(self, rows: slice, columns: slice) -> Array:
        """Dense block ``G[rows, columns]``."""
        ...
