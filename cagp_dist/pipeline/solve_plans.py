"""Which solver is taken, and plans of solves that are not going to be done now.

`cagp_dist.condition` plans one that is.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import add

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.budget import Demand, Plan, Work
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.latlon import LatLonGrid
from cagp_dist.pipeline.grid_places import GridPlaces, grid_if_any
from cagp_dist.pipeline.observations import Observations
from cagp_dist.posterior.coefficients import plan_of_weights, with_weights
from cagp_dist.posterior.left_out import plan_left_out
from cagp_dist.posterior.patterns import fields_by_pattern, plan_together
from cagp_dist.posterior.prior_draws import scattered_bytes
from cagp_dist.posterior.sampling import draw_groups, joint_plan_of_draws, plans_of_draws
from cagp_dist.solvers import Solver
from cagp_dist.solvers.solver_choice import chosen_solver


def plan_of_patterns(solver: Solver, demands: Sequence[Demand], *, coefficients: int) -> Plan:
    """Plan the solves of all patterns of gaps, and what finds the coefficients of the mean."""
    # extra right-hand sides ride along with the fields
    left, _, plan = plan_together(
        solver, [replace(each, fields=each.fields + 2 * coefficients) for each in demands]
    )
    weights = [plan_of_weights(solver, each, coefficients=coefficients) for each in left]
    return with_weights(plan, weights, fields=sum(each.fields for each in demands))


def demands_of_patterns(
    of_all: Demand,
    present: Mask,
    solver: Solver,
    places: GridPlaces | None,
    targets: Array | LinearFunctionals | LatLonGrid | None,
) -> list[Demand]:
    """Give the demand of each pattern of gaps (T, n); of a solver that takes field by field of the fullest.

    Places are those of the grid of a solver that needs one.
    """
    groups = fields_by_pattern(present)
    if not solver.many_fields:
        groups = [max(groups, key=lambda group: np.count_nonzero(present[group[0]]))[:1]]
    return [
        replace(
            of_all,
            n=int(np.count_nonzero(present[group[0]])),
            fields=group.size,
            grid=None if places is None else places.size(present[group[0]], targets),
        )
        for group in groups
    ]


def work_of_left_out(demands: Sequence[Demand], *, coefficients: int) -> Work:
    """Count the prediction of each observation from all others, of all patterns of gaps."""
    return reduce(add, [plan_left_out(each, coefficients=coefficients).work for each in demands])


def plan_of_samples(
    solver: Solver, demands: Sequence[Demand], *, targets: int, cell_nodes: int, samples: int, times: int
) -> Plan:
    """Plan samples at targets, for the pattern of gaps with the most observed points."""
    fullest = max(demands, key=lambda demand: demand.n)
    demand = replace(fullest, q=targets, cell_nodes=cell_nodes, wide=(), bounds=False)
    points = demand.n + demand.target_points
    draw_bytes = partial(
        scattered_bytes, points=points, values=demand.n + demand.q, p=demand.p, workers=demand.workers
    )
    plans = plans_of_draws(solver, demand, draw_groups(samples, points=points), draw_bytes=draw_bytes)
    return joint_plan_of_draws(plans, demand, draws=samples, sums=times + len(demands))


def choose_solver(points: Observations, chosen: Indices) -> Solver:
    """Choose one solver for all fields at some places: by how many these are, and how they lie."""
    present = points.present[:, chosen]
    counts = np.count_nonzero(present, axis=1)
    there = present.any(axis=0)
    if not there.any():
        return chosen_solver(0)
    north, east = points.north[chosen][there], points.east[chosen][there]
    scattered = points.in_time or bool(points.beside) or not points.space.has_latitudes
    places = None if scattered else grid_if_any(north, east)
    if places is None:
        return chosen_solver(int(counts.max()))
    noise = points.noise_by_place
    if noise is not None and not places.even(noise[chosen][there]):
        return chosen_solver(int(counts.max()))
    emptiest = np.where(counts > 0, counts, counts.max() + 1).argmin()  # of the fields with values
    grid = places.size(present[emptiest][there])
    return chosen_solver(int(counts.max()), size=grid.size, missing=grid.missing)
