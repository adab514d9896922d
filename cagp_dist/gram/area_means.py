"""Means of the field over regions of the Earth, as linear functionals."""

from collections.abc import Iterable

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.checks import check_positive
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import cell_edges, is_pole, unit_sphere
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.regions import Box, Cells, Region, as_regions

RESOLUTION_DEGREES = 2.0  # Height of the cells of a mean over a region
SAME_NODE_DEGREES = 1e-9  # Middles of cells of two regions that are closer are one node


def area_means(
    regions: str | Region | Iterable[str | Region],
    *,
    grid: LatLonGrid | None = None,
    resolution_degrees: float = RESOLUTION_DEGREES,
) -> LinearFunctionals:
    """Means of the field over regions, weighted with area.

    The field is taken at the middles of cells, each with its exact area over that of all cells of the region:
    those of a grid, or cells of its own, at most so many degrees high and about as wide.

    Parameters
    ----------
    regions : str, Region, or several of them
        ``"global"``, ``"northern-hemisphere"``, ``"southern-hemisphere"``, ``"tropics"`` (20 degrees south to
        20 degrees north), `Box` or `Polygon`.
    grid : LatLonGrid, optional
        Take the mean over points of this grid, such as the one that was observed: each stands for the area
        half way to its neighbours. Of a box, the part of that inside it counts; of a polygon, the cells whose
        points are inside.
    resolution_degrees : float
        Height of the cells where no grid is given. The sum over cells differs from the integral by what the
        field bends within a cell: halve it to see how much that is.

    Returns
    -------
    LinearFunctionals
        One for each region, in the unit of the field; observed points are those of `unit_sphere`. Regions
        share the cells that they have in common: the globe has 10,360 of 2 degrees, with or without parts
        of it beside.

    Raises
    ------
    ArgumentError
        If a region is not known, or holds no point of the grid.

    Examples
    --------
    The mean over the globe and how much warmer the north is, with their error bars:

    >>> import numpy as np, cagp_dist as cagp
    >>> rng = np.random.default_rng(0)
    >>> latitude, longitude = np.rad2deg(np.arcsin(rng.uniform(-1.0, 1.0, 300))), rng.uniform(0.0, 360.0, 300)
    >>> X, y = cagp.unit_sphere(latitude, longitude), 10.0 + np.sin(np.deg2rad(latitude))
    >>> prior = cagp.Prior(cagp.Matern32(lengthscale=0.6), noise_variance=0.01, mean=10.0)
    >>> means = cagp.area_means(
    ...     ["global", "northern-hemisphere", "southern-hemisphere"], resolution_degrees=8.0
    ... )
    >>> wanted = means.combined([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> posterior = cagp.condition(prior, X, y, wanted, solver=cagp.Cholesky())
    >>> posterior.mean.round(2), np.sqrt(posterior.variance).round(2)
    (array([10.,  1.]), array([0.01, 0.03]))
    """
    chosen = as_regions(regions)
    check_positive("resolution_degrees", resolution_degrees, least=0.01, most=45.0)
    if not chosen:
        raise ArgumentError('regions are none; expected at least one, such as "global".', key="no-regions")
    of_each = [
        region.cells(resolution_degrees) if grid is None else _of_grid(region, grid) for region in chosen
    ]
    for region, cells in zip(chosen, of_each, strict=True):
        if not cells.area.size:
            where = "of the grid" if grid is not None else f"of {resolution_degrees:g} degrees"
            raise ArgumentError(
                f"region {region.name!r} ({region.definition}) holds no point {where}; "
                "take a finer one, or a larger region.",
                key="empty-region",
            )
    # the same place to within rounding is one node, so that it is evaluated once
    latitude, longitude = (np.concatenate(axis) for axis in list(zip(*of_each, strict=True))[:2])
    around = np.mod(np.rint(longitude / SAME_NODE_DEGREES), np.rint(360.0 / SAME_NODE_DEGREES))
    places = np.column_stack([np.rint(latitude / SAME_NODE_DEGREES), around])
    _, first, terms = np.unique(places, axis=0, return_index=True, return_inverse=True)
    return LinearFunctionals.of_terms(
        unit_sphere(latitude[first], longitude[first]),
        np.concatenate([cells.area / cells.area.sum() for cells in of_each]),
        np.array([cells.area.size for cells in of_each]),
        terms.reshape(-1),
    )


def _of_grid(region: Region, grid: LatLonGrid) -> Cells:
    """Cells of a grid that a region holds a part of; none where it holds no point of the grid."""
    order = np.argsort(grid.latitude_degrees)
    latitude, Q = grid.latitude_degrees[order], grid.n_longitudes
    edges = np.clip(cell_edges(latitude), -90.0, 90.0) if latitude.size > 1 else np.array([-90.0, 90.0])
    longitude = np.mod(grid.longitude_degrees, 360.0)
    rows, columns = np.repeat(latitude, Q), np.tile(longitude, latitude.size)
    inside = region.contains(rows, columns)
    if not inside.any():
        return Cells(rows[:0], rows[:0], rows[:0])
    if isinstance(region, Box):
        sines = np.sin(np.deg2rad(np.clip(edges, region.south, region.north)))
        area = np.outer(np.diff(sines), _overlaps(longitude, 360.0 / Q, region)).ravel()
    else:
        area = np.where(inside, np.repeat(np.diff(np.sin(np.deg2rad(edges))), Q), 0.0)
    # the copies of a pole are one place
    columns = np.where(is_pole(rows), 0.0, columns)
    return Cells(rows, columns, area / (2.0 * Q)).chosen(area > 0.0)


def _overlaps(longitude: Array, width: float, box: Box) -> Array:
    """Part of each column of a grid that is between the longitudes of a box, shape (Q,)."""
    from_west = np.mod(longitude - 0.5 * width - box.west, 360.0)
    # a column that begins east of the box may reach around the circle to its western edge
    here = np.clip(np.minimum(from_west + width, box.width) - from_west, 0.0, None)
    around = np.clip(from_west + width - 360.0, 0.0, box.width)
    return np.asarray(np.minimum(here + around, width) / width)
