"""Means of the field over cells as targets: linear functionals with weights of at least zero and sum 1."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.checks import as_numbers, as_points, check_count
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.space import SPHERE, Space

MOST_CELLS = 10_000_000  # Cells of a map, at most: a tenth of a degree for the whole globe, and some to spare

# Nodes along a side of a cell, where they follow from the distance of the observed points
FEWEST_NODES, MOST_NODES = 2, 8


@dataclass(frozen=True, eq=False, init=False)
class CellMeans(LinearFunctionals):
    """Means of the field over q cells, each a weighted mean over some nodes.

    A target of `cagp_dist.condition` and `cagp_dist.posterior_mean`, of every solver. The posterior is that
    of the means: the mean of node means, and the variance of the mean, in which what nodes do not share
    averages out. A cell with one node is a point.

    Parameters
    ----------
    nodes : array_like, shape (N, p)
        Nodes of all cells, cell after cell, in the coordinates of X.
    weights : array_like, shape (N,)
        Part of its cell that each node stands for: at least zero, with sum 1 in each cell.
    counts : array_like of int, shape (q,)
        Nodes of each cell, at least one.

    Raises
    ------
    ArgumentError
        If shapes do not fit, or the weights of a cell are negative or have another sum.

    See Also
    --------
    LinearFunctionals : Weights of any sign and sum, and points that several of them share.
    cell_means : Cells of a latitude-longitude grid.

    Examples
    --------
    The mean over [0, 1], of which the noise in the observations averages out:

    >>> import numpy as np, cagp_dist as cagp
    >>> X = np.linspace(0.0, 1.0, 50).reshape(-1, 1)
    >>> prior = cagp.Prior(cagp.Matern32(lengthscale=0.2), noise_variance=0.01)
    >>> nodes = (np.arange(20) + 0.5) / 20
    >>> cell = cagp.CellMeans(nodes[:, None], weights=np.full(20, 0.05), counts=[20])
    >>> posterior = cagp.condition(prior, X, np.sin(6.0 * X[:, 0]), cell, solver=cagp.Cholesky())
    >>> posterior.mean.round(3), np.sqrt(posterior.variance).round(3)
    (array([0.007]), array([0.015]))
    """

    def __init__(self, nodes: ArrayLike, weights: ArrayLike, counts: ArrayLike) -> None:
        points = as_points("nodes", nodes)
        shares, each = as_numbers("weights", weights), np.asarray(counts)
        if each.ndim != 1 or (each.size and (each.dtype.kind not in "iu" or each.min() < 1)):
            raise ArgumentError(
                "counts must be one integer of at least 1 for each cell, shape (q,).", key="cell-counts"
            )
        if shares.shape != (len(points),) or int(each.sum()) != len(points):
            raise ArgumentError(
                f"there are {len(points)} nodes, weights of shape {shares.shape}, and counts with sum "
                f"{int(each.sum())}; expected a weight for each node, and each node in one cell.",
                key="cell-counts",
            )
        self._set(points, shares, each)
        sums = self.averaged(np.ones((len(points), 1)))[:, 0]
        if not (shares >= 0.0).all() or not np.allclose(sums, 1.0, rtol=0.0, atol=1e-9):
            raise ArgumentError(
                "weights must be at least zero and have sum 1 in each cell; divide those of each cell by "
                "their sum.",
                key="cell-weights",
            )


def cell_means(
    latitude_edges_degrees: ArrayLike, longitude_edges_degrees: ArrayLike, *, nodes_per_side: int = 4
) -> CellMeans:
    """Means over the cells between lines of latitude and longitude, by Gauss-Legendre nodes in each.

    Nodes are those of equal areas: Gauss-Legendre in longitude and in the sine of latitude. About as many
    per side as observed points along it, and one more, leave little of what single points would show.

    Parameters
    ----------
    latitude_edges_degrees : array_like, shape (P + 1,)
        Degrees north, strictly ascending, within [-90, 90].
    longitude_edges_degrees : array_like, shape (Q + 1,)
        Degrees east, strictly ascending, over 360 degrees at most.
    nodes_per_side : int
        k; each cell has k^2 nodes.

    Returns
    -------
    CellMeans
        P Q cells, longitude running fastest; a posterior has shape (P Q,). Observed points are those of
        `unit_sphere`. They take k^2 kernel evaluations for each observed point where a point takes one.

    Raises
    ------
    ArgumentError
        If edges do not ascend, or leave the sphere.

    Examples
    --------
    >>> import cagp_dist as cagp
    >>> cells = cagp.cell_means([-10.0, 0.0, 10.0], [0.0, 15.0, 30.0, 45.0], nodes_per_side=3)
    >>> len(cells), cells.nodes.shape
    (6, (54, 3))
    """
    south_north = as_numbers("latitude_edges_degrees", latitude_edges_degrees)
    west_east = as_numbers("longitude_edges_degrees", longitude_edges_degrees)
    check_count("nodes_per_side", nodes_per_side, least=1)
    for name, edges in (("latitude", south_north), ("longitude", west_east)):
        if edges.ndim != 1 or edges.size < 2 or not (np.diff(edges) > 0.0).all():
            raise ArgumentError(
                f"{name}_edges_degrees has shape {edges.shape}; expected at least two edges, strictly "
                "ascending, one more than there are cells.",
                key="edges",
            )
    if west_east[-1] - west_east[0] > 360.0 + 1e-9:
        raise ArgumentError(
            "longitude_edges_degrees reach over more than 360 degrees: cells would overlap.",
            key="cells-overlap",
        )
    south, west = (axis.ravel() for axis in np.meshgrid(south_north[:-1], west_east[:-1], indexing="ij"))
    north, east = (axis.ravel() for axis in np.meshgrid(south_north[1:], west_east[1:], indexing="ij"))
    return means_between(SPHERE, [south, north], [west, east], nodes_per_side=nodes_per_side)


def nodes_per_side(side: float, spacing: float) -> int:
    """Nodes along a side of a cell: one more than observed points, so that little shows of single nodes."""
    beside = round(side / spacing, 6) if spacing > 0.0 else np.inf  # axes are rounded
    return int(min(max(1.0 + np.ceil(beside), FEWEST_NODES), MOST_NODES))


def means_between(
    space: Space, south_north: ArrayLike, west_east: ArrayLike, *, nodes_per_side: int
) -> CellMeans:
    """Means over q cells between edges (2, q) of north and of east; raises as `box_nodes`."""
    nodes, weights = space.cell_nodes(np.asarray(south_north), np.asarray(west_east), nodes_per_side)
    return CellMeans(nodes, weights.ravel(), np.full(len(weights), nodes_per_side**2))
