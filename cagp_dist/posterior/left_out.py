"""What all other observations predict at each observed point, where the solve is exact (math 7)."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.budget import Demand, Plan
from cagp_dist.budget.grid_plans import inverse_diagonal_flops
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import is_pole
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.gram.gram_matrix import Gram
from cagp_dist.gram.leave_one_out import LeaveOneOut, from_others
from cagp_dist.gram.targets import averaged, covariance_with, target_points
from cagp_dist.lapack import cholesky_in_place, inverse_diagonals, solve_lower
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.posterior.coefficients import COLLINEAR, orthonormal
from cagp_dist.posterior.problem import Observed, Problems, demand_of, patterns
from cagp_dist.prior import Prior
from cagp_dist.runtime import Executor, ExecutorLike, blas_threads_for, given_or_threads, single_threaded_blas
from cagp_dist.solvers.exact.exact_solvers import Cholesky, Rings
from cagp_dist.solvers.interface import no_op


def each_left_out(
    prior: Prior,
    X: ArrayLike | LatLonGrid | LinearFunctionals,
    y: ArrayLike,
    *,
    executor: ExecutorLike = None,
    memory_limit_bytes: int | None = None,
    progress: Callable[[float], None] = no_op,
) -> LeaveOneOut:
    """Predict every observation from all the others, exactly: by a Cholesky factor, on a grid by rings.

    NaN where nothing was observed, and where a coefficient of the mean cannot be estimated without the
    observation: it then says nothing of how the others predict. ``progress`` gets the part that is done.
    `BudgetError`: a solve does not fit into memory.
    """
    parts = patterns(X, y)
    shape = (len(parts[0].y), *parts[0].given.shape)
    mean, variance = np.full(shape, np.nan), np.full(shape, np.nan)
    nowhere = np.empty((0, parts[0].columns))
    with given_or_threads(executor, memory_limit_bytes) as (executor, limit):
        problems = Problems(
            prior, nowhere, full_covariance=False, executor=executor, memory_limit_bytes=limit
        )
        for done, part in enumerate(parts, start=1):
            problem, seen = problems.of(part), part.observed()
            of_points = averaged(problem.gram.X, prior.basis_at(target_points(problem.gram.X)))
            basis, _ = orthonormal(of_points, prior.coefficient_names)
            columns = np.concatenate([problem.residuals, basis], axis=1)
            demand = demand_of(problem, executor, limit)
            plan_left_out(demand, coefficients=basis.shape[1])
            solved, precision = _solved_and_precision(
                problem.gram, columns, executor, by_rings=_by_rings(demand)
            )
            found = left_out_of_solves(seen.values, basis, solved, precision)
            numbers, where = _observation_of(seen), (part.fields[:, None], *_broadcast(seen.given))
            mean[where], variance[where] = found.mean[numbers].T, found.variance[numbers, 0]
            progress(done / len(parts))
    if np.isnan(mean).all():
        raise ArgumentError(
            "without any one observation the coefficients of the mean "
            f"({', '.join(prior.coefficient_names)}) cannot be estimated from the others. Use a mean with "
            "fewer, or one that is known.",
            key="left-out-mean",
        )
    return LeaveOneOut(mean, variance)


def plan_left_out(demand: Demand, *, coefficients: int) -> Plan:
    """Plan that for the points of a solve: a `BudgetError` if it does not fit."""
    solver = Rings() if _by_rings(demand) else Cholesky()
    fields = 2 * demand.fields + coefficients  # what is predicted stands beside what is solved for
    plan = solver.plan(replace(demand, q=0, fields=fields, cell_nodes=0, full_covariance=False, bounds=False))
    diagonal = None if demand.grid is None else inverse_diagonal_flops(demand.grid)
    return replace(plan, flops=plan.flops + (2 * demand.n**3 // 3 if diagonal is None else diagonal))


def _by_rings(demand: Demand) -> bool:
    return demand.grid is not None and demand.grid.solved_by_rings


def left_out_of_solves(
    values: Array, basis: Array, solved: Array, precision: Array, *, quadratic: Array | None = None
) -> LeaveOneOut:
    """Predict values (n, t), whose mean has a basis H (n, k), from all others; variance (n, 1).

    Parameters
    ----------
    solved : array, shape (n, t + k)
        ``G^-1`` times values and basis.
    precision : array, shape (n,)
        Diagonal of ``G^-1``.
    quadratic : array, shape (k, t + k), optional
        ``H'`` times these, where a point stands for several rows.
    """
    t = values.shape[1]
    weights, of_basis = solved[:, :t], solved[:, t:]
    if basis.shape[1]:
        quadratic = basis.T @ solved if quadratic is None else quadratic
        estimate = np.linalg.solve(quadratic[:, t:], np.concatenate([quadratic[:, :t], of_basis.T], axis=1))
        weights = weights - of_basis @ estimate[:, :t]
        left = precision - np.einsum("nk,kn->n", of_basis, estimate[:, t:])
        # nothing is left where one point alone tells of a coefficient
        precision = np.where(left > COLLINEAR * precision, left, np.nan)
    return from_others(values, weights, precision[:, None])


def _broadcast(given: Mask) -> tuple[Indices, ...]:
    return tuple(index[None] for index in np.nonzero(given))


def _solved_and_precision(
    gram: Gram, columns: Array, executor: Executor, *, by_rings: bool
) -> tuple[Array, Array]:
    """``G^-1`` applied to columns (n, r), and its diagonal (n,)."""
    with single_threaded_blas():
        exact = gram.exact(executor=executor) if by_rings else None
        if exact is not None:
            return exact.weights(columns), exact.inverse_diagonal()
    with blas_threads_for(gram.shape[0]):
        factor = covariance_with(gram.kernel, gram.X, gram.X)
        factor[np.diag_indices(len(factor))] += gram.noise_variance
        cholesky_in_place(factor[None])  # in place: the memory of one matrix
        solved = np.ascontiguousarray(columns)[None].copy()
        solve_lower(factor[None], solved)
        solve_lower(factor[None], solved, transposed=True)
        return solved[0], np.asarray(inverse_diagonals(factor[None])[0])


def _observation_of(seen: Observed) -> Indices:
    """Tell which observation each given point is, in the order of `Observed.given`."""
    if seen.layout is None:
        return np.arange(len(seen.X))
    numbers = np.zeros(seen.layout.grid.shape, dtype=np.intp)
    numbers[seen.layout.observed] = np.arange(len(seen.X))
    poles = is_pole(seen.layout.grid.latitude_degrees)
    numbers[poles] = numbers[poles][:, :1]
    return numbers[seen.given[seen.given.any(axis=1)]]
