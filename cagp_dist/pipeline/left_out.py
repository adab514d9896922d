"""Each observation as all others predict it, where an exact solve tells that at little more cost."""

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.budget.demand import GridSize
from cagp_dist.budget.grid_plans import inverse_diagonal_flops
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.left_out_groups import Groups, LeftOutInGroups
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
from cagp_dist.runtime import Executor
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
    if learned.excess is not None:  # of an observation that is right
        std[:, places] = np.sqrt(std[:, places] ** 2 - learned.excess[places])
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


class LeftOutNear:
    """Each value predicted from those near it, or of few from all, while some values are forgotten (math 27).

    Every field has its own predictions; with kernels of space and time all values are one field.
    """

    def __init__(self, observed: Observations, learned: FittedModel, executor: Executor) -> None:
        if is_read(learned.mean):
            raise ArgumentError(
                f"the mean is {learned.mean_text}, whose shift was fitted to all values, so that none can be "
                "left out; expected a mean that is estimated with the field, or a number.",
                key="left-out-mean",
            )
        if observed.functionals is not None or observed.censored is not None:
            what = "means over areas" if observed.functionals is not None else "censored values"
            raise ArgumentError(
                f"the observations are {what}, which are not predicted from each other one by one yet; "
                "expected values at places.",
                key="left-out-functionals",
            )
        self._observed, scale = observed, learned.scale(observed)
        self._fields: list[tuple[int, Indices, LeftOutInGroups, Array]] = []
        for places, fields in observed.patterns():
            X = observed.X[places]
            groups = Groups.of(learned.kernel, X)
            own = np.ones(places.size) if scale is None else scale(X)
            for field in fields:
                prior = learned.prior(observed, places, np.array([field]))
                values = observed.values[field, places] / own - prior.known_at(X)[:, -1]
                noise = np.broadcast_to(np.asarray(prior.noise_variance), places.shape)
                found = LeftOutInGroups(prior.kernel, X, noise, values, prior.basis_at(X), groups, executor)
                self._fields.append((int(field), places, found, own))
        self.forgotten: Mask = np.zeros(observed.values.shape, dtype=np.bool_)

    def forget(self, forgotten: Mask) -> None:
        """Predict all values (T, n) without these, and with all others."""
        self.forgotten = forgotten.copy()
        for field, places, found, _ in self._fields:
            found.forget(forgotten[field, places])

    def errors(self) -> tuple[Array, Array]:
        """Errors (T, n) of the predictions and their variances with noise; NaN where there is no value."""
        errors, variance = np.full((2, *self._observed.values.shape), np.nan)
        for field, places, found, own in self._fields:
            e, v = found.errors()
            errors[field, places], variance[field, places] = own * e, own**2 * v
        return errors, variance

    def worst(self, badness: Array) -> Mask:
        """Which values (T, n) are the worst of those that predict each other; none where it is 0."""
        chosen = np.zeros(badness.shape, dtype=np.bool_)
        for field, places, found, _ in self._fields:
            chosen[field, places] = found.groups.worst(badness[field, places])
        return chosen
