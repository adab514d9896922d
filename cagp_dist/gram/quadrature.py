"""Bounds of ``y' G^-1 y`` from a few products with G: Lanczos quadrature, for many columns y at once.

With N the noise, ``A = N^-1/2 G N^-1/2`` has no eigenvalue below one, and ``u = N^-1/2 y`` gives
``y' G^-1 y = u' A^-1 u``: an integral of 1/t over the eigenvalues t of A. After k Lanczos steps from u, with
their tridiagonal matrix T, the quadrature of Gauss is a lower bound of it, and that of Gauss-Radau with a
node at one an upper bound ([Golub & Meurant 2010, chapter 6]; math 1.3)::

    lower  |u|^2 (T^-1)_11
    upper  |u|^2 (T_R^-1)_11      T_R is T with one more row, and 1 as its smallest eigenvalue

Both are worked out from the pivots of T, row by row. With no step at all they are 0 and ``|u|^2``.
"""

from collections.abc import Callable, Iterator

import numpy as np

from cagp_dist.arrays import Array, Mask
from cagp_dist.budget import Demand
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.gram_matrix import Gram
from cagp_dist.gram.tiled import TiledGram
from cagp_dist.runtime import Executor

# Times the trace of A: how far rounding may move its eigenvalues, at most
ROUNDING = 8.0 * np.finfo(np.float64).eps

WIDTH = 64  # Columns that are worked on at a time; a constant, so that their sums never change


def quadrature_bounds(
    product: Callable[[Array], Array], diagonal: Array, noise_variance: Array, columns: Array
) -> Iterator[Array]:
    """Yield bounds (2, c) of ``y' G^-1 y`` of columns (n, c) after no Lanczos step, one step, and so on.

    T is that of a matrix that differs from A by at most ``ROUNDING`` times its trace, by which it is shifted.
    """
    if not noise_variance.min() > 0.0:
        raise ArgumentError(
            "a noise variance is zero; Lanczos quadrature needs every one to be above zero.", key="no-noise"
        )
    scale = 1.0 / np.sqrt(noise_variance)[:, None]
    shift = ROUNDING * float((diagonal / noise_variance).sum())
    node = 1.0 - 2.0 * shift
    start = scale * columns
    size = np.einsum("ij,ij->j", start, start)
    lower, upper = np.zeros_like(size), size / node if node > 0.0 else np.full_like(size, np.inf)
    yield np.stack([lower, upper])

    basis = [_normalised(start, np.sqrt(size))]
    low, high, above_node = (_Pivots(len(size), by) for by in (shift, -shift, -shift - node))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        while True:
            image = scale * product(scale * basis[-1])
            alpha = np.einsum("ij,ij->j", basis[-1], image)
            for _ in range(2):
                for earlier in basis:
                    image -= earlier * np.einsum("ij,ij->j", earlier, image)
            beta = np.sqrt(np.einsum("ij,ij->j", image, image))
            beta[beta <= shift] = 0.0  # the columns are solved: what is left is rounding
            alpha[~basis[-1].any(axis=0)] = 1.0  # of columns that were, decoupled from what was found
            for pivots in (low, high, above_node):
                pivots.add(alpha)
            lower = np.maximum(lower, size * low.total)
            rest = high.share * (beta / high.pivot) ** 2
            radau = node + beta**2 * (1.0 / above_node.pivot - 1.0 / high.pivot)
            # where T is not above the node, to rounding, |r|^2 over it bounds what is left
            radau = np.where(above_node.positive & (radau > node), radau, node)
            found = size * (high.total + np.where(rest > 0.0, rest / radau, 0.0))
            valid = high.positive & (node > 0.0) & np.isfinite(found)
            upper = np.where(valid, np.minimum(upper, np.maximum(found, lower)), upper)
            yield np.stack([lower, upper])
            for pivots in (low, high, above_node):
                pivots.follow(beta)
            basis.append(_normalised(image, beta))


class _Pivots:
    """Pivots of T plus a multiple of the identity, and the first entry of its inverse, row by row."""

    def __init__(self, columns: int, shift: float) -> None:
        self._shift = shift
        self._coupling = np.zeros(columns)
        self.share = np.ones(columns)
        self.total = np.zeros(columns)
        self.positive: Mask = np.ones(columns, dtype=bool)

    def add(self, alpha: Array) -> None:
        """Add a row with this entry on the diagonal."""
        self.pivot = alpha + self._shift - self._coupling
        self.positive &= self.pivot > 0.0
        self.total = self.total + self.share / self.pivot

    def follow(self, beta: Array) -> None:
        """Say what couples the next row to this one."""
        self._coupling = beta**2 / self.pivot
        self.share = self.share * (beta / self.pivot) ** 2


def _normalised(columns: Array, sizes: Array) -> Array:
    """Columns of length one; zeros where there is nothing left."""
    return np.divide(columns, sizes, out=np.zeros_like(columns), where=sizes > 0.0)


def tile_product(gram: Gram, executor: Executor) -> Callable[[Array], Array]:
    """``G`` applied to columns by tiles, whatever the Gram: no factors of a grid are made for it."""
    tiles = TiledGram(gram.kernel, gram.X, noise_variance=gram.noise_variance)
    return lambda columns: tiles.product(columns, executor=executor)


def quadrature_bytes(demand: Demand, *, steps: int) -> int:
    """Bytes of so many Lanczos steps on the leftover of some targets, in the calling process."""
    if steps == 0:
        return 0
    # the leftover, scaled, its image and what is made of it; the product in pieces
    return DOUBLE * demand.n * min(demand.q, WIDTH) * (steps + 9)
