"""The exact posterior from observations on a whole latitude-longitude grid, few or many of them missing.

The grid's own structure solves the complete system (`cagp_dist.gram.RingGram`); how points that are missing
or held out are taken into account stands in `cagp_dist.gram.held_out`.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cagp_dist.budget import Demand, Plan, plan_rings
from cagp_dist.checks import as_numbers
from cagp_dist.errors import ArgumentError, NumericalError
from cagp_dist.gp import Posterior, Prior

if TYPE_CHECKING:
    from cagp_dist.gram import LatLonGrid
    from cagp_dist.runtime import Executor

Array = NDArray[np.float64]

ITERATIONS_GUESS = 40
"""Products a solve with many missing points takes, about: only the plan's seconds depend on it."""


def condition_on_grid(
    prior: Prior,
    grid: "LatLonGrid",
    y: ArrayLike,
    latitude_degrees: ArrayLike,
    longitude_degrees: ArrayLike,
    *,
    observed: ArrayLike | None = None,
    covariance: Literal["diagonal", "full"] = "diagonal",
    executor: "Executor | None" = None,
    progress: Callable[[float], None] | None = None,
) -> Posterior:
    """Condition on all (or all observed) points of a latitude-longitude grid, exactly.

    Parameters
    ----------
    prior : Prior
        Kernel of the chordal distance, noise and mean (a number, or a function of points on the unit sphere).
    grid : LatLonGrid
        Full-circle grid, any latitudes.
    y : array_like, shape (P, Q) or (T, P, Q)
        Observed fields; values at points that are not observed are not looked at.
    latitude_degrees, longitude_degrees : array_like, shape (q,)
        Test points, on the grid or off it.
    observed : array_like of bool, shape (P, Q), optional
        Which points of the grid were observed; by default all.
    covariance : {"diagonal", "full"}
        Variances only, or also the (q, q) covariance, which takes 24 n q bytes.
    executor : Executor, optional
        Where the work runs; by default all cores of this process.
    progress : callable, optional
        Called with the part that is done, 0 to 1.

    Returns
    -------
    Posterior
        As from `condition`, with status EXACT, or SOLVED (to a relative residual of 1e-10) where more than
        4,096 points are missing. Its trace is the prior and the posterior.

    Raises
    ------
    ArgumentError
        If an argument has the wrong shape or value.
    BudgetError
        If the factors do not fit into memory.
    NumericalError
        If G is not positive definite in floating point, or the iteration does not converge.

    Notes
    -----
    Costs those of `RingGram`, one whole-grid solve for each latitude with missing points and for each
    distinct position of a test point between the grid's longitudes, and n q kernel evaluations. With many
    missing points each test point takes tens of solves.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> grid = cagp.LatLonGrid(np.linspace(-75.0, 75.0, 11), 24)
    >>> y = np.cos(np.deg2rad(grid.latitude_degrees))[:, None] * np.ones(24)
    >>> observed = np.ones(grid.shape, dtype=bool)
    >>> observed[5, 7] = False
    >>> prior = cagp.Prior(cagp.Matern32(lengthscale=0.5), noise_variance=1e-4)
    >>> posterior = cagp.condition_on_grid(prior, grid, y, [0.0], [105.0], observed=observed)
    >>> bool(abs(posterior.mean[0] - 1.0) < 0.01), posterior.status.value
    (True, 'exact')
    """
    from cagp_dist.assembly import VARIANCE_ROUNDING, Step
    from cagp_dist.gram import RingGram
    from cagp_dist.gram.held_out import FEW_MISSING, FewMissing, ManyMissing, ObservedSystem, as_targets
    from cagp_dist.runtime import ThreadExecutor
    from cagp_dist.solvers import Stats, Status

    started = time.perf_counter()
    data = _Data.checked(prior, grid, y, observed)
    targets = as_targets(latitude_degrees, longitude_degrees)
    if covariance not in ("diagonal", "full"):
        raise ArgumentError(f'covariance is {covariance!r}; expected "diagonal" or "full".')
    report = progress or (lambda fraction: None)
    with ExitStack() as stack:
        if executor is None:
            executor = stack.enter_context(ThreadExecutor())
        rings = RingGram(grid, prior.kernel, noise_variance=prior.noise_variance, executor=executor)
        plan = plan_on_grid(
            grid,
            observed=data.observed,
            fields=len(data.residuals),
            latitude_degrees=targets.latitude_degrees,
            longitude_degrees=targets.longitude_degrees,
            full_covariance=covariance == "full",
            executor=executor,
        )
        few = np.count_nonzero(~data.observed) <= FEW_MISSING
        system: ObservedSystem = (
            FewMissing.of(rings, ~data.observed) if few else ManyMissing(rings, data.observed)
        )
        weights = system.weights(data.residuals)
        prior_mean = prior.mean_at(targets.points)
        mean = prior_mean + _seen(prior, grid, data.observed, weights, targets.points, executor)
        downdate = system.downdate(targets, full=covariance == "full", report=report)
        description = executor.description
    variance = prior.kernel.variance - (downdate.diagonal() if covariance == "full" else downdate)
    least = float(variance.min(initial=np.inf))
    if not least >= -VARIANCE_ROUNDING * prior.kernel.variance:
        raise NumericalError(
            f"a posterior variance is {least:.3g}, negative beyond rounding: the Gram matrix is nearly "
            "singular. Raise noise_variance."
        )
    start = np.broadcast_to(prior_mean, mean.shape)
    if np.ndim(y) == 2:
        mean, start = mean[:, 0], start[:, 0]
    return Posterior(
        mean=mean,
        variance=variance,
        covariance=prior.kernel(targets.points, targets.points) - downdate if covariance == "full" else None,
        status=Status.EXACT if few else Status.SOLVED,
        stats=Stats(
            iterations=1,
            seconds=time.perf_counter() - started,
            gram_entries=plan.gram_entries,
            relative_residual=system.relative_residual,
            plan=plan,
            executor=description,
        ),
        trace=(
            Step(0, start.copy(), np.full(len(variance), float(prior.kernel.variance))),
            Step(1, mean, variance),
        ),
    )


def plan_on_grid(
    grid: "LatLonGrid",
    *,
    observed: NDArray[np.bool_],
    fields: int,
    latitude_degrees: Array,
    longitude_degrees: Array,
    full_covariance: bool,
    executor: "Workers",
) -> Plan:
    """Plan what `condition_on_grid` is going to do; raises `BudgetError` if it does not fit.

    Parameters
    ----------
    grid, observed, latitude_degrees, longitude_degrees
        As for `condition_on_grid`.
    fields : int
        T.
    full_covariance : bool
        Whether the (q, q) covariance is wanted.
    executor : Executor
        Its ``workers``, ``shares_memory`` and ``memory_bytes`` are asked for.

    Returns
    -------
    Plan
    """
    from cagp_dist.gram.held_out import FEW_MISSING, Views, as_targets
    from cagp_dist.gram.wavenumbers import Wavenumbers

    targets = as_targets(latitude_degrees, longitude_degrees)
    missing = int(np.count_nonzero(~observed))
    solves = fields
    if missing > FEW_MISSING:
        solves += ITERATIONS_GUESS * len(targets.latitude_degrees)
    else:
        solves += len(Views.of(targets, grid).latitude_degrees) + int((~observed).any(axis=1).sum())
    return plan_rings(
        Demand(
            n=grid.size - missing,
            q=len(targets.latitude_degrees),
            fields=fields,
            full_covariance=full_covariance,
            workers=executor.workers,
            shares_memory=executor.shares_memory,
            memory_limit_bytes=executor.memory_bytes,
        ),
        n_latitudes=grid.shape[0],
        n_longitudes=grid.shape[1],
        block_bytes=Wavenumbers(grid.latitude_degrees, grid.n_longitudes, grid.mirrored).block_bytes,
        solves=solves,
    )


class Workers(Protocol):
    """What a plan asks of an executor."""

    @property
    def workers(self) -> int: ...

    @property
    def shares_memory(self) -> bool: ...

    @property
    def memory_bytes(self) -> int: ...


@dataclass(frozen=True, eq=False)
class _Data:
    """Residuals about the prior mean (T, P, Q), zero where nothing was observed, and the mask (P, Q)."""

    residuals: Array
    observed: NDArray[np.bool_]

    @classmethod
    def checked(cls, prior: Prior, grid: "LatLonGrid", y: ArrayLike, observed: ArrayLike | None) -> Self:
        from cagp_dist.gram import LatLonGrid

        if not isinstance(prior, Prior):
            raise ArgumentError(f"prior is a {type(prior).__name__}; expected a cagp_dist.Prior.")
        if not isinstance(grid, LatLonGrid):
            raise ArgumentError(
                f"grid is a {type(grid).__name__}; expected a cagp_dist.LatLonGrid. For points that are no "
                "full-circle grid use cagp_dist.condition."
            )
        mask = np.ones(grid.shape, dtype=bool) if observed is None else np.asarray(observed)
        if mask.dtype != np.bool_ or mask.shape != grid.shape:
            raise ArgumentError(
                f"observed has shape {mask.shape} and type {mask.dtype}; expected {grid.shape} of bool, True "
                "where a point was observed."
            )
        if not mask.any():
            raise ArgumentError("observed is False everywhere; expected at least one observed point.")
        fields = as_numbers("y", y)
        if fields.ndim not in (2, 3) or fields.shape[-2:] != grid.shape or fields.size == 0:
            raise ArgumentError(
                f"y has shape {fields.shape}; expected {grid.shape} (latitude, longitude), or T such fields."
            )
        fields = fields.reshape(-1, *grid.shape)
        missing = int(np.count_nonzero(~np.isfinite(fields[:, mask])))
        if missing:
            raise ArgumentError(
                f"y holds {missing} values that are NaN or infinite where a point was observed. Leave those "
                "points out, at all times: observed=numpy.isfinite(y), or numpy.isfinite(y).all(axis=0)."
            )
        centre = prior.mean_at(grid.points)
        if centre.shape[1] not in (1, len(fields)):
            raise ArgumentError(f"the prior mean has {centre.shape[1]} columns for {len(fields)} fields.")
        residuals = np.where(mask, fields, 0.0) - np.where(mask, centre.T.reshape(-1, *grid.shape), 0.0)
        return cls(residuals, mask)


def _seen(
    prior: Prior,
    grid: "LatLonGrid",
    observed: NDArray[np.bool_],
    weights: Array,
    points: Array,
    executor: "Executor",
) -> Array:
    """``k(X', X_o) v``, shape (q, T)."""
    from cagp_dist.gram.tiled import cross_product
    from cagp_dist.runtime import single_threaded_blas

    mask = observed.ravel()
    columns = np.ascontiguousarray(weights.reshape(len(weights), -1)[:, mask].T)
    with single_threaded_blas():
        return cross_product(prior.kernel, points, grid.points[mask], columns, executor=executor)
