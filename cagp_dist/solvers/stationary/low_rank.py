"""Low-rank factors ``U`` with ``U U' <= K``, without the kernel matrix: partial Cholesky, Nystrom (math 4.2).

::

    partial Cholesky     one kernel row at a time, at the point with the largest variance that is left
    Nystrom              U = k(X, Z) k(Z, Z)^(-1/2) for pseudo-inputs Z

Nothing here sees the data, only points, kernel and noise.
"""

from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.kernels import Kernel

NOTHING_LEFT = 1e-13  # Part of the largest prior variance below which what is left of a variance is rounding
SAME_VARIANCE = 1e-9  # Part of a variance by which others may be below it and count as equal


# Flops of products that take the time of one flop of a step, which goes through memory (measured)
STEP_FLOPS = 8


def planned_flops(n: int, rank: int) -> int:
    """Flops of products that take the time of a partial Cholesky factor, for plans."""
    return STEP_FLOPS * n * min(rank, n) ** 2


class PartialCholesky(NamedTuple):
    """Factor ``U`` (n, r) after r steps, and the points (r,) that were chosen, first to last."""

    factor: Array
    chosen: Indices


def partial_cholesky(
    kernel: Kernel, X: Array, *, rank: int, noise_variance: Array | None = None
) -> PartialCholesky:
    """Factor K, or G where noise is given, one row at a time, each at the largest variance that is left.

    After j steps the variance that is left, ``diag(K - U U')``, is that of the field given the chosen points:
    without noise, or with theirs. Its largest entry says which point comes next; of equal ones, up to 1e-9 of
    it, the first, so that rounding has no say. X are points (n, p), ``noise_variance`` (n,); there are fewer
    than ``rank`` steps where no variance is left. Cost n r kernel evaluations and n r^2 flops, memory 8 n r
    bytes. [Harbrecht, Peters & Schneider 2012, On the low-rank approximation by the pivoted Cholesky
    decomposition, algorithm 1]

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> X = np.linspace(0.0, 1.0, 5).reshape(-1, 1)
    >>> partial_cholesky(cagp.Matern32(lengthscale=0.5), X, rank=3).chosen
    array([0, 4, 2])
    """
    n = len(X)
    rows = np.empty((min(rank, n), n))  # U', so that a step writes and reads whole rows
    left = kernel.diagonal(X)
    noise = np.zeros(n) if noise_variance is None else noise_variance
    least = NOTHING_LEFT * left.max(initial=0.0)
    chosen: list[int] = []
    for step in range(len(rows)):
        largest = left.max()
        if not largest > least:
            break
        pivot = int(np.argmax(left >= (1.0 - SAME_VARIANCE) * largest))
        row = kernel(X[pivot : pivot + 1], X)[0]
        row[pivot] += noise[pivot]
        row -= rows[:step, pivot] @ rows[:step]
        np.divide(row, np.sqrt(left[pivot] + noise[pivot]), out=rows[step])
        left -= rows[step] ** 2
        left[pivot] = -np.inf
        chosen.append(pivot)
    return PartialCholesky(rows[: len(chosen)].T, np.array(chosen, dtype=np.intp))


def nystrom(kernel: Kernel, X: Array, Z: Array) -> Array:
    """Give ``U`` (n, r) with ``U U' = k(X, Z) k(Z, Z)^-1 k(Z, X)``, by eigenvectors of ``k(Z, Z)``.

    X are points (n, p), Z pseudo-inputs (m, p), r <= m. Directions whose eigenvalue is below 1e-13 of the
    largest are left out, so that ``U U' <= K`` stays true. Cost n m evaluations, 2 n m^2 + 9 m^3 flops;
    memory 16 n m bytes. [Williams & Seeger 2001]
    """
    values, vectors = np.linalg.eigh(kernel(Z, Z))
    kept = values > NOTHING_LEFT * values.max(initial=0.0)
    return np.asarray(kernel(X, Z) @ (vectors[:, kept] / np.sqrt(values[kept])))
