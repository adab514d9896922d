"""Which solver is taken, and plans of solves that are not going to be done now.

`cagp_dist.condition` plans one that is.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget import Demand, Plan
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.mapping.grid_places import grid_if_any
from cagp_dist.mapping.observations import Observations
from cagp_dist.posterior.coefficients import plan_of_weights, with_weights
from cagp_dist.posterior.patterns import fields_by_pattern, plan_together
from cagp_dist.posterior.prior_draws import scattered_bytes
from cagp_dist.posterior.sampling import draw_groups, joint_plan_of_draws, plans_of_draws
from cagp_dist.solvers import Solver
from cagp_dist.solvers.solver_choice import chosen_solver, demand_of_choice


def plan_of_patterns(solver: Solver, demands: Sequence[Demand], *, coefficients: int) -> Plan:
    """Plan the solves of all patterns of gaps, and what finds the coefficients of the mean."""
    # extra right-hand sides ride along with the fields
    left, _, plan = plan_together(
        solver, [replace(each, fields=each.fields + 2 * coefficients) for each in demands]
    )
    weights = [plan_of_weights(solver, each, coefficients=coefficients) for each in left]
    return with_weights(plan, weights, fields=sum(each.fields for each in demands))


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


def choose_solver(
    points: Observations,
    train: Indices,
    targets: Callable[[], Array | LinearFunctionals],
    *,
    folds: Indices | None = None,
) -> Solver:
    """Choose an exact solver where it is cheap, else neighbours; ``folds`` (n,) in the order of ``train``."""
    times = points.fields
    places = grid_if_any(points.north[train], points.east[train]) if points.space.has_latitudes else None
    if places is None:
        return solver_of_scattered(train.size, fields=times)
    wanted = targets()
    # at its emptiest time, and without the largest fold
    present = points.present[:, train]
    always, solves = np.asarray(present.all(axis=0)), len(fields_by_pattern(present))
    if folds is not None:
        always &= folds != np.bincount(folds).argmax()
        solves *= 1 + int(folds.max())
    size = places.size(always, wanted if folds is None else None)
    if points.noise_variance is not None:
        known = points.noise_variance[train]
        size = replace(size, noise_spread=float(known.max() / max(known.min(), np.finfo(float).tiny)))
    demand = demand_of_choice(train.size, len(wanted), fields=times)
    if isinstance(wanted, LinearFunctionals):
        demand = replace(demand, cell_nodes=len(wanted.nodes))
    return chosen_solver(demand, replace(demand, grid=size), solves=solves)


def solver_of_scattered(observed: int, *, fields: int) -> Solver:
    """Choose a solver for points that lie on no grid."""
    return chosen_solver(demand_of_choice(observed, 0, fields=fields))
