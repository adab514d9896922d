"""Coefficients of the prior mean that are estimated inside the posterior: universal kriging with any solver.

With a basis H (n, k) at the observed points and H' (q, k) at the targets, weights ``W ~ G^-1 H`` and the
matrix A of any solver, none of which depends on the data (math 1.7)::

    c_hat    = (W'H)^-1 W' y                         mean = H' c_hat + V A (y - H c_hat)
    variance = K'' - V D(A) V'  +  R M R'  -  R E' - E R'

    R = H' - V A H      M = (W'H)^-1 W'GW (H'W)^-1      E = V (W - A G W) (H'W)^-1

With both exact, ``M = (H' G^-1 H)^-1`` and ``E = 0``. ``V A H`` and ``V A G W`` ride along with the solve.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget import Demand, Plan
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.budget.plan import plan_without_tiles
from cagp_dist.errors import ArgumentError, BudgetError
from cagp_dist.gram.dense import cholesky_lower
from cagp_dist.gram.masked import complete_grid
from cagp_dist.gram.targets import averaged, target_points
from cagp_dist.gram.tiled import cross_product
from cagp_dist.posterior.patterns import in_order
from cagp_dist.posterior.problem import Pattern, plan_of_mean
from cagp_dist.prior import Prior
from cagp_dist.runtime import Executor, blas_threads_for, single_threaded_blas
from cagp_dist.solvers.actions.batch_projection import ordered_factor
from cagp_dist.solvers.interface import SOME_POINTS, DirectSolver, Local, Problem, Solver, State
from cagp_dist.solvers.stationary.gauss_seidel import BlockGaussSeidel
from cagp_dist.text import counted

SWEEPS = BlockGaussSeidel(iterations=3, block_size=1024)
"""What finds the weights where the solver is not exact; up to 1,024 points are one block, solved exactly.

On a complete grid blocks are bands of rings, and a pole a ring of copies, so that all P Q points are counted.
"""

# Points with the largest entries of a column of the basis: its coefficient comes from these at least
TELLING = 64

# A column of the basis of which less than this part is left beside the earlier ones depends on them
COLLINEAR = 1e-9


@dataclass(frozen=True, eq=False)
class MeanCoefficients:
    """Coefficients of a prior mean, estimated with the field by generalised least squares."""

    names: tuple[str, ...]  # one for each of the k coefficients
    values: Array  # (k,), or (k, T) for T fields: unit of y over that of the column of the basis
    # (k, k); with different gaps (T, k, k): of the error of the estimate if the prior is right
    covariance: Array

    @property
    def std(self) -> Array:
        """Standard error of each coefficient, shape (k,); with different gaps (k, T)."""
        return np.asarray(np.sqrt(np.diagonal(self.covariance, axis1=-2, axis2=-1)).T)


@dataclass(frozen=True, eq=False)
class Coefficients:
    """How the coefficients of one pattern of fields follow from the data."""

    basis: Array  # (n, k): H, by an orthonormal basis of its columns: ``H T^-1``
    at_targets: Array  # (q, k): ``H' T^-1``
    triangle: Array  # (k, k): T
    # each (n, k): W, and ``G W``
    weights: Array
    image: Array
    exact: bool  # whether ``W = G^-1 H`` up to rounding
    seen: Array | None = None  # (q, k), or None: ``V W``, where it is known already

    def estimate(self, columns: Array) -> Array:
        """``c_hat = (W'H)^-1 W' y`` in the orthonormal basis, shape (k, T) for y (n, T)."""
        return self._solved(self.weights.T @ columns)

    def without_mean(self, columns: Array) -> tuple[Array, Array]:
        """``y - H c_hat`` (n, T) for y (n, T), and the mean ``H' c_hat`` (q, T) at the targets."""
        found = self.estimate(columns)
        return columns - self.basis @ found, np.asarray(self.at_targets @ found)

    def covariance(self) -> Array:
        """Covariance M of the estimate in the orthonormal basis, shape (k, k)."""
        found = self._solved(self._solved(self.weights.T @ self.image).T)
        return np.asarray(0.5 * (found + found.T))

    def of_given_basis(self, columns: Array) -> tuple[Array, Array]:
        """Give coefficients (k, T) of the basis that was given, and their covariance (k, k)."""
        back = np.linalg.inv(self.triangle)
        return np.asarray(back @ self.estimate(columns)), np.asarray(back @ self.covariance() @ back.T)

    def _solved(self, columns: Array) -> Array:
        """``(W'H)^-1`` applied to columns (k, r)."""
        return np.asarray(np.linalg.solve(self.weights.T @ self.basis, columns))

    def extra_right_hand_sides(self, problem: Problem) -> Problem:
        """Add the right-hand sides that ride along with the fields: ``[H, G W]``, 2 k columns."""
        columns = np.concatenate([problem.residuals, self.basis, self.image], axis=1)
        return replace(problem, residuals=columns, extra_right_hand_sides=2 * self.basis.shape[1])

    def seen_from(self, problem: Problem, *, executor: Executor) -> "Coefficients":
        """Look at the weights from the targets, if that was not done: n q evaluations and 2 n q k flops."""
        if self.seen is not None:
            return self
        seen = problem.gram.cross(problem.targets, self.weights, executor=executor, product=self.image)
        return replace(self, seen=seen)

    def counted(self, problem: Problem, *, executor: Executor) -> "CountedMean":
        """Say what variances are more for the estimate; costs as `seen_from`."""
        seen = self.seen_from(problem, executor=executor).seen
        assert seen is not None
        half = self._solved(np.eye(len(self.triangle)))
        return CountedMean(self.at_targets, seen, half, self.covariance(), problem.full_covariance)


@dataclass(frozen=True, eq=False)
class CountedMean:
    """What a variance is more for the estimate of the mean, ``R M R' - R E' - E R'``."""

    # each (q, k): H' and ``V W``
    at_targets: Array
    seen: Array
    # each (k, k): ``(W'H)^-1`` and M
    inverse: Array
    covariance: Array
    full: bool  # whether covariances are wanted, not only variances

    def before(self) -> Array:
        """Give what it is before the first iteration, where A is zero: shape (q,) or (q, q)."""
        return self._of(slice(None), np.zeros_like(self.seen), np.zeros_like(self.seen))

    def of_exact(self) -> Array:
        """Give what it is in the exact posterior, shape (q,), where the weights are exact."""
        left = self.at_targets - self.seen
        return np.asarray(np.einsum("qk,kl,ql->q", left, self.covariance, left))

    def states(self, states: Iterator[State]) -> Iterator[State]:
        """Take the companions out of the means of states, and say what they add to the variance."""
        k = len(self.inverse)
        for state in states:
            fields = state.mean.shape[1] - 2 * k
            basis, image = state.mean[:, fields : fields + k], state.mean[:, fields + k :]
            yield replace(
                state,
                mean=np.ascontiguousarray(state.mean[:, :fields]),
                of_mean=self._of(state.columns, basis, image),
            )

    def _of(self, columns: slice, basis: Array, image: Array) -> Array:
        """From ``V A H`` and ``V A G W`` (c, k) of some targets."""
        left = self.at_targets[columns] - basis
        # symmetric in R and the rest: R (M R' / 2 - E') and its transpose
        rest = left @ (0.5 * self.covariance) - (self.seen[columns] - image) @ self.inverse.T
        if self.full:
            half = left @ rest.T
            return np.asarray(half + half.T)
        return np.asarray(2.0 * np.einsum("qk,qk->q", left, rest))


def coefficients_of(
    prior: Prior, problem: Problem, solver: Solver, *, plan: Plan | None, executor: Executor
) -> tuple[Coefficients, Problem]:
    """Find the weights of the coefficients of a mean."""
    given = averaged(problem.gram.X, prior.basis_at(target_points(problem.gram.X)))
    there = averaged(problem.targets, prior.basis_at(target_points(problem.targets)))
    basis, triangle = orthonormal(given, prior.coefficient_names)
    at_targets = np.asarray(np.linalg.solve(triangle.T, there.T).T)
    if plan is None:
        assert isinstance(solver, DirectSolver)
        weights, opened = solver.weights(replace(problem, residuals=basis), executor=executor)
        problem = replace(opened, residuals=problem.residuals)
        return Coefficients(basis, at_targets, triangle, weights, basis, True), problem
    if isinstance(solver, Local):
        some = solver.points_of_mean(problem.gram)
        if len(some) < len(basis):  # and those that a column is about
            some = np.union1d(some, np.argsort(-np.abs(basis), axis=0)[:TELLING])
        check_estimable(basis[some], prior.coefficient_names)
        return _of_some(problem, some, basis, at_targets, triangle, executor), problem
    swept, residual = SWEEPS.forward(replace(problem, residuals=basis), executor=executor, plan=plan)
    complete = complete_grid(problem.gram)
    if _one_block(len(basis) if complete is None else complete[0].grid.size):
        return Coefficients(basis, at_targets, triangle, swept, basis, True), problem
    with single_threaded_blas():
        image = problem.gram.product(basis, executor=executor)
        known, images = np.hstack([swept, basis]), np.hstack([basis - residual, image])
        combination = _best_combination(known.T @ images, known.T @ basis)
        return Coefficients(
            basis, at_targets, triangle, known @ combination, images @ combination, False
        ), problem


def _of_some(
    problem: Problem, some: Indices, basis: Array, at_targets: Array, triangle: Array, executor: Executor
) -> Coefficients:
    """Generalised least squares from some of the points: what the others say of the mean is left out."""
    from scipy.linalg import cho_solve

    gram, targets = problem.gram, problem.targets
    weights = np.zeros_like(basis)
    X, noise = gram.X[some], gram.noise_variance[some]
    with blas_threads_for(len(some)):
        weights[some] = cho_solve((cholesky_lower(gram.kernel(X, X) + np.diag(noise)), True), basis[some])
    if len(some) == len(basis):
        image = basis
    else:
        image = cross_product(gram.kernel, gram.X, X, weights[some], executor=executor)
        image += gram.noise_variance[:, None] * weights
    seen = cross_product(gram.kernel, target_points(targets), X, weights[some], executor=executor)
    exact = len(some) == len(basis)
    return Coefficients(basis, at_targets, triangle, weights, image, exact, averaged(targets, seen))


def joined_coefficients(
    names: tuple[str, ...], parts: Sequence[tuple[Pattern, Array, Array]]
) -> MeanCoefficients | None:
    """Put together values (k, t) and covariance (k, k) of each pattern of fields; None without names."""
    if not names:
        return None
    groups = [pattern.fields for pattern, _, _ in parts]
    values = in_order([found for _, found, _ in parts], groups)
    covariance = parts[0][2]
    if len(parts) > 1:
        order = np.argsort(np.concatenate(groups))
        covariance = np.concatenate(
            [np.repeat(each[None], len(pattern.fields), axis=0) for pattern, _, each in parts]
        )[order]
    return MeanCoefficients(names, values[:, 0] if parts[0][0].single else values, covariance)


def plan_of_weights(solver: Solver, demand: Demand, *, coefficients: int) -> Plan | None:
    """Plan what `coefficients_of` does beside the solve; None where the solve does all of it."""
    k = coefficients
    if k == 0 or isinstance(solver, DirectSolver):
        return None
    held = DOUBLE * 12 * demand.n * k
    if isinstance(solver, Local):
        some = min(demand.n, SOME_POINTS)
        entries = some * (demand.n + demand.target_points)
        return plan_without_tiles(
            demand, "mean", None, held + 16 * some**2, entries, 2 * k * entries + some**3 // 3, 1
        )
    columns = replace(
        demand,
        q=0,
        cell_nodes=0,
        fields=k,
        full_covariance=False,
        bounds=False,
        lanczos_steps=0,
        memory_limit_bytes=max(demand.memory_limit_bytes - held, 0),
    )
    try:
        plan = plan_of_mean(SWEEPS, columns)
    except BudgetError as error:
        raise BudgetError(
            f"For the {counted(k, 'coefficient')} of the mean, {error.text}",
            remedies=error.remedies,
            key=error.key,
        ) from error
    # what the targets see of the weights; and a product with G
    points = demand.grid.size if demand.grid is not None and demand.grid.has_rings else demand.n
    product = demand.n * demand.target_points + (0 if _one_block(points) else demand.n**2)
    return replace(
        plan,
        peak_bytes=plan.peak_bytes + held,
        gram_entries=plan.gram_entries + product,
        flops=plan.flops + 2 * k * product,
    )


def with_weights(plan: Plan, weights: Sequence[Plan | None], *, fields: int) -> Plan:
    """Plan of solves of so many fields with what is done for their coefficients: the sum of the work."""
    plan = replace(plan, fields=fields)
    for more in weights:
        if more is not None:
            plan = replace(
                plan,
                tasks=plan.tasks + more.tasks,
                gram_entries=plan.gram_entries + more.gram_entries,
                flops=plan.flops + more.flops,
                peak_bytes=max(plan.peak_bytes, more.peak_bytes),
            )
    return plan


def _one_block(points: int) -> bool:
    """Whether `SWEEPS` solve so many points as a whole; on a complete grid each copy of a pole is one."""
    return points <= SWEEPS.block_size


def _best_combination(matrix: Array, right: Array) -> Array:
    """``(Z'GZ)^-1 Z'H`` from both factors: columns of Z that depend on earlier ones have no part in it."""
    size = 1.0 / np.sqrt(matrix.diagonal())
    factor, kept = ordered_factor(size[:, None] * (0.5 * (matrix + matrix.T)) * size)
    found = np.zeros_like(right)
    half = np.linalg.solve(factor, size[kept, None] * right[kept])
    found[kept] = size[kept, None] * np.linalg.solve(factor.T, half)
    return found


def check_estimable(given: Array, names: Sequence[str]) -> None:
    """Raise `ArgumentError` if a column of a basis (n, k) depends on others; 2 n k^2 flops."""
    orthonormal(given, names)


def orthonormal(given: Array, names: Sequence[str]) -> tuple[Array, Array]:
    """Orthonormal columns (n, k) and the triangle T (k, k) of what was given."""
    n, k = given.shape
    if n < k:
        raise ArgumentError(
            f"the mean has {counted(k, 'coefficient')} ({', '.join(names)}) but "
            f"{counted(n, 'point')} observed; expected at least one for each. Use a mean with fewer, such as "
            "a constant, or one that is known.",
            key="few-observations",
        )
    size = np.linalg.norm(given, axis=0)
    basis, triangle = np.linalg.qr(given / np.where(size > 0.0, size, 1.0))
    for column in np.flatnonzero(np.abs(triangle.diagonal()) < COLLINEAR).tolist():
        others = " and ".join(names[:column]) or "nothing else"
        raise ArgumentError(
            f"the coefficient of {names[column]} cannot be estimated: at the observed points it is zero, or "
            f"a combination of {others}. Leave {names[column]} out of the mean, or observe other places.",
            key="coefficient-undetermined",
        )
    return np.asarray(basis), np.asarray(triangle * size)
