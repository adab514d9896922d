"""Which solver a map gets, and the solve: one for all fields that were observed at the same places."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget import Demand, Plan
from cagp_dist.errors import ArgumentError, BudgetError
from cagp_dist.geometry import space_filling_order
from cagp_dist.gp import condition
from cagp_dist.gram.exact_variance import is_known
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.latlon import LatLonGrid
from cagp_dist.latlon.grid_layout import Layout
from cagp_dist.mapping.defaults import (
    BLOCK_SIZE,
    BOUND_SECONDS,
    FEW_NEIGHBOURS,
    FEW_SWEEPS,
    LONG_SECONDS,
    MORE_WORKERS,
    MOST_CERTIFIED,
    MOST_SWEEPS,
    QUICK_SECONDS,
    SHARE,
    TRIED_POINTS,
    TRIED_TARGETS,
)
from cagp_dist.mapping.fitted_model import FittedModel
from cagp_dist.mapping.grid_places import GridPlaces
from cagp_dist.mapping.map_points import MapPoints
from cagp_dist.mapping.narration import Outlook, Way
from cagp_dist.mapping.observations import Observations
from cagp_dist.mapping.resources import Resources, SolveSettings
from cagp_dist.mapping.solve_plans import choose_solver
from cagp_dist.posterior.problem import grid_size
from cagp_dist.posterior.result import Progress
from cagp_dist.prior import Prior
from cagp_dist.runtime import SerialExecutor
from cagp_dist.runtime.threads import usable_cores
from cagp_dist.solvers import BlockGaussSeidel, Cholesky, Neighbours, Rings, Solver, Status
from cagp_dist.solvers.engine.affine import Affine
from cagp_dist.solvers.interface import check_solver, no_op
from cagp_dist.solvers.solver_choice import NEIGHBOURS
from cagp_dist.text import alternatives

# Solvers by their names, beside "auto"; any other is given as an object
NAMED_SOLVERS: dict[str, Solver] = {
    "cholesky": Cholesky(),
    "rings": Rings(),
    "neighbours": NEIGHBOURS,
    "block-gauss-seidel": BlockGaussSeidel(MOST_SWEEPS, block_size=BLOCK_SIZE, computational_share=SHARE),
}


class DriftCoefficients(NamedTuple):
    """Coefficients of a mean that were estimated: k names, values (k, T) and standard errors (k, T)."""

    names: tuple[str, ...]
    values: Array
    std: Array


@dataclass(frozen=True, eq=False)
class Prediction:
    """The fields at the targets."""

    mean: Array  # (T, q)
    variance: Array  # (T, q), latent, without noise
    # (T, q): the part of the variance that more computation would remove, or an upper bound of it; None
    # where neighbours were used and there are many
    computational_variance: Array | None
    status: Status  # the worst of all solves
    solvers: tuple[str, ...]  # different ones that were used
    plans: tuple[Plan, ...]  # one for each solve
    executor: str  # where it ran
    computational_variance_known: bool = True  # whether it is that part and no bound
    covariance: Array | None = None  # (T, q, q), if it was asked for
    drift: DriftCoefficients | None = None  # None where the mean was known
    # (T, L, q): of the field at `QUANTILE_LEVELS`, where the numbers of the prior were integrated over
    quantiles: Array | None = None

    @property
    def std(self) -> Array:
        """Root of the variance (T, q); one that rounding left below zero (the status says so) counts as 0."""
        return np.sqrt(np.maximum(self.variance, 0.0))


@dataclass(frozen=True, eq=False)
class PlannedSolve:
    """The solve of fields with the same gaps."""

    places: Indices  # in solver order
    fields: Indices
    solver: Solver
    demand: Demand
    plan: Plan  # if all its iterations are done

    @property
    def stops_early(self) -> bool:
        """Whether it ends when little is left to compute, which may take fewer iterations than planned."""
        return isinstance(self.solver, Affine) and self.solver.computational_share is not None

    def changed(self, solver: Solver | None, change: Mapping[str, int]) -> "PlannedSolve":
        """Plan it anew, by another solver or with another demand."""
        solver, demand = solver or self.solver, replace(self.demand, **change)  # type: ignore[arg-type]
        return replace(self, solver=solver, demand=demand, plan=solver.plan(demand))

    def seconds(self, iterations: int | None = None) -> float:
        """Rough time, bounds of the computational variance included; of so many iterations, or all."""
        part = 1.0 if iterations is None else min(1.0, iterations / max(self.plan.iterations, 1))
        bounded = isinstance(self.solver, Affine) and not is_known(self.demand)
        bounds = BOUND_SECONDS * self.demand.n * self.demand.q / self.demand.workers if bounded else 0.0
        return part * self.plan.seconds + bounds


def plan_solves(
    observed: Observations,
    targets: MapPoints,
    settings: SolveSettings,
    *,
    kernel_parts: int,
    full_covariance: bool = False,
    samples: int = 1,
) -> list[PlannedSolve]:
    """Choose the solver of each pattern of gaps, and plan it for so many right-hand sides of each field."""
    solver = settings.solver
    if isinstance(solver, str) and solver != "auto" and solver not in NAMED_SOLVERS:
        raise ArgumentError(
            f"solver is {solver!r}; expected {alternatives(['auto', *NAMED_SOLVERS])}, or a solver such as "
            "cagp.BlockGaussSeidel(iterations=5)."
        )
    named = NAMED_SOLVERS.get(solver) if isinstance(solver, str) else solver
    if not isinstance(solver, str):
        check_solver(solver)
    chosen, executor = choose_solver(observed, observed.there) if named is None else named, settings.executor
    grid = _grid(observed) if chosen.needs_grid else None
    found = []
    for places, fields in observed.patterns(chosen):
        demand = Demand(
            n=places.size,
            q=len(targets.X),
            fields=fields.size * samples,
            full_covariance=full_covariance,
            workers=executor.workers,
            shares_memory=executor.shares_memory,
            memory_limit_bytes=settings.memory_bytes,
            kernel_parts=kernel_parts,
            cell_nodes=0 if targets.cells is None else len(targets.cells.nodes),
            bounds=True,
        )
        if grid is not None:
            demand = replace(demand, grid=grid_size(Layout.of(grid.grid, grid.mask(places)), targets.grid))
        found.append(PlannedSolve(places, fields, chosen, demand, chosen.plan(demand)))
    return found


def _grid(observed: Observations) -> GridPlaces:
    """Give the grid of the places that were observed."""
    found = observed.grid_of(observed.there)
    positions = np.full(observed.north.size, -1)
    positions[observed.there] = found.positions
    return GridPlaces(found.grid, positions)


def outlook_of(
    solves: Sequence[PlannedSolve], *, iterations: int | None = None, times: int = 1, stage: str = "solve"
) -> Outlook:
    """Say what solves take, all of them ``times``; those that stop early about ``iterations``."""

    def seconds(planned: Sequence[PlannedSolve]) -> float:
        return times * sum(each.seconds(iterations if each.stops_early else None) for each in planned)

    longest = max(solves, key=lambda solve: solve.seconds())
    plan = longest.plan
    text = f"{plan.method}, {plan.n:,} observed points, {plan.q:,} targets"
    if not plan.direct:
        fewer = iterations is not None and iterations < plan.iterations
        about = f"about {iterations:,} of at most " if fewer else "up to "
        text += f", {about}{plan.iterations:,} sweeps"
    if times * len(solves) > 1:
        text += f", {times * len(solves):,} solves"
    peak, whole, ways = max(solve.plan.peak_bytes for solve in solves), seconds(solves), list[Way]()
    for way, solver, change in _changes(longest, whole) if whole >= QUICK_SECONDS / 5.0 else ():
        with suppress(BudgetError):  # more memory
            ways.append(Way(way, seconds([solve.changed(solver, change) for solve in solves])))
    return Outlook(stage, text, whole, peak, tuple(ways))


def _changes(solve: PlannedSolve, seconds: float) -> Iterator[tuple[str, Solver | None, dict[str, int]]]:
    """Give what may make a solve faster: how it is written, another solver, and what else is demanded."""
    solver, demand = solve.solver, solve.demand
    yield "a quarter of the targets", None, {"q": demand.q // 4, "cell_nodes": demand.cell_nodes // 4}
    if isinstance(solver, Neighbours):
        few = f"solver=cagp.Neighbours({FEW_NEIGHBOURS}), with wider error bars"
        yield few, Neighbours(FEW_NEIGHBOURS), {}
    else:
        yield 'solver="auto"', NEIGHBOURS, {}
    if isinstance(solver, BlockGaussSeidel):
        few = f"solver=cagp.BlockGaussSeidel({FEW_SWEEPS}), with wider error bars"
        yield few, BlockGaussSeidel(FEW_SWEEPS, block_size=solver.block_size), {}
    cores = usable_cores()
    if demand.shares_memory and demand.workers < cores:
        yield f"executor=None, which takes all {cores} cores", None, {"workers": cores}
    elif seconds > LONG_SECONDS:
        more = MORE_WORKERS * demand.workers
        yield f"executor=CLIENT, a Dask cluster of {more} cores", None, {"workers": more}


def expected_sweeps(
    solves: Sequence[PlannedSolve], observed: Observations, learned: FittedModel, targets: MapPoints
) -> int | None:
    """Find out about how many sweeps are needed where solves stop early; None where none does.

    By few targets and thinned blocks, with the noise thinned: what links blocks is then much the same. Fine
    structure is lost, and the number doubled.
    """
    early = [solve for solve in solves if solve.stops_early and solve.demand.q > 0]
    if not early:
        return None
    largest = max(early, key=PlannedSolve.seconds)
    solver, prior = largest.solver, learned.prior(observed, largest.places, largest.fields[:1])
    assert isinstance(solver, Affine)
    block = solver.block_size if isinstance(solver, BlockGaussSeidel) else 0
    step = -(-largest.demand.n // TRIED_POINTS)
    if step == 1 or block < step or targets.cells is not None or largest.demand.grid is not None:
        return None
    X, noise = observed.X[largest.places], prior.noise_variance
    order = space_filling_order(X, block_size=block)[step // 2 :: step]
    noise = noise[order] if isinstance(noise, np.ndarray) else noise
    generator = np.random.default_rng(0)
    some = generator.choice(largest.demand.q, size=min(TRIED_TARGETS, largest.demand.q), replace=False)
    found = condition(
        Prior(prior.kernel, noise / step, 0.0),
        X[order],
        np.zeros(len(order)),
        targets.X[some],
        solver=replace(solver, block_size=block // step),  # type: ignore[call-arg]
        executor=SerialExecutor(),
    )
    return min(2 * found.stats.iterations, solver.iterations)


def predict(
    observed: Observations,
    learned: FittedModel,
    targets: MapPoints,
    *,
    solves: Sequence[PlannedSolve],
    resources: Resources,
    full_covariance: bool = False,
    iterations: int | None = None,
    report: Callable[[float], None] = no_op,
) -> Prediction:
    """Condition each field on its observations, at the targets; ``report`` gets the part that is done."""
    T, q = observed.fields, len(targets.X)
    mean, variance = np.empty((T, q)), np.empty((T, q))
    computational: Array | None = np.empty((T, q))
    known = True
    covariance = np.empty((T, q, q)) if full_covariance else None
    statuses, names, plans, where = [], [], [], ""
    drift: DriftCoefficients | None = None
    whole = sum(solve.seconds() for solve in solves)
    done = 0.0
    for solve in solves:
        fields, chosen = solve.fields, solve.solver
        share = solve.seconds() / whole if whole > 0.0 else 0.0
        few = solve.plan.iterations / iterations if solve.stops_early and iterations else 1.0

        def said(state: Progress, done: float = done, share: float = share, few: float = few) -> None:
            report(done + share * min(1.0, few * state.fraction))

        posterior = condition(
            *arguments_of(observed, learned, targets, solve),
            solver=chosen,
            covariance="full" if full_covariance else "diagonal",
            executor=resources.executor,
            memory_limit_bytes=resources.memory_limit_bytes,
            computational_bounds=True,
            progress=said,
        )
        done += share
        on_grid = chosen.needs_grid and targets.grid is not None  # (T, P, Q), of points (q, T)
        mean[fields] = posterior.mean.reshape(fields.size, q) if on_grid else posterior.mean.T
        variance[fields] = posterior.variance.reshape(q)
        if covariance is not None:
            covariance[fields] = posterior.covariance
        if isinstance(chosen, Neighbours) and solve.demand.n * q > MOST_CERTIFIED:
            computational = None
        if computational is not None:
            computational[fields] = posterior.certificate.bounds(resources.executor)[1]
            known &= posterior.certificate.known
        if (found := posterior.coefficients) is not None:
            shape = len(found.names), T
            drift = drift or DriftCoefficients(found.names, np.empty(shape), np.empty(shape))
            drift.values[:, fields] = found.values.reshape(-1, fields.size)
            drift.std[:, fields] = found.std[:, None]
        statuses.append(posterior.status)
        plans.append(posterior.stats.plan)
        automatic = isinstance(chosen, Neighbours) and chosen.neighbours == "auto"
        names.append(repr(chosen) + (f": {plans[-1].method}" if automatic else ""))
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


def arguments_of(
    observed: Observations, learned: FittedModel, targets: MapPoints, solve: PlannedSolve
) -> "tuple[Prior, Array | LatLonGrid, Array, Array | LinearFunctionals | LatLonGrid]":
    """Prior, X, y and targets for a solver: a grid where it needs one, else points in its order."""
    places, fields = solve.places, solve.fields
    prior, values = learned.prior(observed, places, fields), observed.values[np.ix_(fields, places)]
    if not solve.solver.needs_grid:
        return prior, observed.X[places], np.ascontiguousarray(values.T), targets.wanted
    grid = _grid(observed)
    if isinstance(prior.noise_variance, np.ndarray):
        prior = replace(prior, noise_variance=grid.noise(prior.noise_variance, places))
    wanted = targets.wanted if targets.grid is None else targets.grid
    return prior, grid.grid, grid.fields(values, places), wanted
