"""Gaussian-process regression whose variance also counts the computation that was not done.

The whole story: a `Prior` is conditioned on observations by `condition`, through a solver that stops
early; the `Posterior` has the mean it reached and a variance that covers both what the data do not tell
(mathematical) and what was not computed (computational)::

    mean      m0(X') + V A b                       V = k(X', X),  b = y - m0(X)
    variance  k(X', X') - V D(A) V'                D(A) = A + A' - A G A'

With A the solver's matrix, independent of the data, the error of the mean is exactly normal with this
variance (math 1.1; [Hegde, Adil & Cockayne 2025] for Gauss-Seidel).
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cagp_dist.budget import Demand, Plan
from cagp_dist.checks import as_numbers, as_points, check_positive
from cagp_dist.errors import ArgumentError
from cagp_dist.kernels import Kernel

if TYPE_CHECKING:
    from cagp_dist.assembly import Step
    from cagp_dist.runtime import Executor
    from cagp_dist.solvers import BlockGaussSeidel, GaussSeidel, Problem, Solver, Stats, Status

Array = NDArray[np.float64]
Mean = float | Callable[[Array], ArrayLike]


@dataclass(frozen=True)
class Prior:
    """What is assumed before the data: ``f ~ GP(mean, kernel)`` and ``y = f(X) + noise``.

    Parameters
    ----------
    kernel : Kernel
        Covariance of the latent field f.
    noise_variance : float
        Variance of the independent observation noise, squared unit of y, above zero.
    mean : float or callable
        A number, or a function of points (n, p) that returns (n,), or (n, T) with a column per field.

    Examples
    --------
    >>> import cagp_dist as cagp
    >>> prior = cagp.Prior(cagp.Matern32(lengthscale=0.2), noise_variance=0.01)
    """

    kernel: Kernel
    noise_variance: float
    mean: Mean = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Kernel):
            raise ArgumentError(
                f"kernel is a {type(self.kernel).__name__}; expected Matern12, Matern32, Matern52 or "
                "SquaredExponential."
            )
        check_positive("noise_variance", self.noise_variance)
        number = isinstance(self.mean, (int, float, np.floating, np.integer))
        if not callable(self.mean) and not (number and np.isfinite(self.mean)):
            raise ArgumentError(f"mean is {self.mean!r}; expected a finite number or a function of X.")

    def mean_at(self, X: Array) -> Array:
        """Prior mean at X (n, p): shape (n, 1), or (n, T) where the mean differs between fields."""
        value = self.mean(X) if callable(self.mean) else np.full(len(X), self.mean)
        values = np.asarray(value, dtype=np.float64)
        if values.ndim not in (1, 2) or len(values) != len(X) or not np.isfinite(values).all():
            raise ArgumentError(
                f"the prior mean returned shape {values.shape} for {len(X)} points; "
                "expected finite values of shape (n,) or (n, T)."
            )
        return values if values.ndim == 2 else values[:, None]


@dataclass(frozen=True)
class Progress:
    """How far a solve is.

    Attributes
    ----------
    iteration, iterations : int
        Sweeps or actions done for the current batch of test points, and in all.
    fraction : float
        Part of the whole work that is done, 0 to 1.
    seconds : float
        Since the start.
    """

    iteration: int
    iterations: int
    fraction: float
    seconds: float


@dataclass(frozen=True, eq=False)
class Posterior:
    """The field at the test points after the solve.

    Attributes
    ----------
    mean : array, shape (q,), or (q, T) when y is (n, T)
        Posterior mean, unit of y.
    variance : array, shape (q,)
        Variance of the latent field about the mean, without observation noise, squared unit of y;
        the same for all T fields. Add ``prior.noise_variance`` to predict a new observation. Never
        clipped: where it is zero, rounding may leave it slightly negative (by at most 1e-8 of the prior
        variance; beyond that the solve raises).
    covariance : array, shape (q, q), or None
        Only when ``covariance="full"`` was asked for.
    status : Status
        How the solve ended, with ``ok`` and ``advice``.
    stats : Stats
        What it took.
    trace : tuple of Step
        The posterior after 0 (the prior), 1, 2, ... iterations; the last is this posterior.
    """

    mean: Array
    variance: Array
    covariance: Array | None
    status: "Status"
    stats: "Stats"
    trace: "tuple[Step, ...]"


def condition(
    prior: Prior,
    X: ArrayLike,
    y: ArrayLike,
    X_test: ArrayLike,
    *,
    solver: "Solver",
    covariance: Literal["diagonal", "full"] = "diagonal",
    executor: "Executor | None" = None,
    memory_limit_bytes: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    on_plan: Callable[[Plan], None] | None = None,
) -> Posterior:
    """Condition a Gaussian-process prior on noisy observations.

    Parameters
    ----------
    prior : Prior
        Kernel, noise and mean.
    X : array_like, shape (n, p)
        Observed points, Euclidean distance; on the sphere use `unit_sphere`. Gauss-Seidel solvers
        visit them in this order; see `space_filling_order`.
    y : array_like, shape (n,) or (n, T)
        Observations; T fields observed at the same points share one solve.
    X_test : array_like, shape (q, p)
        Where the posterior is wanted.
    solver : Solver
        `GaussSeidel`, `BlockGaussSeidel`, `ConjugateGradient`, `RandomActions` or `Cholesky`.
    covariance : {"diagonal", "full"}
        Variances only, or also the (q, q) covariance.
    executor : Executor, optional
        Where tasks run; by default all cores of this process. See `cagp_dist.runtime.open_executor`.
    memory_limit_bytes : int, optional
        What the solve may allocate; by default four fifths of the free memory.
    progress : callable, optional
        Called with a `Progress` after every iteration.
    on_plan : callable, optional
        Called with the plan before the work starts; the same plan is carried out.

    Returns
    -------
    Posterior
        The same bits for every executor.

    Raises
    ------
    ArgumentError
        If an argument has the wrong shape or value.
    BudgetError
        If the solve does not fit into memory; raised before any work.
    NumericalError
        If the Gram matrix is not positive definite, a mean is not finite or a variance is negative
        beyond rounding.
    ClusterError
        If the Dask cluster of the executor is lost.

    Notes
    -----
    Costs are those of the solver; the n x n Gram matrix is never stored (`Cholesky` excepted).

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
    points, observed, test_points = _checked(prior, X, y, X_test)
    if covariance not in ("diagonal", "full"):
        raise ArgumentError(f'covariance is {covariance!r}; expected "diagonal" or "full".')

    from cagp_dist.assembly import Assembly
    from cagp_dist.runtime import ThreadExecutor
    from cagp_dist.solvers import Stats, Status

    started = time.perf_counter()
    problem = _problem(prior, points, observed, test_points, full_covariance=covariance == "full")
    assembly = Assembly(prior.kernel, problem, prior.mean_at(test_points))
    with ExitStack() as stack:
        if executor is None:
            executor = stack.enter_context(ThreadExecutor())
        plan = solver.plan(_demand(problem, executor, memory_limit_bytes))
        if on_plan is not None:
            on_plan(plan)
        status, residual = Status.COMPLETED, None
        if solver.iterations > 0 and len(test_points) > 0:
            for state in solver.states(problem, executor=executor, plan=plan):
                assembly.add(state)
                status, residual = state.status, state.relative_residual
                if progress is not None:
                    fraction = assembly.fraction(state, solver.iterations)
                    elapsed = time.perf_counter() - started
                    progress(Progress(state.iteration, solver.iterations, fraction, elapsed))
        description = executor.description
    trace = assembly.trace(single_field=np.ndim(y) == 1)
    return Posterior(
        mean=trace[-1].mean,
        variance=trace[-1].variance,
        covariance=assembly.covariance(),
        status=status,
        stats=Stats(
            iterations=trace[-1].iteration,
            seconds=time.perf_counter() - started,
            gram_entries=plan.gram_entries,
            relative_residual=residual,
            plan=plan,
            executor=description,
        ),
        trace=trace,
    )


def posterior_mean(
    prior: Prior,
    X: ArrayLike,
    y: ArrayLike,
    X_test: ArrayLike,
    *,
    solver: "GaussSeidel | BlockGaussSeidel",
    executor: "Executor | None" = None,
    memory_limit_bytes: int | None = None,
) -> Array:
    """Posterior mean alone, for many test points: forward sweeps instead of adjoint ones.

    The same mean as that of `condition`, ``m0(X') + V v`` with ``v = A b``, up to rounding (T2). The sweeps
    carry the T fields instead of the q test points, so that a fine map costs little more than a coarse one.

    Parameters
    ----------
    prior, X, y, X_test, executor, memory_limit_bytes
        As for `condition`.
    solver : GaussSeidel or BlockGaussSeidel
        Solvers whose weights a forward sweep yields.

    Returns
    -------
    array of float64, shape (q,), or (q, T) when y is (n, T)
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
    points, observed, test_points = _checked(prior, X, y, X_test)

    from cagp_dist.gram.tiled import cross_product
    from cagp_dist.runtime import ThreadExecutor, single_threaded_blas
    from cagp_dist.solvers import BlockGaussSeidel, GaussSeidel

    if not isinstance(solver, (GaussSeidel, BlockGaussSeidel)):
        raise ArgumentError(
            f"solver is {solver!r}; forward sweeps need GaussSeidel or BlockGaussSeidel. Use condition()."
        )
    # the sweeps carry one column per field: plan them as test points
    problem = _problem(prior, points, observed, points[: observed.shape[1]], full_covariance=False)
    with ExitStack() as stack:
        if executor is None:
            executor = stack.enter_context(ThreadExecutor())
        plan = solver.plan(_demand(problem, executor, memory_limit_bytes))
        weights = solver.weights(problem, executor=executor, plan=plan)
        with single_threaded_blas():
            mean = cross_product(prior.kernel, test_points, points, weights, executor=executor)
    mean += prior.mean_at(test_points)
    return mean[:, 0] if np.ndim(y) == 1 else mean


def _checked(prior: Prior, X: ArrayLike, y: ArrayLike, X_test: ArrayLike) -> tuple[Array, Array, Array]:
    """Points (n, p), observations (n, T) and test points (q, p), or `ArgumentError`."""
    if not isinstance(prior, Prior):
        raise ArgumentError(f"prior is a {type(prior).__name__}; expected a cagp_dist.Prior.")
    points, test_points = as_points("X", X), as_points("X_test", X_test)
    if len(points) == 0:
        raise ArgumentError(f"X has shape {points.shape}: nothing was observed; expected at least one point.")
    if test_points.shape[1] != points.shape[1]:
        raise ArgumentError(
            f"X has {points.shape[1]} columns, X_test {test_points.shape[1]}; both need the same coordinates."
        )
    return points, _observations(y, len(points)), test_points


def _problem(
    prior: Prior, points: Array, observed: Array, test_points: Array, *, full_covariance: bool
) -> "Problem":
    from cagp_dist.gram import TiledGram
    from cagp_dist.solvers import Problem

    centre = prior.mean_at(points)
    if centre.shape[1] not in (1, observed.shape[1]):
        raise ArgumentError(
            f"the prior mean has {centre.shape[1]} columns for {observed.shape[1]} fields; expected one "
            "column, or one per field."
        )
    gram = TiledGram(prior.kernel, points, noise_variance=np.full(len(points), float(prior.noise_variance)))
    return Problem(gram, observed - centre, test_points, full_covariance=full_covariance)


def _demand(problem: "Problem", executor: "Executor", memory_limit_bytes: int | None) -> Demand:
    return Demand(
        n=problem.gram.shape[0],
        q=len(problem.test_points),
        fields=problem.residuals.shape[1],
        full_covariance=problem.full_covariance,
        workers=executor.workers,
        shares_memory=executor.shares_memory,
        memory_limit_bytes=executor.memory_bytes if memory_limit_bytes is None else memory_limit_bytes,
        p=problem.test_points.shape[1],
    )


def _observations(y: ArrayLike, n: int) -> Array:
    values = as_numbers("y", y)
    if values.ndim not in (1, 2) or len(values) != n or values.size == 0:
        raise ArgumentError(
            f"y has shape {values.shape} but X has {n} points; expected ({n},), or ({n}, T) for T fields."
        )
    if not np.isfinite(values).all():
        raise ArgumentError("y holds NaN or infinity; drop those points first.")
    return values if values.ndim == 2 else values[:, None]
