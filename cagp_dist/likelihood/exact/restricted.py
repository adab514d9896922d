"""The restricted likelihood: that of what a mean with estimated coefficients leaves of the data (math 9).

With an orthonormal basis H (n, k) at the points, ``U = R^-1 H`` and ``P = R^-1 - U (H'U)^-1 U'``, the numbers
of the kernel are fitted to the n - k combinations of the data that do not depend on the coefficients
[Patterson & Thompson 1971]: in the likelihood

- ``b' P b`` stands for ``b' R^-1 b``, and n - k for n,
- ``log|R| + log|H' U|`` for ``log|R|``,
- ``tr(P dR)`` for ``tr(R^-1 dR)``, and ``v = P b`` for ``R^-1 b``.

All of it follows from inner products of ``C = [b, H]``, ``C' R^-1 C`` and ``C' R^-1 dR R^-1 C``, which add up
over blocks of points and over wavenumbers as determinant and traces do.
"""

import numpy as np

from cagp_dist.arrays import Array

# Singular values of a basis below this part of the largest are those of columns that others make up
DEPENDENT_COLUMN = 1e-9


def column_space(basis: Array) -> Array:
    """Orthonormal columns (n, r) that span those of a basis (n, k); the likelihood is that of any basis."""
    if not basis.shape[1]:
        return basis
    size = np.linalg.norm(basis, axis=0)
    left, values, _ = np.linalg.svd(basis / np.where(size > 0.0, size, 1.0), full_matrices=False)
    return np.asarray(left[:, values > DEPENDENT_COLUMN * values.max()])


def sum_of_products(left: Array, right: Array, coefficients: int) -> float | Array:
    """``sum over columns of l'r``, or all inner products where coefficients are among the columns."""
    return float(np.vdot(left, right)) if coefficients == 0 else np.asarray(left.T @ right)


def restrict(total: Array, *, fields: int, coefficients: int) -> Array:
    """Give log determinant, quadratic form, traces and slopes (2 + 2 m,) of the restricted likelihood."""
    columns = fields + coefficients
    m = (total.size - 1 - columns**2) // (1 + columns**2)
    log_determinant, traces = total[0], total[1 : 1 + m]
    gram, *forms = total[1 + m :].reshape(1 + m, columns, columns)
    of_basis = gram[fields:, fields:]
    # columns of [b, H] -> b - H c_hat, with c_hat = (H'U)^-1 U'b
    left = np.vstack([np.eye(fields), -np.linalg.solve(of_basis, gram[fields:, :fields])])
    quadratic = np.trace(left.T @ gram @ left)
    found = [np.trace(left.T @ form @ left) for form in forms]
    taken = np.linalg.solve(of_basis, np.stack([form[fields:, fields:] for form in forms]))
    log_determinant = log_determinant + np.linalg.slogdet(of_basis)[1]
    return np.array([log_determinant, quadratic, *(traces - np.trace(taken, axis1=1, axis2=2)), *found])
