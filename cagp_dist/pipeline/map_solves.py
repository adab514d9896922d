"""The solve of a map: its solver, prior, points and values, for `cagp_dist.pipeline.field_solves.solve`."""

from typing import cast

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.budget import Demand, Plan
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.gram.targets import part
from cagp_dist.latlon import LatLonGrid
from cagp_dist.pipeline.background import weighted
from cagp_dist.pipeline.defaults import BLOCK_SIZE, MOST_SWEEPS, SHARE
from cagp_dist.pipeline.field_solves import Execution, Solution, bounds_are_cheap, solve
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.grid_places import no_rings
from cagp_dist.pipeline.map_points import MapPoints, Targets
from cagp_dist.pipeline.observations import Observations
from cagp_dist.pipeline.resources import Resources
from cagp_dist.pipeline.solve_plans import choose_solver, demands_of_patterns, plan_of_patterns
from cagp_dist.prior import Prior
from cagp_dist.solvers import BlockGaussSeidel, Cholesky, Rings, Solver
from cagp_dist.solvers.interface import check_solver
from cagp_dist.solvers.solver_choice import NEIGHBOURS
from cagp_dist.text import alternatives

# Solvers by their names, beside "auto"; any other is given as an object
NAMED_SOLVERS: dict[str, Solver] = {
    "cholesky": Cholesky(),
    "rings": Rings(),
    "neighbours": NEIGHBOURS,
    "block-gauss-seidel": BlockGaussSeidel(MOST_SWEEPS, block_size=BLOCK_SIZE, computational_share=SHARE),
}


def solver_of(asked: "str | Solver", observed: Observations) -> Solver:
    """Give the solver that was asked for, by its name or itself, or the one that follows from the points."""
    if observed.functionals is not None:
        return _of_areas(asked)
    if not isinstance(asked, str):
        check_solver(asked)
        return asked
    if asked != "auto" and asked not in NAMED_SOLVERS:
        raise ArgumentError(
            f"solver is {asked!r}; expected {alternatives(['auto', *NAMED_SOLVERS])}, or a solver such as "
            "cagp.BlockGaussSeidel(iterations=5).",
            key="solver-type",
        )
    return choose_solver(observed, observed.there) if asked == "auto" else NAMED_SOLVERS[asked]


def takes_areas(asked: "str | Solver") -> bool:
    """Whether a solver takes means over areas that were observed: a Cholesky factor does."""
    return asked in ("auto", "cholesky") if isinstance(asked, str) else isinstance(asked, Cholesky)


def _of_areas(asked: "str | Solver") -> Solver:
    """Give the solver of means over areas that were observed."""
    if not takes_areas(asked):
        raise ArgumentError(
            f'solver is {asked!r}, and means over areas were observed; expected "auto" or "cholesky".',
            key="solver-of-functionals",
        )
    return Cholesky()


def solve_map(
    observed: Observations,
    learned: FittedModel,
    targets: Targets,
    *,
    solver: Solver,
    execution: Execution,
    full_covariance: bool = False,
) -> Solution:
    """Predict all fields at the targets, each from its own observations."""
    more, sampled = targets.mean_at, targets.sampled_at
    scale = learned.scale(observed)
    return solve(
        *problem_of_map(observed, learned, targets.points, solver),
        solver=solver,
        execution=execution,
        full_covariance=full_covariance,
        X_mean=None if more is None else weighted(more.wanted, scale),
        mean_like=targets.mean_like,
        X_sampled=None if sampled is None else weighted(sampled.wanted, scale),
        samples=targets.samples,
    )


def problem_of_map(
    observed: Observations, learned: FittedModel, targets: MapPoints, solver: Solver
) -> "tuple[Prior, Array | LatLonGrid, Array, Array | LinearFunctionals | LatLonGrid]":
    """Prior, X, y and targets of a solve: a grid where the solver needs one, else points in its order."""
    places = observed.in_order(solver)
    prior, values = learned.prior(observed, places), observed.values[:, places]
    if (scale := learned.scale(observed)) is not None:
        if solver.needs_grid:
            raise no_rings("the standard deviation of the background's error varies from place to place.")
        values = values / scale(observed.X[places])
    if not solver.needs_grid:
        # solves that take points take means over areas as well
        X, y = cast("Array", part(observed.sites, places)), np.ascontiguousarray(values.T)
        return prior, X, y, weighted(targets.wanted, scale)
    grid = observed.grid_of(places).like(targets.grid)
    if isinstance(prior.noise_variance, np.ndarray):
        prior = Prior(prior.kernel, grid.noise(prior.noise_variance), prior.mean)
    return prior, grid.grid, grid.fields(values), targets.wanted if targets.grid is None else targets.grid


def plan_of_map(
    observed: Observations,
    targets: MapPoints,
    solver: Solver,
    resources: Resources,
    *,
    kernel_parts: int,
    coefficients: int,
    groups: int = 0,
) -> Plan:
    """Plan a map before anything is fitted: `BudgetError` if it does not fit.

    So many ``coefficients`` of the mean are estimated; ``groups`` of observations share an error.
    """
    grid = observed.grid_of(observed.there).like(targets.grid) if solver.needs_grid else None
    present, q = observed.present[:, observed.there], len(targets.X)
    fullest = int(np.count_nonzero(present, axis=1).max())
    of_all = Demand(
        n=fullest,
        q=q,
        fields=observed.fields,
        full_covariance=False,
        workers=resources.executor.workers,
        shares_memory=resources.executor.shares_memory,
        memory_limit_bytes=resources.memory_bytes,
        kernel_parts=kernel_parts,
        groups=groups,
        cell_nodes=0 if targets.cells is None else len(targets.cells.nodes),
        bounds=bounds_are_cheap(solver, observed=fullest, targets=q),
    )
    demands = demands_of_patterns(of_all, present, solver, grid, targets.grid or targets.wanted)
    return plan_of_patterns(solver, demands, coefficients=coefficients)
