"""What solvers and posteriors need from a Gram matrix; tests/conformance checks every one of them."""

from typing import Protocol

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.targets import Targets
from cagp_dist.kernels import Kernel
from cagp_dist.runtime import Executor


class ExactSolve(Protocol):
    """Solves with a Gram matrix that leave no computational uncertainty.

    Attributes
    ----------
    condition_number : float
        Estimate, or upper bound, of the condition number of G.
    """

    @property
    def condition_number(self) -> float: ...

    def weights(self, residuals: Array) -> Array:
        """``G^-1 b`` for b (n, T)."""

    def inverse_diagonal(self) -> Array:
        """Diagonal of ``G^-1``, shape (n,)."""

    def logdet(self) -> float:
        """Logarithm of the determinant of G."""
        ...

    def downdate(self, targets: Targets, *, full: bool) -> Array:
        """``V G^-1 V'`` with ``V = k(targets, X)``: its diagonal (q,), or the whole matrix (q, q)."""


class Gram(Protocol):
    """The symmetric positive definite matrix ``G = k(X, X) + diag(noise)``, shape (n, n).

    It is that and nothing else: solvers that work tile by tile evaluate the tiles and diagonal blocks they
    need from `kernel`, `X` and `noise_variance`. Products, and what they give, are by structure.

    Attributes
    ----------
    shape : (int, int)
        (n, n).
    kernel : Kernel
        k.
    X : array, shape (n, p)
        Observed points, in the order of the rows of G.
    noise_variance : array, shape (n,)
        Added to the diagonal.
    """

    @property
    def shape(self) -> tuple[int, int]: ...

    @property
    def kernel(self) -> Kernel: ...

    @property
    def X(self) -> Array: ...

    @property
    def noise_variance(self) -> Array: ...

    def diagonal(self) -> Array:
        """Diagonal of G, shape (n,)."""

    def __matmul__(self, columns: Array) -> Array:
        """``G @ columns`` for columns of shape (n,) or (n, r)."""

    def product(self, columns: Array, *, executor: Executor) -> Array:
        """``G @ columns`` for columns (n, r), on an executor."""

    def cross(
        self, targets: Targets, columns: Array, *, executor: Executor, product: Array | None = None
    ) -> Array:
        """``k(targets, X) @ columns``, shape (q, r) for columns (n, r).

        ``product`` is ``G @ columns`` if the caller has it; some Grams need nothing else.
        """

    def exact(self, *, executor: Executor) -> ExactSolve | None:
        """Exact solves that use the structure of this Gram, or None if there are none."""


def check_noise(noise_variance: Array, *, n: int) -> None:
    """Raise `ArgumentError` unless there is one finite noise variance of at least zero per point."""
    noise = np.asarray(noise_variance)
    if noise.shape != (n,) or not (np.isfinite(noise).all() and (noise >= 0.0).all()):
        raise ArgumentError(
            f"noise_variance has shape {noise.shape}; expected ({n},), one finite variance of at least "
            "zero for each point. Use numpy.full(n, value) for equal noise.",
            key="shapes",
        )
