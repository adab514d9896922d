"""Projections onto actions that are all known in advance, with one product with G (math 4, batch form).

For actions S (n, m) all that the belief needs is three small matrices::

    T = S' G S,   V S,   S' b           L L' = T
    mean     = V S T^-1 S' b  = half' c,         half = L^-1 (V S)',   c = L^-1 S' b
    downdate = V S T^-1 S' V' = half' half

and since L is triangular, its first rows are those of the first actions alone: one factor gives the belief
after every action [Wenger et al. 2024, algorithm S2]. An action in the span of earlier ones is skipped.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.errors import NumericalError
from cagp_dist.gram.dense import cholesky_lower
from cagp_dist.gram.gram_matrix import Gram
from cagp_dist.gram.targets import seen_from
from cagp_dist.runtime import Executor
from cagp_dist.solvers.actions.orthonormal import orthonormal_basis
from cagp_dist.solvers.interface import Problem, State, check_no_start
from cagp_dist.solvers.status import Status

# What is left of an action beside the earlier ones, as a part of its square in the norm of G, below which it
# counts as one of their span
DEPENDENT = 1e-12


class Projected(NamedTuple):
    """What a problem looks like through m actions."""

    matrix: Array  # (m, m): ``T = S' G S``
    seen: Array  # (q, m): ``V S``
    right: Array  # (m, T): ``S' b``
    dropped: int  # actions that were skipped before, because they depend on earlier ones


class Actions(Protocol):
    """Actions S (n, m), first to last."""

    def columns(self, n: int) -> Array:
        """S itself, shape (n, m)."""

    def projection(self, problem: Problem, *, executor: Executor) -> Projected:
        """Look at a problem through them."""


class DenseActions(NamedTuple):
    """Actions as columns (n, m), and ``G S`` where it is known already, of orthonormal columns."""

    given: Array
    images: Array | None = None

    def columns(self, n: int) -> Array:
        """S itself, shape (n, m)."""
        return self.given

    def projection(self, problem: Problem, *, executor: Executor) -> Projected:
        """Look at a problem through an orthonormal basis of them: one product with G of m columns."""
        if self.images is None:
            basis = orthonormal_basis(self.given, self.given[:, :0].T)
            images = problem.gram.product(basis, executor=executor) if basis.size else basis
        else:
            basis, images = self.given, self.images
        matrix = basis.T @ images
        seen = np.zeros((problem.q, 0))
        if basis.size:
            seen = problem.gram.cross(problem.targets, basis, executor=executor, product=images)
        right = basis.T @ problem.residuals
        return Projected(0.5 * (matrix + matrix.T), seen, right, self.given.shape[1] - basis.shape[1])


class UnitActions(NamedTuple):
    """Unit vectors ``e_j`` of some points: entries of G are all that is evaluated, and no product is made."""

    points: Indices

    def columns(self, n: int) -> Array:
        """S itself, shape (n, m)."""
        columns = np.zeros((n, len(self.points)))
        columns[self.points, np.arange(len(self.points))] = 1.0
        return columns

    def projection(self, problem: Problem, *, executor: Executor) -> Projected:
        """Look at a problem through these points alone, in this process: m^2 + m q evaluations."""
        gram, X = problem.gram, problem.gram.X[self.points]
        return Projected(
            gram_of_subset(gram, self.points),
            seen_from(gram.kernel, problem.targets, X),
            problem.residuals[self.points],
            0,
        )


def gram_of_subset(gram: Gram, points: Indices) -> Array:
    """Rows and columns of G of some points (m,), shape (m, m), which may be named twice."""
    X = gram.X[points]
    same = points[:, None] == points
    return np.asarray(gram.kernel(X, X) + np.where(same, gram.noise_variance[points], 0.0))


def belief_states(problem: Problem, actions: Actions, *, executor: Executor) -> Iterator[State]:
    """Yield the belief after every action that is not skipped.

    Beside the projection m^3 / 3 + m^2 q flops, and 16 m q bytes.
    """
    check_no_start(problem)
    q, fields = problem.q, problem.residuals.shape[1]
    projection = actions.projection(problem, executor=executor)
    factor, kept = ordered_factor(projection.matrix)
    dropped = projection.dropped + len(projection.matrix) - len(kept)
    half = _half_solve(factor, np.ascontiguousarray(projection.seen[:, kept].T))
    steps = _half_solve(factor, projection.right[kept])
    del projection
    mean = np.zeros((q, fields))
    downdate = np.zeros((q, q) if problem.full_covariance else q)
    if not len(kept):
        yield State(0, slice(0, q), mean, downdate, dropped=dropped)
    for done, (seen, step) in enumerate(zip(half, steps, strict=True), start=1):
        mean = mean + np.outer(seen, step)
        downdate = downdate + (np.outer(seen, seen) if problem.full_covariance else seen**2)
        status = Status.EXACT if done == problem.gram.shape[0] else Status.COMPLETED
        yield State(done, slice(0, q), mean, downdate, status, dropped=dropped)


def _half_solve(factor: Array, columns: Array) -> Array:
    from scipy.linalg import solve_triangular

    if not columns.size:
        return columns
    return np.asarray(solve_triangular(factor, columns, lower=True, check_finite=False))


def ordered_factor(matrix: Array) -> tuple[Array, Indices]:
    """Lower Cholesky factor (k, k) of the rows of a matrix that do not depend on earlier ones, and which."""
    from scipy.linalg import solve_triangular

    everything = np.arange(len(matrix), dtype=np.intp)
    try:
        factor = cholesky_lower(matrix)
        if (factor.diagonal() ** 2 > DEPENDENT * matrix.diagonal()).all():
            return factor, everything
    except NumericalError:
        pass
    factor = np.zeros_like(matrix)
    kept: list[int] = []
    for j in range(len(matrix)):
        k = len(kept)
        row = matrix[j][kept]
        if k:
            row = solve_triangular(factor[:k, :k], row, lower=True, check_finite=False)
        left = matrix[j, j] - row @ row
        if left > DEPENDENT * matrix[j, j]:
            factor[k, :k], factor[k, k] = row, np.sqrt(left)
            kept.append(j)
    k = len(kept)
    return factor[:k, :k], np.array(kept, dtype=np.intp)
