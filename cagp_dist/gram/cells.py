"""Means of the field over cells as targets: ``W f`` with a sparse W that averages over nodes of quadrature.

With ``V`` the covariances of the nodes with the observed points, those of the means are ``W V``; the prior
variance of a mean is ``w' k(nodes, nodes) w``. Solvers never see more than the columns ``(W V)'``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices
from cagp_dist.checks import as_numbers, as_points, check_count
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import degrees, unit_sphere
from cagp_dist.kernels import Kernel, Parameters, coordinates
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.latlon.views import SAME_DEGREES, Views

NODES_AT_ONCE = 512
"""Nodes whose covariances are held at a time, whole cells; a constant, so that no bit depends on workers."""

ROWS_AT_ONCE = 2048
"""Points whose covariances with those nodes are held at a time: 8 MB."""

MOST_CELLS = 10_000_000
"""Cells of a map, at most: a tenth of a degree for the whole globe, and some to spare."""

FEWEST_NODES, MOST_NODES = 2, 8
"""Nodes along a side of a cell, where they follow from the distance of the observed points."""

SQUARE_NODES = 256
"""Nodes whose covariances with each other are evaluated at a time."""


@dataclass(frozen=True, eq=False)
class CellMeans:
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

    nodes: Array
    weights: Array
    counts: Indices

    def __init__(self, nodes: ArrayLike, weights: ArrayLike, counts: ArrayLike) -> None:
        points = as_points("nodes", nodes)
        shares, each = as_numbers("weights", weights), np.asarray(counts)
        if each.ndim != 1 or (each.size and (each.dtype.kind not in "iu" or each.min() < 1)):
            raise ArgumentError("counts must be one integer of at least 1 for each cell, shape (q,).")
        if shares.shape != (len(points),) or int(each.sum()) != len(points):
            raise ArgumentError(
                f"there are {len(points)} nodes, weights of shape {shares.shape}, and counts with sum "
                f"{int(each.sum())}; expected a weight for each node, and each node in one cell."
            )
        object.__setattr__(self, "nodes", points)
        object.__setattr__(self, "weights", shares)
        object.__setattr__(self, "counts", each.astype(np.intp))
        sums = self.averaged(np.ones((len(points), 1)))[:, 0]
        if not (shares >= 0.0).all() or not np.allclose(sums, 1.0, rtol=0.0, atol=1e-9):
            raise ArgumentError(
                "weights must be at least zero and have sum 1 in each cell; divide those of each cell by "
                "their sum."
            )

    @classmethod
    def of_points(cls, points: Array) -> "CellMeans":
        """Points (q, p) as cells of one node each."""
        return cls(points, np.ones(len(points)), np.ones(len(points), dtype=np.intp))

    def followed_by(self, other: "CellMeans") -> "CellMeans":
        """Give these cells, then the others."""
        return CellMeans(
            np.concatenate([self.nodes, other.nodes]),
            np.concatenate([self.weights, other.weights]),
            np.concatenate([self.counts, other.counts]),
        )

    def __len__(self) -> int:
        """Count the cells, q."""
        return self.counts.size

    @cached_property
    def starts(self) -> Indices:
        """First node of each cell, shape (q,)."""
        return np.asarray(np.cumsum(self.counts) - self.counts)

    @property
    def points(self) -> Indices:
        """Which cells are points: those of one node."""
        return np.flatnonzero(self.counts == 1)

    @property
    def centres(self) -> Array:
        """Weighted mean of the nodes of each cell, shape (q, p); on a sphere somewhat below its surface."""
        return self.averaged(self.nodes)

    def part(self, chosen: slice | Indices) -> "CellMeans":
        """Take some of the cells."""
        counts = self.counts[chosen]
        first = np.cumsum(counts) - counts
        index = np.repeat(self.starts[chosen] - first, counts) + np.arange(counts.sum())
        return CellMeans(self.nodes[index], self.weights[index], counts)

    def averaged(self, values: Array) -> Array:
        """``W @ values``: values at the nodes (N, T), averaged over the cells, shape (q, T)."""
        if not len(self):
            return np.empty((0, values.shape[1]))
        return np.asarray(np.add.reduceat(self.weights[:, None] * values, self.starts, axis=0))


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
                "ascending, one more than there are cells."
            )
    if west_east[-1] - west_east[0] > 360.0 + 1e-9:
        raise ArgumentError("longitude_edges_degrees reach over more than 360 degrees: cells would overlap.")
    south, west = (axis.ravel() for axis in np.meshgrid(south_north[:-1], west_east[:-1], indexing="ij"))
    north, east = (axis.ravel() for axis in np.meshgrid(south_north[1:], west_east[1:], indexing="ij"))
    return box_means(south, north, west, east, nodes_per_side=nodes_per_side)


def nodes_per_side(side_degrees: float, spacing_degrees: float) -> int:
    """Nodes along a side of a cell: one more than observed points, so that little shows of single nodes."""
    beside = side_degrees / spacing_degrees if spacing_degrees > 0.0 else np.inf
    return int(min(max(1.0 + np.ceil(beside), FEWEST_NODES), MOST_NODES))


def box_means(south: Array, north: Array, west: Array, east: Array, *, nodes_per_side: int) -> CellMeans:
    """Means over q boxes in degrees; raises as `box_nodes`."""
    latitude, longitude, weights = box_nodes(south, north, west, east, nodes_per_side=nodes_per_side)
    return CellMeans(
        unit_sphere(latitude.ravel(), longitude.ravel()),
        weights.ravel(),
        np.full(south.size, nodes_per_side**2),
    )


def box_nodes(
    south: Array, north: Array, west: Array, east: Array, *, nodes_per_side: int
) -> tuple[Array, Array, Array]:
    """Latitude and longitude of the nodes of boxes in degrees, and weights, each (q, k^2).

    Raises
    ------
    ArgumentError
        If a box reaches beyond a pole.
    """
    if len(south) and not (south.min() >= -90.0 - 1e-9 and north.max() <= 90.0 + 1e-9):
        raise ArgumentError(
            f"cells reach from latitude {south.min():g} to {north.max():g}; expected -90 to 90 degrees."
        )
    position, share = np.polynomial.legendre.leggauss(nodes_per_side)
    position, share = 0.5 * (1.0 + position), 0.5 * share
    low, high = (np.sin(np.deg2rad(np.clip(edge, -90.0, 90.0)))[:, None] for edge in (south, north))
    latitude = np.rad2deg(np.arcsin(np.clip(low + (high - low) * position, -1.0, 1.0)))
    longitude = west[:, None] + (east - west)[:, None] * position
    k = nodes_per_side
    weights = np.tile(np.outer(share, share).ravel(), (len(south), 1))
    return np.repeat(latitude, k, axis=1), np.tile(longitude, (1, k)), weights


def views_of_cells(cells: CellMeans, grid: LatLonGrid) -> tuple[CellMeans, Indices, Indices]:
    """Cells that see a grid differently up to rotation by whole grid steps, as `Views` are of points.

    Parameters
    ----------
    cells : CellMeans
        On the unit sphere.
    grid : LatLonGrid
        What is seen.

    Returns
    -------
    seeing : CellMeans
        One cell of each view.
    view, steps : array of int, shape (q,)
        View of each cell, and its rotation to the east of that one.
    """
    turns = Views.of(cells.nodes[cells.starts], grid).steps
    latitude, longitude = degrees(cells.nodes)
    spacing = 360.0 / grid.n_longitudes
    eastward = np.rint((longitude - np.repeat(turns, cells.counts) * spacing) / SAME_DEGREES)
    # where each node lies once the first one was turned to the first column of the grid; and its weight
    alike = np.column_stack(
        [np.rint(latitude / SAME_DEGREES), np.mod(eastward, np.rint(360.0 / SAME_DEGREES)), cells.weights]
    )
    first: dict[bytes, int] = {}
    ends = cells.starts + cells.counts
    known = [
        first.setdefault(alike[start:end].tobytes(), cell)
        for cell, (start, end) in enumerate(zip(cells.starts, ends, strict=True))
    ]
    chosen, view = np.unique(np.array(known, dtype=np.intp), return_inverse=True)
    return cells.part(chosen), view.reshape(-1), turns - turns[chosen][view.reshape(-1)]


def averaged_panel(kernel: Parameters, points: Array, cells: CellMeans) -> Array:
    """``k(points, nodes) W'`` for the rows of a panel (p, m): shape (m, q); a task of executors."""
    from cagp_dist.compiled import evaluate

    m = points.shape[1]
    out = np.empty((m, len(cells)))
    for chosen in runs(cells, NODES_AT_ONCE):
        part = cells.part(chosen)
        Z = coordinates(part.nodes)
        # fewer rows for a cell that has more nodes
        together = max(1, min(ROWS_AT_ONCE, ROWS_AT_ONCE * NODES_AT_ONCE // Z.shape[1]))
        for start in range(0, m, together):
            rows = slice(start, min(start + together, m))
            values = np.empty((rows.stop - start, Z.shape[1]))
            evaluate(*kernel, np.ascontiguousarray(points[:, rows]), Z, values)
            values *= part.weights
            out[rows, chosen] = np.add.reduceat(values, part.starts, axis=1)
    return out


def variance_of_means(kernel: Kernel, cells: CellMeans) -> Array:
    """``w' k(nodes, nodes) w`` of each cell, shape (q,)."""
    variance = np.empty(len(cells))
    for chosen in runs(cells, SQUARE_NODES):
        part = cells.part(chosen)
        if len(part.nodes) > SQUARE_NODES:  # one cell
            seen = averaged_panel(kernel.parameters, coordinates(part.nodes), part)
            variance[chosen] = part.weights @ seen
            continue
        square = part.weights[:, None] * kernel(part.nodes, part.nodes)
        square *= part.weights
        square *= np.equal.outer(*[np.repeat(np.arange(len(part)), part.counts)] * 2)
        variance[chosen] = np.add.reduceat(square.sum(axis=1), part.starts)
    points = cells.points
    variance[points] = kernel.diagonal(cells.nodes[cells.starts[points]])
    return variance


def runs(cells: CellMeans, nodes: int) -> Iterator[slice]:
    """Cells in runs of at most so many nodes, or of one cell."""
    ends = cells.starts + cells.counts
    first = 0
    while first < len(cells):
        last = int(np.searchsorted(ends, cells.starts[first] + nodes, side="right"))
        last = max(last, first + 1)
        yield slice(first, last)
        first = last
