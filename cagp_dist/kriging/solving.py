"""Which solver a map gets, and the solve: one for all fields that were observed at the same places."""

from dataclasses import dataclass, replace
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.budget import Demand, Plan
from cagp_dist.errors import ArgumentError, BudgetError
from cagp_dist.geometry import space_filling_order
from cagp_dist.gp import condition
from cagp_dist.gram.cells import CellMeans
from cagp_dist.kriging.learning import Learned
from cagp_dist.kriging.observations import Observations, points_of
from cagp_dist.kriging.targets import Targets
from cagp_dist.latlon import LatLonGrid, LatLonWindow
from cagp_dist.latlon.layout import Layout
from cagp_dist.posterior.problem import grid_size
from cagp_dist.posterior.result import Posterior
from cagp_dist.prior import Prior
from cagp_dist.runtime import Executor
from cagp_dist.samples import sample_posterior
from cagp_dist.solvers import BlockGaussSeidel, Cholesky, Rings, Solver, Status
from cagp_dist.solvers.base import check_solver
from cagp_dist.text import alternatives

MOST_DENSE = 20_000
"""Observed points up to which a dense factor is the solver, if it fits into memory: 6.4 GB then. For a map,
with many targets, it costs less than a few sweeps."""

MOST_SWEEPS, BLOCK_SIZE, SHARE = 200, 1024, 0.05
"""Of block Gauss-Seidel, where nothing was said: it stops when the share of unfinished computation in every
variance is below the last."""

USUAL_SWEEPS = 10
"""By which its time is estimated."""

SOLVERS: dict[str, Solver] = {
    "cholesky": Cholesky(),
    "rings": Rings(),
    "block-gauss-seidel": BlockGaussSeidel(MOST_SWEEPS, block_size=BLOCK_SIZE, computational_share=SHARE),
}
"""Solvers by their names, beside "auto"; any other is given as an object."""

EXACT_IS_WORTH = 0.1
"""An exact solve may take ten times as long as sweeps that leave something to compute."""


class DriftCoefficients(NamedTuple):
    """Coefficients of a mean that were estimated: k names, values (k, T) and standard errors (k, T)."""

    names: tuple[str, ...]
    values: Array
    std: Array


@dataclass(frozen=True, eq=False)
class Prediction:
    """The fields at the targets.

    Attributes
    ----------
    mean : array, shape (T, q)
    variance : array, shape (T, q)
        Latent, without noise.
    computational_variance : array, shape (T, q)
        Part of the variance that more computation would take away, or an upper bound of it.
    computational_variance_known : bool
        Whether it is that part and no bound.
    covariance : array, shape (T, q, q), or None
        If it was asked for.
    status : Status
        The worst of all solves.
    solvers : tuple of str
        Different ones that were used.
    plans : tuple of Plan
        One for each solve.
    executor : str
        Where it ran.
    drift : DriftCoefficients or None
        None where the mean was known.
    """

    mean: Array
    variance: Array
    computational_variance: Array
    computational_variance_known: bool
    covariance: Array | None
    status: Status
    solvers: tuple[str, ...]
    plans: tuple[Plan, ...]
    executor: str
    drift: DriftCoefficients | None = None

    @property
    def std(self) -> Array:
        """Root of the variance (T, q); one that rounding left below zero (the status says so) counts as 0."""
        return np.sqrt(np.maximum(self.variance, 0.0))


def predict(
    observed: Observations,
    learned: Learned,
    targets: Targets,
    *,
    solver: "str | Solver",
    executor: Executor,
    memory_limit_bytes: int | None,
    full_covariance: bool = False,
) -> Prediction:
    """Condition each field on its observations, at the targets.

    Fields with the same gaps share a solve. Each has an observation at least.

    Raises
    ------
    DataError, BudgetError, NumericalError, ArgumentError
        As for `cagp_dist.condition`.
    """
    T, q = len(observed.values), targets.latitude_degrees.size
    mean, variance = np.empty((T, q)), np.empty((T, q))
    computational, known = np.empty((T, q)), True
    covariance = np.empty((T, q, q)) if full_covariance else None
    statuses, names, plans, where = [], [], [], ""
    drift: DriftCoefficients | None = None
    for places, fields in observed.patterns():
        prior = learned.prior(observed, places, fields)
        chosen = choose_solver(
            solver,
            observed,
            places,
            targets,
            fields=fields.size,
            full_covariance=full_covariance,
            executor=executor,
            memory_limit_bytes=memory_limit_bytes,
        )
        posterior = _condition(
            prior,
            observed,
            places,
            fields,
            targets,
            solver=chosen,
            executor=executor,
            memory_limit_bytes=memory_limit_bytes,
            full_covariance=full_covariance,
        )
        on_grid = chosen.needs_grid and targets.grid is not None  # (T, P, Q), of points (q, T)
        mean[fields] = posterior.mean.reshape(fields.size, q) if on_grid else posterior.mean.T
        variance[fields] = posterior.variance.reshape(q)
        if covariance is not None:
            covariance[fields] = posterior.covariance
        computational[fields] = posterior.certificate.bounds(executor)[1]
        known &= posterior.certificate.known
        if (found := posterior.coefficients) is not None:
            shape = len(found.names), T
            drift = drift or DriftCoefficients(found.names, np.empty(shape), np.empty(shape))
            drift.values[:, fields] = found.values.reshape(-1, fields.size)
            drift.std[:, fields] = found.std[:, None]
        statuses.append(posterior.status)
        names.append(repr(chosen))
        plans.append(posterior.stats.plan)
        where = posterior.stats.executor
    return Prediction(
        mean=mean,
        variance=variance,
        computational_variance=computational,
        computational_variance_known=known,
        covariance=covariance,
        status=Status.worst(statuses),
        solvers=tuple(dict.fromkeys(names)),
        plans=tuple(plans),
        executor=where,
        drift=drift,
    )


def choose_solver(
    solver: "str | Solver",
    observed: Observations,
    places: Mask,
    targets: Targets,
    *,
    fields: int,
    full_covariance: bool,
    executor: Executor,
    memory_limit_bytes: int | None,
) -> Solver:
    """Choose the solver for fields that were observed at places (n,).

    Exact solvers first: a dense factor for up to `MOST_DENSE` points, and on a grid its rings, whichever is
    planned to be quicker; a complete grid always by its rings. Otherwise block Gauss-Seidel.
    """
    if not isinstance(solver, str):
        check_solver(solver)
        return solver
    if solver in SOLVERS:
        return SOLVERS[solver]
    if solver != "auto":
        raise ArgumentError(
            f"solver is {solver!r}; expected {alternatives(['auto', *SOLVERS])}, or a solver such as "
            "cagp.BlockGaussSeidel(iterations=5)."
        )
    window, n = observed.window, int(places.sum())
    demand = Demand(
        n=n,
        q=targets.latitude_degrees.size,
        fields=fields,
        full_covariance=full_covariance,
        workers=executor.workers,
        shares_memory=executor.shares_memory,
        memory_limit_bytes=executor.memory_bytes if memory_limit_bytes is None else memory_limit_bytes,
        cell_nodes=0 if targets.cells is None else len(targets.cells.nodes),
        bounds=True,
    )
    sweeps, exact = SOLVERS["block-gauss-seidel"], []
    if window is not None:
        size = grid_size(Layout.of(window.grid, _on_circle(window, places)), targets.grid)
        exact += _planned(Rings(), replace(demand, grid=size))
        if exact and not size.missing:
            return Rings()
    if window is not None or n <= MOST_DENSE:
        exact += _planned(Cholesky(), demand)
    if not exact:
        return sweeps
    seconds, best = min(exact, key=itemgetter(0))
    usual = BlockGaussSeidel(USUAL_SWEEPS, block_size=BLOCK_SIZE)
    others = _planned(usual, demand) if n > MOST_DENSE else []
    return sweeps if others and others[0][0] * EXACT_IS_WORTH < seconds else best


def _planned(solver: Solver, demand: Demand) -> list[tuple[float, Solver]]:
    """Seconds that a solve is planned to take, and its solver; nothing if it does not fit into memory."""
    try:
        return [(solver.plan(demand).seconds, solver)]
    except BudgetError:
        return []


def _on_circle(window: LatLonWindow, places: Mask) -> Mask:
    """Which points of the full circle were observed, shape (P, Q)."""
    return np.isfinite(window.embed(np.where(places, 0.0, np.nan).reshape(window.shape)))


def _condition(
    prior: Prior,
    observed: Observations,
    places: Mask,
    fields: Indices,
    targets: Targets,
    *,
    solver: Solver,
    executor: Executor,
    memory_limit_bytes: int | None,
    full_covariance: bool,
) -> Posterior:
    """Call `cagp_dist.condition` with what it takes."""
    return condition(
        *_arguments(prior, observed, places, fields, targets, solver=solver),
        solver=solver,
        covariance="full" if full_covariance else "diagonal",
        executor=executor,
        memory_limit_bytes=memory_limit_bytes,
        computational_bounds=True,
    )


def sample_fields(
    observed: Observations,
    learned: Learned,
    targets: Targets,
    *,
    size: int,
    generator: np.random.Generator,
    solver: "str | Solver",
    executor: Executor,
    memory_limit_bytes: int | None,
) -> tuple[Array, Status, tuple[str, ...]]:
    """Draw each field at the targets, pathwise, a right-hand side for each draw (math 1.5).

    Returns draws (size, T, q), how the solves ended, and the solvers that were used.

    Block Gauss-Seidel that was not asked for with its settings does `USUAL_SWEEPS` sweeps: where to stop
    follows from variances, which are not worked out here.

    Raises
    ------
    DataError, BudgetError, NumericalError, ArgumentError
        As for `cagp_dist.sample_posterior`.
    """
    T, q, names = len(observed.values), targets.latitude_degrees.size, []
    draws = np.empty((size, T, q))
    for places, fields in observed.patterns():
        chosen = choose_solver(
            solver,
            observed,
            places,
            targets,
            fields=fields.size * size,
            full_covariance=False,
            executor=executor,
            memory_limit_bytes=memory_limit_bytes,
        )
        if chosen is SOLVERS["block-gauss-seidel"]:
            chosen = BlockGaussSeidel(USUAL_SWEEPS, block_size=BLOCK_SIZE)
        prior = learned.prior(observed, places, fields)
        found = sample_posterior(
            *_arguments(prior, observed, places, fields, targets, solver=chosen),
            solver=chosen,
            samples=size,
            generator=generator,
            executor=executor,
            memory_limit_bytes=memory_limit_bytes,
        )
        on_grid = chosen.needs_grid and targets.grid is not None  # (size, T, P, Q), of points (size, q, T)
        draws[:, fields] = found.reshape(size, fields.size, q) if on_grid else found.transpose(0, 2, 1)
        names.append(repr(chosen))
    return draws, Status.COMPLETED, tuple(dict.fromkeys(names))


def _arguments(
    prior: Prior, observed: Observations, places: Mask, fields: Indices, targets: Targets, *, solver: Solver
) -> "tuple[Prior, Array | LatLonGrid, Array, Array | CellMeans | LatLonGrid]":
    """Prior, X, y and targets for a solver: a grid where it needs one, else points in its order."""
    window = observed.window
    if solver.needs_grid:
        if window is None:
            raise ArgumentError(
                f"the observations form no latitude-longitude grid, which {solver!r} needs; use "
                'solver="auto".'
            )
        y = window.embed(observed.values[fields].reshape(-1, *window.shape))
        y[:, ~_on_circle(window, places)] = np.nan
        return prior, window.grid, y, targets.wanted if targets.grid is None else targets.grid
    X, y = points_of(observed)[places], observed.values[np.ix_(fields, places)].T
    if not isinstance(solver, Cholesky):
        order = space_filling_order(X, block_size=getattr(solver, "block_size", BLOCK_SIZE))
        X, y = X[order], y[order]
        if isinstance(prior.noise_variance, np.ndarray):
            prior = replace(prior, noise_variance=prior.noise_variance[order])
    return prior, X, np.ascontiguousarray(y), targets.wanted
