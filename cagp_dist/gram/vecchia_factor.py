"""Vecchia's factor of a Gram matrix: a sparse U with ``G^-1 ~ U U'`` (math 9).

Each point is predicted from the k nearest of those before in an order, with weights ``w_i = G_NN^-1 G_Ni``
and the variance ``d_i = G_ii - G_iN w_i`` of what is left. Columns of U are ``(e_i - w_i) / sqrt(d_i)``
(T43).
"""

from dataclasses import dataclass

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.errors import NumericalError
from cagp_dist.gram.metric import metric
from cagp_dist.gram.preceding import nearest_preceding
from cagp_dist.kernels import Kernel, Parameters, point_columns
from cagp_dist.lapack import cholesky_in_place, solve_lower
from cagp_dist.runtime import Executor, single_threaded_blas
from cagp_dist.tiling import Range, block_ranges

TASK_POINTS = 2048  # Points whose weights are a task
BATCH = 32  # Matrices of neighbours that are there at a time


@dataclass(frozen=True, eq=False)
class VecchiaFactor:
    """Weights of points on those before them, and what they leave."""

    # (n,): points in the order in which they are conditioned; arguments and results of the methods are in the
    # order of X
    order: Indices
    # (n, k): places in the order, each before its own; -1 where there are fewer than k before
    neighbours: Indices
    weights: Array  # (n, k): of the neighbours, zero where there are none
    variances: Array  # (n,): conditional variances, above zero

    @property
    def log_determinant(self) -> float:
        """``log|G|``, about."""
        return float(np.log(self.variances).sum())

    def solve(self, columns: Array) -> Array:
        """``U U' x``, about ``G^-1 x``, for columns (n,) or (n, r); 4 n k r flops."""
        return self._scattered(self._whitened(columns))

    def whiten(self, columns: Array) -> Array:
        """``U' x``, in the order of conditioning: of a draw of G about independent standard normals."""
        return self._whitened(columns)

    def draw(self, normals: Array) -> Array:
        """``U^-T z``, of covariance about G for standard normals z (n,) or (n, r); 2 n k r flops."""
        from cagp_dist.triangles import unwhiten

        z = np.ascontiguousarray(normals.reshape(len(normals), -1), dtype=np.float64)
        drawn = np.empty_like(z)
        unwhiten(self.neighbours, self.weights, np.sqrt(self.variances), z, drawn)
        out = np.empty_like(drawn)
        out[self.order] = drawn
        return out.reshape(normals.shape)

    def _whitened(self, columns: Array) -> Array:
        from cagp_dist.triangles import whiten

        x = np.ascontiguousarray(columns.reshape(len(columns), -1)[self.order], dtype=np.float64)
        out = np.empty_like(x)
        whiten(self.neighbours, self.weights, np.sqrt(self.variances), x, out)
        return out.reshape(columns.shape)

    def _scattered(self, white: Array) -> Array:
        from cagp_dist.triangles import scatter

        z = white.reshape(len(white), -1)
        x = np.zeros_like(z)
        scatter(self.neighbours, self.weights, np.sqrt(self.variances), z, x)
        out = np.empty_like(x)
        out[self.order] = x
        return out.reshape(white.shape)


def vecchia_factor(
    kernel: Kernel,
    X: Array,
    noise_variance: float | Array,
    *,
    neighbours: int = 60,
    executor: Executor,
) -> VecchiaFactor:
    """Vecchia's factor of ``k(X, X) + diag(noise)``, ``X`` (n, p), in a random order of the points."""
    n = len(X)
    order = np.random.default_rng(0).permutation(n)
    noise = np.broadcast_to(np.asarray(noise_variance, dtype=np.float64), n)[order]
    ordered = X[order]
    scaled = ordered * metric(kernel, X.shape[1])
    near = nearest_preceding(scaled, scaled, np.arange(n), min(neighbours, n - 1), workers=executor.workers)
    points = point_columns(ordered)
    spans = block_ranges(n, TASK_POINTS)
    with single_threaded_blas():
        parts = executor.gather(
            [
                executor.submit(
                    conditional_weights, kernel.parameters, *_needed(points, noise, near, span), home=index
                )
                for index, span in enumerate(spans)
            ]
        )
    weights, variances = (np.concatenate(each) for each in zip(*parts, strict=True))
    return VecchiaFactor(order, near, weights, variances)


def _needed(points: Array, noise: Array, near: Indices, span: Range) -> tuple[Array, Array, Indices]:
    """Points (p, u) and noise (u,) that a task needs, and the places of its points and their neighbours."""
    own = np.arange(*span)
    members = np.column_stack([near[own], own])
    places, inverse = np.unique(members, return_inverse=True)
    inverse = inverse.reshape(members.shape)
    if places[0] == -1:
        places, inverse = places[1:], inverse - 1
    return np.ascontiguousarray(points[:, places]), noise[places], inverse


def conditional_weights(
    kernel: Parameters, points: Array, noise: Array, members: Indices
) -> tuple[Array, Array]:
    """Weights (m, k) and variances (m,) on neighbours; ``members`` (m, k + 1): -1 for none, own last."""
    from cagp_dist.compiled import evaluate_subsets

    (m, size), missing = members.shape, members < 0
    at = np.where(missing, members[:, -1:], members)
    weights, variances = np.empty((m, size - 1)), np.empty(m)
    spare, diagonal = np.empty((BATCH, size, size)), np.arange(size)
    for start, stop in block_ranges(m, BATCH):
        stack, gone = spare[: stop - start], missing[start:stop]
        evaluate_subsets(*kernel, points, at[start:stop], True, stack)
        stack[:, diagonal, diagonal] += noise[at[start:stop]]
        if gone.any():  # independent of all others
            stack[gone] = 0.0
            stack.transpose(0, 2, 1)[gone] = 0.0
            stack[:, diagonal, diagonal] += gone
        largest = stack[:, -1, -1].copy()
        cholesky_in_place(stack)
        pivots = np.square(stack[:, diagonal, diagonal]).min(axis=1)
        if (pivots <= size * np.finfo(float).eps * largest).any():
            raise NumericalError(
                "a point follows from its neighbours to the last bit: points coincide, or nearly so, beside "
                "so little noise, or the kernel is too smooth for their distances; raise noise_variance.",
                key="not-positive-definite",
            )
        # the last row of L is (G_iN L_NN^-T, sqrt(d))
        last = stack[:, -1, :, None].copy()
        last[:, -1] = 0.0
        solve_lower(stack, last, transposed=True)
        weights[start:stop], variances[start:stop] = last[:, :-1, 0], stack[:, -1, -1] ** 2
    return weights, variances
