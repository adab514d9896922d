"""Each observation as all others predict it, where an exact solve tells that at little more cost."""

import numpy as np

from cagp_dist.budget.demand import GridSize
from cagp_dist.budget.grid_plans import inverse_diagonal_flops
from cagp_dist.pipeline.defaults import MOST_LEFT_OUT_FLOPS
from cagp_dist.pipeline.field_solves import Execution, LeftOut, solve_left_out
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.integration import fields_of
from cagp_dist.pipeline.map_mean import is_read
from cagp_dist.pipeline.map_points import MapPoints
from cagp_dist.pipeline.map_solves import problem_of_map, solver_of
from cagp_dist.pipeline.observations import Observations
from cagp_dist.posterior.patterns import fields_by_pattern
from cagp_dist.predictive import Mixture
from cagp_dist.solvers import Cholesky, Rings, Solver


def leave_one_out(
    observed: Observations, learned: FittedModel, solver: str | Solver, execution: Execution
) -> LeftOut | None:
    """Mean and standard deviation (T, N), noise included, of each observation by all others.

    NaN where nothing was observed; None where that is not `has_left_out`.
    """
    mean, std = np.full((2, *observed.values.shape), np.nan)
    scale = learned.scale(observed)
    if learned.mixes and (found := learned.integrated) is not None:
        patterns = zip(observed.patterns(), fields_of(learned, observed, found.held), strict=True)
        for (places, _), (fields, chosen) in patterns:
            if places.size <= len(fields.mean.coefficient_names):  # without one, the mean is not estimated
                continue
            distribution, at = Mixture(*found.left_out(fields)), np.ix_(chosen, places)
            own = 1.0 if scale is None else scale(observed.X[places])
            mean[at], std[at] = own * distribution.mean, own * distribution.std
        return LeftOut(mean, std)
    # the shift of a mean that is read was fitted to all observations
    if is_read(learned.mean) or not has_left_out(observed, solver):
        return None
    solver = solver_of(solver, observed)
    places = observed.in_order(solver)
    grid = observed.grid_of(places) if solver.needs_grid else None
    prior, X, y, _ = problem_of_map(observed, learned, MapPoints(observed.X[:1]), solver)
    by_others = solve_left_out(prior, X, y, grid, execution)
    own = 1.0 if scale is None else scale(observed.X[places])
    mean[:, places], std[:, places] = own * by_others.mean, own * by_others.std
    return LeftOut(mean, std)


def has_left_out(observed: Observations, asked: str | Solver) -> bool:
    """Whether a solve tells leave-one-out errors: it is exact, and they take no long time beside it."""
    solver = solver_of(asked, observed)
    if not solver.needs_grid:
        return left_out_is_cheap(solver, None)
    places = observed.in_order(solver)
    present, grid = observed.present[:, places], observed.grid_of(places)
    return all(left_out_is_cheap(solver, grid.size(present[some[0]])) for some in fields_by_pattern(present))


def left_out_is_cheap(solver: Solver, grid: GridSize | None) -> bool:
    """Whether a solve of points, or of a grid with gaps, gives leave-one-out errors at its own cost."""
    if isinstance(solver, Cholesky):
        return True
    flops = inverse_diagonal_flops(grid) if isinstance(solver, Rings) and grid is not None else None
    return flops is not None and flops <= MOST_LEFT_OUT_FLOPS
