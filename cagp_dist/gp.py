"""Gaussian-process regression whose variance also counts the computation that was not done.

The whole story: a `Prior` is conditioned on observations by `condition`, through a solver that stops
early; the `Posterior` has the mean it reached and a variance that covers both what the data do not tell
(mathematical) and what was not computed (computational)::

    mean      m0(X') + V A b                       V = k(X', X),  b = y - m0(X)
    variance  k(X', X') - V D(A) V'                D(A) = A + A' - A G A'

With A the solver's matrix, independent of the data, the error of the mean is exactly normal with this
variance (math 1.1; [Hegde, Adil & Cockayne 2025] for Gauss-Seidel). Where coefficients of m0 are estimated,
the variance counts that as well (math 1.7).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices
from cagp_dist.checks import check_count
from cagp_dist.errors import ArgumentError
from cagp_dist.posterior.result import Posterior, Progress, shaped_as_targets
from cagp_dist.prior import Prior, check_prior

if TYPE_CHECKING:
    from cagp_dist.budget import Plan
    from cagp_dist.gram.functionals import LinearFunctionals
    from cagp_dist.gram.targets import Targets
    from cagp_dist.latlon import LatLonGrid
    from cagp_dist.runtime import ExecutorLike
    from cagp_dist.runtime.memo import Memo
    from cagp_dist.solvers import Solver


def condition(
    prior: Prior,
    X: "ArrayLike | LatLonGrid | LinearFunctionals",
    y: ArrayLike,
    X_test: "ArrayLike | LatLonGrid | LinearFunctionals",
    *,
    solver: "Solver",
    covariance: Literal["diagonal", "full"] = "diagonal",
    executor: "ExecutorLike" = None,
    memory_limit_bytes: int | None = None,
    computational_bounds: bool = False,
    lanczos_steps: int = 0,
    checkpoints: "Memo | None" = None,
    weights: "Memo | None" = None,
    progress: Callable[[Progress], None] | None = None,
    on_plan: "Callable[[Plan], None] | None" = None,
) -> Posterior:
    """Condition a Gaussian-process prior on noisy observations.

    Parameters
    ----------
    prior : Prior
        Kernel, noise and mean.
    X : array_like, shape (n, p), LatLonGrid or LinearFunctionals
        Observed points, Euclidean distance; on the sphere use `unit_sphere`. Gauss-Seidel solvers
        visit them in this order; see `space_filling_order`. Or the grid on which fields were observed. Or n
        weighted sums of the field that were observed, such as means over areas or cells, with `Cholesky`.
    y : array_like, shape (n,) or (n, T); on a grid (P, Q) or (T, P, Q)
        Observations. In (n, T), and on a grid, NaN marks missing values. Fields observed at the same points
        share one solve; each other pattern of gaps takes its own solve. The Q copies of a pole of a grid are
        one observation, their mean.
    X_test : array_like, shape (q, p), LatLonGrid or LinearFunctionals
        Where the posterior is wanted: points, all points of a grid, or weighted sums of the field, such as
        means over regions (`area_means`) or cells (`cell_means`) and differences of two points.
    solver : Solver
        `GaussSeidel`, `BlockGaussSeidel`, `SOR`, `SSOR`, `Jacobi`, `BlockJacobi`, `Richardson`,
        `TwoLevelBlockGaussSeidel`, `TwoLevelBlockJacobi`, `Hybrid`, `ConjugateGradient`, `RandomActions`,
        `UnitVectors`, `SubsetOfData`, `PseudoInputs`, `SparseActions`, `Eigenvectors`, `KrylovActions`,
        `MixedActions`, `Neighbours`, `Cholesky`, or on a grid `Rings`.
    covariance : {"diagonal", "full"}
        Variances only, or also the (q, q) covariance.
    executor : Executor, Dask client or cluster, or str, optional
        Where tasks run; by default all cores of this process. A ``distributed.Client``, a cluster of
        `distributed`, dask-jobqueue, dask-gateway or another library, which stay open; "local", "serial",
        or the address or file of a scheduler; or an executor of `cagp_dist.runtime.open_executor`.
    memory_limit_bytes : int, optional
        Memory that the solve may allocate; by default four fifths of the free memory.
    computational_bounds : bool
        Whether you will use `Posterior.computational_variance_bounds`: the plan then includes their memory.
    lanczos_steps : int
        Steps of Lanczos quadrature that tighten `Posterior.computational_variance_bounds` of affine solvers.
        They are used at targets where the bounds from neighbours differ by more than a hundredth of the
        variance; at all targets one step costs as much as one to two sweeps. The smaller the noise compared
        with the variance of the field, the more steps are needed to improve on the bounds from neighbours;
        fewer steps change no digit. 0: none.
    checkpoints : FolderMemo, optional
        Where iterations are kept (`cagp_dist.store.memo.FolderMemo`), so that the same call goes on
        from there after a loss, with the same bits.
    weights : Memo, optional
        Where weights of the targets are kept (`cagp_dist.store.memo.FolderMemo`). An affine solver sweeps
        once, without data. Other observations at the same points, with the same prior, targets and solver,
        then cost only one product. The trace has only the prior and the last iteration, and mean and variance
        agree with those of a solve up to rounding. Solves by whole rings, with full covariances, a
        ``computational_share`` or ``lanczos_steps``, and by other solvers, ignore it.
    progress : callable, optional
        Called with a `Progress` after every iteration.
    on_plan : callable, optional
        Called with the `cagp_dist.budget.Plan` before the work starts; the same plan is carried out. It is
        the sum over the solves, if there are several.

    Returns
    -------
    Posterior
        The same bits for every executor on one kind of processor, except with `Cholesky`.

    Raises
    ------
    ArgumentError
        If an argument has the wrong shape or value, or a field is NaN everywhere.
    BudgetError
        If a solve does not fit into memory; raised before any work.
    NumericalError
        If the Gram matrix is not positive definite, a mean is not finite or a variance is negative
        beyond rounding.
    ClusterError
        If the Dask cluster of the executor is lost.

    Notes
    -----
    Costs are those of the solver. The n x n Gram matrix is never stored, except by `Cholesky`.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> X = np.linspace(0.0, 1.0, 50).reshape(-1, 1)
    >>> y = np.sin(6.0 * X[:, 0])
    >>> prior = cagp.Prior(cagp.Matern52(lengthscale=0.3), noise_variance=1e-4)
    >>> posterior = cagp.condition(prior, X, y, [[0.5]], solver=cagp.BlockGaussSeidel(3, block_size=25))
    >>> bool(abs(posterior.mean[0] - np.sin(3.0)) < 0.01)
    True
    """
    check_prior(prior)
    if covariance not in ("diagonal", "full"):
        raise ArgumentError(
            f'covariance is {covariance!r}; expected "diagonal" or "full".', key="covariance-unknown"
        )
    check_count("lanczos_steps", lanczos_steps, least=0)

    from cagp_dist.posterior.conditioning import plan_conditioning, posterior_of, solve_pattern
    from cagp_dist.posterior.kept_solves import keeps_weights
    from cagp_dist.posterior.problem import as_targets, check_observed, patterns
    from cagp_dist.runtime import given_or_threads
    from cagp_dist.solvers.engine.affine import Affine
    from cagp_dist.solvers.interface import check_one_field, check_solver

    check_solver(solver)
    check_observed(X, solver)
    if lanczos_steps > 0 and not isinstance(solver, Affine):
        raise ArgumentError(
            f"lanczos_steps is {lanczos_steps}, but {solver!r} keeps no leftover to take them on; expected "
            "an affine solver such as BlockGaussSeidel. Leave lanczos_steps out.",
            key="no-leftover",
        )
    started = time.perf_counter()
    parts = patterns(X, y)  # fields with the same gaps share a solve; almost always all of them do
    if len(parts) > 1 and not solver.many_fields:
        check_one_field(len(parts[0].y))
    targets = as_targets(X_test, columns=parts[0].columns)
    full = covariance == "full"
    if not keeps_weights(solver, full_covariance=full, lanczos_steps=lanczos_steps):
        weights = None
    with given_or_threads(executor, memory_limit_bytes) as (executor, limit):
        planned = plan_conditioning(
            prior,
            parts,
            targets,
            solver=solver,
            full_covariance=full,
            computational_bounds=computational_bounds,
            lanczos_steps=lanczos_steps,
            weights=weights,
            executor=executor,
            memory_limit_bytes=limit,
        )
        if on_plan is not None:
            on_plan(planned.plan)
        solves = [
            solve_pattern(planned, number, started=started, checkpoints=checkpoints, progress=progress)
            for number in range(len(parts))
        ]
    return posterior_of(planned, solves, targets, started=started)


def posterior_mean(
    prior: Prior,
    X: "ArrayLike | LatLonGrid | LinearFunctionals",
    y: ArrayLike,
    X_test: "ArrayLike | LatLonGrid | LinearFunctionals",
    *,
    solver: "Solver",
    iterations_by_target: ArrayLike | None = None,
    executor: "ExecutorLike" = None,
    memory_limit_bytes: int | None = None,
    on_plan: "Callable[[Plan], None] | None" = None,
) -> Array:
    """Posterior mean alone, for many targets: the stages themselves instead of their adjoints.

    The mean is that of `condition` after all iterations, ``m0(X') + V v`` with ``v = A b``, up to rounding
    (T2). The stages carry the T fields instead of the q targets, so a fine map costs little more than a
    coarse one.

    Parameters
    ----------
    prior, X, y, X_test, executor, memory_limit_bytes, on_plan
        As for `condition`.
    solver : Solver
        Any solver. An affine one, such as BlockGaussSeidel, does all iterations, whatever its
        `computational_share`. Affine and exact solvers compute no variances. Other solvers, such as conjugate
        gradients, compute the mean together with their variances, at the cost of `condition`.
    iterations_by_target : array_like of int, shape (q,) or (q, T), with a grid as target (P, Q) or (T, P, Q)
        Iterations of which each target has the mean, at least one, instead of those of the solver. A
        `computational_share` ends some groups of targets before others; see `Stats.iterations_by_target`. Of
        affine solvers.

    Returns
    -------
    array of float64, the shape of the posterior's mean
        Unit of y. Cost 2 n^2 T flops per sweep, n q evaluations and 2 n q T flops at the end.

    Raises
    ------
    ArgumentError, BudgetError, NumericalError
        As for `condition`.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> X = np.linspace(0.0, 1.0, 50).reshape(-1, 1)
    >>> prior = cagp.Prior(cagp.Matern52(lengthscale=0.3), noise_variance=1e-4)
    >>> mean = cagp.posterior_mean(prior, X, np.sin(6.0 * X[:, 0]), X, solver=cagp.GaussSeidel(20))
    >>> mean.shape
    (50,)
    """
    check_prior(prior)

    from cagp_dist.posterior.coefficients import plan_of_weights, with_weights
    from cagp_dist.posterior.patterns import in_order, joint_bytes, joint_plan, less_memory
    from cagp_dist.posterior.prior_mean import remove_mean
    from cagp_dist.posterior.problem import (
        Problems,
        as_targets,
        check_observed,
        demand_of,
        patterns,
        plan_of_mean,
    )
    from cagp_dist.runtime import given_or_threads
    from cagp_dist.solvers.engine.affine import Affine
    from cagp_dist.solvers.interface import LinearMean, check_solver, settle

    check_solver(solver)
    check_observed(X, solver)
    if iterations_by_target is not None and not isinstance(solver, Affine):
        raise ArgumentError(
            f"iterations_by_target was given for {solver!r}, which has no stages to end early; expected an "
            "affine solver such as BlockGaussSeidel. Leave iterations_by_target out.",
            key="no-stages",
        )
    if not isinstance(solver, LinearMean):
        return condition(
            prior,
            X,
            y,
            X_test,
            solver=solver,
            executor=executor,
            memory_limit_bytes=memory_limit_bytes,
            on_plan=on_plan,
        ).mean
    if isinstance(solver, Affine):
        solver = replace(solver, computational_share=None)  # without variances there are no shares of them
    parts = patterns(X, y)
    groups = [part.fields for part in parts]
    targets = as_targets(X_test, columns=parts[0].columns)
    asked = _asked_iterations(iterations_by_target, targets, groups=groups)
    if asked is not None and isinstance(solver, Affine):
        solver = replace(solver, iterations=max((int(each.max(initial=0)) for each in asked), default=0))
    with given_or_threads(executor, memory_limit_bytes) as (executor, limit):
        problems = Problems(
            prior, targets, full_covariance=False, executor=executor, memory_limit_bytes=limit
        )
        solver = settle(solver, problems.of(parts[0]), executor=executor)
        demands, means = [demand_of(problems.of(part), executor, limit) for part in parts], []
        kept = joint_bytes(demands, iterations=0)
        left = less_memory(demands, kept)
        plans = [plan_of_mean(solver, demand) for demand in left]
        k = len(prior.coefficient_names)
        estimates = [plan_of_weights(solver, demand, coefficients=k) for demand in left]
        if on_plan is not None:
            on_plan(with_weights(joint_plan(plans, joint_bytes=kept), estimates, fields=len(parts[0].y)))
        for number, (part, plan, estimate) in enumerate(zip(parts, plans, estimates, strict=True)):
            iterations = None if asked is None else asked[number]
            removed = remove_mean(
                prior, problems.of(part), part, solver, plan=estimate, executor=executor, variances=False
            )
            if isinstance(solver, Affine):
                found, _ = solver.mean(removed.problem, executor=executor, plan=plan, iterations=iterations)
            else:
                found, _ = solver.mean(removed.problem, executor=executor, plan=plan)
            means.append(found + removed.at_targets)
    mean = in_order(means, groups)
    return shaped_as_targets(mean, mean[:, 0], targets=targets, single=parts[0].single)[0]


def _asked_iterations(
    given: ArrayLike | None, targets: "Targets", *, groups: Sequence[Indices]
) -> list[Indices] | None:
    """Check iterations by target, and give those (q,) of each group of fields that share a solve."""
    if given is None:
        return None
    from cagp_dist.gram.targets import target_count
    from cagp_dist.latlon.grid import LatLonGrid

    q, fields = target_count(targets), sum(len(group) for group in groups)
    try:
        asked = np.asarray(given)
    except ValueError as error:
        raise ArgumentError(
            f"iterations_by_target is not an array: {error}. Expected integers, one for each of {q} targets.",
            key="iterations-by-target",
        ) from error
    if isinstance(targets, LatLonGrid) and asked.shape[-2:] == targets.shape:
        asked = asked.reshape(*asked.shape[:-2], q).T
    fits = asked.shape in ((q,), (q, fields)) and asked.dtype.kind in "iu"
    if not fits or asked.min(initial=1) < 1:
        raise ArgumentError(
            f"iterations_by_target has shape {asked.shape} and type {asked.dtype}; expected integers of at "
            f"least 1, one for each of {q} targets, or ({q}, {fields}) of them.",
            key="iterations-by-target",
        )
    columns = np.broadcast_to(asked.reshape(q, -1), (q, fields)).astype(np.intp)
    if any((columns[:, group] != columns[:, group[:1]]).any() for group in groups):
        raise ArgumentError(
            "iterations_by_target differs between fields with the same gaps, which share a solve; give them "
            "the same.",
            key="iterations-by-target",
        )
    return [columns[:, group[0]] for group in groups]
