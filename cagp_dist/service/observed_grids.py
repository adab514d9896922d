"""The grid of the observed points of a job."""

from cagp_dist.arrays import Indices
from cagp_dist.mapping import Observations
from cagp_dist.mapping.grid_places import GridPlaces, grid_if_any, grid_of_points
from cagp_dist.service.point_roles import Design
from cagp_dist.solvers import Solver


def places_on_grid(solver: Solver, points: Observations, design: Design) -> GridPlaces | None:
    """Grid and places of the observed points for a solver that needs them, else None."""
    return grid_of(points, design.train) if solver.needs_grid else None


def found_grid(points: Observations, train: Indices) -> GridPlaces | None:
    """Find the grid of observed points as `grid_of`; None where they lie on none."""
    return grid_if_any(points.latitude_degrees[train], points.longitude_degrees[train])


def grid_of(points: Observations, train: Indices) -> GridPlaces:
    """Find the grid of observed points, and the place of each in it."""
    return grid_of_points(points.latitude_degrees[train], points.longitude_degrees[train])
