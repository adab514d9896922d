"""How many independent fields several times are worth, for the numbers that they share."""

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.geometry import space_filling_order
from cagp_dist.gram.dense import cholesky_lower
from cagp_dist.kernels import Kernel

MOST_POINTS = 500  # Points that are looked at: as many as tell a correlation of 0.05 from none
CHANCE = 2.0  # Correlations below so many of their standard errors count as none, and end the sum


def effective_fields(kernel: Kernel, noise_variance: float | Array, X: Array, residuals: Array) -> float:
    """Estimate how many independent fields T ``residuals`` (n, T), in the order of their times, are worth.

    With ``w_t = L^-1 b_t``, ``L L' = G``, independent in space, and ``rho_k`` the mean correlation of fields
    k steps apart, ``T / (1 + 2 sum_k (1 - k / T) rho_k^2)``, if space and time are separable. The sum ends
    with the first rho that chance explains.
    """
    from scipy.linalg import solve_triangular

    n, fields = residuals.shape
    if fields == 1:
        return 1.0
    step = -(-n // MOST_POINTS)
    chosen = space_filling_order(X, block_size=MOST_POINTS)[::step]
    G = kernel(X[chosen], X[chosen])
    G[np.diag_indices_from(G)] += np.broadcast_to(noise_variance, n)[chosen]
    white = solve_triangular(cholesky_lower(G), residuals[chosen], lower=True, check_finite=False)
    sizes = np.linalg.norm(white, axis=0)
    white /= np.where(sizes > 0.0, sizes, 1.0)  # a field that is its mean, such as a day without rain
    inflation = 1.0
    for lag in range(1, fields):
        rho = float(np.einsum("nt,nt->t", white[:, :-lag], white[:, lag:]).mean())
        if rho < CHANCE / np.sqrt(chosen.size * (fields - lag)):
            break
        inflation += 2.0 * (1.0 - lag / fields) * rho**2
    return float(max(1.0, fields / inflation))
