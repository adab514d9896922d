"""Observations that are means over areas: cells of a coarse grid, districts, footprints of a satellite.

A row has a value and a geometry. Its mean is a weighted sum of the field at nodes of the area; the middle of
the area stands for its place, by which rows of several times are put together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import xarray as xr

from cagp_dist.arrays import Array, Indices
from cagp_dist.errors import ArgumentError, BudgetError
from cagp_dist.fields.observed_objects import ObservedObject, Source
from cagp_dist.fields.tables import DataFrameLike
from cagp_dist.gram.cell_means import means_between
from cagp_dist.gram.functionals import LinearFunctionals, variance_of_functionals
from cagp_dist.kernels import DEPTH, Kernel
from cagp_dist.kriging.areas import Area, as_areas, nodes_of
from cagp_dist.pipeline.map_mean import is_read
from cagp_dist.pipeline.map_solves import takes_areas
from cagp_dist.space import SPHERE, Plane, Space, plane_of
from cagp_dist.text import bytes_text
from cagp_dist.warned import warn

if TYPE_CHECKING:
    from cagp_dist.kriging.kriging_model import Kriging

GeometryOf: TypeAlias = str | Sequence[Any] | None
"""Where areas were observed: "cells" of a grid, the name of a column, or a geometry for each row."""

CELLS = "cells"
MOST_AREAS = 4_000  # Their covariances are dense, and a likelihood takes those of all of their nodes
NODES = ((300, 4), (1_000, 3), (MOST_AREAS, 2))  # along a side, of up to so many areas
SAME_PLACE = 1e-9  # Distance of the middles of areas that are one, over the extent of all
DOUBLE = 8
SHARE = 0.02  # By which a finer quadrature may change standard deviations of areas without a warning
MOST_COMPARED = 50  # of the areas whose quadrature is looked at
OBSERVED_AREAS = "observations_are"  # attribute of a result


class Areas(NamedTuple):
    """Areas of a table, and what of it is read."""

    areas: list[Area]  # one for each row
    table: dict[str, Any]  # columns without the geometry, with the middles
    columns: dict[str, str]  # which of them have the middles
    space: Space
    crs: Any  # of a plane, where one is known


def nodes_along(areas: int) -> int:
    """Nodes along a side of an area, of so many; `BudgetError` of too many."""
    for most, nodes in NODES:
        if areas <= most:
            return nodes
    needed = DOUBLE * areas**2
    raise BudgetError(
        f"means over {areas:,} areas were observed, whose covariances would take {bytes_text(needed)} and "
        f"those of their nodes minutes for each step of a fit; expected at most {MOST_AREAS:,}. Take a part "
        "of the region, or values at the middles of the areas, without geometry: that is nearly the same "
        "where areas are small beside the distance over which the field varies.",
        key="too-many-areas",
    )


def check_areas(model: "Kriging", columns: Sequence[str], y: object) -> None:
    """Refuse what does not go with means over areas; ``columns`` are those that a mean names."""
    if model.geometry is None:
        return
    if y is not None:
        raise ArgumentError(
            "geometry was given, and y is an array; expected a table with a geometry for each row, or a grid "
            "of xarray.",
            key="geometry-of-observations",
        )
    solver, mean = model.solver, model.mean
    given = {
        f"at={model.at!r}": model.at is not None,
        f"bias_by={model.bias_by!r}": model.bias_by is not None,
        f"value={model.value!r}": isinstance(model.value, list | tuple),
        "a depth": DEPTH in (model.columns or {}),
        "a limit": "limit" in (model.columns or {}),
        "background": model.background is not None,
        f"mean={mean!r}": isinstance(mean, str) and is_read(mean),
        f"transform={model.transform!r}": model.transform != "none",
        f"recalibration={model.recalibration!r}": model.recalibration != "none",
        f"hyperparameters={model.hyperparameters!r}": model.hyperparameters in ("integrate", "integrated"),
        f"anisotropy={model.anisotropy!r}": model.anisotropy != "none",
        f"solver={solver!r}": not takes_areas(solver),
        f"mean={list(columns)!r}, a column,": bool(columns),
    }
    if refused := [name for name, there in given.items() if there]:
        raise ArgumentError(
            f"geometry and {' and '.join(refused)} were given, which do not go together yet; leave one out. "
            "A drift is given as a field on a grid, mean=DataArray.",
            key="geometry-with-others",
        )


def areas_of_table(model: "Kriging", observations: "Source") -> Areas:
    """Read the areas of the rows of a table; their middles take the place of its coordinates."""
    given = model.geometry
    table: dict[str, Any]
    if isinstance(observations, DataFrameLike):
        frame: Any = observations
        table = {str(name): frame[name] for name in frame.columns}
    elif isinstance(observations, Mapping) and not isinstance(observations, xr.Dataset | xr.DataTree):
        table = {str(name): held for name, held in observations.items()}
    else:
        raise ArgumentError(
            f"the observations are a {type(observations).__name__}, and geometry is {given!r}; expected a "
            'data frame or a mapping of columns, or geometry="cells" of a grid of xarray.',
            key="geometry-of-observations",
        )
    rows = len(next(iter(table.values()), ()))
    if isinstance(given, str):
        if given not in table:
            raise ArgumentError(
                f"geometry is {given!r}; expected the name of a column, of which there are "
                f"{', '.join(map(repr, table))}, or a geometry for each row.",
                key="geometry-of-observations",
            )
        column: Any = table.pop(given)
    else:
        column = given
    system = getattr(column, "crs", None)
    shapes = list(column)
    if len(shapes) != rows:
        raise ArgumentError(
            f"geometry has {len(shapes):,} areas, and the observations {rows:,} rows; expected one for each.",
            key="geometry-of-observations",
        )
    space = _space_of(model, system)
    known: dict[str, Area] = {}
    areas = []
    for number, shape in enumerate(shapes):
        written = repr(getattr(shape, "__geo_interface__", shape))
        if written not in known:
            (known[written],) = as_areas({f"the area of row {number}": _in_system(shape, system)}, space)
        areas.append(known[written])
    middles = {id(area): _middle(area, space) for area in known.values()}
    north, east = np.array([middles[id(area)] for area in areas]).T
    _check_apart(np.array(list(middles.values())), space)
    roles = ("latitude", "longitude") if space.has_latitudes else ("y", "x")
    columns = {role: f"{role} of the middle" for role in roles}
    table = {name: np.asarray(held) for name, held in table.items()}
    table |= dict(zip(columns.values(), (north, east), strict=True))
    return Areas(areas, table, columns, space, space.crs if isinstance(space, Plane) else None)


class _InSystem(NamedTuple):
    """A geometry with the system of its column."""

    geometry: Mapping[str, Any]
    crs: Any

    @property
    def __geo_interface__(self) -> Mapping[str, Any]:
        return self.geometry


def _in_system(shape: Any, system: Any) -> Any:
    return shape if system is None else _InSystem(shape.__geo_interface__, system)


def _space_of(model: "Kriging", system: Any) -> Space:
    """Give the space of areas: that of ``crs``, else of their own system, else the globe."""
    if model.crs is not None or "x" in (model.columns or {}):
        return plane_of(model.crs, names=("x", "y"))
    if system is not None and not system.is_geographic:
        return plane_of(system, names=("x", "y"))
    return SPHERE


def _middle(area: Area, space: Space) -> tuple[float, float]:
    centre = nodes_of([area], space, 4).centres
    north, east = space.places(centre)
    return float(north[0]), float(east[0])


def _check_apart(middles: Array, space: Space) -> None:
    """Refuse different areas with one middle, by which they would be told apart."""
    X = space.positions(*middles.T)
    _, counts = np.unique(
        np.round(X / (SAME_PLACE * max(float(np.ptp(X)), 1e-6))), axis=0, return_counts=True
    )
    if (counts > 1).any():
        raise ArgumentError(
            "two different areas have one middle, such as a town and the ring around it; expected areas "
            "whose middles differ. Cut one of them in two.",
            key="areas-of-one-middle",
        )


def with_areas(observed: ObservedObject, rows: Areas) -> ObservedObject:
    """Give observations at the middles of areas as means over these."""
    from scipy.spatial import cKDTree

    points, space = observed.points, observed.space
    along = nodes_along(points.north.size)
    middles = np.column_stack([rows.table[name] for name in rows.columns.values()])
    nearest = cKDTree(space.positions(*middles.T)).query(points.positions)[1]
    areas = [rows.areas[row] for row in np.atleast_1d(nearest)]

    def finer(chosen: Indices) -> LinearFunctionals:
        return nodes_of([areas[row] for row in chosen.tolist()], space, 2 * along)

    return replace(observed, points=replace(points, functionals=nodes_of(areas, space, along)), finer=finer)


def with_cells(observed: ObservedObject) -> ObservedObject:
    """Give observations on a grid as means over the cells around its points, which end half way between."""
    points, where, space = observed.points, observed.where, observed.space
    axes = None if where is None else where.axes
    if axes is None:
        raise ArgumentError(
            'geometry is "cells", and the observations are no grid with axes; expected one, or a geometry '
            "for each row of a table.",
            key="geometry-of-observations",
        )
    if space.is_pole(axes[0]).any():
        raise ArgumentError(
            'geometry is "cells", and the grid has a row at a pole, whose values are those of one place; '
            "expected cells: leave the row out.",
            key="cells-at-pole",
        )
    south_north, west_east = space.edges(*axes)
    row = np.abs(axes[0] - points.north[:, None]).argmin(axis=1)
    around = axes[1] - points.east[:, None]
    if space.has_latitudes:
        around = np.mod(around + 180.0, 360.0) - 180.0
    column = np.abs(around).argmin(axis=1)
    along = nodes_along(points.north.size)
    sides = south_north[:, row], west_east[:, column]

    def means(chosen: Indices, nodes: int) -> LinearFunctionals:
        return means_between(space, *(side[:, chosen] for side in sides), nodes_per_side=nodes)

    functionals = means(np.arange(row.size), along)
    return replace(
        observed,
        points=replace(points, functionals=functionals, grid=None, gridded=False),
        finer=lambda chosen: means(chosen, 2 * along),
    )


def about_areas(observed: ObservedObject, kernel: Kernel) -> dict[str, Any]:
    """Say that observations are means over areas, and what quadrature leaves; warn where that is much."""
    functionals, finer = observed.points.functionals, observed.finer
    if functionals is None or finer is None:
        return {}
    some = np.arange(0, len(functionals), max(1, len(functionals) // MOST_COMPARED))
    std, better = (
        np.sqrt(variance_of_functionals(kernel, each)) for each in (functionals.part(some), finer(some))
    )
    change = float(np.max(np.abs(std / better - 1.0)))
    nodes = int(functionals.counts.max())
    if change > SHARE:
        warn(
            f"means over areas are sums over at most {nodes} nodes each, and twice as many along a side "
            f"change the standard deviation of an area by {change:.0%}: the areas are large beside the "
            "lengthscale. "
            "Error bars are uncertain by about as much; expected smaller areas, or fewer, which have more "
            "nodes."
        )
    return {OBSERVED_AREAS: "means over areas", "quadrature_nodes": nodes, "quadrature_change": change}
