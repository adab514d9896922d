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

from cagp_dist.budget import Demand, available_bytes
from cagp_dist.errors import ArgumentError, NumericalError
from cagp_dist.kernels import Kernel, as_points, check_positive

if TYPE_CHECKING:
    from cagp_dist.runtime import Executor
    from cagp_dist.solvers import Solver, State, Stats, Status

Array = NDArray[np.float64]
Mean = float | Callable[[Array], ArrayLike]

VARIANCE_ROUNDING = 1e-8
"""Variances below minus this fraction of the prior variance are errors, not rounding."""


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
class Step:
    """The posterior after some iterations: ``mean`` and ``variance`` as in `Posterior`."""

    iteration: int
    mean: Array
    variance: Array


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


@dataclass(frozen=True)
class Posterior:
    """The field at the test points after the solve.

    Attributes
    ----------
    mean : array, shape (q,), or (q, T) when y is (n, T)
        Posterior mean, unit of y.
    variance : array, shape (q,)
        Variance of the latent field about the mean, without observation noise, squared unit of y;
        the same for all T fields. Add ``prior.noise_variance`` to predict a new observation.
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
    trace: tuple[Step, ...]


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
        If the Gram matrix is not positive definite or a variance is negative beyond rounding.

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
    points, test_points = as_points("X", X), as_points("X_test", X_test)
    if len(points) == 0:
        raise ArgumentError(f"X has shape {points.shape}: nothing was observed; expected at least one point.")
    observed = _observations(y, len(points))
    if test_points.shape[1] != points.shape[1]:
        raise ArgumentError(
            f"X has {points.shape[1]} columns, X_test {test_points.shape[1]}; both need the same coordinates."
        )
    if covariance not in ("diagonal", "full"):
        raise ArgumentError(f'covariance is {covariance!r}; expected "diagonal" or "full".')

    from cagp_dist.gram import TiledGram
    from cagp_dist.runtime import ThreadExecutor
    from cagp_dist.solvers import Problem, Stats, Status

    started = time.perf_counter()
    gram = TiledGram(prior.kernel, points, noise_variance=np.full(len(points), float(prior.noise_variance)))
    residuals = observed - prior.mean_at(points)
    assembly = _Assembly(prior, test_points, fields=residuals.shape[1], full=covariance == "full")
    with ExitStack() as stack:
        if executor is None:
            executor = stack.enter_context(ThreadExecutor())
        plan = solver.plan(
            Demand(
                n=len(points),
                q=len(test_points),
                fields=residuals.shape[1],
                full_covariance=covariance == "full",
                workers=executor.workers,
                shares_memory=executor.shares_memory,
                memory_limit_bytes=available_bytes() if memory_limit_bytes is None else memory_limit_bytes,
            )
        )
        status, residual = Status.COMPLETED, None
        if solver.iterations > 0 and len(test_points) > 0:
            problem = Problem(gram, residuals, test_points, full_covariance=covariance == "full")
            for state in solver.states(problem, executor=executor, plan=plan):
                assembly.add(state)
                status, residual = state.status, state.relative_residual
                if progress is not None:
                    fraction = assembly.fraction(state, solver.iterations)
                    elapsed = time.perf_counter() - started
                    progress(Progress(state.iteration, solver.iterations, fraction, elapsed))
        description = executor.description
    trace = assembly.trace()
    return Posterior(
        mean=trace[-1].mean[:, 0] if np.ndim(y) == 1 else trace[-1].mean,
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
        trace=tuple(
            Step(step.iteration, step.mean[:, 0], step.variance) if np.ndim(y) == 1 else step
            for step in trace
        ),
    )


class _Assembly:
    """Collects states, batch by batch, into means and variances per iteration."""

    def __init__(self, prior: Prior, test_points: Array, *, fields: int, full: bool) -> None:
        self._prior = prior
        self._points = test_points
        self._shape = (len(test_points), fields)
        prior_mean = prior.mean_at(test_points)
        if prior_mean.shape[1] not in (1, fields):
            raise ArgumentError(f"the prior mean has {prior_mean.shape[1]} columns for {fields} fields.")
        self._prior_mean = np.broadcast_to(prior_mean, self._shape)
        self._full = full
        self._downdate = np.zeros((len(test_points),) * 2) if full else None
        self._steps: dict[int, tuple[Array, Array]] = {0: self._blank()}

    def _blank(self) -> tuple[Array, Array]:
        return np.zeros(self._shape), np.zeros(self._shape[0])

    def add(self, state: "State") -> None:
        mean, downdate = self._steps.setdefault(state.iteration, self._blank())
        mean[state.columns] = state.mean
        if self._full:
            self._downdate = state.downdate
        downdate[state.columns] = state.downdate.diagonal() if self._full else state.downdate

    def fraction(self, state: "State", iterations: int) -> float:
        q = self._shape[0]
        own = (state.columns.stop - state.columns.start) * min(1.0, state.iteration / iterations)
        return float((state.columns.start + own) / q)

    def trace(self) -> list[Step]:
        return [
            Step(iteration, self._prior_mean + mean, self._variance(downdate))
            for iteration, (mean, downdate) in sorted(self._steps.items())
        ]

    def covariance(self) -> Array | None:
        if self._downdate is None:
            return None
        covariance = self._prior.kernel(self._points, self._points)
        covariance -= self._downdate
        return 0.5 * (covariance + covariance.T)

    def _variance(self, downdate: Array) -> Array:
        variance = self._prior.kernel.variance - downdate
        least = float(variance.min(initial=np.inf))
        if not least >= -VARIANCE_ROUNDING * self._prior.kernel.variance:
            raise NumericalError(
                f"a posterior variance is {least:.3g}, negative beyond rounding: the Gram matrix is nearly "
                "singular. Raise noise_variance, thin points that nearly coincide, or use fewer iterations."
            )
        return variance


def _observations(y: ArrayLike, n: int) -> Array:
    try:
        values = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"y is not numeric: {error}. Expected numbers of shape (n,) or (n, T)."
        ) from error
    if values.ndim not in (1, 2) or len(values) != n or values.size == 0:
        raise ArgumentError(
            f"y has shape {values.shape} but X has {n} points; expected ({n},), or ({n}, T) for T fields."
        )
    if not np.isfinite(values).all():
        raise ArgumentError("y holds NaN or infinity; drop those points first.")
    return values if values.ndim == 2 else values[:, None]
