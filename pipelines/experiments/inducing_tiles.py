"""What tasks do for the bound of inducing points: sums over strips of the observed points, tile by tile.

L is the factor of ``k(Z, Z)`` and ``a = L^-1 k(Z, X)``; see `pipelines.experiments.sgpr`.
"""

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.gram.tiled import kernel_panel
from cagp_dist.kernels import Parameters
from cagp_dist.lapack import solve_lower
from cagp_dist.likelihood.learned.objective import KernelArrays
from cagp_dist.tiling import POINT_TILE, STRIPS, Range, block_ranges, split

TILE = POINT_TILE
"""Points of X whose kernel values with Z are there at a time."""


def strips_of(n: int) -> list[Range]:
    """Points of each task: whole tiles, in as many strips as every executor has."""
    tiles = block_ranges(n, TILE)
    return [(tiles[start][0], tiles[stop - 1][1]) for start, stop in split(len(tiles), STRIPS)]


def strip_sums(kernel: Parameters, inducing: Array, factor: Array, points: Array, residuals: Array) -> Array:
    """Give ``a a'`` and ``a b`` of some points side by side, shape (m, m + T); 2 n m^2 flops for n points.

    Shapes: ``inducing, points`` (p, m) and (p, n), ``factor`` (m, m), ``residuals`` (n, T).
    """
    m, fields = len(factor), residuals.shape[1]
    out = np.zeros((m, m + fields))
    for start, stop in block_ranges(len(residuals), TILE):
        a = _whitened(kernel, inducing, factor, points[:, start:stop])
        out[:, :m] += a @ a.T
        out[:, m:] += a @ np.require(residuals[start:stop], requirements="A")
    return out


def strip_gradients(
    kernel: Parameters,
    arrays: KernelArrays,
    inducing: Array,
    factor: Array,
    left: Array,
    dual: Array,
    learns: bool,
    points: Array,
    residuals: Array,
) -> Array:
    """Differentiate by the kernel, and by Z, what some points give, times the noise variance.

    Shapes: ``left, dual`` (m, m) and (m, T).
    """
    left, dual = np.require(left, requirements="A"), np.require(dual, requirements="A")
    out: Array | None = None
    for start, stop in block_ranges(len(residuals), TILE):
        X = np.ascontiguousarray(points[:, start:stop])
        weights = left @ _whitened(kernel, inducing, factor, X)
        weights += dual @ np.require(residuals[start:stop], requirements="A").T
        found = pair_gradients(arrays, inducing, X, weights, by_points=learns)
        out = found if out is None else out + found
    assert out is not None
    return out


def pair_gradients(arrays: KernelArrays, Z: Array, X: Array, weights: Array, *, by_points: bool) -> Array:
    """Differentiate ``<W, k(Z, X)>`` by the kernel, and by the points Z where that is asked for.

    Shapes: ``Z, X`` (p, m) and (p, n), ``weights`` (m, n); returns (parts (p + 1).
    """
    from cagp_dist.compiled import add_pair_gradients

    p, m = Z.shape
    by_kernel = np.zeros((len(arrays.families), p + 1))
    by_point = np.zeros((p, m if by_points else 0))
    add_pair_gradients(*arrays, Z, X, weights, by_kernel, by_point)
    return np.concatenate([by_kernel.ravel(), by_point.ravel()])


def target_moments(
    kernel: Parameters, inducing: Array, factor: Array, inner: Array, whitened: Array, targets: Array
) -> Array:
    """Give what is added to the prior variance at q targets, and the means, shape (q, 1 + T)."""
    a = _whitened(kernel, inducing, factor, targets)
    left = -np.einsum("ij,ij->j", a, a)
    solve_lower(inner[None], a[None])
    left += np.einsum("ij,ij->j", a, a)
    return np.concatenate([left[:, None], a.T @ np.require(whitened, requirements="A")], axis=1)


def _whitened(kernel: Parameters, inducing: Array, factor: Array, points: Array) -> Array:
    """``L^-1 k(Z, X)``, shape (m, n)."""
    a = kernel_panel(kernel, inducing, np.ascontiguousarray(points))
    solve_lower(factor[None], a[None])
    return a
