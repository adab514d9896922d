"""Orthonormal actions, in the order in which they were given, without those that depend on earlier ones."""

import numpy as np

from cagp_dist.arrays import Array

# An action of which less than this part of its length is left beside the earlier ones lies in their span
DEPENDENT_ACTION = 1e-13


def orthonormal_basis(columns: Array, earlier: Array) -> Array:
    """Orthonormal columns (n, k) that, with ``earlier`` (i, n), span what ``columns`` (n, m) begin with."""
    norms = np.linalg.norm(columns, axis=0)
    if not norms.all():
        columns, norms = columns[:, norms > 0.0], norms[norms > 0.0]
    scaled = columns / norms
    n, m = scaled.shape
    if m + len(earlier) <= n:
        left = scaled.copy()
        for _ in range(2):
            left -= earlier.T @ (earlier @ left)
        basis, triangle = np.linalg.qr(left)
        if np.abs(triangle.diagonal()).min(initial=1.0) >= DEPENDENT_ACTION:
            return np.asarray(basis * np.sign(triangle.diagonal()))
    i = len(earlier)
    rows = np.empty((min(n, i + m), n))
    rows[:i] = earlier
    k = i
    for column in scaled.T:
        if k == n:
            break
        rest = column.copy()
        for _ in range(3):  # what is left may be of the size of the rounding of the first time
            rest -= rows[:k].T @ (rows[:k] @ rest)
        size = float(np.linalg.norm(rest))
        if size >= DEPENDENT_ACTION:
            rows[k] = rest / size
            k += 1
    return rows[i:k].T
